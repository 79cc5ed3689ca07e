"""Which kernels did aiconfigurator measure? Its optional package's tables as families to fit.

One engine's kernels (TensorRT-LLM) on one chip: FP8 products, attention with heads of 128, balanced
FP8 experts, latent attention, and NCCL's all-reduce. Tables are large: a fixed sample is taken.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from experiments._kernels import fits
from experiments._kernels.fits import Family, labels
from infer_jax.errors import InputError
from infer_jax.physics import efficiency as eff
from infer_jax.specs import Chip

SAMPLE = 600  # rows of a family
ENGINE, NCCL = "trtllm/1.3.0rc20", "2.29.2"
SOURCE = f"aiconfigurator-core 0.12.0, measured with {ENGINE} and NCCL {NCCL}"


def packaged(system: str) -> Iterator[Family]:
    """The families of one system.

    Raises:
        InputError: the package is not installed, or has no such system.
    """
    found = find_spec("aiconfigurator_core")
    if found is None or found.origin is None:
        allowed = "pip install aiconfigurator-core pandas pyarrow"
        raise InputError("aiconfigurator-core", "", "not installed", allowed)
    root = Path(found.origin).parent / "systems" / "data" / system
    if not root.is_dir():
        known = ", ".join(sorted(p.name for p in root.parent.iterdir()))
        raise InputError("aiconfigurator-core", "system", system, known)
    yield _gemm(root)
    yield _moe(root)
    yield from _attention(root)
    yield _all_reduce(root)


def _read(path: Path, query: str, seed: int = 0) -> Any:
    import pandas  # pyright: ignore[reportMissingImports]

    table = pandas.read_parquet(path).query(query)
    return table.sample(min(SAMPLE, len(table)), random_state=seed)


def _columns(table: Any, *names: str) -> list[np.ndarray]:
    return [table[name].to_numpy(float) for name in names]


def _gemm(root: Path) -> Family:
    path = root / "gemm" / ENGINE / "gemm_perf.parquet"
    table = _read(path, "gemm_dtype == 'fp8' and n >= 512 and k >= 512")
    m, k, n, spent = _columns(table, "m", "k", "n", "latency")
    start = eff.Product.of(compute=0.7, memory=0.8, fixed=4e-6, rows=100, depth=150, tail=2e5)
    names = ("compute", "memory", "fixed", "rows", "depth", "tail")
    shapes = labels(np.stack([k, n], axis=1))
    return Family(
        "gemm", fits.product_law, start, names, {"m": m, "k": k, "n": n}, spent / 1e3, shapes
    )


def _moe(root: Path) -> Family:
    path = root / "moe" / ENGINE / "moe_perf.parquet"
    query = "moe_dtype == 'fp8' and distribution == 'balanced'"
    table = _read(path, f"{query} and kernel_source == 'moe_torch_flow_cutlass'")
    names = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts")
    tokens, width, inner, top, experts = _columns(table, *names)
    tp, ep, spent = _columns(table, "moe_tp_size", "moe_ep_size", "latency")
    active = np.minimum(experts, tokens * top) / ep  # balanced: no expert twice before all once
    given = {
        "groups": np.maximum(active, 1.0),
        "m": np.maximum(tokens * top / experts, 1.0),
        "width": width,
        "inner": inner / tp,
    }
    start = eff.Product.of(
        compute=0.6, memory=0.7, fixed=2e-5, rows=64, depth=200, tail=1e5, halo=20
    )
    fitted = ("compute", "memory", "fixed", "rows", "depth", "tail", "halo")
    shapes = labels(np.stack([width, inner, top, experts], axis=1))
    return Family("grouped", fits.grouped_law, start, fitted, given, spent / 1e3, shapes)


def _attention(root: Path) -> Iterator[Family]:
    folder = root / "attention" / ENGINE
    plain = "head_dim == 128 and window_size == 0 and kv_cache_dtype == 'bfloat16'"
    plain += " and attn_dtype == 'bfloat16'"
    table = _read(folder / "generation_attention_perf.parquet", f"{plain} and step >= 255")
    heads, kv, batch = _columns(table, "num_heads", "num_key_value_heads", "batch_size")
    context, spent = _columns(table, "step", "latency")
    start = eff.Attending.of(compute=0.5, memory=0.8, fixed=1e-5, sharpness=3.0)
    work = {
        "flops": 4 * heads * 128 * batch * context,
        "moved": 2 * kv * 128 * 2 * batch * context,
        "batch": batch,
    }
    names = ("compute", "memory", "fixed", "sharpness")
    shapes = labels(np.stack([heads, kv], axis=1))
    yield Family("gqa_decode", fits.attending_law, start, names, work, spent / 1e3, shapes)

    table = _read(folder / "context_attention_perf.parquet", f"{plain} and isl >= 256")
    heads, kv, batch = _columns(table, "num_heads", "num_key_value_heads", "batch_size")
    length, spent = _columns(table, "isl", "latency")
    first = eff.Prompting.of(compute=0.6, fixed=1e-5, ramp=300.0)
    given = {"flops": 2 * heads * 128 * length**2 * batch, "length": length}
    names = ("compute", "fixed", "ramp")
    shapes = labels(np.stack([heads, kv], axis=1))
    yield Family("gqa_prefill", fits.prompting_law, first, names, given, spent / 1e3, shapes)

    folder = root / "mla" / ENGINE
    plain = "kv_cache_dtype == 'bfloat16' and mla_dtype == 'bfloat16'"
    table = _read(folder / "generation_mla_perf.parquet", f"{plain} and step >= 255")
    heads, batch, context, spent = _columns(table, "num_heads", "batch_size", "step", "latency")
    work = {
        "flops": 2 * heads * (2 * 512 + 64) * batch * context,
        "moved": (512 + 64) * 2 * batch * context,
        "batch": batch,
    }
    names = ("compute", "memory", "fixed", "sharpness", "alone")
    start = start.but(alone=1.0)
    yield Family("mla_decode", fits.attending_law, start, names, work, spent / 1e3, labels(heads))

    table = _read(folder / "context_mla_perf.parquet", f"{plain} and isl >= 256")
    heads, batch, length, spent = _columns(table, "num_heads", "batch_size", "isl", "latency")
    given = {"flops": heads * (128 + 64 + 128) * length**2 * batch, "length": length}
    names = ("compute", "fixed", "ramp")
    yield Family("mla_prefill", fits.prompting_law, first, names, given, spent / 1e3, labels(heads))


def _all_reduce(root: Path) -> Family:
    path = root / "comm" / "nccl" / NCCL / "nccl_perf.parquet"
    table = _read(path, "op_name == 'all_reduce' and nccl_dtype == 'half'")
    ranks, elements, spent = _columns(table, "num_gpus", "message_size", "latency")
    sent = 2 * (ranks - 1) / ranks * 2 * elements
    start = eff.Recurring.of(memory=0.1, fixed=1e-5, sharpness=1.0)
    names = ("memory", "fixed", "sharpness")
    return Family(
        "all_reduce", fits.recurring_law, start, names, {"moved": sent}, spent / 1e3, labels(ranks)
    )


def link_share(all_reduce: Any, chip: Chip, link: float) -> float:
    """Share of the link that an all-reduce reaches, from its share of memory bandwidth."""
    return float(all_reduce.memory * chip.memory_bandwidth) / link
