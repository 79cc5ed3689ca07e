"""Which rows of InferSim's kernel tables is each curve fitted to, and what is known of a row?

Which kernels did aiconfigurator measure? Its optional package's tables as families to fit.

One engine's kernels (TensorRT-LLM) on one chip: FP8 products, attention with heads of 128,
balanced FP8 experts, latent attention, and NCCL's all-reduce. Tables are large: a fixed sample
is taken. Times are in milliseconds.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from infer_jax.catalog.foreign import read_parquet
from infer_jax.catalog.kernel_tables import KernelTables, read_headless
from infer_jax.catalog.measurements.silicon import package_folder
from infer_jax.errors import InputError
from infer_jax.estimators.kernels import Kernels
from infer_jax.estimators.kernels.efficiency import CHUNK, HELD
from infer_jax.kernel_timing import Family, families
from infer_jax.kernel_timing.families import FP8, labels
from infer_jax.physics import efficiency as eff
from infer_jax.physics.network import collectives
from infer_jax.specs import Chip, Hardware, Hierarchy

NOMINAL = {"h20": 296e12, "h800": 1979e12}  # FLOP/s that the tables' MFU are shares of
# contiguous groups are padded to 128 rows in the H20's table of these experts, and its MFU counts
# the padding as work
PADDED, PADDED_FROM = "h20", 256.0
VALUE_HEADS = 32.0  # the published table of 64 repeats this one, beyond the memory's bandwidth
OTHER_KERNEL = (32.0, 8.0, 128.0)  # its H20 table is of another kernel: 10 us at batch 1, not 28
UNSPLIT = (64.0, 2.0, 128.0)


def tabulated(tables: KernelTables, chip: Chip, folder: Path | None = None) -> Iterator[Family]:
    """Every family that the device has rows of; ``folder``: where files without a header are."""
    rows = tables.families["gemm"].values
    if len(rows):
        m, k, n, seconds, _ = rows.T
        yield families.products("gemm", m, k, n, seconds, FP8, chip)
    for stage in ("decode", "prefill"):
        rows = tables.families[f"grouped.{stage}"].values
        if len(rows):
            yield grouped(tables.device, stage, rows, chip)
    for kind, table in (("gqa", "mha"), ("mla", "mla")):
        rows = tables.families[f"{table}.decode"].values
        rows = rows[~np.all(rows[:, :3] == OTHER_KERNEL, axis=1)]
        if len(rows):
            yield _attending(kind, rows, chip)
        rows = tables.families[f"{table}.prefill"].values
        if len(rows):
            yield _prompting(kind, rows, chip)
    yield from _recurring(tables, chip)
    headless = ("mha.decode", UNSPLIT) in tables.headless
    if folder and headless:
        path = folder / "mha" / "decode" / tables.device / "64-2-128.csv"
        yield _unsplit(read_headless(path, "decode").values, chip)


def rows_computed(device: str, stage: str, rows: np.ndarray) -> np.ndarray:
    """Rows that each of the two products computed per expert, (2, rows).

    The benchmark draws the rows of an expert at random around the mean, up to a third of it off
    and again for each product; what was drawn is measured MFU x latency x peak over the FLOP of
    a row. Where padding counts as work, the mean is all that is known.
    """
    local, width, inner, each = rows[:, 2], rows[:, 4], rows[:, 5], rows[:, 7]
    up = rows[:, 9] * rows[:, 8] / (2.0 * width * 2.0 * inner)
    down = rows[:, 11] * rows[:, 10] / (2.0 * width * inner)
    results = np.stack([up, down]) * NOMINAL[device] / local
    padded = stage == "prefill" and device == PADDED
    return np.where(padded & (rows[:, 0] >= PADDED_FROM), each, results)


def grouped(device: str, stage: str, rows: np.ndarray, chip: Chip) -> Family:
    """The products into and out of a layer's experts."""
    local, width, inner = rows[:, 2], rows[:, 4], rows[:, 5]
    each = rows_computed(device, stage, rows)
    return families.grouped(
        f"grouped_{stage}",
        local * np.minimum(each, 1.0),  # below a mean of one row some experts have none
        np.maximum(each, 1.0),
        np.stack([width, inner]),
        np.stack([2.0 * inner, width]),
        rows[:, 8] + rows[:, 10],
        labels(*rows[:, [0, 1, 3, 4, 5]].T),
        FP8,
        chip,
    )


