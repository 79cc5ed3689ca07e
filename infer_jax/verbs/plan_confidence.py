"""Plans by the probability that their limits hold, and the run worth most to the choice."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from infer_jax.calibration.plan_unknowns import Measurement, Unknowns, next_run
from infer_jax.calibration.posterior import DRAWS
from infer_jax.planning import Choice, PlanCandidates, PlanSpace
from infer_jax.planning.bands import ARRIVING_DRAWS, Posterior
from infer_jax.planning.cheapest import confident_plans
from infer_jax.results import option
from infer_jax.results.numbers import digits
from infer_jax.verbs.plan_search import Plans, PlanSystem, Question, plans


class Decision(NamedTuple):
    """How plans were chosen: at which confidence, and the choice by predicted times alone.

    ``reached``: the highest probability of any plan, where none has the required one;
    ``measurement``: the run that is worth most before choosing.
    """

    confidence: float
    by_mean: Choice | None
    reached: float | None
    measurement: Measurement | None

    def fields(self) -> dict[str, object]:
        """For JSON."""
        mean, run = self.by_mean, self.measurement
        return {
            "confidence": self.confidence,
            "highest_confidence": self.reached,
            "by_mean": mean
            and {"layout": mean.layout, "hardware": mean.system, "limits_hold": mean.holds},
            "measure_next": run and run.fields(),
        }

    def sentences(self, best: Choice | None, sign: str) -> Iterator[str]:
        """How sure the choice is, and on what it rests."""
        mean = self.by_mean
        if best is None:
            yield (
                f"No plan keeps its limits with {100 * self.confidence:g} % probability; the "
                f"highest that any plan reaches is {100 * (self.reached or 0.0):.3g} %."
            )
        elif mean is not None and (mean.layout, mean.batch) != (best.layout, best.batch):
            yield (
                f"Without {option('confidence')} the choice is {mean.layout} at batch "
                f"{mean.batch:.4g} for {sign}{mean.usd_per_mtok:.3g}/Mtok, whose limits hold with "
                f"{100 * (mean.holds or 0.0):.3g} %."
            )
        run = self.measurement
        if run is None:
            yield "No single measurement is expected to change this choice."
            return
        yield (
            f"Measure the {run.output.upper()} of one run of {run.choice.layout} on "
            f"{run.choice.system} at batch {digits(run.choice.batch)}: before the choice it is "
            f"worth {100.0 * run.share:.2g} % of knowing all times, more than any other run; of "
            f"single unknowns {run.unknown} is worth most, {100.0 * run.unknown_share:.2g} %."
        )


def confident_answer(question: Question, confidence: float) -> Plans:
    """The plans of every system and format whose limits hold with that probability."""
    unknowns = Unknowns(DRAWS if question.requirements.rate is None else ARRIVING_DRAWS)
    searches = list[tuple[Posterior, PlanCandidates]]()

    def search(space: PlanSpace, systems: Sequence[PlanSystem]) -> PlanCandidates:
        lengths = float(space.work.isl), float(space.work.osl)
        posterior = unknowns.posterior(systems, lengths)
        searches.append((posterior, confident_plans(space, posterior, confidence)))
        return searches[-1][1]

    answer = plans(question, search)
    answer.missed.sort(key=lambda c: -(c.holds or 0.0))
    means = [x.by_mean for _, x in searches if x.by_mean]
    reached = [x.reached for _, x in searches if x.reached is not None]
    best = answer.best or (answer.missed[0] if answer.missed else None)
    answer.decision = Decision(
        confidence,
        min(means, key=lambda c: c.rank, default=None),
        max(reached) if reached and len(reached) == len(searches) else None,
        None if best is None else next_run(best, searches, unknowns.scores, confidence),
    )
    return answer
