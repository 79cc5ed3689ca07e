"""One fit of everything: the coefficients of all makes, generations and engines to all rows.

This is the fit that the package carries (``ship.py``). The rows are those of every data set that is
not replayed: aiconfigurator-core's, InferenceX in one pool and in two, TensorRT-LLM's, MLPerf's,
ROCm's and gpt-oss. The problem, its priors and its robust loss are those of the fit to
aiconfigurator-core's rows alone (experiments/_silicon/fit.py), with AMD's generations beside them;
it starts at what is shipped. Slopes are differences of the programs that the scoreboard compiles,
so that nothing is compiled for it.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from experiments._silicon import fit as silicon_fit
from experiments._validation import estimates, makes, microbenchmarks
from experiments._validation.row import Row
from infer_jax.calibration import CAUCHY, Linearised, Prior
from infer_jax.catalog.published import serving_coefficients
from infer_jax.estimators.serving import ENGINES, Serving

STEP = 1e-4  # of a free coordinate, about a relative one of the coefficient
# relative gain of a round at which a fit ends: of a fold, and of what is shipped
STEPS, TOLERANCE, FINE = 12, 2e-3, 1e-4
METRICS = ("tpot", "ttft", "latency", "throughput", "e2e")
FIRST = ("latency", "tpot", "throughput")  # of these the first that a row has is its pace
PACE, TTFT, RATE, WHOLE, MEDIAN = range(5)  # kinds of times
SCALES = tuple(silicon_fit.SCALES[kind in (TTFT, MEDIAN)] for kind in range(5))
SHARES = (*silicon_fit.SHARES, 0.0, 0.0, silicon_fit.SHARES[1])
# what is believed of AMD's generations: Hopper's shares and launches, within what Hopper and
# Blackwell differ by and more
MAKE = makes.MAKE | {"quantising": Prior(1.0, 0.5)}
OWN = tuple(f"{name}.{field}" for name in makes.GENERATIONS for field in MAKE)
RANKS = "trtllm.rank_kernels"
NAMES = (*silicon_fit.NAMES, RANKS, *OWN)
PRIORS = silicon_fit.PRIORS | {name: MAKE[name.partition(".")[2]] for name in OWN}
PRIORS[RANKS] = Prior(0.2, 1.0)
# eager launches and their growth are a product that the rows hardly pull apart: the growth is held
# near where the fit to aiconfigurator-core's rows alone has it (2.5 to 7.1)
PRIORS["eager_growth"] = Prior(4.2, 0.1)
SYMBOLS = {name: "_".join(reversed(name.split("."))) for name in OWN} | {RANKS: "k_R"}
# how much a row counts beside one of aiconfigurator-core's, which are most: of seven sets of
# numbers the one by which groups that were left out of each data set are best predicted together
COUNTS = {
    "inferencex nvidia drafts": 3.0,
    "inferencex": 1.5,
    "rocm vllm latency": 1.5,
    "gpt-oss": 1.5,
}
POOLS, ONCE = 1.0, 1.5  # of two pools; of throughput, where all requests come at once
OF_ENGINE = ("layer_gap", "sequence_time", "front", "eager")


class Measured(NamedTuple):
    """Measured times: the row of each, its metric, and the kind of time that it is.

    Kinds: pace, TTFT (a mean, or not said), throughput beside a pace, a whole request, TTFT where
    the median alone is known. A throughput is a time, too: seconds a token.
    """

    rows: Sequence[Row]
    row: np.ndarray
    metric: np.ndarray
    kind: np.ndarray
    seconds: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[Row]) -> "Measured":
        """Of rows that are neither replayed nor of single passes."""
        found = []
        for i, row in enumerate(rows):
            if row.asked in ("pass", "replay"):
                continue
            median = "ttft_median" in row.measured and "ttft_mean" not in row.measured
            kinds = {"throughput": RATE, "ttft": MEDIAN if median else TTFT, "e2e": WHOLE}
            kinds |= dict.fromkeys([m for m in FIRST if m in row.measured][:1], PACE)
            for metric, kind in kinds.items():
                if metric in row.measured:
                    value = row.measured[metric]
                    seconds = 1.0 / value if metric == "throughput" else value
                    found.append((i, METRICS.index(metric), kind, seconds))
        row, metric, kind, seconds = np.asarray(found, float).reshape(-1, 4).T
        return cls(rows, row.astype(int), metric.astype(int), kind.astype(int), seconds)

    def labels(self, of: Any) -> np.ndarray:
        """A label of each time, from its row."""
        return np.asarray([str(of(self.rows[i])) for i in self.row])

    def times(self, found: dict[str, np.ndarray]) -> np.ndarray:
        """The predicted seconds of each, from answers by metric."""
        every = np.stack([found.get(m, np.full(len(self.rows), np.nan)) for m in METRICS])
        every[METRICS.index("throughput")] **= -1.0
        return every[self.metric, self.row]


class ByDifferences(Linearised):
    """A linearised problem whose slopes are differences: no program is compiled for them."""

    def derivatives(self, free: ArrayLike) -> tuple[Array, Array]:
        """Logarithms of the predictions and their Jacobian, rows x parameters."""
        here = np.asarray(free, float)
        base = np.asarray(self.logs(jnp.asarray(here)))
        columns = []
        for k, x in enumerate(here):
            step = STEP if x < 10.0 else -STEP  # a share at its bound moves back
            moved = here.copy()
            moved[k] += step
            columns.append((np.asarray(self.logs(jnp.asarray(moved))) - base) / step)
        return jnp.asarray(base), jnp.asarray(np.stack(columns, axis=1))


def start() -> Serving:
    """What is shipped, and what is believed of coefficients that are not yet."""
    new = {name: PRIORS[name].value for name in NAMES if name not in serving_coefficients()}
    return estimates.shipped().fitted(new)


def problem(times: Measured, tolerance: float = TOLERANCE) -> ByDifferences:
    """The fit of all coefficients to all times."""
    rows, base = times.rows, start()
    unknown = np.asarray([row.acceptance is None for row in rows])

    @cache
    def parts() -> list[tuple[np.ndarray, estimates.Loop]]:
        return estimates.stacked(rows, base)

    def predict(model: Serving) -> Array:
        found: dict[str, np.ndarray] = {}
        for places, given in parts():
            own = _accepting(given, unknown[places], model)
            for metric, values in estimates.PROGRAMS[rows[places[0]].asked](model, own).items():
                found.setdefault(metric, np.full(len(rows), np.nan))[places] = values
        return jnp.asarray(times.times(found))

    made = ByDifferences.of(
        predict,
        times.seconds,
        base,
        NAMES,
        priors=PRIORS,
        ties=silicon_fit.TIES,
        scale=np.asarray(SCALES)[times.kind],
        loss=CAUCHY,
        tolerance=tolerance,
    )
    assert isinstance(made, ByDifferences)
    return made


def _accepting(given: estimates.Loop, unknown: np.ndarray, model: Serving) -> estimates.Loop:
    """Rows with the fitted acceptance of drafts where their own is not known."""
    accepted = jnp.where(unknown, model.acceptance, given.facts.acceptance)
    return given._replace(facts=given.facts._replace(acceptance=np.asarray(accepted)))


def weights(times: Measured, seen: np.ndarray) -> np.ndarray:
    """How much each time counts in the fit: the pace of a row, and TTFT but that of two pools."""
    rows = np.asarray([_count(row) for row in times.rows])
    single = times.labels(lambda row: row.asked) != "pools"
    counted = seen & (single | (times.kind == PACE))
    return np.where(counted, np.asarray(SHARES)[times.kind] * rows[times.row], 0.0)


def _count(row: Row) -> float:
    if row.asked == "pools":
        return 0.0 if row.dataset.startswith("silicon") else POOLS
    if "throughput" in row.measured and "tpot" not in row.measured:
        return ONCE
    return next((x for name, x in COUNTS.items() if row.dataset.startswith(name)), 1.0)


def lengths_of_server(row: Row) -> tuple[object, ...]:
    """What rows share that are left out together: a server and its lengths."""
    assert row.work is not None
    return row.dataset, row.group, float(row.work.isl), float(row.work.osl)


def without(free: np.ndarray, made: ByDifferences, left: str) -> np.ndarray:
    """Coordinates in which AMD's generations, or an engine, have what the others share.

    AMD's have it times what micro-benchmarks say.
    """
    places = {name: i for i, name in enumerate(made.chosen.names)}
    if left == "amd":
        values = dict(zip(places, np.asarray(made.chosen.values(jnp.asarray(free))), strict=True))
        known = {f"hopper.{field}": 1.0 for field in ("gap", "grouped", "quantising")}
        known["blackwell.grouped"] = 1.0
        values = {"hopper.gemm_4": values["hopper.gemm_8"]} | known | values
        for name in OWN:
            field = name.partition(".")[2]
            shared = np.sqrt(values[f"hopper.{field}"] * values[f"blackwell.{field}"])
            own = microbenchmarks.of_coefficient(name.partition(".")[0], field)
            values[name] = shared * own
        ordered = np.asarray([values[name] for name in made.chosen.names])
        moved = np.asarray(made.chosen.unbounded(jnp.asarray(ordered)))
        return np.where(np.isin(made.chosen.names, OWN), moved, free)
    moved = free.copy()
    others = [name for name in ENGINES if name != left]
    for field in OF_ENGINE:
        moved[places[f"{left}.{field}"]] = np.mean([free[places[f"{x}.{field}"]] for x in others])
    return moved