def _attending(kind: str, rows: np.ndarray, chip: Chip) -> Family:
    n, second, third, stored, batch, context, seconds, _ = rows.T
    latent = kind == "mla"
    wide = 2 * second + third if latent else 2 * third
    held = (second + third if latent else 2 * second * third) * stored * context
    carried = n * wide * HELD if latent else 0.0
    sizes = (2 * n * wide * batch * context, batch * (held + carried), batch, seconds)
    return families.attending(f"{kind}_decode", *sizes, labels(*rows[:, :3].T), chip, alone=latent)


def _prompting(kind: str, rows: np.ndarray, chip: Chip) -> Family:
    n, second, third, length, seconds, _ = rows.T
    latent = kind == "mla"  # the width of a value is that of a key without its rotary part
    pair = 2 * n * (2 * second + third) if latent else 4 * n * third
    sizes = (pair * length**2 / 2, length, seconds, labels(*rows[:, :3].T))
    return families.prompting(f"{kind}_prefill", *sizes, chip, ramp=not latent)


def _recurring(tables: KernelTables, chip: Chip) -> Iterator[Family]:
    for stage in ("decode", "prefill"):
        rows = tables.families[f"gdn.{stage}"].values
        if not len(rows):
            continue
        rows = rows[rows[:, 3] == VALUE_HEADS]
        conv, nk, dk, nv, dv, count, microseconds = rows.T
        state = 4 * nv * dk * dv + 2 * (conv - 1) * (nv * dv + 2 * nk * dk)
        updates = count if stage == "decode" else count / CHUNK
        names = ("memory", "fixed", "sharpness") if stage == "decode" else ("memory",)
        moved, shapes = 2 * updates * state, labels(*rows[:, :5].T)
        yield families.moving(f"linear_{stage}", moved, 1e-6 * microseconds, shapes, chip, names)


def _unsplit(rows: np.ndarray, chip: Chip) -> Family:
    n, kv, width, stored, batch, context, seconds, _ = rows.T
    bandwidth = np.asarray(chip.memory_bandwidth)
    return Family(
        "gqa_decode, no KV split",
        eff.unsplit,
        eff.Unsplit.of(memory=0.9, fixed=5e-6, slots=100.0, sharpness=4.0),
        ("memory", "fixed", "slots", "sharpness"),
        (2 * width * stored * context, batch * kv, bandwidth),
        seconds,
        labels(n, kv, width),
    )


SAMPLE = 600  # rows of a family
ENGINE, NCCL = "trtllm/1.3.0rc20", "2.29.2"
LARGEST_GROUP = 32.0  # queries a key-value head; more run another kernel, four times slower
Columns = dict[str, np.ndarray]


def packaged(system: str, hardware: Hardware) -> Iterator[Family]:
    """The families of one system.

    Raises:
        InputError: the package is not installed, or has no such system.
    """
    root = package_folder() / "data" / system
    if not root.is_dir():
        known = ", ".join(sorted(p.name for p in root.parent.iterdir()))
        raise InputError("aiconfigurator-core", "system", system, known)
    chip = hardware.chip
    yield _gemm(root, chip)
    yield _moe(root, chip)
    yield from _attention(root, chip)
    yield from _latent(root, chip)
    yield _all_reduce(root, hardware)


def _read(path: Path, names: str, same: dict[str, Any], **least: float) -> Columns:
    """A fixed sample of the rows with the ``same`` values, and with at least the ``least``.

    Columns ``names``, and ``seconds``.
    """
    numbers = (*names.split(), "latency")
    table = read_parquet(path, [*dict.fromkeys((*numbers, *same, *least))])
    equal = [table[name] == value for name, value in same.items()]
    rows = np.flatnonzero(np.all([*equal, *(table[k] >= x for k, x in least.items())], axis=0))
    rows = rows[np.sort(np.random.default_rng(0).permutation(len(rows))[:SAMPLE])]
    columns = {name: table[name][rows].astype(float) for name in numbers}
    return columns | {"seconds": 1e-3 * columns["latency"]}


def _gemm(root: Path, chip: Chip) -> Family:
    path = root / "gemm" / ENGINE / "gemm_perf.parquet"
    rows = _read(path, "m k n", {"gemm_dtype": "fp8"}, n=512, k=512)
    m, k, n, seconds = (rows[name] for name in ("m", "k", "n", "seconds"))
    return families.products("gemm", m, k, n, seconds, FP8, chip)


