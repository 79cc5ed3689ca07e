"""The best plans of a search, replayed by the scheduler of their engine."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from infer_jax.compiling import MANY, once
from infer_jax.engines import ENGINES
from infer_jax.errors import InputError
from infer_jax.estimators.serving.price import PassLaw, pass_time
from infer_jax.launch import budget
from infer_jax.planning import USUAL_TTFT, Choice, Replay, ReplayTimes
from infer_jax.replays import Requests, Rules, lanes, replay
from infer_jax.replays.loops import checked, sizes_of
from infer_jax.results.numbers import digits
from infer_jax.specs import Workload
from infer_jax.typed_jax import trees
from infer_jax.verbs.plan_launch import service_of
from infer_jax.verbs.plan_search import Plans, Question, search_on
from infer_jax.verbs.progress import busy
from infer_jax.verbs.replay_cluster import PoolSplit, pools_of
from infer_jax.verbs.replay_requests import (
    ArrivingRequests,
    ReplayDrafts,
    RequestStream,
    drawn_arrivals,
    with_drafts,
)
from infer_jax.verbs.replay_server import ReplayedInstance, Sizes, server_of

COUNT = 5  # plans that are replayed
ARRIVALS, WAVES = 2000, 10  # requests of a replay: that arrive; for each one in flight
MIN_REQUESTS = 200
SETTLING = 0.1  # share of the requests that comes first and is not counted
NOTABLE = 0.25  # share from which a difference is worth a sentence
ABOUT = (
    f"Replays are of one instance with its share of the load, or of both pools: {ARRIVALS} "
    f"requests that arrive at random, or {WAVES} for each one in flight; the first "
    f"{100 * SETTLING:.0f} % are not counted."
)
NAMES = {"ttft": "TTFT", "p99_ttft": "p99 of TTFT", "tpot": "TPOT"}
GROUPS = ("attention_dp", "attention groups that wait for each other")
UNSUPPORTED = (("pp", "micro-batches of a pipeline"), GROUPS)
UNSUPPORTED_IN_POOLS = (GROUPS, ("ep", "experts that are dealt to GPUs, in pools"))


class Lane(NamedTuple):
    """One instance of a plan with its requests; ``loop``: kept in flight, where none arrive."""

    server: ReplayedInstance
    requests: Requests
    loop: int | None


class Ends(NamedTuple):
    """Seconds of every request of a lane, and whether all were served."""

    arrival: Array
    first: Array
    last: Array
    complete: Array


def replay_plans(question: Question, plans: Plans) -> None:
    """Replay the first plans, or nearest misses, each instance with its share of the load.

    Plans that break a limit in their replay go below the others; the same layouts are then sought
    within limits that are tighter by as much, and replayed, too.
    """
    frontier, listed = question.requirements.frontier, plans.met or plans.missed
    rows = range(len(listed))
    if frontier:
        rows = np.unique(np.linspace(0, len(listed) - 1, COUNT).astype(int)) if listed else rows
    rows = [int(i) for i in rows[:COUNT]]
    judged = bool(plans.met) and not frontier
    with busy("replaying the best plans"):
        replayed = _replay_all(question, plans, [listed[i] for i in rows], judged=judged)
        if not judged:  # the order is not by what replays say
            for i, c in zip(rows, replayed, strict=True):
                listed[i] = c
            return
        broken = [c for c in replayed if c.replay and c.replay.excess]
        more = _replay_all(question, plans, _with_slack(question, plans, broken), judged=True)
        rest = [replace(c, replay=Replay(None, demotes=True)) for c in plans.met[len(rows) :]]
        plans.met = sorted([*replayed, *more, *rest], key=lambda c: c.rank)


def _limits(question: Question, plans: Plans) -> dict[str, float]:
    """The limits on times by the names of the times, s; infinite where there are none."""
    limits, usual = question.requirements, USUAL_TTFT if plans.usual else np.inf
    return {"ttft": min(limits.ttft, usual), "p99_ttft": limits.p99_ttft, "tpot": limits.tpot}


def _with_slack(question: Question, plans: Plans, broken: Sequence[Choice]) -> list[Choice]:
    """Plans of layouts whose replays break a limit, within limits tighter by as much."""
    found: list[Choice] = []
    for label, search in plans.searches.items():
        own = [c for c in broken if c.label == label]
        if not own:
            continue
        tighter = {
            name: limit / max(_ratio(c, name) for c in own)
            for name, limit in _limits(question, plans).items()
        }
        limits = replace(question.requirements, **tighter, usual_ttft=False)
        layouts = {_layout(c) for c in own}
        more = search_on(question, label, search.systems, limits).met
        found += [c for c in more if _layout(c) in layouts]
    return found[:COUNT]


def _ratio(c: Choice, name: str) -> float:
    """A time by replay over that by law, at least 1."""
    law, times = getattr(c, name), c.replay.times if c.replay else None
    return max(getattr(times, name) / law, 1.0) if law and times else 1.0


def _layout(c: Choice) -> str:
    """A plan's layout without the number of its instances."""
    return c.layout.partition(" x ")[2]


