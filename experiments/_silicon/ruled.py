"""What the laws of a scheduler say of measured rows, in place of the fitted sharing of passes.

Only of rows whose lengths were drawn: those of equal lengths come from another benchmark, with
schedulers of other rules, and keep the fitted closed loop.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments._silicon.rows import Row
from experiments._silicon.served import AS_STARTED, Inputs, inputs
from infer_jax.estimators.serving import Serving
from infer_jax.estimators.serving.closed_loop import Lengths, admission_steps, front
from infer_jax.estimators.serving.open_loop import group_of
from infer_jax.physics import batching, interference

# InferenceX, benchmarks/single_node and benchmark_lib.sh (@8eec0d4): lengths from 80 to 100 % of
# the stated ones; ten requests for each one in flight, of which the first all come at once
SHORTEST = 0.8
WAVES = 10.0
# tokens of a pass: max-num-batched-tokens and max_num_tokens of those scripts; SGLang's
# chunked-prefill-size is 16384 or 32768 there
BUDGET = {"vllm": 8192.0, "trtllm": 8192.0, "sglang": 16384.0}
POINTS = 3  # lengths that stand for all between the shortest and the longest, of either kind
BATCH = 350  # rows at a time: the tables of their passes are large


class Ruled(NamedTuple):
    """A row's inputs, and the tokens of a pass of its server."""

    given: Inputs
    budget: Array


def stacked(rows: Sequence[Row]) -> Ruled:
    """The inputs of rows; TensorRT-LLM's scripts leave a pass room for a whole prompt."""
    whole = [r.isl + (r.concurrency or 0.0) if r.engine == "trtllm" else 0.0 for r in rows]
    budget = [max(BUDGET[r.engine], w) for r, w in zip(rows, whole, strict=True)]
    return Ruled(inputs(rows), np.asarray(budget))  # pyright: ignore[reportArgumentType]


def kinds(lengths: Lengths) -> batching.Kinds:
    """Requests whose two lengths are even and independent, by Gauss and Legendre."""
    points, weights = np.polynomial.legendre.leggauss(POINTS)
    relative = 1.0 + points * (1.0 - SHORTEST) / (1.0 + SHORTEST)
    weight = jnp.asarray(np.outer(weights, weights).ravel() / 4.0)
    fresh = lengths.fresh * np.repeat(relative, POINTS)
    output = jnp.maximum(lengths.osl * np.tile(relative, POINTS), 1.0)
    return batching.Kinds(weight, fresh, jnp.zeros_like(weight), output)


def times(model: Serving, row: Ruled) -> tuple[Array, Array]:
    """TPOT and TTFT of one row, s.

    TTFT = network and tokeniser + passes of admission + what the laws of a closed loop say + the
    first wave of the benchmark.
    """
    given = row.given
    facts = {"engine": given.engine, "generation": given.generation, "visible": given.visible}
    own = model.replace(**facts, **AS_STARTED)
    fitted = own.serve(given.shape, given.hardware, given.workload, given.plan)
    plan, work = given.plan.replace(chunk=row.budget), given.workload
    c = own.context(given.shape, given.hardware, plan)
    lengths, load = Lengths.of(c, work), work.batch / plan.attention_dp
    group = group_of(c, work, lengths)
    ruled = batching.closed_loop(group.step, kinds(lengths), group.server, load)
    wave = interference.first_wave(ruled.running, ruled.own, WAVES)
    equal = work.fixed > 0.5
    ttft = front(own, plan) + admission_steps(c, equal) * ruled.tpot + ruled.ttft + wave
    return jnp.where(equal, fitted.tpot, ruled.tpot), jnp.where(equal, fitted.ttft, ttft)


def predictor(rows: Sequence[Row]) -> Callable[[Serving], Array]:
    """TPOT of all rows, then TTFT of all rows, in seconds, of a serving model."""
    every = stacked(rows)

    def predict(model: Serving) -> Array:
        rows = jax.tree.map(jnp.asarray, every)
        both = jax.lax.map(lambda row: times(model, row), rows, batch_size=BATCH)
        return jnp.concatenate(both)

    return predict
