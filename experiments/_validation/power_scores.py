"""Errors of the power of servers that a fit has not seen, and the file that the package carries."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments import _report
from experiments._validation import power
from experiments._validation.power import FIELDS, Rows
from experiments._validation.scores import score
from infer_jax.calibration import at, covariance, identifiability
from infer_jax.calibration.pooled.rows import PooledRow
from infer_jax.calibration.uncertainty import Fit
from infer_jax.catalog.files import write_text
from infer_jax.estimators.serving import GENERATIONS

LEAST = 15  # rows of a generation whose errors are given apart
SHARES = (0.5, 0.8, 0.95)
REACH = 1.2816  # deviations of an 80 % interval
UNSEEN = "unseen"
HEAD = """\
# What chips draw, as shares of their board power. Source: our fit to {rows} rows with watts of
# {clusters} servers: MI355X of InferenceX (SemiAnalysis, Apache-2.0; fixtures of
# vngcloud/InferenceX-app @7fe6d62), gpt-oss-120b on H200 of GloriaXimingLu/inferencex-profiling
# @237385b, H100 and B200 of ML.ENERGY (ml-energy/leaderboard @0ea52b6, Chung et al. 2026, arXiv
# 2601.22076); by `python experiments/power.py --ship FILE`.
# low, high: 80 % interval by the jackknife over servers. prior: of the mean of all makes.
# learnt: standard deviation after the fit over that before it; near 1 the data say nothing.
# No row is of CDNA 3, which has AMD's shares. unseen: a chip of a make without rows; the interval
# has the spread of makes and generations.
"""


def run(rows: Sequence[PooledRow]) -> dict[str, Any]:
    """Score servers and generations left out; print a table and return the headline."""
    found = power.with_watts(rows)
    labels = np.asarray([row.dataset for row in found.rows])
    lines, headline = [], {}
    for way in ("servers", "generations"):
        predicted = power.left_out(found, way)
        ends = np.stack([_ends(found, predicted, i) for i in range(len(labels))], axis=1)
        for dataset in ("all", *dict.fromkeys(labels.tolist())):
            among = (labels == dataset) | (dataset == "all")
            shares = found.predicted.shares[among]
            one = score(predicted[among], shares, *(predicted[among] * ends[:, among]))
            assert one is not None and one.cover80 is not None and one.width80 is not None
            figures = (one.rows, *(round(x, 1) for x in one[1:4]))
            band = (round(one.cover80), round(one.width80, 2))
            lines.append((f"{way} left out", dataset, *figures, *band))
            names = ("rows", "median", "mean", "bias", "cover80", "width80")
            headline.setdefault(way, {})[dataset] = dict(zip(names, (*figures, *band), strict=True))
    columns = ("", "rows of", "rows", "median %", "mean %", "bias %", "in 80 %", "width")
    note = "A row's band has the errors of all other servers that were left out."
    _report.show("Power of a chip, by predicted times", columns, lines, note)
    return headline


def _ends(found: Rows, predicted: np.ndarray, i: int) -> np.ndarray:
    """Factors between which 80 % of measured over predicted are, of other servers."""
    others = found.groups != found.groups[i]
    return np.quantile((found.predicted.shares / predicted)[others], (0.1, 0.9))


def ship(path: Path, rows: Sequence[PooledRow]) -> None:
    """Fit all rows and write the file that the package reads."""
    found = power.with_watts(rows)
    made, weights = power.problem(found.timed), power.weights(found)
    ends, _ = made.solve(made.starts(1, 0.0, 0), weights, power.STEPS)
    fit = at(made, ends[0], weights)
    groups = found.groups.tolist()
    used = len({g for g, w in zip(groups, weights, strict=True) if w > 0})
    lines = [HEAD.format(rows=int((weights > 0).sum()), clusters=used)]
    covered = covariance(fit, groups)
    for generation in (*GENERATIONS, None):
        lines.append(f"\n[shares.{generation or UNSEEN}]\n")
        values: Any = power.shares_of(fit.tree, generation)  # pyright: ignore[reportArgumentType]
        lines += [_share(name, float(values[name]), fit, covered, generation) for name in FIELDS]
    lines.append(
        "\n# measured over predicted power of rows whose server was left out, by predicted times;"
        "\n# of unseen chips of rows whose generation was left out\n"
    )
    own = power.left_out(found, "servers")
    for i, generation in enumerate(GENERATIONS):
        among = found.predicted.generation == i
        if among.sum() >= LEAST:
            lines.append(_errors(generation, (found.predicted.shares / own)[among]))
    others = power.left_out(found, "generations")
    lines.append(_errors(UNSEEN, found.predicted.shares / others))
    write_text(path, "".join(lines))


def _share(name: str, value: float, fit: Fit, covered: np.ndarray, generation: str | None) -> str:
    """A share with its interval: the variance of the sum of the logarithms of its factors."""
    parts = [0]
    if generation is not None:
        make = 1 + power.MADE_BY[generation]
        parts += [make, 1 + len(power.MAKES) + GENERATIONS.index(generation)]
    names = list(fit.parameters.names)
    places = [names.index(f"{i}.{name}") for i in parts]
    variance = float(np.sum(covered[np.ix_(places, places)]))
    variance += 0.0 if generation else 2.0 * power.RATIO**2
    reach = REACH * np.sqrt(variance)
    learnt = {p.name: p.learnt for p in identifiability(fit).parameters}
    known = max(learnt[names[k]] or 1.0 for k in places)
    return (
        f"{name} = {{ value = {value:.4g}, low = {value * np.exp(-reach):.4g}, "
        f"high = {value * np.exp(reach):.4g}, prior = {power.MEAN[name].value:g}, "
        f"learnt = {known:.2f} }}\n"
    )


def _errors(name: str, ratio: np.ndarray) -> str:
    lines = [f"[errors.{name}]\nrows = {len(ratio)}\n"]
    lines.append(f"median_error = {100.0 * np.median(np.abs(1.0 / ratio - 1.0)):.1f}\n")
    for share in SHARES:
        low, high = np.quantile(ratio, ((1 - share) / 2, (1 + share) / 2))
        lines.append(f"within_{share * 100:.0f} = [{low:.3f}, {high:.3f}]\n")
    return "".join(lines)
