"""What estimators say of all rows of the scoreboard, with those that no fit uses."""

import csv
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from experiments._report import SHARED
from experiments._validation import replays
from infer_jax.calibration.pooled import answers as pooled
from infer_jax.calibration.pooled.answers import (
    LAWS,
    Answers,
    Columns,
    RowInputs,
    drawn_lengths,
    of_server,
    without_drafts,
)
from infer_jax.calibration.pooled.rows import PooledRow
from infer_jax.estimators.disaggregated import Pools
from infer_jax.estimators.serving import Deployment, Serving
from infer_jax.specs import ForwardPass


def one_pass(model: Serving, row: RowInputs) -> Answers:
    """Passes of ``batch`` sequences, one after the other: tokens fed, or gained, a second."""
    server, work = of_server(model, row.facts), row.workload
    new = work.isl - work.prefix
    forward = ForwardPass(sequences=work.batch, new_tokens=new, cached_tokens=work.prefix)
    assert isinstance(row.plan, Deployment)
    time = server.token(row.shape, row.hardware, forward, row.plan).time
    share = row.facts["pool_share"]
    return {"throughput": share * work.batch * new / time / row.plan.instance}


def ideal(model: Serving, row: RowInputs) -> Answers:
    """A plain roofline: the longer of reading everything and computing everything, pass by pass.

    ``model`` is ``Serving.roofline``: no collectives, launches, or other requests' prompts.
    """
    server, work = of_server(model, row.facts), row.workload
    drawn = drawn_lengths(work, server)
    isl, osl, one = drawn.isl, drawn.osl, jnp.ones_like(work.batch)
    if isinstance(plan := row.plan, Pools):
        first, later, copies = plan.prefill, plan.decode, plan.decode_copies
        chips = plan.chips * row.facts["chip_share"]
    else:
        assert isinstance(plan, Deployment)
        first, later, copies, chips = plan, plan, 1.0, plan.instance
    first = without_drafts(first)
    forwards = (
        (first, ForwardPass(sequences=one, new_tokens=isl, cached_tokens=0.0 * one)),
        (first, ForwardPass(sequences=work.batch, new_tokens=isl, cached_tokens=0.0 * one)),
        (later, ForwardPass(sequences=work.batch, new_tokens=one, cached_tokens=isl + osl / 2.0)),
    )
    passes = [server.token(row.shape, row.hardware, forward, p) for p, forward in forwards]
    prompt, prompts, token = (jnp.maximum(p.reading, p.computing) for p in passes)
    latency = prompt + (osl - 1.0) * token
    return {
        "tpot": token,
        "ttft": prompt,
        "e2e": latency,
        "throughput": work.batch * copies * osl / latency / chips,
        "latency": prompts + (osl - 1.0) * token,
    }


GOLDEN = SHARED / "golden" / "aiconfigurator_on_silicon.csv"
ALL = LAWS | {"pass": one_pass}
IDEAL = dict.fromkeys(LAWS, ideal) | {"pass": one_pass}


def answers(rows: Sequence[PooledRow], model: Serving, laws: dict = ALL) -> Columns:
    """Each metric of all rows by a model, NaN where the mode has no such answer."""
    columns = pooled.answers(rows, model, laws)
    if laws is not IDEAL:
        replays.answers(rows, model, columns)
    for metric in ("ttft_mean", "ttft_median"):
        # closed loops have one estimate of TTFT, a mean; replays have both
        own = columns.get(metric, np.full(len(rows), np.nan))
        first = columns.get("ttft", own)
        columns[metric] = np.where(np.isnan(own), first, own)
    return columns


def data_sheet(rows: Sequence[PooledRow]) -> Columns:
    """Data-sheet rates and nothing else, through the same laws."""
    return answers(rows, Serving.roofline())


def roofline(rows: Sequence[PooledRow]) -> Columns:
    """The longer of reading and computing of each pass."""
    return answers(rows, Serving.roofline(), IDEAL)


def aiconfigurator(rows: Sequence[PooledRow]) -> Columns:
    """aiconfigurator 0.12 with its best labels, where its figures for a row are stored."""
    if not GOLDEN.exists():
        return {}
    with GOLDEN.open(newline="") as file:
        stored = {line["id"]: line for line in csv.DictReader(file)}
    columns = {name: f"pred_{name}_ms_E" for name in ("tpot", "ttft")}
    return {
        name: np.asarray([stored.get(r.id, {}).get(column) or "nan" for r in rows], float) / 1e3
        for name, column in columns.items()
    }
