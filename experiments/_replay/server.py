"""A server as a measurement describes it: model, machine, engine arguments, and its replay."""

from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jax import Array
from jax.tree_util import Partial

from infer_jax.catalog import load_system
from infer_jax.estimators.serving import Deployment, Serving, shape
from infer_jax.estimators.serving.price import PassLaw, pass_time
from infer_jax.footprint import EngineSettings, Overheads, memory
from infer_jax.replays import Log, Requests, Rules, replay, vllm
from infer_jax.specs import Architecture, Hardware

UTILIZATION = 0.9  # --gpu-memory-utilization, the default of vLLM until 0.20


class Server(NamedTuple):
    """A vLLM server: what its passes are priced by, and its rules."""

    arch: Architecture
    hardware: Hardware
    plan: Deployment
    rules: Rules

    @classmethod
    def of(
        cls,
        arch: Architecture,
        hardware: Hardware,
        *,
        tp: float,
        budget: float,
        slots: float,
        context: float,
        overheads: Overheads,
        overlap: bool,
    ) -> "Server":
        """The server of engine arguments, with the cache that ``footprint`` counts.

        ``budget``: max_num_batched_tokens; ``slots``: max_num_seqs; ``context``: max_model_len.
        """
        plan = Deployment.of(tp=tp, chunk=budget, max_sequences=slots)
        engine = EngineSettings.of(
            utilization=UTILIZATION, sequences=slots, batched_tokens=budget, context=context
        )
        blocks = float(memory(arch, hardware, plan, engine, overheads).blocks)
        rules = vllm(blocks=blocks, budget=budget, slots=slots, overlap=overlap)
        return cls(arch, hardware, plan, rules)


def shipped(system: str) -> Serving:
    """The fitted coefficients."""
    return Serving.vllm_engine().fitted(load_system(system).coefficients["serving"])


class Times(NamedTuple):
    """Seconds of every request: to the first token, a token after it, to the last."""

    ttft: np.ndarray
    tpot: np.ndarray
    e2e: np.ndarray

    def of(self, which: slice | np.ndarray) -> "Times":
        """Those of some requests."""
        return Times(*(x[which] for x in self))


def served(s: Server, model: Serving, requests: Requests) -> Times:
    """Times of all requests, replayed."""
    count = int(requests.count)
    turns = 2 ** int(np.ceil(np.log2(8 * count)))
    width = 2 ** int(np.ceil(np.log2(float(s.rules.slots))))
    table = _table(s._replace(rules=None), model)
    ends = _program(table, s.rules, requests, width=width, turns=turns)
    *ends, complete = (np.asarray(x) for x in ends)
    assert complete, "a path with more entries than there is room for"
    return Times(*(x[:count] for x in ends))


@jax.jit
def _table(s: Server, model: Serving) -> PassLaw:
    return PassLaw.of_context(model.context(shape(s.arch), s.hardware, s.plan))


@partial(jax.jit, static_argnames=("width", "turns"))
def _program(
    table: PassLaw, rules: Rules, requests: Requests, *, width: int, turns: int
) -> tuple[Array, ...]:
    log: Log = replay(Partial(pass_time, table), rules, requests, width=width, turns=turns)
    return log.ttft, log.tpot, log.latency, log.complete


STATISTICS = {
    "mean": np.mean,
    "p50": np.median,
    "p90": lambda x: np.percentile(x, 90),
    "p99": lambda x: np.percentile(x, 99),
}


def errors(replayed: Times, measured: Times) -> dict[str, float]:
    """Relative error of each statistic of each time: ``ttft mean`` and so on."""
    return {
        f"{name} {statistic}": float(law(ours) / law(theirs) - 1.0)
        for name, ours, theirs in zip(Times._fields, replayed, measured, strict=True)
        for statistic, law in STATISTICS.items()
    }
