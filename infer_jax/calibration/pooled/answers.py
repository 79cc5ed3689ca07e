"""Predictions of measured rows by the serving estimator: all rows of one mode in one program."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from infer_jax.calibration.pooled.rows import PooledRow, system_named
from infer_jax.estimators.disaggregated import Disaggregated, Pools, forward_passes
from infer_jax.estimators.serving import ENGINES, Deployment, Pass, Serving, ServingWorkload, Shape
from infer_jax.footprint import Overheads
from infer_jax.physics.cost import power_at
from infer_jax.physics.speculation import HEADS_DECLINE
from infer_jax.specs import Architecture, ForwardPass, Hardware, Hierarchy, Plan

OF_SERVER = ("engine", "generation", "visible", "acceptance", "draw", "software_age")
OF_ROW = ("chip_share", "balanced", "pool_share", "busy_share", "median")
POSITIONS = 8  # drafted tokens at most
# the acceptance of a model's own heads at each position, of that of the first
OWN_HEADS = np.pad(np.asarray(HEADS_DECLINE), (0, POSITIONS - len(HEADS_DECLINE)))
# how servers of the rows were started: 0.9 is the default of vLLM until 0.20, and what
# TensorRT-LLM and SGLang leave of the free memory is near it
AS_STARTED = {"usable_memory": 0.9, "overheads": Overheads.vllm_0_18()}


class RowInputs(NamedTuple):
    """A row's inputs; every leaf has the rows' axis once stacked. ``arch`` is None but of pools.

    ``facts``: what the row says of its server that the estimator holds as leaves (``OF_SERVER``),
    and what is as in the row (``OF_ROW``).
    """

    facts: dict[str, Any]
    shape: Shape
    hardware: Hardware
    workload: ServingWorkload
    plan: Deployment | Pools
    arch: Architecture | None


Answers = dict[str, Array]
Columns = dict[str, np.ndarray]  # by metric, a number a row
Law = Callable[[Serving, RowInputs], Answers]


class StackedRows(NamedTuple):
    """Rows of one mode and structure: their indices among all, and their inputs with that axis."""

    mode: str
    rows: np.ndarray
    inputs: RowInputs

    def with_facts(self, **facts: Any) -> "StackedRows":
        """The same with other facts of their servers."""
        return self._replace(inputs=self.inputs._replace(facts=self.inputs.facts | facts))


def inputs(row: PooledRow, serving: Serving) -> RowInputs:
    """A row as the laws below take it."""
    coefficients = system_named(row.system).coefficients.get("serving", {})
    facts = {name: float(getattr(row, name)) for name in OF_ROW} | {
        "engine": float(ENGINES.index(row.engine)),
        "generation": coefficients.get("generation", 0.0),
        "visible": coefficients.get("visible", float(serving.visible)),
        "acceptance": acceptance(row, serving),
        "software_age": row.software_age,
        "draw": serving.fitted(coefficients).draw,
    }
    assert row.served is not None and row.workload is not None and row.plan is not None
    arch = row.served.architecture() if row.mode == "pools" else None
    return RowInputs(facts, row.served.shape(), _hardware(row), row.workload, row.plan, arch)


def acceptance(row: PooledRow, serving: Serving) -> np.ndarray:
    """Acceptance by position: as printed, the same of all; else as of a model's own heads."""
    if row.acceptance is None:
        return float(getattr(serving, row.engine).acceptance) * OWN_HEADS
    return np.full(POSITIONS, row.acceptance, float)


def _hardware(row: PooledRow) -> Hardware:
    """The row's system, with memory and links at other rates than the data sheet's if it says."""
    hardware = system_named(row.system).hardware
    if row.rates == (1.0, 1.0):
        return hardware
    chip, network = hardware.chip, hardware.network
    assert isinstance(network, Hierarchy)
    memory, link = row.rates
    return hardware.replace(
        chip=chip.replace(memory_bandwidth=np.asarray(chip.memory_bandwidth * memory)),
        network=network.replace(domain_bandwidth=np.asarray(network.domain_bandwidth * link)),
    )


def of_server(model: Serving, facts: dict[str, Any]) -> Serving:
    """The estimator with the facts of a row's server."""
    leaves = {name: facts[name] for name in OF_SERVER}
    return model.replace(**leaves, skew=model.skew * (1.0 - facts["balanced"]))


def closed_loop(model: Serving, row: RowInputs) -> Answers:
    """A constant number of requests in flight."""
    server = of_server(model, row.facts)
    assert isinstance(row.plan, Deployment)
    served = server.estimate_shape(row.shape, row.hardware, row.workload, row.plan)
    # a meter that ran longer than the server was busy shows an idle chip for the rest
    busy, idle = row.facts["busy_share"], row.hardware.power * server.draw.idle
    return {
        "tpot": served.tpot,
        "ttft": jnp.where(row.facts["median"] > 0.5, served.ttft_median, served.ttft),
        "ttft_mean": served.ttft,
        "ttft_median": served.ttft_median,
        "e2e": served.latency,
        "throughput": served.throughput,
        "power": busy * served.power + (1.0 - busy) * idle,
    }


