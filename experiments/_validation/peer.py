"""What another publisher's tool says of the same rows: NVIDIA's AISimulate, by its library call.

Asked in a process of its own environment's Python, one prediction a row, with its defaults but
for what a row says (docs/validation.md). A mean of drawn lengths is sent as every request's. AMD's
chips, formats without a checkpoint that the tool knows, and what it refuses have no answer.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from experiments import _report
from experiments._validation import decisions
from infer_jax.calibration.pooled.answers import Columns, acceptance, shipped_fit
from infer_jax.calibration.pooled.rows import PooledRow, is_mixture
from infer_jax.catalog.foreign import read_toml
from infer_jax.estimators.disaggregated import Pools
from infer_jax.estimators.serving import Deployment
from infer_jax.specs import Plan

NAME = "aisimulate"
PROGRAM = "AISIMULATE"  # the variable that names the command, where it is not on the path
REASON = 90  # characters of a reason for no answer
SAID = 50  # rows after which progress is printed
ROWS, SEED = 300, 0  # rows that are asked, drawn at random where there are more
REQUESTS, FEWEST = 640, 3  # of a run: ten for each in flight, at most so many, but three for each
SEQUENCES = 256  # its default of a worker
NAMES: Any = read_toml(Path(__file__).with_name("peer.toml"))
TIMES, SYSTEMS = NAMES["times"], NAMES["systems"]
SERVER = """
import json, sys
from aisimulate.config import CorePredictionConfig
from aisimulate.predict import run_prediction
from aisimulate.stack import resolve_runner_factory
factory, answers, sys.stdout = resolve_runner_factory("engine"), sys.stdout, sys.stderr
for line in sys.stdin:
    try:
        config = CorePredictionConfig.model_validate(json.loads(line))
        found = run_prediction(config, stack="engine", runner_factory=factory).summary
    except Exception as problem:
        found = {"problem": f"{type(problem).__name__}: {problem}"}
    print(json.dumps(found, default=str), file=answers, flush=True)
"""


def program() -> Path | None:
    """The command ``aisimulate`` of an installation, if any."""
    found = os.environ.get(PROGRAM) or shutil.which("aisimulate")
    return Path(found) if found and Path(found).is_file() else None


def answers(rows: Sequence[PooledRow], count: int = ROWS) -> Columns:
    """Times and throughput of rows, NaN of those that are not asked or not answered."""
    command = program()
    if command is None:
        return {}
    asked = {i: question for i, row in enumerate(rows) if (question := config(row)) is not None}
    drawn = np.random.default_rng(SEED).permutation(list(asked))[:count].tolist()
    columns = {k: np.full(len(rows), np.nan) for k in (*TIMES, "throughput")}
    replies = _replies(command, [asked[i] for i in drawn])
    problems = (" ".join(str(r.get("problem", "no times")).split()) for r in replies if _is_none(r))
    if refused := Counter(problem[:REASON] for problem in problems):
        title = f"Of {len(drawn)} rows that {NAME} was asked without an answer"
        _report.show(title, ("reason", "rows"), refused.most_common())
    for i, found in zip(drawn, replies, strict=True):
        if not _is_none(found):
            gpus = decisions.in_flight(rows[i])[1] * rows[i].chip_share
            columns["throughput"][i] = found["output_throughput_tok_s"] / gpus
            for name, figure in TIMES.items():
                columns[name][i] = found.get(f"{figure}_ms", np.nan) / 1e3
    return columns


def _is_none(found: dict[str, Any]) -> bool:
    """Whether a reply has no times."""
    return not (found.get("mean_tpot_ms") and found.get("output_throughput_tok_s"))


def _replies(command: Path, questions: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tool's answers, from one process of its own environment; none after its early end."""
    own, begin = command.resolve().with_name("python"), time.perf_counter()
    python = str(own if own.exists() else sys.executable)
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    found: list[dict[str, Any]] = []
    with TemporaryFile("w+") as lines:
        lines.writelines(json.dumps(one) + "\n" for one in questions)
        lines.seek(0)
        pipes = {"stdin": lines, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        with subprocess.Popen([python, "-c", SERVER], text=True, env=clean, **pipes) as asked:
            for line in asked.stdout or ():
                found.append(json.loads(line))
                if len(found) % SAID == 0:
                    _report.say(f"{NAME}: {len(found)} of {len(questions)} rows asked", begin)
    return found + [{}] * (len(questions) - len(found))


def config(row: PooledRow) -> dict[str, Any] | None:
    """A row as the tool's public configuration; None where the tool has no such system or model."""
    if row.mode not in ("loop", "pools") or row.served is None or row.system not in SYSTEMS:
        return None
    known = NAMES["checkpoints"].get(row.served.model, {})
    checkpoint = known.get("{:g} {:g}".format(*row.served.formats.feedforward))
    if checkpoint is None or row.workload is None or "tpot" not in row.measured:
        return None
    work, plan = row.workload, row.plan
    requests, _, osl = decisions.in_flight(row)
    load, experts = round(requests), is_mixture(row.served.model)
    if isinstance(plan, Pools):
        mode, decoding = "disaggregated", plan.decode
        copies, first = float(plan.prefill_copies), float(plan.prefill_batch)
        workers = {
            "prefill": _worker(plan.prefill, copies, experts, first * copies),
            "decode": _worker(decoding, float(plan.decode_copies), experts, load),
        }
    else:
        mode, decoding = "aggregated", plan
        workers = {mode: _worker(decoding, 1.0, experts, load)}
    assert isinstance(decoding, Deployment)
    engine = {"mode": mode, "model": checkpoint, "workers": workers, "backend": row.engine}
    engine |= {"hardware": SYSTEMS[row.system]}
    if drafts := int(float(decoding.drafts)):
        reached = np.cumprod(acceptance(row, shipped_fit())[:drafts])
        engine |= {"nextn": drafts, "nextn_accepted": float(np.sum(reached))}
    isl = float(work.isl) * osl / float(work.osl)  # as much shorter than stated as the output
    traffic = {
        "source": {"type": "synthetic", "input_tokens": round(isl), "output_tokens": round(osl)},
        "load": {"type": "concurrency", "concurrency": load},
        "stop": {"requests": max(min(10 * load, REQUESTS), FEWEST * load)},
    }
    return {"traffic": traffic, "engine": engine}


def _worker(plan: Plan | None, copies: float, experts: bool, load: float) -> dict[str, Any]:
    """A pool's workers, with room for as many sequences of a rank as its share of the load."""
    assert isinstance(plan, Deployment)
    names = ("tp", "pp", "attention_dp", "ep")
    tp, pp, groups, ep = (round(float(getattr(plan, name))) for name in names)
    degrees = {"replicas": round(copies), "tensor": tp, "pipeline": pp, "attention_data": groups}
    if experts:
        degrees |= {"moe_expert": ep, "moe_tensor": tp * groups // ep}
    sequences = max(SEQUENCES, round(-(-load // (degrees["replicas"] * groups))))
    return {"parallelism": degrees, "scheduler": {"max_sequences": sequences}}
