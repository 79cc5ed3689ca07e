"""A server as a measurement describes it: model, machine, engine arguments, and its replay."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import jax
import numpy as np
from jax.tree_util import Partial

from infer_jax.catalog import Model, System, list_systems, load_model, load_system
from infer_jax.catalog.names import chip_of
from infer_jax.estimators.serving import Deployment, Serving, shape
from infer_jax.estimators.serving.price import PassLaw, pass_time
from infer_jax.footprint import EngineSettings, Overheads, memory
from infer_jax.replays import Requests, Rules, serve, serve_copies, vllm
from infer_jax.specs import Architecture, Hardware

UTILIZATION = 0.9  # --gpu-memory-utilization, the default of vLLM until 0.20
ROUTER = "weighted_queue"  # of vLLM's data parallel engines: those that wait count fourfold
# what vLLM keeps beside weights and cache, by the first version that does
OVERHEADS = {
    (0, 21): Overheads.vllm_0_21,
    (0, 18): Overheads.vllm_0_18,
    (0, 17): Overheads.vllm_0_17,
    (0, 0): Overheads.vllm_0_10,
}


def overheads(version: str) -> Overheads:
    """What a version of vLLM keeps: ``0.15.1``.

    Raises:
        ValueError: no version.
    """
    own = tuple(int(x) for x in version.strip().split(".")[:2])
    return next(kept for first, kept in OVERHEADS.items() if own >= first)()


def profile(name: str) -> System:
    """The bundled system of a chip's name.

    Raises:
        ValueError: a name that means none.
    """
    found = chip_of(name, list_systems())
    if found is None:
        raise ValueError(f"hardware {name!r} has no profile")
    return load_system(found)


def model_of(config: object) -> Model:
    """A model by the numbers of its config.json, as on Hugging Face."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "config.json")
        path.write_text(json.dumps(config))
        return load_model(path)


class Server(NamedTuple):
    """A vLLM server: what its passes are priced by, its rules, and copies behind its front end."""

    arch: Architecture
    hardware: Hardware
    plan: Deployment
    rules: Rules
    copies: int = 1

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
        ep: float = 1.0,
        copies: int = 1,
        utilization: float = UTILIZATION,
    ) -> "Server":
        """The server of engine arguments, with the cache that ``footprint`` counts.

        ``budget``: max_num_batched_tokens; ``slots``: max_num_seqs; ``context``: max_model_len.
        """
        plan = Deployment.of(tp=tp, ep=ep, chunk=budget, max_sequences=slots)
        engine = EngineSettings.of(
            utilization=utilization, sequences=slots, batched_tokens=budget, context=context
        )
        blocks = float(memory(arch, hardware, plan, engine, overheads).blocks)
        rules = vllm(blocks=blocks, budget=budget, slots=slots)
        return cls(arch, hardware, plan, rules, copies)


def shipped(system: System) -> Serving:
    """The fitted coefficients."""
    return Serving.vllm_engine().fitted(system.coefficients.get("serving", {}))


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
    step = Partial(pass_time, _law(s._replace(rules=None), model))
    names, count = ("ttft", "tpot", "latency"), int(requests.count)
    if s.copies == 1:
        log = serve(step, s.rules, requests)
    else:
        log = serve_copies(step, s.rules, requests, s.copies, ROUTER).log
    return Times(*(np.asarray(getattr(log, name))[:count] for name in names))


@jax.jit
def _law(s: Server, model: Serving) -> PassLaw:
    return PassLaw.of_context(model.context(shape(s.arch), s.hardware, s.plan))


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
