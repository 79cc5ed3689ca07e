"""vLLM on H100 at given rates, replayed: the rows of inference-sim/sim-to-real-accuracy-validation.

What the rows do not say of their generator is in experiments/_replay/open_loop.py, which draws
the requests. A row is a stage of an experiment.
"""

from itertools import groupby

import numpy as np

from experiments._replay import open_loop
from experiments._replay.server import Arguments, served, server
from experiments._validation.row import Cells, Read, Row, UnusableError, number, system
from infer_jax.catalog import list_models
from infer_jax.catalog.measurements.names import model_named
from infer_jax.estimators.serving import Serving
from infer_jax.footprint import Overheads

COLUMNS = ("experiment", "model", "rates_req_s", "seconds", "isl_mean", "osl_mean", "shared_prefix")
NEEDED = ("tp", "max_num_batched_tokens", "max_num_seqs", *COLUMNS[2:])


class Experiment:
    """The stages of one server, replayed one after the other."""

    def __init__(self, rows: list[dict[str, str]]) -> None:
        self.rows = rows
        self.requests, self.stage = open_loop.drawn(rows, 0)
        first = rows[0]
        arguments = Arguments(
            float(first["max_num_batched_tokens"]), int(first["max_num_seqs"]), open_loop.LONGEST
        )
        self.server = server(
            open_loop.architecture(first["model"]),
            system(open_loop.SYSTEM).hardware,
            float(first["tp"]),
            arguments,
            Overheads.vllm_0_10(),
            True,
        )

    def answers(self, model: Serving) -> dict[str, np.ndarray]:
        """Means of the requests of each stage."""
        own = model.replace(engine=np.asarray(2.0))
        times = served(self.server, own, self.requests)
        front = float(own.front_time(self.server.plan))
        stages = [times.of(self.stage == i) for i in range(len(self.rows))]
        first = np.asarray([float(np.mean(s.ttft)) + front for s in stages])
        whole = np.asarray([float(np.mean(s.e2e)) + front for s in stages])
        return {"ttft": first, "ttft_mean": first, "e2e": whole}


def read(lines: list[dict[str, str | None]]) -> Read:
    """The rows of a file's lines; an experiment with a damaged stage is left out whole."""
    found = Read()
    for name, own in groupby(lines, key=lambda cells: cells.get("experiment")):
        stages = list(own)
        try:
            for cells in stages:
                _check(cells)
            measured = [_measured(cells) for cells in stages]
        except UnusableError as left:
            found.skipped[str(left)] += len(stages)
            continue
        whole = Experiment([{k: v or "" for k, v in cells.items()} for cells in stages])
        for i, times in enumerate(measured):
            found.rows.append(
                Row(
                    id=f"{name} {i}",
                    dataset="open loop h100",
                    measured=times,
                    group=str(name),
                    system=open_loop.SYSTEM,
                    engine="vllm",
                    asked="replay",
                    date="2026-02",
                    replayed=whole,
                    place=i,
                )
            )
    return found


def _check(cells: Cells) -> None:
    for name in NEEDED:
        number(cells, name, least=-1.0 if name == "shared_prefix" else 0.0)
    model = (cells.get("model") or "").strip()
    if model not in open_loop.CONFIGS and model_named(model) not in list_models():
        raise UnusableError(f"model {model!r} is not bundled" if model else "model is missing")
    if "h100" not in (cells.get("hardware") or "h100").lower():
        raise UnusableError("hardware is not H100")


def _measured(cells: Cells) -> dict[str, float]:
    first, whole = (number(cells, f"{name}_mean") / 1e3 for name in ("ttft", "e2e"))
    return {"ttft": first, "ttft_mean": first, "e2e": whole}
