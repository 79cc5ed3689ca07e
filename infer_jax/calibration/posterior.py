"""Draws of the coefficients of a serving model, and what knowing a number before choosing is worth.

The draws are stratified and antithetic, from a seed: equal questions have equal answers, and the
mean of the draws is that of the intervals' distributions to first order.
"""

from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from infer_jax.calibration.bounds import parameters
from infer_jax.calibration.uncertainty import QUANTILES
from infer_jax.catalog.published import serving_coefficients
from infer_jax.estimators.serving import ENGINES, GENERATIONS, Serving
from infer_jax.specs import leaves

DRAWS = 256
MAX_SCORE = 1.959963984540054  # largest score drawn, that of 95 % intervals
SAME = 1e-9  # relative difference up to which a coefficient counts as the fitted one
_QUANTILE = np.vectorize(NormalDist().inv_cdf, otypes=[float])


class Interval(NamedTuple):
    """The 80 % interval of a coefficient; coefficients of one ``symbol`` share their draws."""

    symbol: str
    low: float
    high: float


def normal_scores(
    names: int, draws: int = DRAWS, seed: int = 0
) -> Float[np.ndarray, "draws names"]:
    """Standard normal draws: a Latin hypercube of half of them, and its mirror image.

    Source: McKay, Beckman and Conover 1979, Technometrics 21; antithetic: Hammersley and Morton
    1956, Proceedings of the Cambridge Philosophical Society 52.

    >>> drawn = normal_scores(3, 64)
    >>> drawn.shape, bool(abs(drawn.sum(axis=0)).max() < 1e-9)
    ((64, 3), True)
    """
    random, half = np.random.default_rng(seed), draws // 2
    cells = np.stack([random.permutation(half) for _ in range(names)], axis=1)
    share = (cells + random.uniform(size=cells.shape)) / half
    half_scores = _QUANTILE(np.clip(share, 1e-9, 1.0 - 1e-9))
    return np.concatenate([half_scores, -half_scores])


def shipped_intervals(serving: Serving) -> dict[str, Interval]:
    """The intervals of the bundled fit, of coefficients that have its values.

    Left out are coefficients of other engines and generations than the chosen ones, and those that
    a profile or an option has set, which count as known.
    """
    others = {*ENGINES, *GENERATIONS} - {
        ENGINES[int(serving.engine)],
        GENERATIONS[int(serving.generation)],
    }
    values = {path: float(x) for path, _, x in leaves(serving) if not np.ndim(x)}
    return {
        path: Interval(one.symbol, one.low, one.high)
        for path, one in serving_coefficients().items()
        if abs(values.get(path, np.nan) - one.value) <= SAME * abs(one.value)
        and path.partition(".")[0] not in others
    }


# fields of a generation's coefficients that one score moves together
OF_GENERATION = {
    "products": ("gemm_16", "gemm_8", "gemm_4", "blocked"),
    "decode attention": ("attention_16", "attention_8"),
    "launch gaps": ("gap", "quantising"),
    "products of experts": ("grouped",),
}


def new_chip_laws(serving: Serving) -> dict[str, tuple[str, float, float]]:
    """(symbol, median, deviation of the logarithm) of coefficients on a chip without measured rows.

    Those of its generation are as of one more generation than were fitted: normal in logarithms
    with the mean and standard deviation s of the four (Hopper, Blackwell, CDNA 3, CDNA 4: two
    makes), and s sqrt(1 + 1/4) for the mean is not known. Those that all makes share have the
    intervals of the fit.
    """
    fitted = Serving.of()
    own = GENERATIONS[int(serving.generation)]
    laws: dict[str, tuple[str, float, float]] = {}
    for path, one in shipped_intervals(serving).items():
        if not path.startswith(f"{own}."):
            deviation = np.log(one.high / one.low) / (2.0 * QUANTILES[0.8])
            laws[path] = one.symbol, serving_coefficients()[path].value, float(deviation)
    for symbol, fields in OF_GENERATION.items():
        for field in fields:
            values = [float(getattr(getattr(fitted, name), field)) for name in GENERATIONS]
            logs = np.log(np.maximum(values, 1e-9))
            spread = float(np.std(logs, ddof=1) * np.sqrt(1.0 + 1.0 / len(logs)))
            laws[f"{own}.{field}"] = symbol, float(np.exp(np.mean(logs))), spread
    return {path: law for path, law in laws.items() if law[2] > 0.0}


