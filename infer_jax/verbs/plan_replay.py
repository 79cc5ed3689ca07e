"""The best plans of a search, replayed by the scheduler of their engine."""

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
from infer_jax.errors import InputError
from infer_jax.estimators.serving.price import PassLaw, pass_time
from infer_jax.launch import budget
from infer_jax.planning import USUAL_TTFT, Choice, pools_of
from infer_jax.replays import Requests, Rules, lanes, replay
from infer_jax.replays.loops import checked, sizes_of
from infer_jax.results.numbers import digits
from infer_jax.specs import Workload
from infer_jax.typed_jax import trees
from infer_jax.verbs.plan_launch import service_of
from infer_jax.verbs.plan_replay_pools import in_flight, pair_or_why, seconds_of
from infer_jax.verbs.plan_search import Plans, Question, search_pools
from infer_jax.verbs.progress import busy
from infer_jax.verbs.replay_requests import (
    Arriving,
    Lengths,
    Load,
    draw_requests,
    drawn_arrivals,
    of_plan,
    with_drafts,
)
from infer_jax.verbs.replay_server import ReplayedInstance, Sizes, server_of

COUNT = 5  # plans that are replayed
ARRIVALS, WAVES = 2000, 10  # requests of a replay: that arrive; for each one in flight
FEWEST = 200
SETTLING = 0.1  # share of the requests that comes first and is not counted
APART = 0.25  # share from which a difference is worth a sentence
ABOUT = (
    f"Replays are of one instance with its share of the load, or of both pools: {ARRIVALS} "
    f"requests that arrive at random, or {WAVES} for each one in flight; the first "
    f"{100 * SETTLING:.0f} % are not counted."
)
NAMES = {"ttft": "TTFT", "p99_ttft": "p99 of TTFT", "tpot": "TPOT"}


class Times(NamedTuple):
    """Means and 99th percentiles of a replay, s."""

    ttft: float
    p99_ttft: float
    tpot: float
    p99_tpot: float


class Replayed(NamedTuple):
    """A plan and the times of its replay, or why there is none."""

    choice: Choice
    times: Times | None
    why: str = ""


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
    best = plans.met or plans.missed
    if question.asked.frontier:
        best = [best[i] for i in np.unique(np.linspace(0, len(best) - 1, COUNT).astype(int))]
    best = best[:COUNT]
    with busy("replaying the best plans"):
        found = _judged(_replays(question, plans, best), question, plans)
        if plans.met and not question.asked.frontier:
            spared = _with_spare(question, plans, [x for x in found if x.choice.replay_excess])
            found += _judged(_replays(question, plans, spared), question, plans)
            replaced = {id(c) for c in best}
            rest = [replace(c, unreplayed=True) for c in plans.met if id(c) not in replaced]
            plans.met = sorted([*(x.choice for x in found), *rest], key=lambda c: c.rank)
            order = {id(c): i for i, c in enumerate(plans.met)}
            found.sort(key=lambda x: order[id(x.choice)])
    plans.replayed = found


def _limits(question: Question, plans: Plans) -> dict[str, float]:
    """The limits on times by the names of the times, s; infinite where there are none."""
    asked, usual = question.asked, USUAL_TTFT if plans.usual else np.inf
    return {"ttft": min(asked.ttft, usual), "p99_ttft": asked.p99_ttft, "tpot": asked.tpot}


def _judged(found: list[Replayed], question: Question, plans: Plans) -> list[Replayed]:
    """Replays whose plans say by how much each limit is exceeded."""
    if not plans.met or question.asked.frontier:  # rows that are not looked up by their plan
        return found
    judged: list[Replayed] = []
    for choice, times, why in found:
        limits = _limits(question, plans).items() if times else ()
        over = {NAMES[x]: getattr(times, x) / most - 1.0 for x, most in limits}
        over = {name: share for name, share in over.items() if share > 0.0}
        judged.append(
            Replayed(replace(choice, replay_excess=over, unreplayed=not times), times, why)
        )
    return judged


def _with_spare(question: Question, plans: Plans, broken: Sequence[Replayed]) -> list[Choice]:
    """Plans of layouts whose replays break a limit, within limits tighter by as much."""
    found: list[Choice] = []
    for pools in plans.pools.values():
        own = [x for x in broken if plans.pools_of(x.choice) is pools]
        if not own:
            continue
        tighter = {
            name: most / max(_ratio(x, name) for x in own)
            for name, most in _limits(question, plans).items()
        }
        asked = replace(question.asked, **tighter, usual_ttft=False)
        names = {_layout(x.choice) for x in own}
        more = search_pools(question, pools, asked).met
        found += [c for c in more if _layout(c) in names]
    return found[:COUNT]


def _ratio(one: Replayed, name: str) -> float:
    """A time by replay over that by law, at least 1."""
    law = getattr(one.choice, name)
    return max(getattr(one.times, name) / law, 1.0) if law else 1.0


