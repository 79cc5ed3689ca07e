"""The best plans of a search, replayed by the scheduler of their engine."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from infer_jax.compiling import MANY, once
from infer_jax.engines import ENGINES
from infer_jax.errors import InputError
from infer_jax.estimators.serving.price import PassLaw, pass_time
from infer_jax.launch import budget
from infer_jax.planning import Choice, Replay, ReplayTimes
from infer_jax.replays import Requests, Rules, replay
from infer_jax.replays.loops import checked, sizes_of
from infer_jax.replays.requests import ArrivingRequests, drawn_arrivals
from infer_jax.results.numbers import digits
from infer_jax.servers.cluster import pools_of
from infer_jax.servers.instance import ReplayedInstance, Sizes, server_of
from infer_jax.servers.stream import RequestStream, with_drafts
from infer_jax.verbs.plan_columns import TIMES
from infer_jax.verbs.plan_search import Plans, Question, search_on
from infer_jax.verbs.progress import busy

COUNT = 5  # plans that are replayed
ARRIVALS, WAVES = 2000, 10  # requests of a replay: that arrive; for each one in flight
MIN_REQUESTS = 200
SETTLING = 0.1  # share of the requests that comes first and is not counted
NOTABLE = 0.25  # share from which a difference is worth a sentence
OTHERS = f"only the first {COUNT} plans are"
NOT_WORSE = (
    "Plans that were not replayed stand below those whose replay keeps the limits because nothing "
    "has checked them, not because they are worse."
)
ABOUT = (
    f"Replays are of one instance with its share of the load, or of both pools: {ARRIVALS} "
    f"requests that arrive at random, or {WAVES} for each one in flight; the first "
    f"{100 * SETTLING:.0f} % are not counted."
)
GROUPS = ("attention_dp", "attention groups that wait for each other")
UNSUPPORTED = (("pp", "micro-batches of a pipeline"), GROUPS)
UNSUPPORTED_IN_POOLS = (GROUPS, ("ep", "experts that are dealt to GPUs, in pools"))


class InstanceRun(NamedTuple):
    """One instance of a plan with its requests; ``loop``: kept in flight, where none arrive."""

    server: ReplayedInstance
    requests: Requests
    loop: int | None


def replay_plans(plans: Plans) -> None:
    """Replay the first plans, or nearest misses, each instance with its share of the load.

    Plans that break a limit in their replay go below the others; the same layouts are then sought
    within limits that are tighter by as much, and replayed, too.
    """
    frontier, listed = plans.question.requirements.frontier, plans.met or plans.missed
    rows = [*range(len(listed))]
    if frontier and listed:
        rows = np.unique(np.linspace(0, len(listed) - 1, COUNT).astype(int)).tolist()
    rows = rows[:COUNT]
    judged = bool(plans.met) and not frontier
    with busy("replaying the best plans"):
        replayed = _replay_all(plans, [listed[i] for i in rows], judged=judged)
        if not judged:  # the order is not by what replays say
            for i, c in zip(rows, replayed, strict=True):
                listed[i] = c
            return
        broken = [c for c in replayed if c.replay and c.replay.excess]
        more = _replay_all(plans, _with_slack(plans, broken), judged=True)
        rest = [
            replace(c, replay=Replay(None, OTHERS, demotes=True)) for c in plans.met[len(rows) :]
        ]
        plans.met = sorted([*replayed, *more, *rest], key=lambda c: c.rank)


def _with_slack(plans: Plans, broken: Sequence[Choice]) -> list[Choice]:
    """Plans of layouts whose replays break a limit, within limits tighter by as much.

    A required share of requests makes them tighter by its percentile over the mean of the law.
    """

    def layout(c: Choice) -> str:
        """A plan's layout without the number of its instances."""
        return c.layout.partition(" x ")[2]

    def ratio(c: Choice, name: str) -> float:
        """A time by replay over that by law, at least 1."""
        law, times = getattr(c, name), c.replay.times if c.replay else None
        if not law or not times:
            return 1.0
        return max(times.tails.get(name, getattr(times, name)) / law, 1.0)

    plans_with_slack: list[Choice] = []
    for label, search in plans.searches.items():
        own = [c for c in broken if c.label == label]
        if not own:
            continue
        tighter = {
            name: limit / max(ratio(c, name) for c in own) for name, limit in plans.limits.items()
        }
        limits = replace(plans.question.requirements, **tighter, usual_ttft=False)
        layouts = {layout(c) for c in own}
        more = search_on(plans.question, label, search.systems, limits).met
        plans_with_slack += [c for c in more if layout(c) in layouts]
    return plans_with_slack[:COUNT]