def with_draws(
    serving: Serving,
    intervals: Mapping[str, Interval],
    scores: Mapping[str, Float[np.ndarray, " draws"]],
    draws: int,
) -> Serving:
    """The model as it is and at each draw: every leaf has 1 + ``draws`` rows.

    The logarithm of a coefficient differs from its value's by a score times a deviation, within its
    bounds; the interval's upper end gives the deviation above the value, the lower end that below.
    Scores are cut at ``MAX_SCORE``, since intervals say nothing of the far tails.
    ``scores``: normal scores by symbol.
    """

    def repeated(x: object) -> np.ndarray:
        return np.repeat(np.asarray(x)[None], 1 + draws, axis=0)

    flat, structure = jax.tree.flatten(jax.tree.map(repeated, serving))
    if intervals:
        fitted = parameters(serving, list(intervals))
        value = np.array([float(np.asarray(flat[first])[0]) for first, *_ in fitted.indices])
        low, high = np.array([(one.low, one.high) for one in intervals.values()]).T
        z = np.stack([scores[one.symbol] for one in intervals.values()], axis=1)
        z = np.clip(z, -MAX_SCORE, MAX_SCORE) / QUANTILES[0.8]
        sides = np.maximum(high / value, 1.0), np.minimum(low / value, 1.0)
        moved = value * np.where(z > 0.0, sides[0] ** np.abs(z), sides[1] ** np.abs(z))
        values = np.clip(moved, fitted.low, fitted.high)
        for indices, column in zip(fitted.indices, values.T, strict=True):
            for i in indices:
                flat[i][1:] = column
    return jax.tree.unflatten(structure, flat)


KNOTS, FEW_KNOTS = 8, 2  # of one parameter, and of each of several, which are straight lines
SHUFFLES = 64


def perfect_information(
    benefits: Float[np.ndarray, "draws options"],
    parameter: Float[np.ndarray, " draws"],
    steps: Sequence[float] = (),
) -> float:
    """Expected value of knowing a parameter, in the unit of the benefits; at least 0.

    E[max_k E(b_k | x)] - max_k E(b_k), the inner mean the regression of each option's benefit on
    the parameter: straight pieces between quantiles, with jumps at ``steps``, where a limit breaks.
    Source: Strong, Oakley and Brennan 2014, Medical Decision Making 34 (whose regressions are
    additive models and Gaussian processes).

    >>> draws = np.random.default_rng(0).normal(size=4000)
    >>> known = perfect_information(np.stack([0.0 * draws, draws], axis=1), draws)
    >>> round(known, 1)  # E max(0, x) = 1 / sqrt(2 pi)
    0.4
    """
    x = np.asarray(parameter, float)
    if np.ptp(x) == 0.0:
        return 0.0
    jumps = [np.where(x > step, 1.0, 0.0) for step in steps if x.min() < step < x.max()]
    basis = orthonormal([hats(x, KNOTS), *(jump[:, None] for jump in jumps)])
    fitted = basis @ (basis.T @ benefits)
    # residuals average to 0, so both terms are of the same regression
    return max(float(np.max(fitted, axis=1).mean() - np.max(fitted.mean(axis=0))), 0.0)