def _layout(choice: Choice) -> str:
    """A plan's layout without the number of its instances."""
    return choice.layout.partition(" x ")[2]


def _replays(question: Question, plans: Plans, best: Sequence[Choice]) -> list[Replayed]:
    """The plans, each with its replay or why there is none, in their order."""
    answers: list[Replayed] = []
    waiting: list[tuple[Choice, Lane]] = []
    most = max((c.batch for c in best), default=1.0)
    for choice in best:
        pooled = choice.mode == "disaggregated"
        lane = (_pooled if pooled else _lane)(question, plans, choice, most)
        if isinstance(lane, Times):
            answers.append(Replayed(choice, lane))
        elif isinstance(lane, str):
            answers.append(Replayed(choice, None, lane))
        else:
            waiting.append((choice, lane))
    # plans whose rules and numbers are of one structure are one program
    waiting.sort(key=lambda each: _kind(each[1]))
    for _, alike in groupby(waiting, lambda each: _kind(each[1])):
        each = list(alike)
        times = served([lane for _, lane in each])
        answers += [Replayed(c, x) for (c, _), x in zip(each, times, strict=True)]
    order = {id(choice): i for i, choice in enumerate(best)}
    return sorted(answers, key=lambda x: order[id(x.choice)])


def _lane(question: Question, plans: Plans, choice: Choice, most: float) -> Lane | str:
    """An instance of a plan as a lane, or why its scheduler is not replayed.

    ``most``: the largest batch of the plans, which sets the number of requests for all of them.
    """
    given = pools_of(choice.degrees)[0]
    for name, what in (
        ("pp", "micro-batches of a pipeline"),
        ("attention_dp", "attention groups that wait for each other"),
    ):
        if given.get(name, 1.0) > 1.0:
            return what
    pool = plans.pools_of(choice)[0]
    service = service_of(choice, question, plans)
    instance, work = service.instances[0], question.requests.work
    engine = pool.side.serving.engine_name
    tokens = budget(instance, service, engine)
    degrees = {name: float(given.get(name, 1.0)) for name in ("tp", "ep")}
    drafts = of_plan(question.drafts, given.get("drafts", 0.0))
    loop = None if question.asked.rate is not None else max(round(choice.batch), 1)
    count = ARRIVALS if loop is None else max(int(WAVES * np.ceil(most)), FEWEST)
    copies = float(given.get("replicas", 1.0))
    asked = with_drafts(drafts, _drawn(question, count, loop, copies), 0, 0)
    # schedulers look up prompts with hashes, but where tokens are drafted
    looks = bool(asked.hashes) and drafts is None
    sizes = Sizes(float(instance.group_requests), float(tokens), None, None, caching=looks)
    try:
        server = server_of(
            engine, pool.side.serving, pool.given.model.architecture, pool.side.hardware, degrees,
            sizes, float(work.isl + work.osl), drafts,
        )  # fmt: skip
        cached = asked.cached(server.tokens) + _prefix(work, asked)
        requests = Requests.of(*asked[:3], cached, asked.drafts)
        if looks:
            requests = asked.requests(server.rules)
        checked(server.rules, requests, loop)
    except InputError as error:
        return f"{error.field} {error.value}, where allowed is {error.allowed}"
    return Lane(server, requests, loop)


def _pooled(question: Question, plans: Plans, choice: Choice, most: float) -> Times | str:
    """The times of two pools, all instances of both, or why they are not replayed."""
    pools = plans.pools_of(choice)
    pair = pair_or_why(question, plans, choice, list(pools))
    if isinstance(pair, str):
        return pair
    loop = None if question.asked.rate is not None else in_flight(choice)
    count = ARRIVALS if loop is None else max(WAVES * loop, FEWEST)
    asked = with_drafts(pair.decode.drafts, _drawn(question, count, loop, 1.0), 0, 0)
    cached = asked.cached(pair.prefill.tokens) + _prefix(question.requests.work, asked)
    try:
        found = seconds_of(pair, asked, cached, loop)
    except InputError as error:
        return f"{error.field} {error.value}, where allowed is {error.allowed}"
    return _times(*found, asked.output)


