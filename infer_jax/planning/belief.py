"""The cheapest plans whose limits hold with a required probability.

The probability that all limits of a plan hold is at most that of each limit by itself. Plans are
therefore searched within limits tightened by the error bands, cheapest first, and each is evaluated
at every draw of the coefficients until enough plans reach the required probability.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from statistics import NormalDist
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from infer_jax.physics.chance import ratio
from infer_jax.planning.chances import ARRIVING_ROWS, ROWS, TIMED, Belief, PlanSpace, chances
from infer_jax.planning.cheapest import (
    MODES,
    PlanCandidates,
    Rows,
    each_with,
    instances,
    largest,
)
from infer_jax.planning.choose import (
    USUAL_TTFT,
    Choice,
    PricedTable,
    Requirements,
    first_of_each,
    front,
    priced,
)
from infer_jax.planning.disaggregated import pool_plans
from infer_jax.planning.legal_layouts import layouts
from infer_jax.specs import UNBOUNDED, Workload

MARGIN = 0.02  # probability by which a band and the draws of coefficients may disagree on a limit
SHARES = (0.1, 0.5, 0.9)  # of the allowed doubt, the shares of pools' TPOT; the rest is TTFT's
LEVELS = (0.99, 0.75, 0.5, 0.25, 0.1)  # confidences at which rivals are looked for
MOST = 0.999  # probability of one limit that is asked for
RIVALS = 2  # layouts at each of these
PAIRS = 8  # layouts of pools at each of SHARES
# rows evaluated where no plan reaches the required probability; of arrivals
HOPEFUL, ARRIVING_HOPEFUL = 2 * ROWS, 8 * ARRIVING_ROWS


class ConfidentPlans(NamedTuple):
    """Plans that keep their limits with the required probability, else the most probable ones.

    ``rivals``: plans that a measurement could make the choice; ``by_mean``: the choice without
    uncertainty; ``reached``: the highest probability of any plan, where none has the required one;
    ``asked``: the limits.
    """

    searched: PlanCandidates
    rivals: list[Choice]
    by_mean: Choice | None
    reached: float | None
    asked: Requirements


class Variations(NamedTuple):
    """Modes, chunks and drafts to try, and the number of plans to show."""

    modes: Sequence[str] = MODES
    chunks: Sequence[float] = (UNBOUNDED,)
    drafts: Sequence[float] = (0.0,)
    shown: int = 3


def confident_plans(
    space: PlanSpace, belief: Belief, confidence: float, tried: Variations
) -> ConfidentPlans:
    """The cheapest plans on one or two systems whose limits hold with probability ``confidence``.

    The rest is as in ``cheapest.search``.
    """
    asked = space.asked
    if not asked.usual_ttft or asked.ttft < np.inf:
        return _Search(space, belief, confidence, tried).answer()
    kept = space._replace(asked=replace(asked, ttft=USUAL_TTFT))
    usual = _Search(kept, belief, confidence, tried)
    answer = usual.answer()
    if answer.searched.met:
        return answer._replace(searched=answer.searched._replace(usual=True))
    return _Search(space, belief, confidence, tried, usual.rows).answer()


def tightened(
    asked: Requirements, belief: Belief, mode: str, tpot: float, ttft: float
) -> Requirements:
    """Limits on predicted times at which measured ones keep ``asked`` with these probabilities."""
    factors = [
        float(jnp.exp(ratio(NormalDist().inv_cdf(p), doubt.spread)))
        for p, doubt in zip((tpot, ttft), belief.doubts[mode], strict=True)
    ]
    return replace(
        asked,
        tpot=asked.tpot / factors[0],
        ttft=asked.ttft / factors[1],
        p99_ttft=asked.p99_ttft / factors[1],
    )


class _Search:
    """One search, which evaluates its tables once."""

    def __init__(
        self,
        space: PlanSpace,
        belief: Belief,
        confidence: float,
        tried: Variations,
        rows: Rows | None = None,
    ) -> None:
        self.space, self.belief, self.confidence, self.tried = space, belief, confidence, tried
        self.extras = [{"chunk": c, "drafts": d} for c, d in product(tried.chunks, tried.drafts)]
        self.legal = [
            layouts(space.arch, int(largest(side.hardware, space.asked.chips)), size=side.machine)
            for side in space.sides
        ]
        self.rows = rows or (self._evaluated() if "aggregated" in tried.modes else None)
        self.pairs = self._pairs() if "disaggregated" in tried.modes else []
        self.configurations = 0

    def answer(self) -> ConfidentPlans:
        """Plans with the required probability, else the most probable ones."""
        tried, asked = self.tried, self.space.asked
        pairs = [c for c in self.pairs if _sure(c, self.confidence)]
        if asked.frontier:
            met = front([*self._surest(), *pairs])
        else:
            pairs = sorted(pairs, key=lambda c: c.rank)[: tried.shown]
            met = sorted([*self._surest(), *pairs], key=lambda c: c.rank)
        missed = [] if met else self._likeliest()
        reached = None if met else max((c.holds or 0.0 for c in missed), default=0.0)
        near = self._near(asked, 1)
        mean = min(near, key=lambda c: c.rank, default=None)
        pools = any(c.mode == "disaggregated" for c in (*self.pairs, *near))
        pooled = pools or "disaggregated" not in tried.modes
        searched = PlanCandidates(met, missed[: tried.shown], self.configurations, pooled)
        return ConfidentPlans(searched, self._rivals(), mean, reached, asked)

    def _evaluated(self) -> Rows:
        space = self.space
        side, arch, work = space.sides[0], space.arch, space.work
        legal = side.startable(each_with(self.legal[0], self.extras))
        return instances(side, arch, work, legal, space.common, space.asked, space.draft)

    def _priced(self, asked: Requirements, count: int) -> PricedTable | None:
        """The rows within limits, for that many plans; None where only pools are tried."""
        if self.rows is None:
            return None
        side, work = self.space.sides[0], self.space.work
        lengths, table = (float(work.isl), float(work.osl)), self.rows(asked, count)
        self.configurations = len(table.batch)
        return priced(side.name, float(side.hardware.price), table, asked, *lengths)

    def _surest(self) -> Iterator[Choice]:
        """The cheapest row of each layout with the required probability; all of a frontier."""
        # of arrivals with the replicas that these probabilities need; the last has the most rows
        rows, size = None, ROWS if self.space.asked.rate is None else ARRIVING_ROWS
        for margin in (-MARGIN, 0.0, MARGIN):
            least = min(max(self.confidence - margin, 0.5), MOST)
            asked = tightened(self.space.asked, self.belief, "aggregated", least, least)
            rows = self._priced(asked, self.tried.shown)
        if rows is None:
            return
        left: list[int] = [int(i) for i in rows.within]
        first, known = list[int](), dict[int, Choice]()
        wanted = np.inf if self.space.asked.frontier else self.tried.shown
        while left and len(first) < wanted:
            some, left = left[:size], left[size:]
            plans = self._with_chances([rows.choice(i) for i in some])
            known |= {i: c for i, c in zip(some, plans, strict=True) if _sure(c, self.confidence)}
            if not self.space.asked.frontier:
                # the cheapest of each layout, as in the search without uncertainty
                first = first_of_each(rows.table, known, self.tried.shown)
                taken = {rows.table.at(i).plain for i in known}
                left = [i for i in left if rows.table.at(i).plain not in taken]
        yield from (known[i] for i in (known if self.space.asked.frontier else first))

    def _likeliest(self) -> list[Choice]:
        """The most probable plans, one of each layout."""
        rows, plans = self._priced(self.space.asked, self.tried.shown), list(self.pairs)
        if rows is not None:
            certain = [x for name, x in rows.rows.excess.items() if name not in TIMED]
            worst = np.max([np.maximum(x, 0.0) for x in certain], axis=0)
            over = [x for name, x in rows.rows.excess.items() if name in TIMED]
            most = HOPEFUL if self.space.asked.rate is None else ARRIVING_HOPEFUL
            order = np.lexsort((np.max(over, axis=0), worst))[:most]
            plans += self._with_chances([rows.choice(int(i)) for i in order])
        plans.sort(key=lambda c: (-(c.holds or 0.0), c.usd_per_mtok))
        best: dict[str, Choice] = {}
        for c in plans:
            best.setdefault(c.layout, c)
        return list(best.values())

    def _pairs(self) -> list[Choice]:
        """Pairs of pools within limits that divide the allowed doubt between TPOT and TTFT."""
        asked = self.space.asked
        both = asked.tpot < np.inf and min(asked.ttft, asked.p99_ttft) < np.inf
        shares = SHARES if both else (1.0 if asked.tpot < np.inf else 0.0,)
        met: dict[tuple[str, float], Choice] = {}
        for share in shares:
            each = self.confidence**share, self.confidence ** (1.0 - share)
            limits = tightened(asked, self.belief, "disaggregated", *(min(p, MOST) for p in each))
            for c in self._pools(limits, max(PAIRS, self.tried.shown)):
                met.setdefault((c.layout, c.batch), c)
        return self._with_chances(list(met.values()))

    def _pools(self, asked: Requirements, count: int) -> list[Choice]:
        space = self.space
        drafts = dict.fromkeys(extra["drafts"] for extra in self.extras)
        decoding = each_with(self.legal[-1], [{"drafts": d} for d in drafts])
        ends = space.sides[0], space.sides[-1]
        mean: Workload = space.work.replace(lengths=())
        legal = ends[0].startable(self.legal[0], "prefill"), ends[1].startable(decoding, "decode")
        found = pool_plans(ends, space.arch, mean, legal, space.common, asked, count, space.draft)
        return [replace(c, excess={}) for c in found.met]

    def _near(self, asked: Requirements, count: int) -> list[Choice]:
        """The cheapest plans whose predicted times are within limits."""
        rows, alone = self._priced(asked, count), replace(asked, frontier=False)
        found = [] if rows is None else first_of_each(rows.table, rows.within, count)
        plans = [] if rows is None else [rows.choice(i) for i in found]
        if "disaggregated" in self.tried.modes:
            plans += self._pools(alone, count)
        return self._with_chances(plans)

    def _rivals(self) -> list[Choice]:
        """The cheapest rows at other confidences, and pairs of pools."""
        plans: list[Choice] = []
        for level in (self.confidence, *LEVELS):
            each = tightened(self.space.asked, self.belief, "aggregated", level, level)
            rows = self._priced(each, RIVALS)
            if rows is not None:
                plans += [rows.choice(i) for i in first_of_each(rows.table, rows.within, RIVALS)]
        return self._with_chances(plans) + self.pairs[:PAIRS]

    def _with_chances(self, plans: list[Choice]) -> list[Choice]:
        """The plans, each with the probability that its limits hold."""
        known: dict[int, float] = {}
        for mode in MODES:
            own = [i for i, c in enumerate(plans) if c.mode == mode]
            if own:
                answer = chances([plans[i] for i in own], self.space, self.belief).holds
                known |= dict(zip(own, map(float, answer), strict=True))
        return [replace(c, holds=known[i]) for i, c in enumerate(plans)]


def _sure(c: Choice, confidence: float) -> bool:
    return c.holds is not None and c.holds >= confidence
