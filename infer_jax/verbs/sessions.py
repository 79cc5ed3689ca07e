"""``ij.sessions``: where the cache of conversations is when they return, and which tiers pay."""

from collections.abc import Sequence
from typing import Annotated

from infer_jax import verbs
from infer_jax.verbs import options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import Option, above_zero, either


@verb
def sessions(
    config: opt.Config,
    hardware: opt.System,
    *,
    traffic: Annotated[opt.Place, Option.of("TRACE|TOML")],
    tp: opt.Tp = None,
    pp: opt.Pp = None,
    ep: opt.Ep = None,
    layout: opt.Layout = None,
    quant: opt.Quant = None,
    kv_dtype: opt.KvDtype = None,
    gpu_memory_utilization: opt.GpuMemory = None,
    request_rate: Annotated[float | None, Option.of("REQ/S", above_zero("a rate"))] = None,
    tier: Annotated[str | Sequence[str] | None, Option.of("NAME=GB,GB/S,USD/H", many=True)] = None,
    estimator: opt.EstimatorName = None,
    set: opt.Changes = None,
) -> "verbs.SessionsResult":
    """Does keeping the cache of conversations elsewhere pay: host, disk, a remote store?

    Of one replica: which share of the turns finds what the turn before left, where, how many
    tokens are computed, TTFT, and dollars a session with every tier more.

    Args:
        traffic: A trace that numbers its conversations, or a description with [sessions].
        request_rate: Requests per second at the replica; 70 % of what it serves without a cache
            where not given.
        tier: A place for what leaves the device, its size, the speed of its link and its rent:
            host=1024,55,0.5. Repeat for several, the fastest first.

    Raises:
        InputError: a model or system that cannot be read, traffic without sessions, a tier that
            is none.

    >>> import infer_jax as ij
    >>> agents = ij.sessions("llama-3.1-8b", "h100_sxm", tp=1, traffic="examples/agents.toml",
    ...     tier="host=1024,55,0.5")
    >>> agents.rows()[0]["tier"], agents.rows()[-1]["tier"]
    ('none', 'host')
    """
    from infer_jax.arrivals.description import read_traffic
    from infer_jax.estimators.serving.plan import deployment
    from infer_jax.results.problems import refuse
    from infer_jax.verbs import inputs
    from infer_jax.verbs.sessions_result import SessionsResult, read_tiers, tier_rows

    setup = inputs.setup(config, hardware, quant, kv_dtype, None, set)
    name = either(estimator, inputs.BEST)
    model = inputs.serving(name, setup)
    if gpu_memory_utilization is not None:
        model = model.with_(usable_memory=gpu_memory_utilization)
    degrees = {"tp": tp, "pp": pp, "ep": ep, "dp": 1}
    split = verbs.LayoutOptions.of(layout, degrees, False, False)
    plan = deployment(split.plan(setup.model.architecture))
    found = read_traffic(traffic)
    if found.sessions is None:
        allowed = "a trace that numbers conversations, or a description with [sessions]"
        raise refuse("traffic", str(traffic), allowed)
    inputs.check_context(setup.model, found.workload(1.0))
    trust = inputs.trust(name, model, setup, plan)
    tiers = read_tiers([] if tier is None else [tier] if isinstance(tier, str) else tier)
    rows = tier_rows(setup, model, plan, found, tiers, request_rate)
    return SessionsResult(setup, str(split), trust, *rows)
