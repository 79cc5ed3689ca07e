"""Which rows of InferSim's kernel tables is each curve fitted to, and what is known of a row?"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from infer_jax.catalog.kernel_tables import KernelTables, read_headless
from infer_jax.estimators.kernels.curves import CHUNK, HELD
from infer_jax.kernel_timing import Family, families
from infer_jax.kernel_timing.families import FP8, labels
from infer_jax.physics import efficiency as eff
from infer_jax.specs import Chip

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
