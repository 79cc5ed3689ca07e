"""Rows that are replayed: stages of experiments at given rates, and single requests of servers.

The first are those of inference-sim/sim-to-real-accuracy-validation on H100, whose requests
``experiments/_replay/open_loop.py`` draws; the second two folders of LLMServingSim's
bench/examples, with ``meta.json``, ``config.json`` and ``requests.jsonl``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np

from experiments._replay import open_loop, per_request
from experiments._replay.server import served
from infer_jax.calibration.pooled.answers import Columns
from infer_jax.calibration.pooled.rows import Cells, PooledRow, RowsRead, UnusableRowError, number
from infer_jax.catalog import list_models
from infer_jax.catalog.measurements.names import model_named
from infer_jax.estimators.serving import Serving

COLUMNS = ("experiment", "model", "rates_req_s", "seconds", "isl_mean", "osl_mean", "shared_prefix")
NEEDED = ("tp", "max_num_batched_tokens", "max_num_seqs", *COLUMNS[2:])
FILE = "meta.json"
RATES, REQUESTS = "open loop h100", "llmservingsim requests"  # data sets
Replay = Callable[[Serving], dict[str, np.ndarray]]  # each metric, a number a row of the run


@dataclass(frozen=True, kw_only=True)
class ReplayedRow(PooledRow):
    """A row of a run that is replayed; ``index``: which of the run's rows it is."""

    run: Replay
    index: int


def answers(rows: Sequence[PooledRow], model: Serving, columns: Columns) -> None:
    """Fill in what replays say; each run is replayed once."""
    runs: dict[int, dict[str, np.ndarray]] = {}
    for i, row in enumerate(rows):
        if isinstance(row, ReplayedRow):
            if id(row.run) not in runs:
                runs[id(row.run)] = row.run(model)
            for metric, values in runs[id(row.run)].items():
                columns.setdefault(metric, np.full(len(rows), np.nan))[i] = values[row.index]


def read_rates(lines: list[dict[str, str | None]]) -> RowsRead:
    """Stages of experiments; an experiment with a damaged stage is left out."""
    found = RowsRead()
    for name, own in groupby(lines, key=lambda cells: cells.get("experiment")):
        stages = list(own)
        try:
            measured = [_stage(cells) for cells in stages]
        except UnusableRowError as reason:
            found.skipped[str(reason)] += len(stages)
            continue
        run = _experiment([{k: v or "" for k, v in cells.items()} for cells in stages])
        for i, times in enumerate(measured):
            found.rows.append(_replayed(RATES, str(name), "2026-02", times, run, i))
    return found


def _replayed(
    dataset: str, group: str, date: str, times: dict[str, float], run: Replay, index: int
) -> ReplayedRow:
    system = open_loop.SYSTEM if dataset == RATES else per_request.SYSTEM
    return ReplayedRow(
        id=f"{group} {index}",
        dataset=dataset,
        measured=times,
        group=group,
        system=system,
        engine="vllm",
        mode="replay",
        date=date,
        run=run,
        index=index,
    )


def _experiment(rows: list[dict[str, str]]) -> Replay:
    """The stages of one server, replayed one after the other: means of each."""
    experiment = open_loop.Experiment(rows, overlap=True)

    def means(model: Serving) -> dict[str, np.ndarray]:
        own = model.replace(engine=np.asarray(2.0))
        front = float(own.front_time(experiment.server.plan))
        stages = experiment.replayed(own)
        first = np.asarray([float(np.mean(s.ttft)) + front for s in stages])
        whole = np.asarray([float(np.mean(s.e2e)) + front for s in stages])
        return {"ttft": first, "ttft_mean": first, "e2e": whole}

    return means


def _stage(cells: Cells) -> dict[str, float]:
    """The measured means of a stage if it says all that a replay needs."""
    for name in NEEDED:
        number(cells, name, low=-1.0 if name == "shared_prefix" else 0.0)
    model = (cells.get("model") or "").strip()
    if model not in open_loop.CONFIGS and model_named(model) not in list_models():
        raise UnusableRowError(f"model {model!r} is not bundled" if model else "model is missing")
    if "h100" not in (cells.get("hardware") or "h100").lower():
        raise UnusableRowError("hardware is not H100")
    first, whole = (number(cells, f"{name}_mean") / 1e3 for name in ("ttft", "e2e"))
    return {"ttft": first, "ttft_mean": first, "e2e": whole}


def read_requests(folder: Path) -> RowsRead:
    """The requests of a folder, on the machine as its profile has it.

    Raises:
        InputError: a file that is missing or not understood.
    """
    bundle, found = per_request.read(folder), RowsRead()
    server = bundle.server._replace(hardware=bundle.profile)

    def run(model: Serving) -> dict[str, np.ndarray]:
        own = model.replace(engine=np.asarray(2.0), generation=np.asarray(1.0))
        times = served(server, own, bundle.requests)
        front = float(own.front_time(server.plan))
        return {"tpot": times.tpot, "ttft": times.ttft + front, "e2e": times.e2e + front}

    fields = bundle.measured._fields
    for i, times in enumerate(zip(*bundle.measured, strict=True)):
        if not all(np.isfinite(x) and x > 0 for x in times):
            found.skipped["a time that is not above 0"] += 1
            continue
        measured = dict(zip(fields, map(float, times), strict=True))
        found.rows.append(_replayed(REQUESTS, folder.name, "2026-04", measured, run, i))
    return found
