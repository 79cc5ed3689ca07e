"""Plans by the probability that their limits hold: uncertainties, and the search."""

from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

import numpy as np

from infer_jax.calibration.posterior import (
    DRAWS,
    Interval,
    normal_scores,
    shipped_intervals,
    with_draws,
)
from infer_jax.catalog.published import Within, laws
from infer_jax.estimators.known_errors import NAMES
from infer_jax.estimators.serving import Serving
from infer_jax.physics.chance import Spread
from infer_jax.planning import Choice, PlanCandidates, Requirements
from infer_jax.planning.belief import Variations, confident_plans
from infer_jax.planning.chances import ARRIVING_DRAWS, Belief, Doubt, PlanSpace
from infer_jax.specs import leaves
from infer_jax.verbs.plan_measure import BelievedSearch, Measure, next_run
from infer_jax.verbs.plan_search import ConsideredSystem, Plans, Question, plans
from infer_jax.verbs.plan_trust import pool_bands, server_bands

OUTPUTS = ("tpot", "ttft")
NOTHING = "No single measurement is expected to change this choice."


class Doubts:
    """The uncertainties of a question's plans: one set of draws for all its systems.

    A coefficient has the same draws on all systems that share it; an offset belongs to one engine
    on one system, in one mode.
    """

    def __init__(self, draws: int) -> None:
        self.draws, self.scores = draws, dict[str, np.ndarray]()

    def score(self, name: str) -> np.ndarray:
        """Standard normal draws of an unknown, always the same for one name."""
        if name not in self.scores:
            self.scores[name] = normal_scores(1, self.draws, crc32(name.encode()))[:, 0]
        return self.scores[name]

    def belief(self, pools: Sequence[ConsideredSystem], model: str) -> Belief:
        """The uncertainties of plans on one system, or on two."""
        where = " > ".join(dict.fromkeys(pool.side.name for pool in pools))
        settled = bool(pools[0].given.system.bands())
        whole = server_bands(pools[0])
        doubts = {
            "aggregated": _doubts(whole, settled=settled),
            "disaggregated": _doubts(pool_bands(pools), settled=False),
        }
        offsets = {
            mode: np.stack([self.score(offset(where, pools, mode, name)) for name in OUTPUTS])
            for mode in doubts
        }
        return Belief([self._drawn(pool) for pool in pools], doubts, offsets)

    def _drawn(self, pool: ConsideredSystem) -> Serving:
        intervals = _intervals(pool)
        scores = {one.symbol: self.score(one.symbol) for one in intervals.values()}
        return with_draws(pool.side.serving, intervals, scores, self.draws)


def offset(where: str, pools: Sequence[ConsideredSystem], mode: str, output: str) -> str:
    """The name of an offset: of TPOT or TTFT, of an engine on a system, of a mode."""
    engine = NAMES[pools[0].side.serving.engine_name]
    kind = " of two pools" if mode == "disaggregated" else ""
    return f"the offset of the {output.upper()}{kind} of {engine} on {where}"


def _intervals(pool: ConsideredSystem) -> dict[str, Interval]:
    """Intervals of coefficients: of the profile's calibration, else of the fit to many servers."""
    system, serving = pool.given.system, pool.side.serving
    if not system.bands():
        return shipped_intervals(serving)
    paths = {path for path, _, _ in leaves(serving)}
    known = {name.removeprefix("serving."): ends for name, ends in system.intervals.items()}
    return {path: Interval(path, *ends) for path, ends in known.items() if path in paths}


def _doubts(within: Within, *, settled: bool) -> tuple[Doubt, Doubt]:
    tpot, ttft = (
        Doubt(Spread.of(within[name]), laws()[name].common, float(settled)) for name in OUTPUTS
    )
    return tpot, ttft


class Decision(NamedTuple):
    """How plans were chosen: at which confidence, and the choice by predicted times alone.

    ``reached``: the highest probability of any plan, where none has the required one; ``measure``:
    the run that is worth most before choosing.
    """

    confidence: float
    by_mean: Choice | None
    reached: float | None
    measure: Measure | None

    def fields(self) -> dict[str, object]:
        """For JSON."""
        mean, measure = self.by_mean, self.measure
        return {
            "confidence": self.confidence,
            "highest_confidence": self.reached,
            "by_mean": None
            if mean is None
            else {"layout": mean.layout, "hardware": mean.system, "limits_hold": mean.holds},
            "measure_next": None if measure is None else measure.fields(),
        }

    def says(self, best: Choice | None, sign: str) -> list[str]:
        """Sentences on how sure the choice is, and on what it rests."""
        mean, share = self.by_mean, f"{100 * self.confidence:g} %"
        said = []
        if best is None:
            said.append(
                f"No plan keeps its limits with {share} probability; the highest that any plan "
                f"reaches is {100 * (self.reached or 0.0):.3g} %."
            )
        elif mean is not None and (mean.layout, mean.batch) != (best.layout, best.batch):
            said.append(
                f"Without --confidence the choice is {mean.layout} at batch {mean.batch:.4g} for "
                f"{sign}{mean.usd_per_mtok:.3g}/Mtok, whose limits hold with "
                f"{100 * (mean.holds or 0.0):.3g} %."
            )
        return [*said, self.measure.says if self.measure else NOTHING]


def decided(question: Question, confidence: float) -> Plans:
    """The plans of every system and format whose limits hold with that probability."""
    draws = DRAWS if question.asked.rate is None else ARRIVING_DRAWS
    doubts, answers = Doubts(draws), list[BelievedSearch]()
    drafts, tried = question.drafts, question.tried

    def search(
        question: Question, pools: Sequence[ConsideredSystem], asked: Requirements
    ) -> PlanCandidates:
        given = pools[0].given.model
        draft = drafts.draft if drafts else None
        sides, work = [pool.side for pool in pools], question.requests.work
        space = PlanSpace(sides, given.architecture, work, asked, tried.common, draft)
        belief = doubts.belief(pools, given.name)
        counts = drafts.counts if drafts else (0.0,)
        wanted = Variations(tried.modes, tried.chunks, counts, tried.count)
        answer = confident_plans(space, belief, confidence, wanted)
        answers.append(BelievedSearch(space._replace(asked=answer.asked), belief, answer))
        return answer.searched

    answer = plans(question, search)
    answer.missed.sort(key=lambda c: -(c.holds or 0.0))
    means = [x.believed.by_mean for x in answers if x.believed.by_mean]
    reached = [x.believed.reached for x in answers]
    known = [x for x in reached if x is not None]
    best = answer.best or (answer.missed[0] if answer.missed else None)
    answer.decision = Decision(
        confidence,
        min(means, key=lambda c: c.rank, default=None),
        max(known) if len(known) == len(reached) and known else None,
        None if best is None else next_run(best, answers, doubts.scores, confidence),
    )
    return answer