def _replay_all(
    question: Question, plans: Plans, best: Sequence[Choice], *, judged: bool
) -> list[Choice]:
    """The plans, each with its replay or why there is none, in their order.

    ``judged``: a replay says by how much it exceeds each limit.
    """
    answers: dict[int, ReplayTimes | str] = {}
    waiting: list[tuple[int, Lane]] = []
    largest = max((c.batch for c in best), default=1.0)
    for i, choice in enumerate(best):
        pooled = choice.mode == "disaggregated"
        lane = (_pooled_times if pooled else _lane)(question, plans, choice, largest)
        if isinstance(lane, Lane):
            waiting.append((i, lane))
        else:
            answers[i] = lane
    # plans whose rules and numbers are of one structure are one program
    waiting.sort(key=lambda item: _structure(item[1]))
    for _, alike in groupby(waiting, lambda item: _structure(item[1])):
        group = list(alike)
        times = replay_lanes([lane for _, lane in group])
        answers |= {i: x for (i, _), x in zip(group, times, strict=True)}
    limits = _limits(question, plans) if judged else {}
    return [replace(c, replay=_replay(answers[i], limits)) for i, c in enumerate(best)]


def _replay(answer: ReplayTimes | str, limits: dict[str, float]) -> Replay:
    """Times or why there are none; without limits the replay does not move its plan."""
    if isinstance(answer, str):
        return Replay(None, answer, demotes=bool(limits))
    excess = {NAMES[x]: getattr(answer, x) / limit - 1.0 for x, limit in limits.items()}
    return Replay(answer, "", {name: share for name, share in excess.items() if share > 0.0})


def _lane(question: Question, plans: Plans, choice: Choice, largest: float) -> Lane | str:
    """An instance of a plan as a lane, or why its scheduler is not replayed.

    ``largest``: batch of the plans, which sets the number of requests for all of them.
    """
    (pool,), system, work = choice.pools, plans.systems_of(choice)[0], question.requests.work
    for name, what in UNSUPPORTED:
        if getattr(pool.layout, name) > 1.0:
            return what
    service = service_of(choice, question, plans)
    instance, serving = service.instances[0], system.side.serving
    degrees = {"tp": float(pool.layout.tp), "ep": float(pool.layout.ep)}
    drafts = ReplayDrafts.of(question.drafts, pool.layout.drafts)
    loop = None if question.requirements.rate is not None else max(round(choice.batch), 1)
    count = ARRIVALS if loop is None else max(int(WAVES * np.ceil(largest)), MIN_REQUESTS)
    arriving = with_drafts(drafts, _requests(question, count, loop, pool.copies), 0, 0)
    # schedulers look up prompts with hashes, but where tokens are drafted
    caching = bool(arriving.hashes) and drafts is None
    tokens = float(budget(instance, service, serving.engine_name))
    sizes = Sizes(float(instance.group_requests), tokens, caching=caching)
    arch, hardware = system.given.model.architecture, system.side.hardware
    longest = float(work.isl + work.osl)
    try:
        server = server_of(serving, arch, hardware, degrees, sizes, longest, drafts)
        cached = arriving.cached(server.tokens) + _prefix(work, arriving)
        requests = Requests.of(*arriving[:3], cached, arriving.drafts)
        if caching:
            requests = arriving.requests(server.rules)
        checked(server.rules, requests, loop)
    except InputError as error:
        return _reason(error)
    return Lane(server, requests, loop)


