"""The files that the package reads, written from the pooled fit and its errors."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np

from infer_jax.calibration.pooled.likelihood import MEDIAN, PRIORS, SYMBOLS, TIES, TTFT, PooledTimes
from infer_jax.calibration.pooled.publishers import NewErrors, offered_loops
from infer_jax.calibration.pooled.rows import AMD, PooledRow
from infer_jax.calibration.statistics import left_out_log_errors
from infer_jax.calibration.uncertainty import QUANTILES, Fit, covariance, identifiability, interval
from infer_jax.catalog import list_models
from infer_jax.catalog.published import ErrorLaw, serving_coefficients

SHARES = (0.5, 0.8, 0.95)
MIN_ROWS = 30  # rows of a system and engine below which their errors are not given
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
# `python -m infer_jax.calibration.pooled --ship FILE`. SI units.{starts}
# value: fitted. low, high: 80 % interval by the jackknife over the {clusters} servers, no wider
# than what was believed beforehand. prior: value believed beforehand. learnt: standard deviation
# after the fit over that before it; near 1 the data say nothing.

[coefficients]
"""
STARTS = """
# Half the sum of squares at the end of each start, the first at what was shipped before: {losses}.
"""
MEASURED = """
# the models of those rows, with bundled ones of the same architecture; those of makes with
# generations of their own; and all rows by system and engine
[measured]
models = [{models}]
[measured.own]
"""
ROWS = "[measured.rows]\n"
WIDTHS = "# of them by bits of the weights of feedforward\n[measured.weights]\n"
LEFT_OUT = """
# measured over predicted of closed loops whose group (server and lengths) was left out: median
# error in per cent, and factors that hold 50, 80 and 95 % of rows
"""
UNSEEN = """
# the same of what is new to the fit. system, model: closed loops of NVIDIA's systems and their
# models, each left out in turn and the rest fitted again; amd: the same of AMD's servers. make:
# AMD's chips with Hopper's coefficients. pools: rows in two pools of aiconfigurator-core, whose
# TTFT was never fitted. By `python -m infer_jax.calibration.pooled --errors --ship FILE`
"""
PUBLISHERS = """\
# How far measured is from predicted on servers of a publisher of whom no fit has seen a row.
# Source: {rows} rows of {publishers} publishers, each predicted by a fit to the others' rows;
# `python -m infer_jax.calibration.pooled --publishers --ship FILE`.
# scale: of log(measured / predicted), at 32 requests in flight of an instance whose prompts are as
# long as outputs. slopes: added to log scale by 64 times the requests and by prompts of 16 outputs,
# where that lowers the interval score of publishers left out. within: over the scale, quantiles
# that hold 50, 80 and 95 % of runs, a data set as 12 rows at most. common: share of the variance
# that layouts and loads of a server have in common.
"""


def fit_file(fit: Fit, times: PooledTimes) -> str:
    """The text of ``serving.toml`` up to its errors of what is new."""
    servers = times.labels(lambda row: row.group).tolist()
    used = [times.rows[i] for i in sorted(set(times.row[fit.weights > 0]))]
    losses = ", ".join(f"{x:.2f}" for x in fit.losses)
    head = HEAD.format(
        times=int(np.sum(fit.weights > 0)),
        rows=len(used),
        last=max(row.date for row in used if row.date),
        clusters=len(set(servers)),
        starts=STARTS.format(losses=losses).rstrip() if losses else "",
    )
    offered = [row for row in used if row.framework != "atom"]
    parts = [head, *_coefficients(fit, servers), *_measured(offered), *_errors(fit, times)]
    return "".join(parts)


def _coefficients(fit: Fit, servers: list[str]) -> Iterator[str]:
    bounds = interval(fit, covariance(fit, servers), 0.8)
    learnt = {p.name: p.learnt for p in identifiability(fit).parameters}
    symbols = SYMBOLS | {name: f.symbol for name, f in serving_coefficients().items()}
    for name, value in fit.values.items():
        prior = PRIORS[name]
        reach = np.exp(QUANTILES[0.8] * prior.spread)
        low, high = max(bounds[name][0], value / reach), min(bounds[name][1], value * reach)
        for path in (name, *TIES.get(name, ())):
            key = f'"{path}"' if "." in path else path
            yield (
                f'{key} = {{ symbol = "{symbols[path]}", value = {value:.4g}, low = {low:.4g}, '
                f"high = {high:.4g}, prior = {prior.value:g}, learnt = {learnt[name]:.2f} }}\n"
            )


