"""What of the one fit goes into the package? Coefficients with intervals, and errors by server."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments._silicon import fit as silicon_fit
from experiments._validation import everything, makes
from experiments._validation.everything import Measured
from experiments._validation.row import Row
from infer_jax.calibration import Fit, covariance, identifiability, interval, left_out
from infer_jax.calibration.uncertainty import QUANTILES
from infer_jax.catalog import list_models
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
HEAD = """\
# Coefficients of the serving estimator, fitted to all measured rows at once, and how wrong it is.
# Source: our fit to {times} times of {rows} rows, measured up to {last}: aiconfigurator-core's
# silicon_sample.csv (NVIDIA, Apache-2.0), InferenceX (SemiAnalysis, Apache-2.0; fixtures of
# vngcloud/InferenceX-app @7fe6d62), TensorRT-LLM's performance overview, MLPerf Inference v5.1,
# ROCm/vllm docs/dev-docker/README.md @040de12 and inferencex-profiling @237385b (gpt-oss); by
# `python experiments/validation.py --fit --ship FILE`. SI units.
# value: fitted. low, high: 80 % interval by the jackknife over the {clusters} servers, no wider
# than what was believed beforehand. prior: value believed beforehand. learnt: standard deviation
# after the fit over that before it; near 1 the data say nothing.

[coefficients]
"""
MEASURED = """
# the models of those rows, with bundled ones of the same architecture; those of makes with
# generations of their own; and all rows by system and engine
[measured]
models = [{models}]
[measured.own]
"""
LEFT_OUT = """
# measured over predicted of closed loops whose group (server and lengths) was left out: median
# error in per cent, and factors that hold 50, 80 and 95 % of rows
"""
UNSEEN = """
# the same of what is new to the fit. system, model: closed loops of NVIDIA's systems and their
# models, each left out in turn and the rest fitted again; amd: the same of AMD's servers. make:
# AMD's chips with Hopper's coefficients. pools: rows in two pools of aiconfigurator-core, whose
# TTFT was never fitted. By `python experiments/validation.py --errors --ship FILE`
"""


def ship(path: Path, found: Fit, times: Measured, weights: np.ndarray) -> None:
    """Write the file that the package reads."""
    servers = times.labels(lambda row: row.group).tolist()
    used = [times.rows[i] for i in sorted(set(times.row[weights > 0]))]
    last = max(row.date for row in used if row.date)
    counts = {"times": int(np.sum(weights > 0)), "rows": len(used), "last": last}
    lines = [HEAD.format(**counts, clusters=len(set(servers)))]
    lines += _coefficients(found, servers)
    lines += _measured([row for row in used if row.group.split()[2] != "atom"])
    lines += _errors(found, times, weights)
    write_text(path, "".join(lines))


def _coefficients(found: Fit, servers: list[str]) -> list[str]:
    bounds = interval(found, covariance(found, servers), 0.8)
    learnt = {p.name: p.learnt for p in identifiability(found).parameters}
    symbols = {name: f.symbol for name, f in serving_coefficients().items()}
    lines = []
    for name, value in found.values.items():
        prior = everything.PRIORS[name]
        reach = np.exp(QUANTILES[0.8] * prior.spread)
        low, high = max(bounds[name][0], value / reach), min(bounds[name][1], value * reach)
        said = f"prior = {prior.value:g}, learnt = {learnt[name]:.2f}"
        for path in (name, *silicon_fit.TIES.get(name, ())):
            key = f'"{path}"' if "." in path else path
            symbol = symbols.get(path) or everything.SYMBOLS[path]
            lines.append(
                f'{key} = {{ symbol = "{symbol}", value = {value:.4g}, '
                f"low = {low:.4g}, high = {high:.4g}, {said} }}\n"
            )
    return lines


def _measured(rows: Sequence[Row]) -> list[str]:
    """Models, and rows of each system and engine; ATOM's are of no engine that is offered."""
    counts: dict[str, Counter[str]] = {}
    models: dict[str, set[str]] = {}
    for row in rows:
        assert row.served is not None
        counts.setdefault(row.system, Counter())[row.engine] += 1
        own = row.system if row.system in makes.CHIPS else ""
        known = {row.served.model, *TWINS.get(row.served.model, ())} & set(list_models())
        models.setdefault(own, set()).update(known)
    shared = models.pop("", set())
    lines = [MEASURED.format(models=_named(shared))]
    lines += [f"{name} = [{_named(found)}]\n" for name, found in sorted(models.items())]
    lines.append("[measured.rows]\n")
    for system, engines in sorted(counts.items()):
        cells = ", ".join(f"{engine} = {count}" for engine, count in sorted(engines.items()))
        lines.append(f"{system} = {{ {cells} }}\n")
    return lines


def _named(models: set[str]) -> str:
    return ", ".join(f'"{name}"' for name in sorted(models))


def _errors(found: Fit, times: Measured, weights: np.ndarray) -> list[str]:
    groups = times.labels(everything.lengths_of_server).tolist()
    ratio = np.exp(-left_out(found, groups, weights > 0))
    offered = times.labels(lambda r: r.asked == "loop" and r.group.split()[2] != "atom") == "True"
    first = np.isin(times.kind, (everything.TTFT, everything.MEDIAN))
    both = np.isin(times.row, times.row[first]) & offered & (weights > 0)
    kinds = times.labels(lambda row: f"{row.system}.{row.engine}")
    lines = [LEFT_OUT]
    for kind in np.unique(kinds[both]):
        among = both & (kinds == kind)
        count = len(set(times.row[among].tolist()))
        if count < LEAST:
            continue
        paces, firsts = ratio[among & ~first], ratio[among & first]
        lines.append(table(f"errors.{kind}", count, paces, firsts))
    return lines


def table(name: str, rows: int, tpot: np.ndarray, ttft: np.ndarray) -> str:
    """A table of errors, from measured over predicted."""
    cells = (f"{k} = {{ {_quantiles(x)} }}\n" for k, x in (("tpot", tpot), ("ttft", ttft)))
    return f"[{name}]\nrows = {rows}\n{''.join(cells)}"


def _quantiles(ratio: np.ndarray) -> str:
    cells = [f"median_error = {100.0 * np.median(np.abs(1.0 / ratio - 1.0)):.1f}"]
    for share in SHARES:
        low, high = np.quantile(ratio, ((1 - share) / 2, (1 + share) / 2))
        cells.append(f"within_{share * 100:.0f} = [{low:.3f}, {high:.3f}]")
    return ", ".join(cells)
