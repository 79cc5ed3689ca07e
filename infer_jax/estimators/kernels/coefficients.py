"""Coefficients of the kernel model: source of efficiencies, shares of rates, fixed times."""

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.kernels.efficiency import Curves
from infer_jax.estimators.kernels.tables import Tables
from infer_jax.footprint import EngineSettings
from infer_jax.physics.network import collectives
from infer_jax.specs import Hardware, Plan, Spec, Torus, number, part, spec, static


@spec
class Coefficients(Spec):
    """The source of efficiencies, shares of data-sheet rates, and fixed times."""

    efficiency: Curves | Tables = part("look-up tables or curves", default_factory=Curves)
    flop_giga: Array = number("work of a unit of peak rate, over 1e9", kind="size", default=1.0)
    byte_giga: Array = number("bytes of a gigabyte, over 1e9", kind="size", default=1.0)
    memory_share: Array = number(
        "share of memory bandwidth that loading reaches", kind="fraction", high=1, default=1.0
    )
    link_share: Array = number(
        "share of link bandwidth that transfers reach", kind="fraction", high=1, default=0.8
    )
    causal: Array = number("what causality divides prefill by", kind="size", default=2.0)
    schedule_prefill: Array = number("scheduling a prefill", unit="s", kind="time", default=0.030)
    schedule_decode: Array = number("scheduling a decode", unit="s", kind="time", default=0.005)
    schedule_decode_hybrid: Array = number(
        "scheduling a decode of a hybrid model", unit="s", kind="time", default=0.005
    )
    reserve: Array = number(
        "memory of the runtime, not for weights and cache", unit="bytes", kind="size", default=15e9
    )
    decode_tokens: Array = number(
        # a token and seven drafts: vLLM runs decode kernels on one token and all its drafts
        "new tokens a sequence up to which a pass runs decode kernels",
        unit="tokens",
        kind="size",
        default=8.0,
    )
    protocols: tuple[collectives.Protocol, ...] = part(
        "NCCL's protocols: latencies of collectives", default_factory=collectives.nccl_protocols
    )
    server: EngineSettings | None = part(
        "the server whose memory is divided; None: the authors' own account",
        default_factory=lambda: None,
    )
    published: bool = static("assembled as the authors' program is", default=False)

    def scheduling(self, stage: str, hybrid: bool) -> Array:
        """Seconds that scheduling adds to a pass in the authors' program."""
        if stage == "prefill":
            return self.schedule_prefill
        return self.schedule_decode_hybrid if hybrid else self.schedule_decode


@spec
class KernelsPlan(Plan):
    """A plan with what this estimator adds. An instance is tp x ep GPUs: ``ep`` groups of ``tp``.

    Each group is a data-parallel rank of attention; experts are spread over the groups.
    """

    nodes: Array = number(
        "nodes of the instance; 0: as few as its fast domain allows", kind="count", default=0.0
    )
    deepep: Array = number(
        "dispatch and combine by DeepEP: normal kernels in prefill, low-latency ones in decode",
        kind="choice",
        high=1,
        default=0.0,
        choices=("no", "yes"),
    )
    two_batch: Array = number(
        "two micro-batches, one computing while the other communicates",
        kind="choice",
        high=1,
        default=0.0,
        choices=("no", "yes"),
    )
    sm_share: Array = number(
        "share of the SMs that compute while prefill dispatches", kind="fraction", default=1.0
    )
    prefill_tokens: Array = number(
        "tokens of a prefill pass per group; 0: one prompt",
        unit="tokens",
        kind="count",
        default=0.0,
    )

    def nodes_on(self, hardware: Hardware) -> Array:
        """Nodes of the instance, at least one."""
        network = hardware.network
        domain = 1.0 if isinstance(network, Torus) else network.domain
        return jnp.where(self.nodes > 0, self.nodes, jnp.ceil(self.tp * self.ep / domain))

    def degrees(self, nodes: Array) -> dict[str, Array]:
        """The layout as a phase tells it."""
        return {"tp": self.tp, "ep": self.ep, "pp": self.pp, "nodes": nodes}
