"""The scoreboard: errors of every estimator on measured rows, and coverage of 80 % bands.

Local runs that no estimator here answers: the share of the memory's bandwidth that they reach.

Most are of llama.cpp and of models that are not bundled. Of a dense one its name and its format
say enough: a token of one request reads every weight once.
"""

import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments import _report
from experiments._columns import printed_rows
from experiments._validation import decisions, estimates, folds, kinds, peer
from experiments._validation.estimates import measured
from experiments._validation.split_scores import BAND, NOTES, mean_of_label
from infer_jax.calibration import Score, statistics
from infer_jax.calibration.pooled import answers, readers
from infer_jax.calibration.pooled.answers import Columns
from infer_jax.calibration.pooled.readers import silicon
from infer_jax.calibration.pooled.rows import METRICS, PooledRow, RowsRead, system_named
from infer_jax.catalog.foreign import read_toml
from infer_jax.catalog.published import Within, power_errors
from infer_jax.errors import InputError
from infer_jax.estimators import Trust, make, measured_within, trust
from infer_jax.estimators.serving import GENERATIONS

KNOWN: Any = read_toml(Path(__file__).with_name("local_runs.toml"))
BANDWIDTHS, BITS = KNOWN["bandwidths"], KNOWN["bits"]
SIZE, EXPERTS = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)B(?![a-z])"), re.compile(r"A\d+(\.\d+)?B")
FITS = 0.9  # share of the memory that weights may take beside a cache


def shares(lines: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, str, float]]:
    """(engine, card, share of its bandwidth) of each run of one request of a dense model."""
    for cells in lines:
        size, card = SIZE.search(cells["model"]), cells["gpu"]
        bits = BITS.get(cells["quantisation"].upper())
        mixture = cells["moe"] == "True" or EXPERTS.search(cells["model"])
        single = cells["batch"] in ("", "1") and cells["gpus"] == "1" and cells["drafts"] == "False"
        if size and bits and card in BANDWIDTHS and single and not mixture:
            weights = float(size[1]) * 1e9 * bits / 8
            if cells["vram_gb"] and weights < FITS * 1e9 * float(cells["vram_gb"]):
                read = weights * float(cells["out_tok_s"])
                yield cells["engine"], card, read / BANDWIDTHS[card]


def table(place: Path) -> dict[str, dict[str, float]]:
    """Print the shares by engine and card, and return them in per cent; none without the file."""
    if not place.is_file():
        return {}
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for engine, card, share in shares(printed_rows(place)):
        found[engine, card].append(100 * share)
    figures = {
        f"{engine} {card}": {
            "runs": len(x), "median": round(float(np.median(x)), 1), "least": round(min(x), 1),
            "most": round(max(x), 1),
        }
        for (engine, card), x in sorted(found.items())
    }  # fmt: skip
    _report.show(
        "Local runs of dense models: weights read, % of the memory's bandwidth",
        ("engine and card", "runs", "median", "least", "most"),
        [(name, *row.values()) for name, row in figures.items()],
    )
    return figures


SHARE = 80


