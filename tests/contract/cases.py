"""The estimators, models and systems that the contract is tried on."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from infer_jax.catalog import load_system
from infer_jax.engines import ENGINES
from infer_jax.estimators import Economics, Offload, Offloading, Partitioning, Speculative, Split
from infer_jax.estimators.kernels import Kernels
from infer_jax.estimators.serving import Serving
from infer_jax.specs import (
    Architecture,
    Block,
    Chip,
    Dense,
    Experts,
    Format,
    ForwardPass,
    GroupedQuery,
    Hardware,
    Hierarchy,
    Host,
    Latent,
    Linear,
    Plan,
    Sparse,
    Torus,
)

FP8 = Format.of(bytes=1.03, bits=8)


def dense() -> Architecture:
    attention = GroupedQuery.of(query_heads=32, kv_heads=8, head_width=128, value_width=128)
    block = Block.of(
        count=31, attention=attention, feedforward=Dense.of(width=14000, inward=2), vectors=8192
    )
    return Architecture.of(width=4096, vocabulary=128000, tied=0, blocks=(block,), vectors=4096)


def mixture() -> Architecture:
    """Latent attention with an indexer, a dense layer, then experts that do not divide."""
    attention = Latent.of(
        query_heads=64, nope_width=128, rope_width=64, value_width=128, kv_rank=512,
        query_rank=1536, weights=FP8,
    )  # fmt: skip
    sparse = Sparse.of(
        base=attention, top_k=2048.5, index_heads=64, index_width=128, index_query_input=1536
    )
    shared = Dense.of(width=2048, inward=2, weights=FP8)
    sizes = {"experts": 130, "active": 7, "width": 2048, "inward": 2}
    experts = Experts.of(**sizes, shared=shared, weights=FP8)
    blocks = (
        Block.of(count=3, attention=attention, feedforward=Dense.of(width=18432, inward=2)),
        Block.of(count=29, attention=sparse, feedforward=experts),
    )
    return Architecture.of(width=7168, vocabulary=129280, tied=0, blocks=blocks)


def hybrid() -> Architecture:
    """Linear layers, windowed ones, and layers without attention or without feedforward."""
    linear = Linear.of(key_heads=16, key_width=128, value_heads=32, value_width=128)
    window = GroupedQuery.of(
        query_heads=16, kv_heads=2, head_width=256, value_width=256, window=1000.5, query_gate=1
    )
    moe = Experts.of(experts=101, active=10, width=512, inward=2)
    blocks = (
        Block.of(count=36, attention=linear, feedforward=moe),
        Block.of(count=12, attention=window, feedforward=None),
        Block.of(count=12, attention=None, feedforward=Dense.of(width=4000, inward=1)),
    )
    return Architecture.of(width=2048, vocabulary=151936, tied=1, blocks=blocks)


def nodes() -> Hardware:
    chip = Chip.of(
        flops_16=9.9e14, flops_8=1.98e15, flops_4=1.98e15, memory=8e10, memory_bandwidth=3.35e12
    )
    network = Hierarchy.of(domain=8, domain_bandwidth=4.5e11, network_bandwidth=5e10)
    return Hardware.of(chip=chip, network=network, price=3.0)


def torus() -> Hardware:
    chip = Chip.of(
        flops_16=2.75e14, flops_8=2.75e14, flops_4=2.75e14, memory=3.4e10, memory_bandwidth=1.2e12
    )
    return Hardware.of(chip=chip, network=Torus.of(axes=3, link_bandwidth=2.7e11), price=3.2)


def offloaded() -> Hardware:
    """A small GPU with a host and a disk."""
    chip = Chip.of(
        flops_16=6.5e13, flops_8=1.3e14, flops_4=1.3e14, memory=1.63e10, memory_bandwidth=3.1e11
    )
    network = Hierarchy.of(domain=1, domain_bandwidth=1.6e10, network_bandwidth=4e9)
    host = Host.of(
        memory=7.1e10, memory_bandwidth=1.28e11, flops=2.1e12, link_bandwidth=1.6e10, disk=1.5e12,
        disk_read=2.1e9, disk_write=1.1e9,
    )  # fmt: skip
    return Hardware.of(chip=chip, network=network, host=host, price=0.5)


MODELS = {"dense": dense, "mixture": mixture, "hybrid": hybrid}
SYSTEMS = {"nodes": nodes, "torus": torus, "offloaded": offloaded}


class Row(NamedTuple):
    """An estimator, and the laws it does not claim with the reason."""

    make: Any
    laws_not_claimed: Mapping[str, str] = MappingProxyType({})


# no coefficient at its default, at which many laws of the partitioning model are silent
TORUS = {
    "flop_cap": 0.8, "memory_cap": 0.7, "network_cap": 0.6, "half_width": 900.0, "half_rows": 30.0,
    "collective": 4e-6, "layer_overhead": 9e-6, "hidden_memory": 0.4, "hidden_network": 0.3,
}  # fmt: skip

# measured curves: at their defaults, which are the roofline, many laws are silent
H20 = load_system("h20_sxm").coefficients["kernels"]

ESTIMATORS: dict[str, Row] = {
    "economics.level1": Row(Economics.level1),
    "economics.level2": Row(Economics.level2),
    "economics.level3": Row(Economics.level3),
    "economics.pipeline": Row(Economics.pipeline),
    "economics.level4": Row(Economics.level4),
    "economics": Row(Economics.corrected),
    "economics.planned": Row(Economics.as_planned),
    "partitioning": Row(lambda: Partitioning.searched().with_(**TORUS)),
    "partitioning.planned": Row(lambda: Partitioning.as_planned().with_(**TORUS)),
    "kernels": Row(lambda: Kernels.corrected().fitted(H20)),
    "kernels.published": Row(lambda: Kernels.as_published().fitted(H20)),
    "serving": Row(Serving.of),
    **{f"serving.{engine}": Row(partial(Serving.of, engine=engine)) for engine in ENGINES},
    "serving.complete": Row(lambda: Serving.complete().with_(skew=0.4, imbalance=0.5)),
    "speculative.economics": Row(lambda: Speculative.economics(Economics.level1(), dense(), 0.8)),
    "speculative.bonus": Row(lambda: Speculative.bonus(Economics.as_planned(), dense(), 0.7, 3)),
}

JOBS: dict[str, Row] = {  # those that price a whole job: ``estimate`` alone
    "offloading": Row(Offloading.improved),
    "offloading.planned": Row(Offloading.as_planned),
    "offloading.paper": Row(Offloading.paper),
    "offloading.released": Row(Offloading.released),
}


def decode() -> ForwardPass:
    return ForwardPass.of(sequences=37.3, new_tokens=1, cached_tokens=4100.7)


def prefill() -> ForwardPass:
    return ForwardPass.of(sequences=2.6, new_tokens=3000.3, cached_tokens=500.2)


def crowded() -> ForwardPass:
    """More cache than any of the systems here holds."""
    return ForwardPass.of(sequences=5e5, new_tokens=1, cached_tokens=1e5)


PASSES = {"decode": decode, "prefill": prefill, "crowded": crowded}


def plan() -> Plan:
    return Split.of(tp=6.3, pp=2.2, ep=3.1, attention_split=1.4, layout=1)


def block() -> Offload:
    """A job that fits on the offloaded system, with a bit on the disk."""
    return Offload.of(
        gpu_batch=11.3, batches=3.2, weights_gpu=0.13, weights_cpu=0.61, cache_gpu=0.07,
        cache_cpu=0.72, hidden_gpu=0.21, hidden_cpu=0.79,
    )  # fmt: skip


def crowd() -> Offload:
    """The same with far more samples than all tiers hold."""
    return block().with_(gpu_batch=3001.0, batches=40.0)


BLOCKS = {"block": block, "crowd": crowd}
