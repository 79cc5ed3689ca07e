"""vLLM, requests at given rates: drawn as its benchmark draws them, and replayed.

The rows are those of inference-sim/sim-to-real-accuracy-validation (dcec3fd), measured with
kubernetes-sigs/inference-perf. What that program does, which the rows do not say:

* ``load: constant`` are exponential times between requests, scaled to fill a stage exactly
  (inference_perf/loadgen/load_timer.py at 0949afc, ``ConstantLoadTimer``).
* ``shared_prefix`` writes ``groups`` x ``prompts`` prompts before it starts, shuffles them, and
  sends them in turn, again and again (datagen/shared_prefix_datagen.py at 0ba9ace). So a prompt is
  computed once, and is in vLLM's cache from then on, but for its last block. How many there are is
  that of the one profile that the source prints: 11 groups of 4 (its tests/test_ground_truth.py).
* Their ``itl`` is the time of a request over its tokens (experiment/ground_truth.py at 0733a02), so
  that it says what ``e2e`` says; it is not shown.

All prompts and outputs of a row count as equally long. A row is of one rate, or of several that
followed each other.
"""

from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from experiments._columns import printed_rows
from experiments._replay import server as replay
from experiments._replay.server import Server, Times
from experiments._report import show
from infer_jax.catalog import load_model
from infer_jax.catalog.foreign import read_json
from infer_jax.estimators.serving import Serving
from infer_jax.replays import Requests
from infer_jax.specs import Architecture

GROUPS, PROMPTS = 11, 4
BLOCK, MAX_MODEL_LEN = 16, 4096  # tokens; max_model_len
GOALS = {"ttft_mean": 0.25, "ttft_p99": 0.35, "e2e_mean": 0.12}
COMPARED = ("ttft_mean", "ttft_p90", "ttft_p99", "e2e_mean", "e2e_p90", "e2e_p99")
TOOLS = ("blis-roofline", "blis-evolved", "llm-optimizer-estimate", "aiconfigurator-estimate")
TOOLS += ("vidur",)
# config.json of models that are not bundled, as on Hugging Face
CONFIGS = read_json(Path(__file__).with_name("configs.json"))


def stages(row: dict[str, str]) -> list[tuple[float, float]]:
    """Requests a second and seconds of each stage that a row is of: cells have a number or more.

    Raises:
        ValueError: no numbers above 0, or not as many of both.
    """
    rates, seconds = ([float(x) for x in row[k].split()] for k in ("rates_req_s", "seconds"))
    if not rates or not all(0.0 < x < np.inf for x in (*rates, *seconds)):
        raise ValueError(f"rates_req_s and seconds are no stages: {row['rates_req_s']!r}")
    return list(zip(rates, seconds, strict=True))


def staged_requests(rows: list[dict[str, str]], seed: int) -> tuple[Requests, np.ndarray]:
    """Requests of the rows of an experiment, one stage after the other, and the row of each."""
    random, times, owners, begin = np.random.default_rng(seed), [], [], 0.0
    for i, (rate, seconds) in ((i, stage) for i, row in enumerate(rows) for stage in stages(row)):
        gaps = random.exponential(1.0, int(rate * seconds))
        times.append(begin + np.cumsum(gaps) * seconds / gaps.sum())
        owners.append(np.full(len(gaps), i))
        begin += seconds
    arrival = np.concatenate(times)
    isl, osl, common = (int(rows[0][k]) for k in ("isl_mean", "osl_mean", "shared_prefix"))
    cached = np.full(len(arrival), (isl - 1) // BLOCK * BLOCK)
    groups = random.permutation(GROUPS * PROMPTS) // PROMPTS
    for i, group in enumerate(groups[: len(arrival)]):
        cached[i] = common // BLOCK * BLOCK if group in groups[:i] else 0
    lengths = (np.full(len(arrival), isl), np.full(len(arrival), osl))
    return Requests.of(arrival, *lengths, cached), np.concatenate(owners)


def architecture(name: str) -> Architecture:
    """A model by the name that the rows have."""
    known = replay.model_of(CONFIGS[name]) if name in CONFIGS else load_model(name)
    return known.architecture


class Experiment:
    """The stages of one server, replayed one after the other."""

    def __init__(self, rows: list[dict[str, str]]) -> None:
        first = rows[0]
        self.system = replay.profile(first["hardware"])
        self.server = Server.of(
            architecture(first["model"]),
            self.system.hardware,
            tp=float(first["tp"]),
            budget=float(first["max_num_batched_tokens"]),
            slots=int(first["max_num_seqs"]),
            context=MAX_MODEL_LEN,
            overheads=replay.overheads(first["engine"].removeprefix("vllm")),
        )
        self.count = len(rows)
        self.requests, self.stage = staged_requests(rows, 0)

    def replayed(self, model: Serving) -> list[Times]:
        """Times of every stage, without what the host spends before the engine."""
        times = replay.served(self.server, model, self.requests)
        return [times.of(self.stage == i) for i in range(self.count)]


def statistics(times: Times, front: float) -> dict[str, float]:
    """What a row says, in milliseconds, with ``front`` seconds of the host before a request."""
    seconds = {"ttft": times.ttft + front, "e2e": times.e2e + front}
    keys = [key.split("_") for key in COMPARED]
    return {f"{x}_{kind}": 1e3 * float(replay.STATISTICS[kind](seconds[x])) for x, kind in keys}


def run(path: Path) -> dict[str, Any]:
    """Print the errors of every row, and their medians, which agree within the goals."""
    rows = printed_rows(path)
    errors, fronts, table = [], set[float](), []
    for _, group in groupby(rows, key=lambda row: row["experiment"]):
        own = list(group)
        experiment = Experiment(own)
        model = replay.shipped(experiment.system)
        front = float(model.front_time(experiment.server.plan))
        fronts.add(front)
        for row, times in zip(own, experiment.replayed(model), strict=True):
            ours = statistics(times, front)
            errors.append({key: x / float(row[key]) - 1.0 for key, x in ours.items()})
            name = row["model"].rpartition("/")[2].removesuffix("-FP8-dynamic")
            cells = [f"{100 * x:+.0f}" for x in errors[-1].values()]
            name = f"{name} tp {row['tp']} {row['workload']}"
            table.append([name, row["rates_req_s"], *cells])
    title = "Replayed over measured by shipped coefficients, per cent of error"
    show(title, ("row", "rate/s", *COMPARED), table)
    medians = {key: float(np.median([abs(e[key]) for e in errors])) for key in COMPARED}
    line = ["shipped", len(rows), *(f"{100 * x:.0f}" for x in medians.values())]
    said = ", ".join(f"{x * 1e3:.1f}" for x in sorted(fronts))
    show(
        "Median errors, per cent",
        ("", "rows", *COMPARED),
        [line, *(_tool(t, rows) for t in TOOLS)],
        f"Host before a request: {said} ms.",
    )
    agrees = all(medians[key] <= goal for key, goal in GOALS.items())
    return {"shipped": {k: round(x, 4) for k, x in medians.items()}, "agrees": agrees}


def _tool(name: str, rows: list[dict[str, str]]) -> list[str]:
    """The median errors of another tool, of the rows that it answers."""
    cells, answered = [], [row for row in rows if row.get(f"{name} ttft_mean")]
    for key in COMPARED:
        column = f"{name} {key}"
        known = column in rows[0]
        off = [abs(float(r[column]) / float(r[key]) - 1.0) for r in answered] if known else []
        cells.append(f"{100 * np.median(off):.0f}" if off else "")
    return [name, str(len(answered)), *cells]
