"""The pooled fit as a problem: times of rows, coefficients, priors, and what a row counts.

Slopes are differences of the programs that predict, so that nothing is compiled for them.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from infer_jax.calibration.linearised import Linearised
from infer_jax.calibration.pooled.answers import (
    LAWS,
    OWN_HEADS,
    Columns,
    StackedRows,
    evaluate,
    shipped_fit,
    stack_rows,
)
from infer_jax.calibration.pooled.rows import PooledRow
from infer_jax.calibration.problem import Prior, at
from infer_jax.calibration.uncertainty import CAUCHY, Fit
from infer_jax.catalog.published import operator_priors, serving_coefficients
from infer_jax.estimators.serving import ENGINES, Serving

DIFFERENCE = 1e-4  # of a free coordinate, about a relative one of the coefficient
# rounds of a fit, and the relative gain of a round at which it ends: of a fit without some rows,
# and of the one that is shipped
STEPS, TOLERANCE, FINE = 12, 2e-3, 1e-4
METRICS = ("tpot", "ttft", "latency", "throughput", "e2e", "ttft_median")
FIRST = ("latency", "tpot", "throughput")  # of these the first that a row has is its pace
PACE, TTFT, RATE, WHOLE, MEDIAN = range(5)  # kinds of times
# by kind: the ordinary size of a log residual, and how much a time counts
SCALES, SHARES = (0.05, 0.15, 0.05, 0.05, 0.15), (1.0, 0.3, 0.0, 0.0, 0.3)


IN_SERVERS = 0.15  # how far a kernel in a server is from the same one timed alone, relative


def _of_engines(field: str, prior: Prior) -> dict[str, Prior]:
    """One prior of a coefficient of every engine."""
    return {f"{engine}.{field}": prior for engine in ENGINES}


# of AMD's generations: Hopper's shares and launches, within what Hopper and Blackwell differ by
# and more
AMD_PRIORS = {
    "gap": Prior(1.0, 0.5),
    "gemm_16": Prior(0.6, 0.3),
    "gemm_8": Prior(0.44, 0.3),
    "gemm_4": Prior(0.4, 0.3),
    "quantising": Prior(1.0, 0.5),
}
AMD_NAMES = tuple(f"{name}.{field}" for name in ("cdna3", "cdna4") for field in AMD_PRIORS)
# coefficients that share one number
TIES = {
    "hopper.gemm_8": ("hopper.gemm_4",),  # Hopper multiplies 4-bit numbers as 8-bit ones
    "blackwell.attention_16": ("hopper.attention_16",),  # kernels are alike, servers tell little
    "cdna4.grouped": ("cdna3.grouped",),
    "cdna4.attention_16": ("cdna4.attention_8", "cdna3.attention_16", "cdna3.attention_8"),
    # few rows of CDNA multiply much in 16 bits, and none so in 4 that it tells more than 8 bits do:
    # a share of 16 bits of its own made them faster than 8 bits
    "cdna3.gemm_8": ("cdna3.gemm_16", "cdna3.gemm_4"),
    "cdna4.gemm_8": ("cdna4.gemm_16", "cdna4.gemm_4"),
}
TIED = {name for names in TIES.values() for name in names}
# value and relative spread: kernels as others measured them, launch gaps of tens of microseconds
PRIORS = {
    **{
        name: Prior(x.value, np.hypot(x.spread, IN_SERVERS))
        for name, x in operator_priors().items()
        if name not in TIED
    },
    "hop": Prior(operator_priors()["hop"].value, 1.0),  # launches have a part of it
    "skew": Prior(0.3, 1.0),
    "cdna4.attention_16": Prior(0.4, 0.4),
    **_of_engines("layer_gap", Prior(2e-5, 1.0)),
    "expert_kernels": Prior(0.5, 1.0),
    **_of_engines("sequence_time", Prior(5e-6, 1.0)),
    "quantised_gap": Prior(5e-6, 1.0),
    "block_kernels": Prior(1.0, 1.0),
    "blackwell.quantising": Prior(1.0, 0.5),
    "blackwell.gap": Prior(0.8, 0.3),
    "far_hop": Prior(1e-5, 0.7),  # a round of NCCL over InfiniBand
    "latent_kernels": Prior(1.8, 0.3),
    "sparse_kernels": Prior(4.0, 0.3),
    **_of_engines("acceptance", Prior(0.65, 0.3)),
    **_of_engines("exchange", Prior(2e-5, 1.0)),
    "rack_exchange": Prior(1.0, 1.0),
    **_of_engines("front", Prior(0.02, 1.0)),
    **_of_engines("eager", Prior(5.0, 1.0)),
    # eager launches and their growth are a product that the rows hardly tell apart: the growth
    # begins where a fit to aiconfigurator-core's rows alone has it
    "eager_growth": Prior(4.2, 0.3),
    "trtllm.rank_kernels": Prior(0.2, 1.0),
    "monthly": Prior(0.02, 1.0),
    "cdna4.grouped": Prior(1.0, 0.5),
    **{name: AMD_PRIORS[name.partition(".")[2]] for name in AMD_NAMES if name not in TIED},
}
NAMES = tuple(PRIORS)
SYMBOLS = {name: "_".join(reversed(name.split("."))) for name in AMD_NAMES}
SYMBOLS["trtllm.rank_kernels"] = "k_R"
SYMBOLS["rack_exchange"] = "x_R"
SYMBOLS |= {f"{engine}.exchange": f"tauX_{engine[:3]}" for engine in ENGINES}
SYMBOLS |= {f"{engine}.acceptance": f"acc_{engine[:3]}" for engine in ENGINES}
# how much a row counts beside one of aiconfigurator-core's, which are most: of seven sets of
# numbers the one by which left-out groups of each data set are best predicted together
COUNTS = {
    "inferencex nvidia drafts": 3.0,
    "inferencex": 1.5,
    "rocm vllm latency": 1.5,
    "gpt-oss": 1.5,
}
POOLS, AT_ONCE = 1.0, 1.5  # of two pools; of throughput alone, where all requests come at once


class PooledTimes(NamedTuple):
    """Measured times: the row of each, its metric, and the kind of time that it is.

    Kinds: pace, TTFT (a mean, or the source does not say), throughput beside a pace, a whole
    request, the median of TTFT. A throughput is a time, too: seconds a token.
    """

    rows: Sequence[PooledRow]
    row: np.ndarray
    metric: np.ndarray
    kind: np.ndarray
    seconds: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[PooledRow]) -> "PooledTimes":
        """Of rows that are neither replayed nor of single passes."""
        times = []
        for i, row in enumerate(rows):
            if row.mode in ("pass", "replay"):
                continue
            kinds = {"throughput": RATE, "ttft": TTFT, "ttft_median": MEDIAN, "e2e": WHOLE}
            if row.median:  # the one is the other
                kinds = {"throughput": RATE, "ttft": MEDIAN, "e2e": WHOLE}
            kinds |= dict.fromkeys([m for m in FIRST if m in row.measured][:1], PACE)
            for metric, kind in kinds.items():
                if metric in row.measured:
                    value = row.measured[metric]
                    seconds = 1.0 / value if metric == "throughput" else value
                    times.append((i, METRICS.index(metric), kind, seconds))
        row, metric, kind, seconds = np.asarray(times, float).reshape(-1, 4).T
        return cls(rows, row.astype(int), metric.astype(int), kind.astype(int), seconds)

    def labels(self, of: Callable[[PooledRow], Hashable]) -> np.ndarray:
        """A label of each time, from its row."""
        return np.asarray([str(of(self.rows[i])) for i in self.row])

    def predicted(self, columns: Columns) -> np.ndarray:
        """The predicted seconds of each, from answers by metric."""
        table = np.stack([columns.get(m, np.full(len(self.rows), np.nan)) for m in METRICS])
        table[METRICS.index("throughput")] **= -1.0
        return table[self.metric, self.row]


class PooledProblem(Linearised):
    """A linearised problem whose slopes are differences: no program is compiled for them."""

    def derivatives(self, free: ArrayLike) -> tuple[Array, Array]:
        """Logarithms of the predictions and their Jacobian, rows x parameters."""
        base, slope = self.linearised(np.asarray(free, float))
        return jnp.asarray(base), jnp.asarray(slope())

    def linearised(self, free: np.ndarray) -> tuple[ArrayLike, Callable[[], ArrayLike]]:
        """Log predictions, and what computes their Jacobian, which takes as many as parameters."""
        base = np.asarray(self.logs(free))

        def slopes() -> np.ndarray:
            columns = []
            for k, x in enumerate(free):
                step = DIFFERENCE if x < 10.0 else -DIFFERENCE  # a share at its bound moves back
                moved = free.copy()
                moved[k] += step
                columns.append((np.asarray(self.logs(moved)) - base) / step)
            return np.stack(columns, axis=1)

        return base, slopes


def problem(
    times: PooledTimes, tolerance: float = TOLERANCE, fixed: Mapping[str, float] | None = None
) -> PooledProblem:
    """The fit of all coefficients but the ``fixed`` to all times; it starts at what is shipped."""
    rows, given = times.rows, fixed or {}
    new = {name: PRIORS[name].value for name in NAMES if name not in serving_coefficients()}
    base = shipped_fit().fitted({**new, **given})
    names = [name for name in NAMES if name not in given]
    ties = {name: tied for name, tied in TIES.items() if name in names}
    fitted_acceptance = np.asarray([row.acceptance is None for row in rows])

    @cache
    def parts() -> list[StackedRows]:
        return [part for part in stack_rows(rows, base) if part.mode in LAWS]

    def with_acceptance(part: StackedRows, fitted: Array) -> StackedRows:
        """Rows whose source does not print the acceptance of drafts have their engine's."""
        printed = part.inputs.facts["acceptance"]
        first = fitted[np.asarray(part.inputs.facts["engine"], int)]
        own = jnp.where(fitted_acceptance[part.rows, None], first[:, None] * OWN_HEADS, printed)
        return part.with_facts(acceptance=np.asarray(own))

    def predict(model: Serving) -> Array:
        fitted = jnp.stack([getattr(model, engine).acceptance for engine in ENGINES])
        own = (with_acceptance(part, fitted) for part in parts())
        return jnp.asarray(times.predicted(evaluate(model, own, LAWS, len(rows))))

    return PooledProblem.of(
        predict,
        times.seconds,
        base,
        names,
        priors={name: PRIORS[name] for name in names},
        ties=ties,
        scale=np.asarray(SCALES)[times.kind],
        loss=CAUCHY,
        tolerance=tolerance,
    )


