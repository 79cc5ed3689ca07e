"""The errors and bands of a split: its tables, its goals, and a file of predictions."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from experiments import _report
from experiments._columns import printed_rows
from experiments._validation.folds import NEW, TWIN, Fold
from infer_jax.calibration import interval_score
from infer_jax.calibration.pooled.likelihood import METRICS, PACE, TTFT, PooledTimes
from infer_jax.catalog.files import write_text
from infer_jax.catalog.foreign import read_toml
from infer_jax.physics.chance import Spread, ratio

NOTES: Any = read_toml(Path(__file__).with_name("notes.toml"))  # below the tables
BAND = ("in 80 %", "width", "Winkler", "constant")  # columns of a band
SHARES = (50, 80, 95)  # per cent of rows in a band
MIN_TIMES = 20  # times of a data set below which it has no line
LINES = ("pace", "TTFT", "throughput", "E2E", "TTFT, median")  # kinds of times
IN_BAND = (70.0, 88.0)  # goal, per cent of rows in a band for 80
BANDED_ROWS = 50  # rows from which on it is one
UNUSED = "a row that no fit uses: damaged, an anomaly, or pools whose workers are not known"


class Predicted(NamedTuple):
    """Logs of measured over predicted, by coefficients alone and with offsets; ends of bands.

    ``banded``: the log that bands are of: with offsets, or alone where a publisher is new.
    ``bands``: ends by share of ``SHARES``, low and high, of each time.
    """

    plain: np.ndarray
    offset: np.ndarray
    banded: np.ndarray
    bands: np.ndarray

    @classmethod
    def empty(cls, count: int) -> "Predicted":
        """Of times of which nothing is predicted yet."""
        none = np.full(count, np.nan)
        return cls(none, none.copy(), none.copy(), np.full((len(SHARES), 2, count), np.nan))

    def ends(self, share: int = 80) -> np.ndarray:
        """Low and high end of the band of a share, of each time."""
        return self.bands[SHARES.index(share)]

    def inside(self) -> np.ndarray:
        """Whether each time was measured within its 80 % band."""
        low, high = self.ends()
        return (low <= self.banded) & (self.banded <= high)


def quantile(confidence: float, bands: np.ndarray) -> np.ndarray:
    """log(measured / predicted) of each time below which a share of runs is, by its bands."""
    scores, _ = Spread.of(dict.fromkeys(SHARES, (0.5, 2.0)))
    logs = np.concatenate([bands[::-1, 0], bands[:, 1]])
    return np.asarray(ratio(NormalDist().inv_cdf(confidence), Spread(scores, logs)))


# the largest error of a kind of times of a data set, per cent
GOALS = printed_rows(Path(__file__).with_name("goals.csv"))
Figures = dict[str, dict[str, Any]]  # by data set, kind of times, name


def table(way: str, times: PooledTimes, found: Predicted, twin: np.ndarray) -> Figures:
    """Print errors by data set and kind of times, beside their goals; the figures.

    ``twin``: the times of rows of which a fold has seen the configuration on another day.
    """
    datasets, scored = times.labels(lambda row: row.dataset), np.isfinite(found.offset)
    lines, figures = [], {}
    pools = np.asarray([times.rows[i].mode == "pools" for i in times.row])
    flat = [np.log(mean_of_label(np.exp(x), 10 * times.kind + pools)) for x in found.ends()]
    parts = {name: datasets == name for name in dict.fromkeys(datasets.tolist())}
    for name, own in list(parts.items()):
        if (own & twin).any() and (own & ~twin).any():
            parts |= {f"{name}, {TWIN}": own & twin, f"{name}, {NEW}": own & ~twin}
    for dataset, inside in (parts | {"all": scored}).items():
        for kind, name in enumerate(LINES):
            own = (times.kind == kind) & scored & inside
            if own.sum() < (1 if dataset == "all" else MIN_TIMES):
                continue
            score = _score(found, flat, own)
            errors = (f"{score[k]:.1f}" for k in ("alone", "alone_bias", "median", "mean", "bias"))
            names = ("width80", "winkler80", "constant80")
            band = f"{score['cover80']:.0f}", *(f"{score[k]:.2f}" for k in names)
            figures.setdefault(dataset, {})[name] = score
            lines.append((dataset, name, score["rows"], *errors, *band))
    columns = ("rows of", "", "rows", "alone %", "bias %", "median %", "mean %", "bias %", *BAND)
    _report.show(f"Rows of a {way} left out", columns, lines, NOTES["split"])
    _show_goals(way, figures)
    return figures


def mean_of_label(factors: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The geometric mean of the factors that have the label of each; NaN stays."""
    logs = np.log(factors)
    means = logs.copy()
    for label in np.unique(labels):
        own = (labels == label) & np.isfinite(logs)
        means[own] = np.mean(logs[own]) if own.any() else np.nan
    return np.exp(means)