def _replay_all(plans: Plans, best: Sequence[Choice], *, judged: bool) -> list[Choice]:
    """The plans, each with its replay or why there is none, in their order.

    ``judged``: a replay says by how much it exceeds each limit, and a plan without one is demoted.
    """
    limits, goodput = plans.limits if judged else {}, plans.question.goodput
    largest = max((c.batch for c in best), default=1.0)
    runs = [_run_or_times(plans, c, largest) for c in best]
    instances = [x for x in runs if isinstance(x, InstanceRun)]
    sizes = [sizes_of(x.server.rules, x.requests, x.loop) for x in instances]
    # of all, so that they share a program
    width, turns = (max((x[k] for x in sizes), default=0) for k in (0, 1))

    def replayed(run: InstanceRun | ReplayTimes | str) -> Replay:
        if isinstance(run, str):
            return Replay(None, run, demotes=judged)
        times = instance_times(plans, run, width, turns) if isinstance(run, InstanceRun) else run
        excess = {TIMES[x]: getattr(times, x) / limit - 1.0 for x, limit in limits.items()}
        if judged and goodput is not None:
            excess["goodput"] = 1.0 - times.within / goodput
        return Replay(times, "", {name: share for name, share in excess.items() if share > 0.0})

    return [replace(c, replay=replayed(run)) for c, run in zip(best, runs, strict=True)]


def _run_or_times(plans: Plans, choice: Choice, largest: float) -> InstanceRun | ReplayTimes | str:
    """An instance of a plan to replay, the times of two pools, or why there is no replay.

    ``largest``: batch of the plans, which sets the number of requests of their instances.
    """
    systems, pools, pooled = plans.systems_of(choice), choice.pools, len(choice.pools) > 1
    first, question = systems[0].side, plans.question
    work = question.requests.work
    engine = first.serving.engine_name
    if pooled and first is not systems[-1].side:
        return "pools of two systems"
    if pooled and not ENGINES[engine].pools:
        names = " or ".join(name for name, x in ENGINES.items() if x.pools)
        return f"pools of another engine than {names}"
    for name, what in UNSUPPORTED_IN_POOLS if pooled else UNSUPPORTED:
        if max(getattr(pool.layout, name) for pool in pools) > 1:
            return what
    service = plans.service_of(choice)
    drafts, count = question.drafts, int(pools[-1].layout.drafts)
    drafts = drafts._replace(count=count) if drafts and count else None
    arch, longest = systems[0].setup.model.architecture, float(work.isl + work.osl)
    try:
        drawn, loop = _requests(question, choice, largest)
        arriving = with_drafts(drafts, drawn, 0, 0)
        # schedulers look up prompts with hashes, but not where tokens are drafted, or in pools
        caching = bool(arriving.hashes) and drafts is None and not pooled
        sizes = [
            Sizes(float(x.group_requests), float(budget(x, service, engine)), caching=caching)
            for x in service.instances
        ]
        model = first.serving, arch, first.hardware
        if pooled:
            servers = pools_of(pools, *model, sizes, longest, drafts)
            log = servers.serve(_with_cached(question, arriving, servers.prefill.tokens), loop)
            arrival = log.arrival - servers.prefill.front
            return _times(plans, arrival, log.first, log.last, arriving.output)
        degrees = {"tp": float(pools[0].layout.tp), "ep": float(pools[0].layout.ep)}
        server = server_of(*model, degrees, sizes[0], longest, drafts)
        if caching:
            requests = arriving.requests(server.rules)
        else:
            requests = _with_cached(question, arriving, server.tokens)
        checked(server.rules, requests, loop)
        return InstanceRun(server, requests, loop)
    except InputError as error:
        return f"{error.field} {error.value}, where allowed is {error.allowed}"


def _requests(
    question: Question, choice: Choice, largest: float
) -> tuple[ArrivingRequests, int | None]:
    """Requests as recorded, or drawn from the shares of lengths; and how many stay in flight.

    They are of one instance, or of two pools with all their instances: in a closed loop the
    requests that decode, and by Little's law those before.
    """
    work, rate, trace = question.requests.work, question.requirements.rate, question.requests.trace
    pooled, pool = len(choice.pools) > 1, choice.pools[-1]
    copies, loop, count = 1.0 if pooled else pool.copies, None, ARRIVALS
    if rate is None and pooled:
        decoding = pool.batch * pool.copies
        loop = max(math.ceil(decoding + choice.requests_per_s * choice.ttft), 1)
        count = max(WAVES * loop, MIN_REQUESTS)
    elif rate is None:
        loop = max(round(pool.batch), 1)
        count = max(int(WAVES * np.ceil(largest)), MIN_REQUESTS)
    if trace is not None and rate is not None:
        stream = RequestStream(
            trace.isl.mean(), trace.osl.mean(), trace=trace, caching=bool(trace.hashes),
            rate=rate / copies,
        )  # fmt: skip
        return stream.draw(min(count, len(trace)), (0, 0)), loop
    random = np.random.default_rng(0)
    sizes = np.ones((1, 3))
    if work.lengths:
        sizes = np.array([[float(x) for x in (s.isl, s.osl, s.weight)] for s in work.lengths])
    shares = random.choice(len(sizes), count, p=sizes[:, 2] / sizes[:, 2].sum())
    isl, osl = (
        np.maximum(np.round(float(mean) * sizes[shares, i]), 1.0)
        for i, mean in enumerate((work.isl, work.osl))
    )
    times = np.zeros(count)
    if rate is not None:
        assert work.arrivals is not None
        burstiness = 1.0 / max(float(work.arrivals.variability), 1e-3)
        times = drawn_arrivals(random, count, rate / copies, burstiness)
    return ArrivingRequests(times, isl, osl), loop