class Bands(NamedTuple):
    """Ends of 80 % bands of each metric, NaN where there is none."""

    low: dict[str, np.ndarray]
    high: dict[str, np.ndarray]

    def constant(self, rows: Sequence[PooledRow], found: Mapping[str, np.ndarray]) -> "Bands":
        """Bands with the mean ends, over predictions, of all that err by one law."""
        laws = np.asarray([2 * (row.mode == "pools") + row.median for row in rows])

        def flat(side: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            return {k: found[k] * mean_of_label(x / found[k], laws) for k, x in side.items()}

        return Bands(*map(flat, self))


def score(predicted: np.ndarray, measured: np.ndarray, *band: np.ndarray | None) -> Score | None:
    """The score of the rows that are both predicted and measured; None of none."""
    both = np.isfinite(predicted * measured) & (predicted > 0) & (measured > 0)
    ends = (None if end is None else end[both] for end in band)
    return statistics.score(predicted[both], measured[both], *ends) if both.any() else None


def bands(rows: Sequence[PooledRow], found: Mapping[str, np.ndarray]) -> Bands:
    """The 80 % bands of each metric of each row, as the program has them.

    Those of power are of rows left out of its fit.
    """
    factors = [within(row) for row in rows]
    none = {SHARE: (np.nan, np.nan)}
    ends = {
        name: np.transpose([known.get(output, none)[SHARE] for known in factors]) * found[name]
        for name, output in BANDED.items()
        if name in found
    }
    if "power" in found:
        ends["power"] = np.transpose([_of_power(row) for row in rows]) * found["power"]
    return Bands(*({name: x[i] for name, x in ends.items()} for i in (0, 1)))


def _of_power(row: PooledRow) -> tuple[float, float]:
    """The 80 % band of power, as a row's generation has it, over the prediction."""
    own = system_named(row.system).coefficients.get("serving", {}).get("generation")
    return power_errors("unseen" if own is None else GENERATIONS[int(own)]).within[SHARE]


# the output whose law of errors a metric has
BANDED = {name: name for name in ("tpot", "ttft", "ttft_median", "throughput", "latency")}
BANDED |= {"ttft_mean": "ttft", "e2e": "latency"}


def within(row: PooledRow) -> Within:
    """Factors of a prediction between which shares of runs are, as the program has them."""
    if row.mode not in ("loop", "batch", "pools") or row.served is None or row.workload is None:
        return {}
    profile = system_named(row.system)
    name = f"serving.{row.engine}" if row.engine != "vllm" else "serving"
    known = _trusted(name, profile.name, row.served.model)
    load, pools = float(row.workload.batch), row.mode == "pools"
    found = measured_within([known], load, row.lengths, pools=pools)
    return found | {"ttft": found["ttft_median"]} if row.median else found


@cache
def _trusted(name: str, where: str, model: str) -> Trust:
    profile = system_named(where)
    return trust(name, make(name, profile.coefficients), profile, model)


Scores = dict[str, dict[str, Score]]


def by_dataset(
    rows: Sequence[PooledRow],
    found: Mapping[str, np.ndarray],
    banded: Bands | None = None,
    kinds_of: np.ndarray | None = None,
) -> Scores:
    """The scores of each metric of each data set.

    ``kinds_of``: of each row what the fit knows of it: lines of their own where a data set has
    rows of two kinds, or of rows with a twin alone.
    """
    labels = np.asarray([row.dataset for row in rows])
    scores: Scores = {}
    parts = {name: labels == name for name in dict.fromkeys(labels.tolist())}
    for name, own in list(parts.items()):
        known = [] if kinds_of is None else sorted(set(kinds_of[own].tolist()))
        if len(known) > 1 or known == [folds.TWIN]:
            parts |= {f"{name}, {kind}": own & (kinds_of == kind) for kind in known}
    for dataset, inside in parts.items():
        for metric in (name for name in METRICS if name in found):
            ends = [side[metric][inside] for side in banded or () if metric in side]
            one = score(found[metric][inside], measured(rows, metric)[inside], *ends)
            if one is not None:
                scores.setdefault(dataset, {})[metric] = one
    return scores


SHIPPED, CONSTANT = "shipped fit", "constant width"
PEERS = (peer.NAME, "aiconfigurator")
OTHERS: dict[str, Callable[[Sequence[PooledRow]], Columns]] = {
    "after five runs": estimates.five_runs,
    "data sheet": estimates.data_sheet,
    "roofline": estimates.roofline,
}


def run(files: list[Path], asked: int = peer.ROWS, choices_alone: bool = False) -> dict[str, Any]:
    """Score all estimators on files, or on all that is there; print tables, return the figures.

    Args:
        asked: rows that another publisher's tool is asked, drawn at random; 0: it is not asked.
        choices_alone: only what a user loses who chooses by the predictions.

    Raises:
        InputError: a file that cannot be read, or no rows in any.
    """
    found = read(files)
    if not found.rows:
        raise InputError("validation", "rows", "none", "a file with a row that can be predicted")
    if choices_alone:
        found.rows = [row for row in found.rows if decisions.is_plan(row)]
    every = predicted(found.rows, asked, {} if choices_alone else OTHERS)
    choosers = {name: x for name, x in every.items() if name not in OTHERS}
    result: dict[str, Any] = {"decisions": decisions.table(found.rows, choosers)}
    if choices_alone:
        return result
    scores = scored(found.rows, every)
    _print(dict(scores))
    if found.skipped:
        _report.show("Rows left out", ("reason", "rows"), found.skipped.most_common())
    if not silicon.is_installed():
        print("Not compared: the rows of aiconfigurator-core: it is not installed.")
    if len(every) == 1 + len(OTHERS):
        print("Not compared: aisimulate and aiconfigurator: neither is there.")
    local = {} if files else table(kinds.MEASURED / "llmfit_local.csv")
    return figures(scores) | result | {"local runs of dense models": local}


def predicted(
    rows: list[PooledRow], asked: int, others: Mapping[str, Callable[..., Columns]]
) -> dict[str, Columns]:
    """Predictions by each estimator's name: the shipped fit, the peer that is there, others."""
    begin = time.perf_counter()
    every = {SHIPPED: estimates.answers(rows, answers.shipped_fit())}
    _report.say(f"{SHIPPED}: {len(rows)} rows", begin)
    others = {peer.NAME: partial(peer.answers, count=asked)} | dict(others) if asked else others
    if peer.program() is None:
        others = {"aiconfigurator": estimates.aiconfigurator} | dict(others)
    for name, estimator in others.items():
        if columns := estimator(rows):
            every[name] = columns
            answered = np.any(np.isfinite(list(columns.values())), axis=0).sum()
            _report.say(f"{name}: {answered} rows", begin)
    _report.say(f"{len(answers.TRACES)} programs: {dict(Counter(answers.TRACES))}", begin)
    return every


def read(files: list[Path], once: bool = True) -> RowsRead:
    """The rows of files, or of all that is there; says how many of each.

    ``once``: a run that two files have counts in the first alone.
    """
    readers = {str(p): partial(kinds.read, p) for p in files} or kinds.sources()
    found, begin = RowsRead(), time.perf_counter()
    for name, reader in readers.items():
        one = reader()
        again = folds.is_repeated(one.rows, found.rows if once else [])
        one.rows = [row for row, twice in zip(one.rows, again, strict=True) if not twice]
        one.skipped.update({"a run that another file has, too": int(again.sum())})
        found.add(one)
        left = sum(one.skipped.values())
        _report.say(f"{name}: {len(one.rows)} rows{f', {left} left out' if left else ''}", begin)
    return found


def scored(rows: list[PooledRow], every: Mapping[str, Columns]) -> dict[str, Scores]:
    """The scores of every estimator, by its name; and the shipped fit's where a peer answers."""
    scores, fits = {}, readers.sources(kinds.MEASURED) if kinds.MEASURED.is_dir() else {}
    known = folds.told_apart(rows, [row for read in fits.values() for row in read().rows])
    for name, found in every.items():
        banded = bands(rows, found) if name == SHIPPED else None
        scores[name] = by_dataset(rows, found, banded, known if name == SHIPPED else None)
        if banded is not None:
            scores[CONSTANT] = by_dataset(rows, found, banded.constant(rows, found), known)
        if name in PEERS:
            own = every[SHIPPED]
            shared = {k: np.where(np.isfinite(x), own[k], np.nan) for k, x in found.items()}
            scores[f"{SHIPPED} where {name} answers"] = by_dataset(rows, shared)
    return scores


def figures(scores: dict[str, Scores]) -> dict[str, Any]:
    """The scores of the shipped fit by data set, and of the others under ``data set: name``."""
    return {
        dataset if name == SHIPPED else f"{dataset}: {name}": {
            metric: {k: x and round(x, 2) for k, x in one._asdict().items()}
            for metric, one in metrics.items()
        }
        for name, by in scores.items()
        for dataset, metrics in by.items()
    }


def _print(scores: dict[str, Scores]) -> None:
    lines, compared = [], []
    constant = scores.pop(CONSTANT)
    for dataset, metrics in scores[SHIPPED].items():
        for metric, one in metrics.items():
            errors = f"{one.median:.1f}", f"{one.mean:.1f}", f"{one.bias:+.1f}"
            band = "no band", "", "", ""
            if one.cover80 is not None and one.width80 is not None:
                both = (x.winkler80 or 0.0 for x in (one, constant[dataset][metric]))
                band = f"{one.cover80:.0f}", f"{one.width80:.2f}", *(f"{x:.2f}" for x in both)
            lines.append((dataset, metric, one.rows, *errors, *band))
            every = (by.get(dataset, {}).get(metric) for by in scores.values())
            medians = ("" if x is None else f"{x.median:.1f}" for x in every)
            compared.append((dataset, metric, *medians))
    columns = ("rows of", "metric", "rows", "median %", "mean %", "bias %", *BAND)
    title = "Measured rows of others, by the shipped fit"
    _report.show(title, columns, lines, NOTES["shipped"])
    columns = ("rows of", "metric", *scores)
    title = "Median errors of all estimators, per cent"
    _report.show(title, columns, compared, NOTES["estimators"])