def information_value(
    benefits: Float[np.ndarray, "draws options"], parameters: Float[np.ndarray, "draws parameters"]
) -> tuple[float, float]:
    """(value, standard error) of knowing some parameters before choosing, in the unit of benefits.

    As ``perfect_information``, of several parameters additive and linear, less what the same
    regression gains from parameters in another order, which tell nothing (64 shuffles): a maximum
    of fitted means is above the maximum of means (Strong and Oakley 2013, Medical Decision Making
    33, on bins). The error is that of draws, which come as two halves, the second the first
    mirrored or independent of it (``normal_scores``), and of the shuffles' scatter.

    >>> half = np.random.default_rng(0).normal(size=4000)
    >>> draws = np.concatenate([half, -half])
    >>> value, _ = information_value(np.stack([0.0 * draws, draws], axis=1), draws[:, None])
    >>> round(value, 1)  # 1 / sqrt(2 pi)
    0.4
    """
    pieces = KNOTS if parameters.shape[1] == 1 else FEW_KNOTS
    every = (hats(x, pieces)[:, 1:] for x in parameters.T)
    basis = orthonormal([np.ones((len(benefits), 1)), *every])

    def gains(rows: Float[np.ndarray, "draws options"]) -> Float[np.ndarray, " draws"]:
        fitted = basis @ (basis.T @ rows)
        return fitted.max(axis=1) - fitted[:, int(np.argmax(fitted.mean(axis=0)))]

    random = np.random.default_rng(0)
    noise = [float(gains(random.permutation(benefits)).mean()) for _ in range(SHUFFLES)]
    value, error = mean_of_halves(gains(benefits))
    return value - float(np.mean(noise)), float(np.hypot(error, np.std(noise)))


def hats(x: Float[np.ndarray, " draws"], count: int) -> Float[np.ndarray, "draws _"]:
    """Straight pieces between ``count`` quantiles of a parameter: 1 at one of them, 0 at others."""
    knots = np.unique(np.quantile(x, np.linspace(0.0, 1.0, count)))
    return np.stack([np.interp(x, knots, row) for row in np.eye(len(knots))], axis=1)


def orthonormal(columns: Sequence[Float[np.ndarray, "draws _"]]) -> Float[np.ndarray, "draws _"]:
    """A basis of what columns span: a regression on them is ``basis @ (basis.T @ y)``.

    From the eigenvectors of their few products, which for many draws takes a tenth of the time of
    ``lstsq``; directions of less than a hundred-thousandth of the longest are left out.
    """
    every = np.concatenate(columns, axis=1)
    squares, turns = np.linalg.eigh(every.T @ every)
    kept = squares > 1e-10 * squares[-1]
    return every @ (turns[:, kept] / np.sqrt(squares[kept]))


def mean_of_halves(values: Float[np.ndarray, " draws"]) -> tuple[float, float]:
    """(mean, its standard error) over draws that come as two halves, mirrored or independent."""
    half = len(values) // 2
    pairs = (values[:half] + values[half : 2 * half]) / 2.0
    return float(pairs.mean()), float(pairs.std(ddof=1) / np.sqrt(half))


def shadow_price(
    costs: Float[np.ndarray, " options"], chances: Float[np.ndarray, " options"], probability: float
) -> float:
    """Cost of one unit of probability, where limits must hold with a ``probability``.

    The Lagrange multiplier of the least expected cost over mixtures of options that hold with
    that ``probability``: the k with the greatest min_j (cost_j + k (probability - chance_j)); 0
    where the cheapest option satisfies it, the largest finite slope where none does. Source: Boyd
    and Vandenberghe 2004, 5.6.3.
    """
    reached = min(probability, float(chances.max()) - 1e-9)
    rise = costs[:, None] - costs[None, :]
    run = chances[:, None] - chances[None, :]
    slopes = rise[run > 1e-9] / run[run > 1e-9]
    prices = np.unique(np.concatenate([[0.0], np.maximum(slopes, 0.0)]))
    dual = np.min(costs[None, :] + prices[:, None] * (reached - chances[None, :]), axis=1)
    return float(prices[int(np.argmax(dual))])