def _drawn(question: Question, count: int, loop: int | None, copies: float) -> Arriving:
    """Requests of one instance of ``copies``: as recorded, or drawn from the shares of lengths."""
    work, rate, trace = question.requests.work, question.asked.rate, question.requests.trace
    if trace is not None and rate is not None:
        lengths = Lengths(trace.isl.mean(), trace.osl.mean(), 1.0, trace, bool(trace.hashes))
        load = Load(None, rate / copies, 1.0, None)
        return draw_requests(load, lengths, min(count, len(trace)), (0, 0))
    random = np.random.default_rng(0)
    sizes = np.ones((1, 3))
    if work.lengths:
        sizes = np.array([[float(x) for x in (s.isl, s.osl, s.weight)] for s in work.lengths])
    chosen = random.choice(len(sizes), count, p=sizes[:, 2] / sizes[:, 2].sum())
    isl, osl = (
        np.maximum(np.round(float(mean) * sizes[chosen, i]), 1.0)
        for i, mean in enumerate((work.isl, work.osl))
    )
    times = np.zeros(count)
    if loop is None:
        assert rate is not None and work.arrivals is not None
        burstiness = 1.0 / max(float(work.arrivals.variability), 1e-3)
        times = drawn_arrivals(random, count, rate / copies, burstiness)
    return Arriving(times, isl, osl)


def _prefix(work: Workload, asked: Arriving) -> np.ndarray:
    """Tokens of each prompt in the cache, where a mean says it and no hashes."""
    if asked.hashes:
        return np.zeros_like(asked.prompt)
    share = float(work.prefix) / max(float(work.isl), 1.0)
    return np.minimum(np.round(share * asked.prompt), asked.prompt - 1.0)


def _kind(lane: Lane) -> str:
    """What lanes of one program share: structure and shapes."""
    parts = lane.server.pass_, lane.server.rules, lane.requests
    shapes = [np.shape(x) for x in jax.tree.leaves(parts)]
    return f"{jax.tree.structure(parts)}{shapes}{lane.loop is None}"


def served(many: Sequence[Lane]) -> list[Times]:
    """The times of servers alike in structure, all in one program."""
    sizes = [sizes_of(x.server.rules, x.requests, x.loop) for x in many]
    width, turns = (max(x) for x in zip(*sizes, strict=True))
    given = trees.stack(*((x.server.pass_, x.server.rules, x.requests) for x in many))
    loops = None
    if many[0].loop is not None:
        loops = jnp.asarray([x.loop for x in many], jnp.int32)
    while True:
        ends = once(_lanes, *given, loops, points=MANY, fixed=(width, turns))
        if np.all(ends.complete):
            break
        turns *= 2  # requests that are preempted take more of them
    return [_of_lane(trees.take(ends, i), x) for i, x in enumerate(many)]


def _lanes(
    width: int, turns: int, pass_: PassLaw, rules: Rules, requests: Requests, loops: Array | None
) -> Ends:
    def one(pass_: PassLaw, rules: Rules, requests: Requests, loop: Array | None) -> Ends:
        step = Partial(pass_time, pass_)
        log = replay(step, rules, requests, loop, width=width, turns=turns)
        return Ends(log.arrival, log.first, log.last, log.complete)

    return lanes(one, pass_, rules, requests, loops)


def _of_lane(ends: Ends, lane: Lane) -> Times:
    count = int(lane.requests.count)
    arrival, first, last = (np.asarray(x)[:count] for x in ends[:3])
    output = np.asarray(lane.requests.output)[:count]
    return _times(arrival - lane.server.front, first, last, output)


def _times(arrival: np.ndarray, first: np.ndarray, last: np.ndarray, output: np.ndarray) -> Times:
    """Means and percentiles of the requests that are counted."""
    kept = slice(int(SETTLING * len(arrival)), None)
    arrival, first, last, more = (x[kept] for x in (arrival, first, last, output - 1))
    tpot = ((last - first) / np.maximum(more, 1))[more > 0]
    tpot = tpot if len(tpot) else np.zeros(1)
    return Times(*(float(f(x)) for x in (first - arrival, tpot) for f in (np.mean, _p99)))


def _p99(values: np.ndarray) -> np.floating:
    return np.percentile(values, 99)


def differences(question: Question, plans: Plans) -> Iterator[str]:
    """Where a replay and the laws differ by much, and where a limit is kept by one alone."""
    limits = _limits(question, plans)
    for choice, times, _ in plans.replayed:
        if times is None:
            continue
        both = {name: (getattr(choice, name), getattr(times, name)) for name in NAMES}
        both = {name: x for name, x in both.items() if x[0]}
        far = {name: b / a - 1.0 for name, (a, b) in both.items() if abs(b / a - 1.0) > APART}
        if far:
            parts = [
                f"{NAMES[name]} is {100 * abs(x):.0f} % {'longer' if x > 0 else 'shorter'}"
                for name, x in far.items()
            ]
            yield f"{choice.layout}: by replay {', '.join(parts)} than by law."
        for name, (a, b) in both.items():
            if (a <= limits[name]) != (b <= limits[name]):
                keeps, breaks = ("law", "replay") if a <= limits[name] else ("replay", "law")
                yield (
                    f"{choice.layout} keeps {NAMES[name]} within {1e3 * limits[name]:.6g} ms by "
                    f"{keeps} and not by {breaks}: {digits(1e3 * max(a, b))} ms."
                )
