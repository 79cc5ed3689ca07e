"""Rows that are replayed: stages of experiments at given rates, and single requests of servers.

The first are those of inference-sim/sim-to-real-accuracy-validation, whose requests
``experiments/_replay/open_loop.py`` draws; the second folders as in LLMServingSim's bench/examples,
with ``meta.json``, ``config.json`` and ``requests.jsonl``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from experiments._replay import open_loop, per_request
from experiments._replay.server import served
from infer_jax.calibration.pooled import rows as pooled
from infer_jax.calibration.pooled.answers import Columns
from infer_jax.calibration.pooled.rows import PooledRow, RowsRead, UnusableRowError
from infer_jax.catalog import System
from infer_jax.catalog.files import read_text
from infer_jax.catalog.names import format_of
from infer_jax.errors import InputError
from infer_jax.estimators.serving import ENGINES, Serving

COLUMNS = ("experiment", "model", "rates_req_s", "seconds", "isl_mean", "osl_mean", "shared_prefix")
NEEDED = ("tp", "max_num_batched_tokens", "max_num_seqs", *COLUMNS[4:])
FILE = "meta.json"
REQUESTS = "llmservingsim requests"  # a data set
PRECISIONS = {"FP16": None, "BF16": None, "FP8": "fp8"}  # the format in a checkpoint's name
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
        rows = [{k: v or "" for k, v in cells.items()} for cells in own]
        try:
            measured = [_stage(cells) for cells in rows]
            experiment = open_loop.Experiment(rows)
        except (UnusableRowError, InputError, ValueError) as reason:
            found.skipped[str(reason)] += len(rows)
            continue
        run, where = partial(_means, experiment), experiment.system.name
        of = {"dataset": f"open loop {where.partition('_')[0]}", "system": where, "run": run}
        for i, times in enumerate(measured):
            found.rows.append(_replayed(str(name), i, measured=times, date="2026-02", **of))
    return found


def _replayed(group: str, index: int, **of: Any) -> ReplayedRow:
    id = f"{group} {index}"
    return ReplayedRow(id=id, group=group, engine="vllm", mode="replay", index=index, **of)


def _on(model: Serving, system: System) -> Serving:
    """A model under vLLM on a system's generation of chips."""
    own = system.coefficients.get("serving", {})
    facts = {"engine": float(ENGINES.index("vllm")), "generation": own.get("generation", 0.0)}
    return model.replace(**{name: np.asarray(x) for name, x in facts.items()})


def _means(experiment: open_loop.Experiment, model: Serving) -> dict[str, np.ndarray]:
    """The stages of one server, replayed one after the other: means of each row."""
    own = _on(model, experiment.system)
    front = float(own.front_time(experiment.server.plan))
    stages = experiment.replayed(own)
    first = np.asarray([float(np.mean(s.ttft)) + front for s in stages])
    whole = np.asarray([float(np.mean(s.e2e)) + front for s in stages])
    return {"ttft": first, "ttft_mean": first, "e2e": whole}


def _stage(cells: dict[str, str]) -> dict[str, float]:
    """The measured means of a stage if it says all that a replay needs."""
    for name in NEEDED:
        pooled.number(cells, name, low=-1.0 if name == "shared_prefix" else 0.0)
    if format_of(pooled.text(cells, "model")) != pooled.lookup(PRECISIONS, cells, "precision"):
        raise UnusableRowError("precision is not that of the model's name")
    first, whole = (pooled.number(cells, f"{name}_mean") / 1e3 for name in ("ttft", "e2e"))
    return {"ttft": first, "ttft_mean": first, "e2e": whole}


def read_requests(folder: Path) -> RowsRead:
    """The requests of a folder, on the machine as its profile has it; or why they are left out."""
    found = RowsRead()
    try:
        bundle = per_request.read(folder)
    except per_request.NotReplayedError as problem:
        requests = read_text(folder / "requests.jsonl").splitlines()
        found.skipped[f"server of requests: {problem.value}"] += len(requests)
        return found
    server = bundle.server._replace(hardware=bundle.system.hardware)

    def run(model: Serving) -> dict[str, np.ndarray]:
        own = _on(model, bundle.system)
        times = served(server, own, bundle.requests)
        front = float(own.front_time(server.plan))
        return {"tpot": times.tpot, "ttft": times.ttft + front, "e2e": times.e2e + front}

    of = {"dataset": REQUESTS, "system": bundle.system.name, "date": bundle.date, "run": run}
    for i, times in enumerate(zip(*bundle.measured, strict=True)):
        if not all(np.isfinite(x) and x > 0 for x in times):
            found.skipped["a time that is not above 0"] += 1
            continue
        measured = dict(zip(bundle.measured._fields, map(float, times), strict=True))
        found.rows.append(_replayed(folder.name, i, measured=measured, **of))
    return found
