"""The cheapest plans on given systems, over instances of one kind and pairs of pools.

Or the cheapest whose limits hold with a required probability, which is at most that of each limit
by itself. Such plans are searched within limits tightened by the error bands, cheapest first, and
each is evaluated at every draw of the coefficients until enough plans reach the probability.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from statistics import NormalDist

import jax.numpy as jnp
import numpy as np

from infer_jax.compiling import in_same_precision
from infer_jax.errors import InputError
from infer_jax.physics.chance import Spread, ratio
from infer_jax.planning.bands import ARRIVING_ROWS, ROWS, TIMED, Posterior, chances
from infer_jax.planning.choice import (
    MODES,
    USUAL_TTFT,
    Choice,
    PlanCandidates,
    PlanSpace,
    Requirements,
    front,
)
from infer_jax.planning.instances import Rows, instance_rows
from infer_jax.planning.layout import Column, Layout, largest, layouts
from infer_jax.planning.pools import pool_plans
from infer_jax.planning.pricing import PricedTable, choices, first_of_each, priced, worst_of
from infer_jax.results import option

Legal = list[list[Layout]]  # of an instance on each system
Instances = Callable[[], Rows]  # evaluated when first needed
Find = Callable[[PlanSpace, Legal, Instances], PlanCandidates]


def search(space: PlanSpace, find: Find | None = None) -> PlanCandidates:
    """The cheapest plans on one system, or on one that prefills and one that decodes.

    Instances of one kind are tried at every batch. With ``usual_ttft`` of the requirements, plans
    are kept within ``USUAL_TTFT`` if any is. ``find``: in place of the search by predicted times.

    Raises:
        InputError: no layout that an engine runs.
    """
    legal, limits, find = legal_layouts(space), space.requirements, find or plans_within
    instances = cache(partial(instance_rows, space, legal[0]))
    if limits.usual_ttft and not limits.ttft < float("inf"):
        usual = space._replace(requirements=replace(limits, ttft=USUAL_TTFT))
        candidates = find(usual, legal, instances)
        if candidates.met:
            return candidates._replace(usual=True)
    return find(space, legal, instances)


def plans_within(space: PlanSpace, legal: Legal, instances: Instances) -> PlanCandidates:
    """The cheapest plans within the limits by predicted times."""
    candidates, pair = PlanCandidates([], [], 0), None
    # programs of one mode compile while those of the other are traced
    with ThreadPoolExecutor() as executor:
        if "disaggregated" in space.modes:
            mean = space._replace(work=space.work.replace(lengths=()))
            pair = executor.submit(in_same_precision(pool_plans), mean, pool_layouts(space, legal))
        if "aggregated" in space.modes:
            table = instances()(space.requirements, space.top)
            met, missed = choices(table, space.requirements, space.top)
            candidates = PlanCandidates(met, missed, configurations=len(table.batch))
        if pair is None:
            return candidates
        pairs = pair.result()
    return PlanCandidates(
        candidates.met + pairs.met,
        candidates.missed + pairs.missed,
        candidates.configurations + pairs.configurations,
        pairs.pooled,
    )


def legal_layouts(space: PlanSpace) -> Legal:
    """The layouts of an instance on each system that an engine runs.

    Raises:
        InputError: a system without one.
    """
    total = space.requirements.chips
    legal = [
        layouts(space.arch, int(largest(side.hardware, total)), size=side.machine)
        for side in space.sides
    ]
    if not all(legal):
        allowed = "a format that engines can cut this model in, however it is laid out"
        raise InputError("plan", option("quant"), "a format that no layout can cut", allowed)
    return legal


def pool_layouts(space: PlanSpace, legal: Legal) -> tuple[list[Layout], list[Layout]]:
    """The layouts of instances that prefill, and of those that decode, with their drafts."""
    drafting = [x._replace(drafts=n) for n in dict.fromkeys(space.drafts) for x in legal[-1]]
    prefill, decode = space.sides[0], space.sides[-1]
    return prefill.startable(legal[0], "prefill"), decode.startable(drafting, "decode")


MARGIN = 0.02  # probability by which a band and the draws of coefficients may disagree on a limit
SHARES = (0.1, 0.5, 0.9)  # of the allowed doubt, the shares of pools' TPOT; the rest is TTFT's
LEVELS = (0.99, 0.75, 0.5, 0.25, 0.1)  # confidences at which rivals are looked for
MAX_LEVEL = 0.999  # probability of one limit that is required
RIVALS = 2  # layouts at each of these
PAIRS = 8  # layouts of pools at each of SHARES
# rows evaluated where no plan reaches the required probability; of arrivals
HOPEFUL, ARRIVING_HOPEFUL = 2 * ROWS, 8 * ARRIVING_ROWS


def confident_plans(space: PlanSpace, posterior: Posterior, confidence: float) -> PlanCandidates:
    """The cheapest plans on one or two systems whose limits hold with probability ``confidence``.

    Else the most probable ones. The rest is as in ``search``.
    """

    def find(space: PlanSpace, legal: Legal, instances: Instances) -> PlanCandidates:
        return _Search(space, legal, instances, posterior, confidence).answer()

    return search(space, find)


def tighten_limits(
    limits: Requirements, posterior: Posterior, mode: str, tpot: float, ttft: float
) -> Requirements:
    """``limits`` on times as slow as measured ones are below with these probabilities."""
    scores = [NormalDist().inv_cdf(p) for p in (tpot, ttft)]

    def slower(load: Column) -> tuple[Column, Column]:
        if not np.size(load):  # no row was evaluated
            return load, load
        loads, row = np.unique(load, return_inverse=True)
        spreads = [[x.spread for x in posterior.errors[mode](n)] for n in loads.tolist()]
        slow, late = (
            np.asarray(jnp.exp(ratio(z, Spread(own[0].scores, np.stack([x.logs for x in own], 1)))))
            for z, own in zip(scores, zip(*spreads, strict=True), strict=True)
        )
        rows = row.reshape(np.shape(load))
        return slow[rows], late[rows]

    return replace(limits, slower=slower)


@dataclass
class _Search:
    """One search within limits."""

    space: PlanSpace
    legal: Legal
    instances: Instances
    posterior: Posterior
    confidence: float
    configurations: int = 0

    def answer(self) -> PlanCandidates:
        """Plans with the required probability, else the most probable ones."""
        limits, count = self.space.requirements, self.space.top
        pairs = [c for c in self.pairs if self._holds(c)]
        if limits.frontier:
            met = front([*self._probable(), *pairs])
        else:
            pairs = sorted(pairs, key=lambda c: c.rank)[:count]
            met = sorted([*self._probable(), *pairs], key=lambda c: c.rank)
        missed = [] if met else self._likeliest()
        reached = None if met else max((c.holds or 0.0 for c in missed), default=0.0)
        cheapest = self._cheapest(limits, 1)
        if "disaggregated" in self.space.modes:
            cheapest += self._pools(replace(limits, frontier=False), 1)
        cheapest = self._with_chances(cheapest)
        mean = min(cheapest, key=lambda c: c.rank, default=None)
        pools = any(c.mode == "disaggregated" for c in (*self.pairs, *cheapest))
        pooled = pools or "disaggregated" not in self.space.modes
        found = PlanCandidates(met, missed[:count], self.configurations, pooled)
        rivals = self._rivals()
        return found._replace(rivals=rivals, by_mean=mean, reached=reached, space=self.space)

    def _holds(self, c: Choice) -> bool:
        return c.holds is not None and c.holds >= self.confidence

    def _priced(self, limits: Requirements, count: int) -> PricedTable | None:
        """The rows within limits, for ``count`` plans; None where only pools are tried."""
        if "aggregated" not in self.space.modes:
            return None
        table = self.instances()(limits, count)
        self.configurations = len(table.batch)
        return priced(table, limits)

    def _probable(self) -> Iterator[Choice]:
        """The cheapest row of each layout with the required probability; all of a frontier."""
        # of arrivals with the replicas that these probabilities need; the last has the most rows
        limits, count, rows = self.space.requirements, self.space.top, None
        for margin in (-MARGIN, 0.0, MARGIN):
            level = min(max(self.confidence - margin, 0.5), MAX_LEVEL)
            rows = self._priced(
                tighten_limits(limits, self.posterior, "aggregated", level, level), count
            )
        if rows is None:
            return
        left: list[int] = [int(i) for i in rows.within]
        size = ROWS if limits.rate is None else ARRIVING_ROWS
        first, probable = list[int](), dict[int, Choice]()
        while left and len(first) < (np.inf if limits.frontier else count):
            some, left = left[:size], left[size:]
            plans = self._with_chances([rows.choice(i) for i in some])
            probable |= {i: c for i, c in zip(some, plans, strict=True) if self._holds(c)}
            if not limits.frontier:
                # the cheapest of each layout, as in the search without uncertainty
                first = first_of_each(rows.table, probable, count)
                layouts = {rows.table.at(i).plain for i in probable}
                left = [i for i in left if rows.table.at(i).plain not in layouts]
        yield from (probable[i] for i in (probable if limits.frontier else first))

    def _likeliest(self) -> list[Choice]:
        """The most probable plans, one of each layout."""
        limits, plans = self.space.requirements, list(self.pairs)
        rows = self._priced(limits, self.space.top)
        if rows is not None:
            certain = {name: x for name, x in rows.excess.items() if name not in TIMED}
            times = [x for name, x in rows.excess.items() if name in TIMED]
            count = HOPEFUL if limits.rate is None else ARRIVING_HOPEFUL
            order = np.lexsort((np.max(times, axis=0), worst_of(certain)))[:count]
            plans += self._with_chances([rows.choice(int(i)) for i in order])
        plans.sort(key=lambda c: (-(c.holds or 0.0), c.usd_per_mtok))
        best: dict[str, Choice] = {}
        for c in plans:
            best.setdefault(c.layout, c)
        return list(best.values())

    @cached_property
    def pairs(self) -> list[Choice]:
        """Pairs of pools within limits that divide the allowed doubt between TPOT and TTFT."""
        if "disaggregated" not in self.space.modes:
            return []
        limits = self.space.requirements
        two = limits.tpot < np.inf and limits.of_ttft < np.inf
        met: dict[tuple[str, float], Choice] = {}
        for share in SHARES if two else (1.0 if limits.tpot < np.inf else 0.0,):
            levels = self.confidence**share, self.confidence ** (1.0 - share)
            levels = (min(p, MAX_LEVEL) for p in levels)
            within = tighten_limits(limits, self.posterior, "disaggregated", *levels)
            for c in self._pools(within, max(PAIRS, self.space.top)):
                met.setdefault((c.layout, c.batch), c)
        return self._with_chances(list(met.values()))

    def _pools(self, limits: Requirements, count: int) -> list[Choice]:
        work = self.space.work.replace(lengths=())
        space = self.space._replace(requirements=limits, work=work, top=count)
        plans = pool_plans(space, pool_layouts(self.space, self.legal))
        return [replace(c, excess={}) for c in plans.met]

    def _cheapest(self, limits: Requirements, count: int) -> list[Choice]:
        """The cheapest instances of one kind, one a layout, by predicted times within limits."""
        rows = self._priced(limits, count)
        if rows is None:
            return []
        return [rows.choice(i) for i in first_of_each(rows.table, rows.within, count)]

    def _rivals(self) -> list[Choice]:
        """The cheapest rows at other confidences, and pairs of pools."""
        plans: list[Choice] = []
        for level in (self.confidence, *LEVELS):
            limits = tighten_limits(
                self.space.requirements, self.posterior, "aggregated", level, level
            )
            plans += self._cheapest(limits, RIVALS)
        return self._with_chances(plans) + self.pairs[:PAIRS]

    def _with_chances(self, plans: list[Choice]) -> list[Choice]:
        """The plans, each with the probability that its limits hold."""
        holds: dict[int, float] = {}
        for mode in MODES:
            rows = [i for i, c in enumerate(plans) if c.mode == mode]
            if rows:
                answer = chances([plans[i] for i in rows], self.space, self.posterior).holds
                holds |= dict(zip(rows, map(float, answer), strict=True))
        return [replace(c, holds=holds[i]) for i, c in enumerate(plans)]