def _score(found: Predicted, flat: Sequence[np.ndarray], own: np.ndarray) -> dict[str, float]:
    plain, offset, banded = (x[own] for x in (found.plain, found.offset, found.banded))
    errors = 100.0 * np.abs(np.expm1(-offset))
    ends = [np.exp(np.asarray(x)[:, own]) for x in (found.ends(), flat)]
    figures = {
        "alone": np.median(100.0 * np.abs(np.expm1(-plain))),
        "alone_bias": 100.0 * np.expm1(-np.mean(plain)),
        "median": np.median(errors),
        "mean": np.mean(errors),
        "bias": 100.0 * np.expm1(-np.mean(offset)),
        "cover80": 100.0 * np.mean(found.inside()[own]),
        "width80": np.exp(np.mean(np.diff(np.log(ends[0]), axis=0))),
        "winkler80": interval_score(np.exp(banded), *ends[0]),
        "constant80": interval_score(np.exp(banded), *ends[1]),
    }
    return {"rows": int(own.sum()), **{name: float(x) for name, x in figures.items()}}


def _show_goals(way: str, figures: Figures) -> None:
    """Print the goals of a split, and the errors reached by coefficients alone and with offsets."""
    lines = []
    for goal in (row for row in GOALS if row["split"] == way):
        dataset, line, figure = (goal[name] for name in ("dataset", "line", "figure"))
        score, error = figures.get(dataset, {}).get(line), float(goal["error"])
        if score is not None:
            alone = f"{score['alone']:.1f}" if figure == "median" else ""
            reached = "yes" if score[figure] <= error else "no"
            name = f"{dataset}, {line}, {figure}"
            lines.append((name, f"{error:g}", alone, f"{score[figure]:.1f}", reached))
    if lines:
        columns = ("error %", "goal", "alone", "with offsets", "reached")
        _report.show("Goals of rows left out", columns, lines)
    if way == "source":
        columns = ("of each 100 rows, in a band for 80", "goal", "in it", "reached")
        (low, high), lines = IN_BAND, []
        for dataset, line, score in ((d, *item) for d, x in figures.items() for item in x.items()):
            inside = score["cover80"]
            if score["rows"] >= BANDED_ROWS:
                reached = "yes" if low <= inside <= high else "no"
                goal = f"{low:g} to {high:g}"
                lines.append((f"{dataset}, {line}", goal, f"{inside:.0f}", reached))
        _report.show("Goals of bands", columns, lines)


def write(
    path: Path,
    times: PooledTimes,
    found: Predicted,
    folds: Sequence[Fold],
    named: dict[str, tuple[str, str]],
) -> None:
    """A CSV line for every row that a split left out, or every id that a file of folds names.

    TPOT and TTFT in ms by coefficients and offsets with the ends of their 80 % bands, or a reason.
    """
    cells: dict[str, list[str]] = {}
    for fold in folds:
        for j in np.flatnonzero(~fold.seen):
            metric, kind = METRICS[times.metric[j]], times.kind[j]
            if (metric, kind) in (("tpot", PACE), ("ttft", TTFT)):
                center = times.seconds[j] * np.exp(-found.banded[j])
                values = 1e3 * center * np.exp([0.0, *found.ends()[:, j]])
                row = cells.setdefault(times.rows[times.row[j]].id, [fold.name, *[""] * 6])
                column = 1 if metric == "tpot" else 4
                row[column : column + 3] = [f"{x:.6g}" for x in values]
    listed = named or {name: ("", name) for name in cells}
    lines = [
        [name, *cells[row], ""] if row in cells else [name, *[""] * 7, UNUSED]
        for name, (_, row) in listed.items()
    ]
    columns = [f"{name}_{what}" for name in ("tpot", "ttft") for what in ("ms", "lo80", "hi80")]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([["id", "fold", *columns, "reason"], *lines])
    write_text(path, text.getvalue())
