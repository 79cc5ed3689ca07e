"""What estimators say of all rows of the scoreboard, with those that no fit uses."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from experiments._validation import replays
from infer_jax.calibration.pooled import answers as pooled
from infer_jax.calibration.pooled.answers import (
    LAWS,
    Answers,
    Columns,
    RowInputs,
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
    share = jnp.asarray(row.facts.pool_share)
    return {"throughput": share * work.batch * new / time / row.plan.instance}


def ideal(model: Serving, row: RowInputs) -> Answers:
    """A plain roofline: the longer of reading everything and computing everything, pass by pass.

    ``model`` is ``Serving.roofline``: no collectives, launches, or other requests' prompts.
    """
    server, work = of_server(model, row.facts), row.workload
    scale = jnp.where(work.nominal > 0.5, server.drawn_length, 1.0)
    isl, osl = work.isl * scale, work.osl * scale
    one, plan = jnp.ones_like(work.batch), row.plan
    first, later, chips, copies = plan, plan, None, 1.0
    if isinstance(plan, Pools):
        first, later, copies = plan.prefill, plan.decode, plan.decode_copies
        chips = plan.chips * jnp.asarray(row.facts.chip_share)
    assert isinstance(first, Deployment) and isinstance(later, Deployment)
    first = without_drafts(first)
    forwards = (
        (first, ForwardPass(sequences=one, new_tokens=isl, cached_tokens=0.0 * one)),
        (first, ForwardPass(sequences=work.batch, new_tokens=isl, cached_tokens=0.0 * one)),
        (later, ForwardPass(sequences=work.batch, new_tokens=one, cached_tokens=isl + osl / 2.0)),
    )
    passes = [server.token(row.shape, row.hardware, forward, p) for p, forward in forwards]
    prompt, prompts, token = (jnp.maximum(p.reading, p.computing) for p in passes)
    latency = prompt + (osl - 1.0) * token
    chips = later.instance if chips is None else chips
    return {
        "tpot": token,
        "ttft": prompt,
        "e2e": latency,
        "throughput": work.batch * copies * osl / latency / chips,
        "latency": prompts + (osl - 1.0) * token,
    }


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