def _pooled_times(question: Question, plans: Plans, choice: Choice, _: float) -> ReplayTimes | str:
    """The times of two pools, all instances of both, or why they are not replayed.

    In a closed loop the requests that decode, and by Little's law those before, are in flight.
    """
    (prefill, decode), systems = choice.pools, plans.systems_of(choice)
    first, work = systems[0].side, question.requests.work
    if first is not systems[-1].side:
        return "pools of two systems"
    engine = first.serving.engine_name
    if not ENGINES[engine].pools:
        names = " or ".join(name for name, x in ENGINES.items() if x.pools)
        return f"pools of another engine than {names}"
    for name, what in UNSUPPORTED_IN_POOLS:
        if max(getattr(prefill.layout, name), getattr(decode.layout, name)) > 1:
            return what
    service = service_of(choice, question, plans)
    sizes = [
        Sizes(float(x.group_requests), float(budget(x, service, engine))) for x in service.instances
    ]
    split = PoolSplit(prefill.layout.tp, prefill.copies, decode.layout.tp, decode.copies)
    arch, longest = systems[0].given.model.architecture, float(work.isl + work.osl)
    drafts = ReplayDrafts.of(question.drafts, decode.layout.drafts)
    loop = None
    if question.requirements.rate is None:
        decoding = choice.batch * decode.copies
        loop = max(math.ceil(decoding + choice.requests_per_s * choice.ttft), 1)
    count = ARRIVALS if loop is None else max(WAVES * loop, MIN_REQUESTS)
    try:
        pools = pools_of(
            split, first.serving, arch, first.hardware, (sizes[0], sizes[1]), longest, drafts
        )
        arriving = with_drafts(drafts, _requests(question, count, loop, 1.0), 0, 0)
        cached = arriving.cached(pools.prefill.tokens) + _prefix(work, arriving)
        log = pools.serve(Requests.of(*arriving[:3], cached, arriving.drafts), loop)
    except InputError as error:
        return _reason(error)
    return _times(log.arrival - pools.prefill.front, log.first, log.last, arriving.output)


def _reason(error: InputError) -> str:
    return f"{error.field} {error.value}, where allowed is {error.allowed}"


def _requests(question: Question, count: int, loop: int | None, copies: float) -> ArrivingRequests:
    """Requests of one instance of ``copies``: as recorded, or drawn from the shares of lengths."""
    work, rate, trace = question.requests.work, question.requirements.rate, question.requests.trace
    if trace is not None and rate is not None:
        stream = RequestStream(
            trace.isl.mean(), trace.osl.mean(), trace=trace, caching=bool(trace.hashes),
            rate=rate / copies,
        )  # fmt: skip
        return stream.draw(min(count, len(trace)), (0, 0))
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
    if loop is None:
        assert rate is not None and work.arrivals is not None
        burstiness = 1.0 / max(float(work.arrivals.variability), 1e-3)
        times = drawn_arrivals(random, count, rate / copies, burstiness)
    return ArrivingRequests(times, isl, osl)


def _prefix(work: Workload, arriving: ArrivingRequests) -> np.ndarray:
    """Tokens of each prompt in the cache, where a mean says it and no hashes."""
    if arriving.hashes:
        return np.zeros_like(arriving.prompt)
    share = float(work.prefix) / max(float(work.isl), 1.0)
    return np.minimum(np.round(share * arriving.prompt), arriving.prompt - 1.0)


