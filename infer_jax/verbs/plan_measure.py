"""The run worth most to a choice of plans: the expected value of knowing its time."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from infer_jax.calibration.expected_value import perfect_information, shadow_price
from infer_jax.calibration.posterior import normal_scores
from infer_jax.catalog.published import serving_coefficients
from infer_jax.physics.chance import holds
from infer_jax.planning import MODES, Choice
from infer_jax.planning.belief import ConfidentPlans
from infer_jax.planning.chances import Belief, Chances, PlanSpace, chances
from infer_jax.results import numbers

OUTPUTS = ("tpot", "ttft")
OWN = 8  # draws of a plan's own errors for each draw of the errors that plans share
LEAST = 0.002  # least worth, as a share of the plan's cost, at which a measurement is named


class BelievedSearch(NamedTuple):
    """One search with its systems and requests, their uncertainties, and its plans."""

    space: PlanSpace
    belief: Belief
    believed: ConfidentPlans


class Measure(NamedTuple):
    """The run worth most before choosing: a time of a plan.

    ``worth``: its value as a share of the cost of the chosen plan; ``share``: its value over that
    of knowing every time of every plan; ``unknown``: the offset or coefficient worth most, with
    ``unknown_share`` its value over the same.
    """

    choice: Choice
    output: str
    worth: float
    share: float
    unknown: str
    unknown_share: float

    @property
    def says(self) -> str:
        """One sentence."""
        c = self.choice
        return (
            f"Measure the {self.output.upper()} of one run of {c.layout} on {c.system} at batch "
            f"{numbers.digits(c.batch)}: before the choice it is worth {_percent(self.share)} of "
            f"knowing all times, more than any other run; of single unknowns {self.unknown} is "
            f"worth most, {_percent(self.unknown_share)}."
        )

    def fields(self) -> dict[str, object]:
        """For JSON."""
        c = self.choice
        return {
            "output": self.output,
            "mode": c.mode,
            "hardware": c.system,
            "layout": c.layout,
            "concurrency_per_replica": c.batch,
            "worth_over_cost": self.worth,
            "share_of_certainty": self.share,
            "unknown": self.unknown,
            "unknown_share_of_certainty": self.unknown_share,
        }


class _Options(NamedTuple):
    """Plans to choose among, with what is known of each."""

    plans: list[Choice]
    known: Chances
    limited: Float[np.ndarray, "plans 2"]


def next_run(
    best: Choice,
    answers: Sequence[BelievedSearch],
    scores: Mapping[str, Float[np.ndarray, " draws"]],
    confidence: float,
) -> Measure | None:
    """The run of a plan whose time is worth most to know; None where none changes the choice.

    A plan's benefit is minus its cost, minus a penalty for broken limits. The penalty is the shadow
    price of the required confidence, with which the best plan by expectation has that confidence.
    """
    options = _options(best, answers)
    plans, known = options.plans, options.known
    costs = np.array([c.usd_per_mtok for c in plans]) / best.usd_per_mtok
    price = shadow_price(costs, np.asarray(known.holds), confidence)
    each = np.asarray(holds(known.room[:, :, None], known.shared, known.own[:, :, None]))
    certain = np.where(np.asarray(known.holds) > 0.0, 1.0, 0.0)

    def benefit(kept: Float[np.ndarray, "draws plans"]) -> Float[np.ndarray, "draws plans"]:
        return -costs - price * (1.0 - certain * kept)

    shared = benefit(each.prod(axis=1).T)
    unknowns = {name: perfect_information(shared, z) for name, z in scores.items()}
    most = max(unknowns, key=lambda name: unknowns[name])
    runs: dict[tuple[int, int], float] = {}
    repeated = np.repeat(each, OWN, axis=2)
    for k, j in np.argwhere(options.limited):
        own = normal_scores(1, repeated.shape[2], seed=int(k))[:, 0]
        seen = np.repeat(known.shared[k, j], OWN) + known.own[k, j] * own
        kept = repeated.copy()
        kept[k, j] = seen <= known.room[k, j]
        step = float(known.room[k, j])
        runs[int(k), int(j)] = perfect_information(benefit(kept.prod(axis=1).T), seen, [step])
    if not runs:
        return None
    (k, j), worth = max(runs.items(), key=lambda item: item[1])
    all_times = benefit(_kept(known, repeated.shape[2]))
    everything = float(all_times.max(axis=1).mean() - all_times.mean(axis=0).max())
    if min(worth, everything) < LEAST:
        return None
    shares = [min(x / everything, 1.0) for x in (worth, unknowns[most])]
    return Measure(plans[k], OUTPUTS[j], worth, shares[0], _words(most), shares[1])


def _joined(*columns: np.ndarray) -> np.ndarray:
    return np.concatenate(columns)


def _kept(known: Chances, draws: int) -> Float[np.ndarray, "draws plans"]:
    """Whether each plan keeps its limits, at draws of all errors."""
    plans, outputs = known.room.shape
    own = normal_scores(plans * outputs, draws, seed=0).T.reshape(plans, outputs, draws)
    seen = np.repeat(known.shared, OWN, axis=2) + known.own[:, :, None] * own
    return np.all(seen <= known.room[:, :, None], axis=1).T.astype(float)


def _options(best: Choice, answers: Sequence[BelievedSearch]) -> _Options:
    """The chosen plan and its rivals of every search, each once."""
    plans, parts, limited = list[Choice](), list[Chances](), list[np.ndarray]()
    for space, belief, answer in answers:
        own = [*answer.searched.met, *answer.searched.missed, *answer.rivals]
        own += [answer.by_mean] if answer.by_mean else []
        unique = {(c.mode, c.system, c.layout, c.batch): c for c in own}
        asked = space.asked
        limits = [asked.tpot < np.inf or asked.rate is not None]
        limits += [min(asked.ttft, asked.p99_ttft) < np.inf]
        for mode in MODES:
            some = [c for c in unique.values() if c.mode == mode]
            if some:
                plans += some
                parts.append(chances(some, space, belief))
                limited.append(np.tile(limits, (len(some), 1)))
    known = jax.tree.map(_joined, *parts)
    return _Options(plans, known, np.concatenate(limited))


def _percent(share: float) -> str:
    return f"{100.0 * share:.2g} %"


def _words(unknown: str) -> str:
    """The name of an offset, or a coefficient by its path."""
    paths = [path for path, one in serving_coefficients().items() if one.symbol == unknown]
    return (
        unknown if unknown.startswith("the offset") else f"the coefficient {[*paths, unknown][0]}"
    )
