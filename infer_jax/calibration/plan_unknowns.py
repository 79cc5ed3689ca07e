"""What is not known of plans before they are measured, and the run worth most to a choice."""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import NamedTuple, Protocol
from zlib import crc32

import jax
import numpy as np
from jaxtyping import Float

from infer_jax.calibration.posterior import (
    Interval,
    normal_scores,
    perfect_information,
    shadow_price,
    shipped_intervals,
    with_draws,
)
from infer_jax.catalog import System
from infer_jax.catalog.published import law_of, laws, serving_coefficients
from infer_jax.estimators import Trust
from infer_jax.estimators.known_errors import NAMES, measured_within
from infer_jax.estimators.serving import Serving
from infer_jax.physics.chance import Spread, holds
from infer_jax.planning import MODES, Choice, PlanCandidates, Side
from infer_jax.planning.bands import Chances, ErrorModel, Models, Posterior, chances
from infer_jax.specs import leaves

OUTPUTS = ("tpot", "ttft")
POOLS = " of two pools"  # in the name of an offset that plans of one pool do not have
OWN = 8  # draws of a plan's own errors for each draw of the errors that plans share
MIN_WORTH = 0.002  # worth, as a share of the plan's cost, from which a measurement is named


class UncertainSystem(Protocol):
    """A system of plans with its estimator, the known errors of that, and its profile."""

    @property
    def side(self) -> Side: ...

    @property
    def trust(self) -> Trust: ...

    @property
    def profile(self) -> System: ...


class Unknowns:
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

    def posterior(
        self, systems: Sequence[UncertainSystem], lengths: tuple[float, float]
    ) -> Posterior:
        """The uncertainties of plans on one system, or on two; ``lengths``: prompt and output."""
        where = " > ".join(dict.fromkeys(system.side.name for system in systems))
        engine = NAMES[systems[0].side.serving.engine_name]
        trusts = [x.trust for x in systems]

        @cache
        def errors(mode: str, load: float, gaps: float = 0.0, layout: object = None) -> Models:
            """With so many requests in flight in an instance; ``gaps``, ``layout`` theirs."""
            pools = mode == "disaggregated"
            within = measured_within(trusts, load, lengths, pools=pools, gaps=gaps, layout=layout)
            own = float(not pools and trusts[0].covers(layout))
            tpot, ttft = (
                ErrorModel(Spread.of(within[x]), laws()[law_of(x, pools=pools)].common, own)
                for x in OUTPUTS
            )
            return tpot, ttft

        offsets = dict[str, np.ndarray]()
        for mode, kind in zip(MODES, ("", POOLS), strict=True):
            # an offset is of TPOT or TTFT, of an engine on a system, of a mode
            names = (f"the offset of the {x.upper()}{kind} of {engine} on {where}" for x in OUTPUTS)
            offsets[mode] = np.stack([self.score(name) for name in names])
        by_mode = {mode: partial(errors, mode) for mode in MODES}
        return Posterior([*map(self._serving, systems)], by_mode, offsets)

    def _serving(self, system: UncertainSystem) -> Serving:
        """The estimator of a system as it is, and at every draw of its coefficients.

        Intervals are of the profile's calibration, else of the fit to many servers.
        """
        serving, profile = system.side.serving, system.profile
        intervals = shipped_intervals(serving)
        if profile.bands():
            paths = {path for path, _, _ in leaves(serving)}
            own = {name.removeprefix("serving."): ends for name, ends in profile.intervals.items()}
            intervals = {p: Interval(p, *ends) for p, ends in own.items() if p in paths}
        scores = {x.symbol: self.score(x.symbol) for x in intervals.values()}
        return with_draws(serving, intervals, scores, self.draws)


class Measurement(NamedTuple):
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

    def fields(self) -> dict[str, object]:
        """The run for JSON."""
        return {
            "output": self.output,
            "mode": self.choice.mode,
            "hardware": self.choice.system,
            "layout": self.choice.layout,
            "concurrency_per_replica": self.choice.batch,
            "worth_over_cost": self.worth,
            "share_of_certainty": self.share,
            "unknown": self.unknown,
            "unknown_share_of_certainty": self.unknown_share,
        }


