"""Expected value of information: what knowing a number before choosing is worth."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

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
    knots = np.unique(np.quantile(x, np.linspace(0.0, 1.0, KNOTS)))
    if len(knots) < 2:
        return 0.0
    hats = np.stack([np.interp(x, knots, row) for row in np.eye(len(knots))], axis=1)
    jumps = [np.where(x > step, 1.0, 0.0) for step in steps if x.min() < step < x.max()]
    basis = orthonormal([hats, *(jump[:, None] for jump in jumps)])
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
    columns = [np.ones((len(benefits), 1))]
    for x in parameters.T:
        knots = np.unique(np.quantile(x, np.linspace(0.0, 1.0, pieces)))
        columns += [np.stack([np.interp(x, knots, row) for row in np.eye(len(knots))[1:]], axis=1)]
    basis = orthonormal(columns)

    def gains(rows: Float[np.ndarray, "draws options"]) -> Float[np.ndarray, " draws"]:
        fitted = basis @ (basis.T @ rows)
        return fitted.max(axis=1) - fitted[:, int(np.argmax(fitted.mean(axis=0)))]

    random = np.random.default_rng(0)
    noise = [float(gains(random.permutation(benefits)).mean()) for _ in range(SHUFFLES)]
    value, error = mean_of_halves(gains(benefits))
    return value - float(np.mean(noise)), float(np.hypot(error, np.std(noise)))


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
    costs: Float[np.ndarray, " options"],
    chances: Float[np.ndarray, " options"],
    probability: float,
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