def _measured(rows: Sequence[PooledRow]) -> Iterator[str]:
    """Models, and rows of each system and engine; ATOM's are of no engine that is offered."""
    counts, widths = Counter[tuple](), Counter[tuple]()
    models: dict[str, set[str]] = {"": set()}
    for row in rows:
        assert row.served is not None
        width = int(8.0 * row.served.formats.feedforward[0])  # 4.25 and 4.5 with scales are 4
        counts[row.system, row.engine] += 1
        widths[row.system, row.engine, width] += 1
        own = row.system if row.system in AMD else ""
        bundled = {row.model, *TWINS.get(row.model, ())} & set(list_models())
        models.setdefault(own, set()).update(bundled)
    listed = {
        name: ", ".join(f'"{x}"' for x in sorted(bundled)) for name, bundled in models.items()
    }
    yield MEASURED.format(models=listed.pop(""))
    yield from (f"{name} = [{own}]\n" for name, own in sorted(listed.items()))
    for head, table in ((ROWS, counts), (WIDTHS, widths)):
        yield head
        for place, own in groupby(sorted(table.items()), lambda item: item[0][:-1]):
            cells = ", ".join(f"{labels[-1]} = {count}" for labels, count in own)
            yield f"{'.'.join(place)} = {{ {cells} }}\n"


def _errors(fit: Fit, times: PooledTimes) -> Iterator[str]:
    """Errors by system and engine of closed loops whose server and lengths were left out."""
    used = fit.weights > 0
    groups = times.labels(lambda row: (row.dataset, row.group, *row.lengths)).tolist()
    ratio = np.exp(-left_out_log_errors(fit, groups, used))
    first = np.isin(times.kind, (TTFT, MEDIAN))
    both = np.isin(times.row, times.row[first]) & offered_loops(times) & used
    kinds = times.labels(lambda row: f"{row.system}.{row.engine}")
    yield LEFT_OUT
    for kind in np.unique(kinds[both]):
        among = both & (kinds == kind)
        count = len(set(times.row[among].tolist()))
        if count >= MIN_ROWS:
            yield error_table(f"errors.{kind}", count, ratio[among & ~first], ratio[among & first])


def with_new_errors(text: str, errors: Mapping[str, NewErrors]) -> str:
    """The text of ``serving.toml`` with these errors of what is new in place of those it has."""
    head, _, _ = text.partition("\n# the same of what is new to the fit.")
    tables = (error_table(f"unseen.{k}", len(x.tpot), x.tpot, x.ttft) for k, x in errors.items())
    return head + UNSEEN + "".join(tables)


def error_table(name: str, rows: int, tpot: np.ndarray, ttft: np.ndarray) -> str:
    """A table of errors, from measured over predicted."""
    tables = {"tpot": tpot, "ttft": ttft}
    cells = (f"{k} = {{ {', '.join(error_cells(x))} }}\n" for k, x in tables.items())
    return f"[{name}]\nrows = {rows}\n{''.join(cells)}"


def error_cells(ratio: np.ndarray) -> list[str]:
    """The median error and the factors that hold shares of rows, from measured over predicted."""
    cells = [f"median_error = {100.0 * np.median(np.abs(1.0 / ratio - 1.0)):.1f}"]
    for share in SHARES:
        low, high = np.quantile(ratio, ((1 - share) / 2, (1 + share) / 2))
        cells.append(f"within_{share * 100:.0f} = [{low:.3f}, {high:.3f}]")
    return cells


def laws_file(times: PooledTimes, laws: Mapping[str, ErrorLaw]) -> str:
    """The text of ``spreads.toml``."""
    publishers = {row.publisher for row in times.rows}
    parts = [PUBLISHERS.format(rows=len(set(times.row)), publishers=len(publishers))]
    for name, law in laws.items():
        slopes = ", ".join(f"{n} = {x:.3f}" for n, x in law.slopes.items())
        parts.append(f"\n[{name}]\nscale = {law.scale:.4f}\nslopes = {{ {slopes} }}\n")
        for share, (low, high) in law.ends.items():
            parts.append(f"within_{share} = [{low:.3f}, {high:.3f}]\n")
        parts.append(f"common = {law.common:.2f}\n")
    return "".join(parts)