def _with_cached(question: Question, arriving: ArrivingRequests, tokens: float) -> Requests:
    """Requests with the tokens of each prompt that are in a cache of ``tokens`` tokens.

    By the hashes of a trace, else the mean share of each prompt.
    """
    cached, work = arriving.cached(tokens), question.requests.work
    if not arriving.hashes:
        share = float(work.prefix) / max(float(work.isl), 1.0)
        cached = cached + np.minimum(np.round(share * arriving.prompt), arriving.prompt - 1.0)
    return Requests.of(*arriving[:3], cached, arriving.drafts)


def instance_times(plans: Plans, run: InstanceRun, width: int, turns: int) -> ReplayTimes:
    """The times of an instance; ``width``, ``turns``: of the program's arrays."""
    server, requests = run.server, run.requests
    inputs = server.pass_, server.rules, requests, run.loop and jnp.asarray(run.loop, jnp.int32)
    while True:
        *ends, complete = once(request_ends, *inputs, points=MANY, fixed=(width, turns))
        if complete:
            break
        turns *= 2  # requests that are preempted take more of them
    count = int(requests.count)
    arrival, first, last, output = (np.asarray(x)[:count] for x in (*ends, requests.output))
    return _times(plans, arrival - server.front, first, last, output)


def request_ends(
    width: int, turns: int, pass_: PassLaw, rules: Rules, requests: Requests, loop: Array | None
) -> tuple[Array, Array, Array, Array]:
    """Seconds of every request: arrival, first and last token; whether all were served."""
    log = replay(Partial(pass_time, pass_), rules, requests, loop, width=width, turns=turns)
    return log.arrival, log.first, log.last, log.complete


def _times(
    plans: Plans, arrival: np.ndarray, first: np.ndarray, last: np.ndarray, output: np.ndarray
) -> ReplayTimes:
    """Means and percentiles of the requests that are counted, and the share within the limits."""
    limits, goodput = plans.limits, plans.question.goodput
    steady = slice(int(SETTLING * len(arrival)), None)
    arrival, first, last, more = (x[steady] for x in (arrival, first, last, output - 1))
    ttft, token = first - arrival, np.where(more > 0, last - first, 0.0) / np.maximum(more, 1)
    tpot = token[more > 0] if np.any(more > 0) else np.zeros(1)
    samples = {"ttft": ttft, "tpot": tpot}
    times = (f(x) for x in samples.values() for f in (np.mean, lambda x: np.percentile(x, 99)))
    tails = dict[str, float]()
    if goodput is not None:
        tails = {x: float(np.percentile(each, 100 * goodput)) for x, each in samples.items()}
    within = np.mean((ttft <= limits["ttft"]) & (token <= limits["tpot"]))
    p95 = float(np.percentile(ttft, 95))
    return ReplayTimes(*map(float, times), within=float(within), tails=tails, p95_ttft=p95)


def differences(plans: Plans) -> Iterator[str]:
    """Where a replay and the laws differ by much, and where a limit is kept by one of them."""
    limits = plans.limits
    if any(choice.replay and choice.replay.demotes for choice in plans.replayed):
        yield NOT_WORSE
    for choice in plans.replayed:
        times = choice.replay.times if choice.replay else None
        if times is None:
            continue
        both = {name: (getattr(choice, name), getattr(times, name)) for name in TIMES}
        both = {name: x for name, x in both.items() if x[0]}
        shares = {name: b / a - 1.0 for name, (a, b) in both.items()}
        parts = [
            f"{TIMES[name]} is {100 * abs(x):.0f} % {'longer' if x > 0 else 'shorter'}"
            for name, x in shares.items()
            if abs(x) > NOTABLE
        ]
        if parts:
            yield f"{choice.layout}: by replay {', '.join(parts)} than by law."
        for name, (a, b) in both.items():
            if (a <= limits[name]) != (b <= limits[name]):
                keeps, breaks = ("law", "replay") if a <= limits[name] else ("replay", "law")
                yield (
                    f"{choice.layout} keeps {TIMES[name]} within {1e3 * limits[name]:.6g} ms by "
                    f"{keeps} and not by {breaks}: {digits(1e3 * max(a, b))} ms."
                )
