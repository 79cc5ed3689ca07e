"""``ij.offline``: what N prompts that nobody waits for take, and what their tail wastes."""

from typing import Annotated

from infer_jax import verbs
from infer_jax.results.problems import ask, forbid, refuse
from infer_jax.verbs import options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import Number, Option, above_zero, count, either, seconds_of

STOP = Number(0.01, 1.0, what="a share of the responses in flight")


@verb
def offline(
    config: opt.Config,
    hardware: opt.Systems,
    *,
    prompts: Annotated[float | None, Option.of("N", count(), required=True)] = None,
    isl: opt.SpreadIsl = None,
    osl: opt.SpreadOsl = None,
    trace: Annotated[opt.Place | None, Option.of("TRACE|TOML")] = None,
    tp: opt.Tp = None,
    ep: opt.Ep = None,
    layout: opt.Layout = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    engine: opt.Engine = None,
    max_num_seqs: Annotated[float | None, Option.of("N", opt.WHOLE)] = None,
    max_num_batched_tokens: opt.PassTokens = None,
    gpu_memory_utilization: opt.GpuMemory = None,
    replicas: Annotated[float | None, Option.of("N", opt.WHOLE)] = None,
    within: Annotated[float | None, Option.of("HOURS", above_zero("hours"))] = None,
    group: Annotated[float, Option.of("N", opt.WHOLE)] = 1,
    stop_at: Annotated[float | None, Option.of("SHARE", STOP)] = None,
    traffic: Annotated[opt.Place | None, Option.of("TOML|TRACE")] = None,
    ttft: Annotated[float | str | None, Option.of("TIME", opt.TIME)] = None,
    tpot: opt.Tpot = None,
    estimator: opt.EstimatorName = None,
    set: opt.Changes = None,
) -> "verbs.OfflineResult":
    """How long do N prompts take offline, what do they cost, and what does their tail waste?

    All are there at the start. Without a layout, every one of a machine is tried, and the cheapest
    is first. With `traffic`: how many fit the idle hours of a fleet that serves it. With `stop_at`:
    steps of reinforcement learning whose longest responses go on in the next one.

    Args:
        prompts: Prompts of the job, 10m are ten millions.
        trace: Their lengths, as recorded or as `traffic` describes them; in place of --isl, --osl.
        max_num_seqs: Sequences that run at once at most; the engine's default where not given.
        replicas: That share the job, 1 where not given; with --traffic, those of the online fleet.
        within: The fewest replicas that are done in these hours.
        group: Responses to each prompt, which share its cache.
        stop_at: Share of the responses in flight at whose end a step stops; others go on later.
        traffic: Of an online fleet: a trace, or a description as `traffic` writes it.
        ttft: Limit of its p99 of the time to first token: 300ms, 0.3s; 2 s where not given.

    Raises:
        InputError: a model, system or file that cannot be read, lengths given twice, a plan that no
            engine runs or that does not hold the longest request, hours that are too few.

    >>> import infer_jax as ij
    >>> job = ij.offline("llama-3.1-8b", "h100_sxm", tp=1, prompts=10_000, isl=512, osl="256±256")
    >>> job.rows()[0]["plan"], job.to_dict()["requests"]
    ('TP1 h100_sxm', 10000)
    """
    from infer_jax.arrivals import read_traffic
    from infer_jax.results import option
    from infer_jax.servers.instance import Sizes
    from infer_jax.verbs import inputs
    from infer_jax.verbs.fleet_replica import limits_of
    from infer_jax.verbs.offline_idle import idle_hours
    from infer_jax.verbs.offline_jobs import cheapest_jobs, job_lengths, offline_plans
    from infer_jax.verbs.offline_result import OfflineResult
    from infer_jax.verbs.requests import ISL, OSL
    from infer_jax.verbs.split import LayoutOptions
    from infer_jax.verbs.texts import tokens

    if prompts is None:
        raise ask("prompts", "How many prompts?", option("prompts", "10m"))
    if trace is not None:
        forbid(f"{option('trace')} or lengths, not both", isl=isl, osl=osl)
    if within is not None:
        without = f"without {option('within')}"
        forbid(without, replicas=replicas, traffic=traffic, stop_at=stop_at)
    split = LayoutOptions.of(layout, {"tp": tp, "ep": ep})
    one = split.pool.layout if split.pool else None
    if one is not None and (split.copies > 1 or one != one.plain or one.pp > 1):
        raise refuse("layout", layout, "one replica of a single stage, without chunks and drafts")
    name = inputs.estimator_of_engine(estimator, engine) or inputs.BEST
    systems = inputs.systems_of(hardware, None)[0]
    setups = [inputs.setup(config, x, quant, kv_dtype, None, set) for x in systems]
    inside, outside = tokens(either(isl, ISL), 1), tokens(either(osl, OSL), 1)
    longest = float(setups[0].model.architecture.max_positions)
    lengths, cut = job_lengths(inside, outside, trace, longest, group)
    sizes = Sizes(slots=max_num_seqs, budget=max_num_batched_tokens,
                  utilization=gpu_memory_utilization)  # fmt: skip
    requests, share = prompts * group, replicas if replicas and traffic is None else 1.0
    plans = [x for setup in setups for x in offline_plans(setup, name, one, sizes, lengths)]
    jobs = cheapest_jobs(plans, requests, share, within)
    best, idle = jobs[0].plan, None
    step = None if stop_at is None else best.job(requests, share, stop_at)
    if traffic is not None:
        limits = limits_of(seconds_of(ttft), seconds_of(tpot))
        idle = idle_hours(best, name, read_traffic(traffic), limits, replicas)
    trust = inputs.trust(name, inputs.serving(name, best.setup), best.setup)
    return OfflineResult(jobs, trust, stop_at, step, idle, cut)