def without_drafts(plan: Deployment) -> Deployment:
    """The plan of a pass of prompts, in which nothing is drafted."""
    return plan.replace(drafts=jnp.zeros_like(plan.drafts))


def one_batch(model: Serving, row: RowInputs) -> Answers:
    """One batch from start to end: a pass of all prompts, then a pass a token."""
    server, work = of_server(model, row.facts), row.workload
    one = jnp.ones_like(work.batch)
    prompts = ForwardPass(sequences=work.batch, new_tokens=work.isl, cached_tokens=0.0 * one)
    tokens = ForwardPass(
        sequences=work.batch, new_tokens=one, cached_tokens=work.isl + work.osl / 2.0
    )
    assert isinstance(row.plan, Deployment)
    first, later = (
        server.token(row.shape, row.hardware, forward, plan).time
        for forward, plan in ((prompts, without_drafts(row.plan)), (tokens, row.plan))
    )
    return {"latency": first + (work.osl - 1.0) * later}


def drawn_lengths(work: ServingWorkload, server: Serving) -> ServingWorkload:
    """Requests of the mean lengths that were drawn, where the source states the largest."""
    scale = jnp.where(work.nominal > 0.5, server.drawn_length, 1.0)
    return work.replace(isl=work.isl * scale, osl=work.osl * scale)


def two_pools(model: Serving, row: RowInputs) -> Answers:
    """Requests in flight in two pools, as ``Disaggregated.loop`` has them for users."""
    server, plan = of_server(model, row.facts), row.plan
    assert isinstance(plan, Pools) and row.arch is not None
    work = drawn_lengths(row.workload, server)

    def one_pass(forward: ForwardPass, own: Plan) -> Pass:
        return server.token(row.shape, row.hardware, forward, own)

    laws = (one_pass, one_pass)
    served = Disaggregated.of(target=server).loop(row.arch, row.hardware, work, plan, laws)
    rate = served.throughput * served.chips / work.osl
    first, second = one_pass(forward_passes(work, plan)[0], plan.prefill), served.decode
    decoding = jnp.maximum(rate * (work.osl - 1.0) * served.tpot / plan.decode_copies, 1.0)
    # mean watts of a chip, by the passes of each pool that a second needs
    watts, chips = jnp.asarray(0.0), jnp.asarray(0.0)
    for pool, copies, batch, phase, passes_rate in (
        (plan.prefill, plan.prefill_copies, plan.prefill_batch, first, rate),
        (plan.decode, plan.decode_copies, decoding, second, rate * (work.osl - 1.0)),
    ):
        busy = passes_rate / batch / copies
        own = copies * pool.instance
        watts = watts + own * power_at(row.hardware.power, cast(Pass, phase), busy, server.draw)
        chips = chips + own
    return {
        "tpot": served.tpot,
        "ttft": served.ttft,
        "ttft_median": served.ttft - served.prefill.terms["first wave"],
        "e2e": served.ttft + (work.osl - 1.0) * served.tpot,
        "throughput": served.throughput / row.facts["chip_share"],
        "power": watts / chips,
    }


LAWS: dict[str, Law] = {"loop": closed_loop, "batch": one_batch, "pools": two_pools}
TRACES: list[str] = []  # a name for each program traced


@cache
def program(law: Law) -> Law:
    """A law of many rows, compiled once for each structure of them."""

    def rows(model: Serving, stacked: RowInputs) -> Answers:
        TRACES.append(law.__name__)
        return jax.vmap(law, in_axes=(None, 0))(model, stacked)

    return jax.jit(rows)


def shipped_fit() -> Serving:
    """The fit that the package carries, with servers started as those of the rows were."""
    return Serving.of().replace(**AS_STARTED)


def stack_rows(rows: Sequence[PooledRow], serving: Serving) -> list[StackedRows]:
    """Rows of one mode and structure together; without replays."""
    alike: dict[tuple[str, Hashable], dict[int, RowInputs]] = {}
    for i, row in enumerate(rows):
        if row.mode != "replay":
            one = inputs(row, serving)
            alike.setdefault((row.mode, jax.tree.structure(one)), {})[i] = one

    def stack(*leaves: ArrayLike) -> np.ndarray:
        return np.stack([np.asarray(x, float) for x in leaves])

    return [
        StackedRows(mode, np.asarray([*own]), jax.tree.map(stack, *own.values()))
        for (mode, _), own in alike.items()
    ]


def evaluate(
    model: Serving, parts: Iterable[StackedRows], laws: Mapping[str, Law], rows: int
) -> Columns:
    """Each metric of ``rows`` rows by a model, NaN where the mode has no such answer."""
    columns: Columns = {}
    for part in parts:
        for metric, values in program(laws[part.mode])(model, part.inputs).items():
            columns.setdefault(metric, np.full(rows, np.nan))[part.rows] = np.asarray(values)
    return columns


def answers(rows: Sequence[PooledRow], model: Serving, laws: Mapping[str, Law] = LAWS) -> Columns:
    """Each metric of all rows by a model, NaN where the mode has no such answer."""
    return evaluate(model, stack_rows(rows, shipped_fit()), laws, len(rows))