def next_run(
    best: Choice,
    searches: Sequence[tuple[Posterior, PlanCandidates]],
    scores: Mapping[str, Float[np.ndarray, " draws"]],
    confidence: float,
) -> Measurement | None:
    """The run of a plan whose time is worth most to know; None where none changes the choice.

    A plan's benefit is minus its cost, minus a penalty for broken limits. The penalty is the shadow
    price of the required confidence, with which the best plan by expectation has that confidence.
    """
    plans, errors, limited = _options(searches)
    costs = np.array([c.usd_per_mtok for c in plans]) / best.usd_per_mtok
    price = shadow_price(costs, np.asarray(errors.holds), confidence)
    within = np.asarray(holds(errors.slack[:, :, None], errors.shared, errors.own[:, :, None]))
    certain = np.where(np.asarray(errors.holds) > 0.0, 1.0, 0.0)

    def benefit(within: Float[np.ndarray, "draws plans"]) -> Float[np.ndarray, "draws plans"]:
        return -costs - price * (1.0 - certain * within)

    shared = benefit(within.prod(axis=1).T)
    pooled = any(len(plan.pools) > 1 for plan in plans)
    asked = {name: z for name, z in scores.items() if pooled or POOLS not in name}
    unknowns = {name: perfect_information(shared, z) for name, z in asked.items()}
    unknown = max(unknowns, key=lambda name: unknowns[name])
    runs: dict[tuple[int, int], float] = {}
    repeated = np.repeat(within, OWN, axis=2)
    draws = repeated.shape[2]
    for k, j in np.argwhere(limited):
        own, step = normal_scores(1, draws, seed=int(k))[:, 0], errors.slack[k, j]
        error = np.repeat(errors.shared[k, j], OWN) + errors.own[k, j] * own
        measured = repeated.copy()
        measured[k, j] = error <= step
        value = perfect_information(benefit(measured.prod(axis=1).T), error, [float(step)])
        runs[int(k), int(j)] = value
    if not runs:
        return None
    (k, j), worth = max(runs.items(), key=lambda item: item[1])
    # with every error known, a plan keeps its limits or it does not
    own = normal_scores(errors.slack.size, draws, seed=0).T.reshape(*errors.slack.shape, draws)
    every = np.repeat(errors.shared, OWN, axis=2) + errors.own[:, :, None] * own
    all_times = benefit(np.all(every <= errors.slack[:, :, None], axis=1).T.astype(float))
    certainty = float(all_times.max(axis=1).mean() - all_times.mean(axis=0).max())
    if min(worth, certainty) < MIN_WORTH:
        return None
    shares = [min(x / certainty, 1.0) for x in (worth, unknowns[unknown])]
    if not unknown.startswith("the offset"):  # a coefficient, named by its path
        paths = [path for path, x in serving_coefficients().items() if x.symbol == unknown]
        unknown = f"the coefficient {[*paths, unknown][0]}"
    return Measurement(plans[k], OUTPUTS[j], worth, shares[0], unknown, shares[1])


def _options(
    searches: Sequence[tuple[Posterior, PlanCandidates]],
) -> tuple[list[Choice], Chances, Float[np.ndarray, "plans 2"]]:
    """The plans and rivals of every search, their chances, and which of their times are limited."""
    plans, parts, limited = list[Choice](), list[Chances](), list[np.ndarray]()
    for posterior, answer in searches:
        assert answer.space is not None
        own = [*answer.met, *answer.missed, *answer.rivals]
        own += [answer.by_mean] if answer.by_mean else []
        unique = {(c.mode, c.system, c.layout, c.batch): c for c in own}
        limits = answer.space.requirements
        times = limits.tpot < np.inf or limits.rate is not None, limits.of_ttft < np.inf
        for mode in MODES:
            some = [c for c in unique.values() if c.mode == mode]
            if some:
                plans += some
                parts.append(chances(some, answer.space, posterior))
                limited.append(np.tile(times, (len(some), 1)))
    errors = jax.tree.map(lambda *x: np.concatenate(x), *parts)
    return plans, errors, np.concatenate(limited)