def weights(times: PooledTimes, seen: np.ndarray | None = None) -> np.ndarray:
    """How much each time counts in the fit: the pace of a row, and TTFT but that of two pools.

    ``seen``: the times that a fit may use; None: all.
    """
    counts = np.asarray([_count(row) for row in times.rows])
    one_pool = np.asarray([row.mode != "pools" for row in times.rows])[times.row]
    used = (one_pool | (times.kind == PACE)) & (True if seen is None else seen)
    return np.where(used, np.asarray(SHARES)[times.kind] * counts[times.row], 0.0)


def _count(row: PooledRow) -> float:
    if row.mode == "pools":
        return 0.0 if row.dataset.startswith("silicon") else POOLS
    if "throughput" in row.measured and "tpot" not in row.measured:
        return AT_ONCE
    return next((x for name, x in COUNTS.items() if row.dataset.startswith(name)), 1.0)


def starts(made: PooledProblem, count: int) -> np.ndarray:
    """Free coordinates to start from: those of the shipped fit, then points in the priors.

    The points are the normal quantiles of a scrambled Sobol sequence, so that few of them cover
    the priors evenly. Source: Owen 1998, J. Complexity 14.
    """
    first = np.asarray(made.starts())
    if count < 2:
        return first
    from scipy.stats import norm, qmc  # of jax's own requirements

    names = made.chosen.names
    draws = qmc.Sobol(len(names), rng=0).random_base2(int(np.ceil(np.log2(count - 1))))
    priors = [made.priors[name] for name in names]
    value, spread = (np.asarray(x) for x in zip(*priors, strict=True))
    points = value * np.exp(spread * norm.ppf(draws[: count - 1]))
    inside = np.minimum(points, 0.98 * made.chosen.high)  # at a bound slopes are 0
    return np.concatenate(
        [first, [np.asarray(made.chosen.unbounded(jnp.asarray(x))) for x in inside]]
    )


def solve_starts(made: PooledProblem, times: PooledTimes, count: int) -> Fit:
    """The best end of ``count`` starts; ``losses`` has half the sums of squares, in order."""
    counted = weights(times)
    ends, losses = made.solve(starts(made, count), counted, STEPS)
    return at(made, ends[0], counted, losses[0])
