"""What does the serving model say of every measured row? All rows in one program."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments._silicon import clean
from experiments._silicon.rows import Row
from infer_jax.catalog import System, load_system
from infer_jax.estimators.serving import Deployment, Serving, ServingWorkload, Shape, shape
from infer_jax.estimators.serving.engines import ENGINES
from infer_jax.footprint import Overheads
from infer_jax.specs import Hardware

BLOCKS = 2  # kinds of layers that a model here has at most
# InferenceX, benchmark_lib.sh at 8eec0d4: ten requests for each one in flight, of which the first
# all come at once. Rows of equal lengths do not say how many; they are taken to be of as many
WAVES = 10.0
# passes between two looks for new requests up to 15 in flight, and from 16 on, in the scripts by
# which these models were measured (InferenceX, benchmarks/single_node: --scheduler-recv-interval of
# dsr1_* and qwen3.5_* on b200 and b300; the others leave it at 1)
POLLING = {"DeepSeek-R1/V3": (10.0, 30.0), "Qwen3.5-397B-A17B": (10.0, 30.0)}
DRAFTS = {False: 3.0, True: 1.0}  # of hidden speculation, without and with data-parallel attention


# vLLM 0.12 to 0.19, as the rows have it: 0.9 is the default, and nothing is set aside for graphs
AS_STARTED = {"usable_memory": 0.9, "overheads": Overheads.vllm_0_18()}


class Inputs(NamedTuple):
    """What an estimate of a row needs; every leaf has the rows' axis once stacked."""

    engine: Any
    generation: Any
    visible: Any
    shape: Shape
    hardware: Hardware
    workload: ServingWorkload
    plan: Deployment


def inputs(rows: Sequence[Row]) -> Inputs:
    """Rows as the model takes them, stacked: those of one server each."""
    shapes: dict[tuple, Shape] = {}
    systems: dict[str, System] = {}
    made = []
    for row in rows:
        assert row.formats is not None and row.layout is not None and row.concurrency is not None
        key = (row.model, row.formats)
        if key not in shapes:
            seen = shape(row.architecture(), blocks=BLOCKS)
            shapes[key] = seen._replace(quantised=np.asarray(float(row.formats.dynamic)))  # pyright: ignore[reportArgumentType]
        if row.profile not in systems:
            systems[row.profile] = load_system(row.profile)
        facts = systems[row.profile].coefficients.get("serving", {})
        fixed = float(row.source == "fixed_length")
        grid = row.layout
        drafts = DRAFTS[grid.dp > 1] if row.hidden_mtp else 0.0
        ranks = {"tp": grid.tp, "attention_dp": grid.dp, "ep": grid.moe_ep}
        made.append(
            Inputs(
                engine=np.asarray(float(ENGINES.index(row.engine))),
                generation=np.asarray(float(clean.blackwell(row.system))),
                visible=np.asarray(facts.get("visible", Serving().visible)),
                shape=shapes[key],
                hardware=systems[row.profile].hardware,
                workload=ServingWorkload.of(
                    isl=row.isl,
                    osl=row.osl,
                    batch=row.concurrency,
                    nominal=1.0 - fixed,
                    fixed=fixed,
                    waves=WAVES,
                ),
                plan=Deployment.of(**ranks, drafts=drafts, polling=polling(row)),
            )
        )
    return jax.tree.map(lambda *x: np.stack([np.asarray(v) for v in x]), *made)


def polling(row: Row) -> float:
    """Passes from one look for new requests to the next, as the row's server was started."""
    assert row.concurrency is not None
    told = row.engine == "sglang" and row.source == "random_length" and clean.blackwell(row.system)
    few, many = POLLING.get(row.family, (1.0, 1.0)) if told else (1.0, 1.0)
    return many if row.concurrency >= 16 else few


def predictor(stacked: Inputs) -> Callable[[Serving], Array]:
    """TPOT of all rows, then TTFT of all rows, in seconds, of a serving model."""

    def one(model: Serving, given: Inputs) -> tuple[Array, Array]:
        facts = {"engine": given.engine, "generation": given.generation, "visible": given.visible}
        own = model.replace(**facts, **AS_STARTED)
        life = own.serve(given.shape, given.hardware, given.workload, given.plan)
        return life.tpot, life.ttft

    def predict(model: Serving) -> Array:
        return jnp.concatenate(jax.vmap(one, in_axes=(None, 0))(model, stacked))

    return predict