def _moe(root: Path, chip: Chip) -> Family:
    shape = "hidden_size inter_size topk num_experts"
    kind = {"moe_dtype": "fp8", "distribution": "balanced"}
    kind["kernel_source"] = "moe_torch_flow_cutlass"
    path = root / "moe" / ENGINE / "moe_perf.parquet"
    rows = _read(path, f"num_tokens {shape} moe_tp_size moe_ep_size", kind)
    experts, visits = rows["num_experts"], rows["num_tokens"] * rows["topk"]
    active = np.minimum(experts, visits) / rows["moe_ep_size"]  # none twice before all once
    width, inner = rows["hidden_size"], rows["inter_size"] / rows["moe_tp_size"]
    return families.grouped(
        "grouped",
        np.stack([np.maximum(active, 1.0)] * 2),
        np.stack([np.maximum(visits / experts, 1.0)] * 2),
        np.stack([width, inner]),
        np.stack([2.0 * inner, width]),
        rows["seconds"],
        labels(*(rows[name] for name in shape.split())),
        FP8,
        chip,
    )


def _attention(root: Path, chip: Chip) -> Iterator[Family]:
    """Heads of 128 that see all tokens, in 16 bits."""
    folder, width, names = root / "attention" / ENGINE, 128.0, "num_heads num_key_value_heads"
    plain = {"kv_cache_dtype": "bfloat16", "attn_dtype": "bfloat16", "head_dim": 128}
    plain["window_size"] = 0

    path = folder / "generation_attention_perf.parquet"
    rows = _read(path, f"{names} batch_size step", plain, step=255)
    small = rows["num_heads"] <= LARGEST_GROUP * rows["num_key_value_heads"]
    rows = {name: values[small] for name, values in rows.items()}
    heads, kv, batch = (rows[name] for name in (*names.split(), "batch_size"))
    pairs, seconds = batch * rows["step"], rows["seconds"]
    flops, moved = 4 * heads * width * pairs, 2 * kv * width * HELD * pairs
    yield families.attending("gqa_decode", flops, moved, batch, seconds, labels(heads, kv), chip)

    path = folder / "context_attention_perf.parquet"
    rows = _read(path, f"{names} batch_size isl", plain, isl=256)
    heads, kv, length = (rows[name] for name in (*names.split(), "isl"))
    flops, seconds = 2 * heads * width * rows["batch_size"] * length * length, rows["seconds"]
    yield families.prompting("gqa_prefill", flops, length, seconds, labels(heads, kv), chip)


def _latent(root: Path, chip: Chip) -> Iterator[Family]:
    folder, names = root / "mla" / ENGINE, "num_heads batch_size"
    plain = {"kv_cache_dtype": "bfloat16", "mla_dtype": "bfloat16"}

    rows = _read(folder / "generation_mla_perf.parquet", f"{names} step", plain, step=255)
    heads, batch, context, seconds = (rows[x] for x in (*names.split(), "step", "seconds"))
    wide, held = 2 * 512 + 64, (512 + 64) * HELD
    flops, moved = 2 * heads * wide * batch * context, batch * (held * context + heads * wide * 2)
    sizes = (flops, moved, batch, seconds, labels(heads))
    yield families.attending("mla_decode", *sizes, chip, alone=True)

    rows = _read(folder / "context_mla_perf.parquet", f"{names} isl", plain, isl=256)
    heads, length, seconds = (rows[x] for x in ("num_heads", "isl", "seconds"))
    flops = heads * (128 + 64 + 128) * length**2 * rows["batch_size"]
    yield families.prompting("mla_prefill", flops, length, seconds, labels(heads), chip)


def _all_reduce(root: Path, hardware: Hardware) -> Family:
    """Our all-reduce inside the fast domain, fitted in the share of the link it reaches."""
    path = root / "comm" / "nccl" / NCCL / "nccl_perf.parquet"
    rows = _read(path, "num_gpus message_size", {"op_name": "all_reduce", "nccl_dtype": "half"})
    network = hardware.network
    assert isinstance(network, Hierarchy)

    def law(ranks: Any, elements: Any, model: Kernels) -> Any:
        half = 0.5 * model.link_share
        link = collectives.Link(
            intra=half * network.domain_bandwidth, inter=half * network.network_bandwidth
        )
        size, protocols = 2.0 * elements, model.protocols
        return collectives.nccl_tree(ranks, 1.0, size, link, protocols, reduces=True)  # pyright: ignore[reportArgumentType]

    ranks, start = rows["num_gpus"], Kernels.corrected()
    columns = (ranks, rows["message_size"])
    return Family(
        "all_reduce", law, start, ("link_share",), columns, rows["seconds"], labels(ranks)
    )
