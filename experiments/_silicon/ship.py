"""What of the fit goes into the package? Coefficients with intervals, and errors by server kind."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments._silicon import fit as fitting
from experiments._silicon.rows import Row
from infer_jax.calibration import (
    Fit,
    FitProblem,
    at,
    covariance,
    identifiability,
    interval,
    left_out,
)
from infer_jax.catalog.files import write_text
from infer_jax.catalog.published import serving_coefficients

SHARES = (0.5, 0.8, 0.95)
LEAST = 30  # rows of a system and engine whose errors are given apart
# bundled models of the architecture of a measured one
TWINS = {
    "deepseek-r1": ("deepseek-v3",),
    "kimi-k2.5": ("kimi-k2",),
    "llama-3.1-70b": ("llama-3.3-70b",),
}
HEAD = """# Coefficients of the serving estimator fitted to measured rows, and how wrong it then is.
# Source: our fit to the {rows} clean aggregated rows of silicon_sample.csv in aiconfigurator-core
# (NVIDIA, Apache-2.0), measured up to {last}; made by
# `python experiments/silicon.py --cv groups --ship FILE`. SI units.
# value: fitted. low, high: 80 % interval by the jackknife over the {clusters} groups of model,
# system and engine. prior: value believed beforehand. learnt: standard deviation after the fit
# over that before it; near 1 the data say nothing.
"""


def ship(path: Path, problem: FitProblem, rows: Sequence[Row]) -> Fit:
    """Fit all clean rows and write the file; the fit."""
    clean = np.asarray([r.clean for r in rows])
    used = fitting.counted(clean)
    ends, _ = problem.solve(problem.starts(1, 0.0, 0), used, fitting.STEPS)
    found = at(problem, ends[0], used)
    write_text(path, "".join(_lines(found, rows, clean)))
    return found


def _lines(found: Fit, rows: Sequence[Row], clean: np.ndarray) -> list[str]:
    servers = [f"{r.family} {r.system} {r.engine}" for r in rows]
    used = [s for s, c in zip(servers, clean, strict=True) if c]
    last = max(r.date for r, c in zip(rows, clean, strict=True) if c)
    lines = [HEAD.format(rows=int(clean.sum()), last=last, clusters=len(set(used)))]
    bounds = interval(found, covariance(found, servers * 2), 0.8)
    learnt = {p.name: p.learnt for p in identifiability(found).parameters}
    symbols = {name: f.symbol for name, f in serving_coefficients().items()}
    lines.append("\n[coefficients]\n")
    for name, value in found.values.items():
        low, high = bounds[name]
        for path in (name, *fitting.TIES.get(name, ())):
            key = f'"{path}"' if "." in path else path
            said = f"prior = {fitting.PRIORS[name].value:g}, learnt = {learnt[name]:.2f}"
            symbol = symbols.get(path) or symbols.get(name, name)  # new ones have none yet
            lines.append(
                f'{key} = {{ symbol = "{symbol}", value = {value:.4g}, '
                f"low = {low:.4g}, high = {high:.4g}, {said} }}\n"
            )
    lines += _measured(rows, clean)
    lines.append(
        "\n# measured over predicted of rows whose group (model, system, engine, lengths) was\n"
        "# left out: median error in per cent, and factors that hold 50, 80 and 95 % of rows\n"
    )
    groups = [" ".join(map(str, r.group)) for r in rows]
    errors = left_out(found, groups * 2, np.tile(clean, 2)).reshape(2, -1)
    kinds = sorted({(r.system, r.engine) for r in rows})
    for system, engine in kinds:
        among = clean & np.asarray([(r.system, r.engine) == (system, engine) for r in rows])
        if among.sum() < LEAST:
            continue
        lines.append(f"[errors.{system}.{engine}]\nrows = {int(among.sum())}\n")
        for name, error in zip(("tpot", "ttft"), errors, strict=True):
            ratio = np.exp(-error[among])
            median = 100.0 * np.median(np.abs(1.0 / ratio - 1.0))
            cells = [f"median_error = {median:.1f}"]
            for share in SHARES:
                edges = np.quantile(ratio, ((1 - share) / 2, (1 + share) / 2))
                cells.append(f"within_{share * 100:.0f} = [{edges[0]:.3f}, {edges[1]:.3f}]")
            lines.append(f"{name} = {{ {', '.join(cells)} }}\n")
    return lines


def _measured(rows: Sequence[Row], clean: np.ndarray) -> list[str]:
    """The models and the number of rows of each system and engine."""
    used = [r for r, c in zip(rows, clean, strict=True) if c]
    models = {twin for r in used for twin in (r.model, *TWINS.get(r.model, ()))}
    counts: dict[str, Counter] = {}
    for row in used:
        counts.setdefault(row.profile, Counter())[row.engine] += 1
    named = ", ".join(f'"{name}"' for name in sorted(models))
    lines = [
        "\n# the models of those rows, with bundled ones of the same architecture, and all rows by"
        " system and\n# engine\n",
        f"[measured]\nmodels = [{named}]\n[measured.rows]\n",
    ]
    for system, engines in sorted(counts.items()):
        cells = ", ".join(f"{engine} = {count}" for engine, count in sorted(engines.items()))
        lines.append(f"{system} = {{ {cells} }}\n")
    return lines