def _structure(lane: Lane) -> str:
    """What lanes of one program share: structure and shapes."""
    parts = lane.server.pass_, lane.server.rules, lane.requests
    shapes = [np.shape(x) for x in jax.tree.leaves(parts)]
    return f"{jax.tree.structure(parts)}{shapes}{lane.loop is None}"


def replay_lanes(instances: Sequence[Lane]) -> list[ReplayTimes]:
    """The times of servers alike in structure, all in one program."""
    sizes = [sizes_of(x.server.rules, x.requests, x.loop) for x in instances]
    width, turns = (max(x) for x in zip(*sizes, strict=True))
    servers = trees.stack(*((x.server.pass_, x.server.rules, x.requests) for x in instances))
    loops = None
    if instances[0].loop is not None:
        loops = jnp.asarray([x.loop for x in instances], jnp.int32)
    while True:
        ends = once(_replay_lanes, *servers, loops, points=MANY, fixed=(width, turns))
        if np.all(ends.complete):
            break
        turns *= 2  # requests that are preempted take more of them
    return [_times_of(trees.take(ends, i), x) for i, x in enumerate(instances)]


def _replay_lanes(
    width: int, turns: int, pass_: PassLaw, rules: Rules, requests: Requests, loops: Array | None
) -> Ends:
    def ends(pass_: PassLaw, rules: Rules, requests: Requests, loop: Array | None) -> Ends:
        step = Partial(pass_time, pass_)
        log = replay(step, rules, requests, loop, width=width, turns=turns)
        return Ends(log.arrival, log.first, log.last, log.complete)

    return lanes(ends, pass_, rules, requests, loops)


def _times_of(ends: Ends, lane: Lane) -> ReplayTimes:
    count = int(lane.requests.count)
    arrival, first, last = (np.asarray(x)[:count] for x in ends[:3])
    output = np.asarray(lane.requests.output)[:count]
    return _times(arrival - lane.server.front, first, last, output)


def _times(
    arrival: np.ndarray, first: np.ndarray, last: np.ndarray, output: np.ndarray
) -> ReplayTimes:
    """Means and percentiles of the requests that are counted."""
    steady = slice(int(SETTLING * len(arrival)), None)
    arrival, first, last, more = (x[steady] for x in (arrival, first, last, output - 1))
    tpot = ((last - first) / np.maximum(more, 1))[more > 0]
    tpot = tpot if len(tpot) else np.zeros(1)
    samples = (first - arrival, tpot)
    return ReplayTimes(
        *(float(x) for each in samples for x in (np.mean(each), np.percentile(each, 99)))
    )


def differences(question: Question, plans: Plans) -> Iterator[str]:
    """Where a replay and the laws differ by much, and where a limit is kept by one alone."""
    limits = _limits(question, plans)
    for choice in plans.replayed:
        times = choice.replay.times if choice.replay else None
        if times is None:
            continue
        both = {name: (getattr(choice, name), getattr(times, name)) for name in NAMES}
        both = {name: x for name, x in both.items() if x[0]}
        shares = {name: b / a - 1.0 for name, (a, b) in both.items()}
        parts = [
            f"{NAMES[name]} is {100 * abs(x):.0f} % {'longer' if x > 0 else 'shorter'}"
            for name, x in shares.items()
            if abs(x) > NOTABLE
        ]
        if parts:
            yield f"{choice.layout}: by replay {', '.join(parts)} than by law."
        for name, (a, b) in both.items():
            if (a <= limits[name]) != (b <= limits[name]):
                keeps, breaks = ("law", "replay") if a <= limits[name] else ("replay", "law")
                yield (
                    f"{choice.layout} keeps {NAMES[name]} within {1e3 * limits[name]:.6g} ms by "
                    f"{keeps} and not by {breaks}: {digits(1e3 * max(a, b))} ms."
                )
