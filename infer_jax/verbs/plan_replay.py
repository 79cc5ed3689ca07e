"""The best plans of a search, replayed by the scheduler of their engine."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from infer_jax.engines import ENGINES
from infer_jax.errors import InputError
from infer_jax.launch import budget
from infer_jax.planning import Choice, Replay
from infer_jax.replays.loops import checked, sizes_of
from infer_jax.results.numbers import digits
from infer_jax.servers.cluster import pools_of
from infer_jax.servers.instance import Sizes, replayed_instance
from infer_jax.servers.runs import (
    ARRIVALS,
    SETTLING,
    WAVES,
    InstanceRun,
    instance_ends,
    sample_requests,
    times_of,
    with_cached,
)
from infer_jax.servers.stream import with_drafts
from infer_jax.verbs.plan_search import Plans, search_on
from infer_jax.verbs.plan_tables import TIMES
from infer_jax.verbs.progress import busy

COUNT = 5  # plans that are replayed
NOTABLE = 0.25  # share from which a difference is worth a sentence
OTHERS = f"only the first {COUNT} plans are"
NOT_WORSE = "Plans that were not replayed stand lower because nothing has checked them."
ABOUT = (
    f"Replays are of one instance, or of both pools: {ARRIVALS} requests that arrive at random, or "
    f"{WAVES} for each one in flight; the first {100 * SETTLING:.0f} % are not counted."
)
GROUPS = ("attention_dp", "attention groups that wait for each other")
UNSUPPORTED = (("pp", "micro-batches of a pipeline"), GROUPS)
UNSUPPORTED_IN_POOLS = (GROUPS, ("ep", "experts that are dealt to GPUs, in pools"))


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
        tighter = {x: limit / max(ratio(c, x) for c in own) for x, limit in plans.limits.items()}
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
    runs = [_run_or_ends(plans, c, largest) for c in best]
    instances = [x for x in runs if isinstance(x, InstanceRun)]
    sizes = [sizes_of(x.server.rules, x.requests, x.loop) for x in instances]
    # of all, so that they share a program
    width, turns = (max((x[k] for x in sizes), default=0) for k in (0, 1))

    def replayed(run: InstanceRun | list[np.ndarray] | str) -> Replay:
        if isinstance(run, str):
            return Replay(None, run, demotes=judged)
        ends = instance_ends(run, width, turns) if isinstance(run, InstanceRun) else run
        times = times_of(plans.limits, goodput, *ends)
        excess = {TIMES[x]: getattr(times, x) / limit - 1.0 for x, limit in limits.items()}
        if judged and goodput is not None:
            excess["goodput"] = 1.0 - times.within / goodput
        return Replay(times, "", {name: share for name, share in excess.items() if share > 0.0})

    return [replace(c, replay=replayed(run)) for c, run in zip(best, runs, strict=True)]


def _run_or_ends(
    plans: Plans, choice: Choice, largest: float
) -> InstanceRun | list[np.ndarray] | str:
    """An instance of a plan to replay, the ends of two pools' requests, or why there is no replay.

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
        drawn, loop = sample_requests(
            work, question.requirements.rate, question.requests.trace, choice, largest
        )
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
            log = servers.serve(with_cached(work, arriving, servers.prefill.tokens), loop)
            arrival = log.arrival - servers.prefill.front
            return [arrival, log.first, log.last, arriving.output]
        degrees = {"tp": float(pools[0].layout.tp), "ep": float(pools[0].layout.ep)}
        server = replayed_instance(*model, degrees, sizes[0], longest, drafts)
        if caching:
            requests = arriving.requests(server.rules)
        else:
            requests = with_cached(work, arriving, server.tokens)
        checked(server.rules, requests, loop)
        return InstanceRun(server, requests, loop)
    except InputError as error:
        return f"{error.field} {error.value}, where allowed is {error.allowed}"


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
