"""How well do the curves describe the measured kernels, also on shapes they were not fitted to?

Each family of a chip's tables is fitted once on all rows, and once more without each shape in
turn: errors on a shape are then those of the fit that has not seen it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from infer_jax.calibrate import fit
from infer_jax.catalog.kernel_tables import KernelTables, read_headless
from infer_jax.estimators.kernels.curves import CHUNK, product_bytes
from infer_jax.estimators.kernels.rating import Gemm
from infer_jax.physics import efficiency as eff
from infer_jax.specs import Chip, Format

FP8 = Format.of(bytes=1.0, bits=8.0)
SCALE = 0.01  # of an ordinary residual: larger ones count by their size, not its square
VALUE_HEADS = 32.0  # the published table of 64 repeats this one, beyond the memory's bandwidth
FOLDS = 6  # of whole shapes, each left out once
OTHER_KERNEL = (32.0, 8.0, 128.0)  # its H20 table is of another kernel: 10 us at batch 1, not 28


class Family(NamedTuple):
    """Rows of one family: what a law is told of each, seconds, and the shape each is of."""

    name: str
    law: Callable[[Any, Any, Chip], Any]
    start: Any
    names: tuple[str, ...]
    given: dict[str, np.ndarray]
    seconds: np.ndarray
    shapes: np.ndarray


class Fitted(NamedTuple):
    """A fitted family: coefficients, and relative errors in sample and on unseen shapes."""

    family: Family
    coefficients: Any
    seen: np.ndarray
    unseen: np.ndarray


def product_law(c: Any, x: Any, chip: Chip) -> Any:
    """Seconds of FP8 products."""
    moved = product_bytes(Gemm(x["m"], x["k"], x["n"]), FP8)
    return eff.product(x["m"], x["k"], x["n"], moved, chip.flops_8, chip.memory_bandwidth, c)


def grouped_law(c: Any, x: Any, chip: Chip) -> Any:
    """Seconds of the products into and out of a layer's experts."""
    seconds = 0.0
    for k, n in ((x["width"], 2.0 * x["inner"]), (x["inner"], x["width"])):
        moved = x["groups"] * product_bytes(Gemm(x["m"], k, n), FP8)
        peak, bandwidth = chip.flops_8, chip.memory_bandwidth
        seconds = seconds + eff.grouped(x["groups"], x["m"], k, n, moved, peak, bandwidth, c)
    return seconds


def attending_law(c: Any, x: Any, chip: Chip) -> Any:
    """Seconds of attention over a cache."""
    peak, bandwidth = chip.flops_16, chip.memory_bandwidth
    return eff.attending(x["flops"], x["moved"], x["batch"], peak, bandwidth, c)


def prompting_law(c: Any, x: Any, chip: Chip) -> Any:
    """Seconds of causal attention."""
    return eff.prompting(x["flops"], x["length"], chip.flops_16, c)


def recurring_law(c: Any, x: Any, chip: Chip) -> Any:
    """Seconds of recurrent updates."""
    return eff.recurring(x["moved"], chip.memory_bandwidth, c)


def unsplit_law(c: Any, x: Any, chip: Chip) -> Any:
    """Seconds of attention without a split of the cache."""
    return eff.unsplit(x["item"], x["items"], chip.memory_bandwidth, c)


def labels(values: np.ndarray) -> np.ndarray:
    """A number for each row, equal where rows are."""
    return np.unique(values, axis=0, return_inverse=True)[1].ravel()


def families(tables: KernelTables, folder: Path | None = None) -> Iterator[Family]:
    """Every family that the device has rows of; ``folder``: where the headless files are."""
    rows = tables.families["gemm"].values
    if len(rows):
        m, k, n, seconds, _ = rows.T
        start = eff.Product.of(compute=0.8, memory=0.9, fixed=4e-6, rows=64, depth=150, tail=2e5)
        names = ("compute", "memory", "fixed", "rows", "depth", "tail")
        given = {"m": m, "k": k, "n": n}
        yield Family("gemm", product_law, start, names, given, seconds, labels(rows[:, 1:3]))
    for stage in ("decode", "prefill"):
        rows = tables.families[f"grouped.{stage}"].values
        if len(rows):
            yield _grouped(stage, rows)
    for kind in ("mha", "mla"):
        rows = tables.families[f"{kind}.decode"].values
        rows = rows[~np.all(rows[:, :3] == OTHER_KERNEL, axis=1)]
        if len(rows):
            yield _attending(kind, rows)
        rows = tables.families[f"{kind}.prefill"].values
        if len(rows):
            yield _prompting(kind, rows)
    yield from _recurring(tables)
    headless = folder / "mha" / "decode" / tables.device / "64-2-128.csv" if folder else None
    if headless and ("mha.decode", (64.0, 2.0, 128.0)) in tables.headless:
        yield _unsplit(read_headless(headless, "decode").values)


def _grouped(stage: str, rows: np.ndarray) -> Family:
    local, width, inner, each = rows[:, 2], rows[:, 4], rows[:, 5], rows[:, 7]
    # measured MFU times latency says how many rows were computed: at a mean of one row an
    # expert half of the experts had none
    active = np.where(each > 1, local, local / 2) if stage == "decode" else local
    return Family(
        f"grouped_{stage}",
        grouped_law,
        eff.Product.of(compute=0.7, memory=0.9, fixed=6e-6, rows=64, depth=200, tail=1e4, halo=20),
        ("compute", "memory", "fixed", "rows", "depth", "tail", "halo"),
        {"groups": active, "m": each, "width": width, "inner": inner},
        rows[:, 8] + rows[:, 10],
        labels(rows[:, [0, 1, 3, 4, 5]]),
    )


def _attending(kind: str, rows: np.ndarray) -> Family:
    n, second, third, stored, batch, context, seconds, _ = rows.T
    latent = kind == "mla"
    pair = 2 * n * (2 * second + third) if latent else 4 * n * third
    held = second + third if latent else 2 * second * third
    work = pair * batch * context
    start = eff.Attending.of(
        compute=0.55, memory=0.9, fixed=2e-5, sharpness=3.0, alone=1.0 if latent else 0.0
    )
    return Family(
        "mla_decode" if latent else "gqa_decode",
        attending_law,
        start,
        ("compute", "memory", "fixed", "sharpness", *(("alone",) if latent else ())),
        {"flops": work, "moved": held * stored * batch * context, "batch": batch},
        seconds,
        labels(rows[:, :3]),
    )


def _prompting(kind: str, rows: np.ndarray) -> Family:
    n, second, third, length, seconds, _ = rows.T
    latent = kind == "mla"  # the width of a value is that of a key without its rotary part
    pair = 2 * n * (2 * second + third) if latent else 4 * n * third
    return Family(
        "mla_prefill" if latent else "gqa_prefill",
        prompting_law,
        eff.Prompting.of(compute=0.8, fixed=1e-5, ramp=0.0 if latent else 300.0),
        ("compute", "fixed") if latent else ("compute", "fixed", "ramp"),
        {"flops": pair * length**2 / 2, "length": length},
        seconds,
        labels(rows[:, :3]),
    )


def _recurring(tables: KernelTables) -> Iterator[Family]:
    for stage in ("decode", "prefill"):
        rows = tables.families[f"gdn.{stage}"].values
        if not len(rows):
            continue
        rows = rows[rows[:, 3] == VALUE_HEADS]
        conv, nk, dk, nv, dv, count, microseconds = rows.T
        state = 4 * nv * dk * dv + 2 * (conv - 1) * (nv * dv + 2 * nk * dk)
        updates = count if stage == "decode" else count / CHUNK
        names = ("memory", "fixed", "sharpness") if stage == "decode" else ("memory",)
        yield Family(
            f"linear_{stage}",
            recurring_law,
            eff.Recurring.of(memory=0.3, fixed=7e-5 if stage == "decode" else 0.0, sharpness=4.0),
            names,
            {"moved": 2 * updates * state},
            1e-6 * microseconds,
            labels(rows[:, :5]),
        )


def _unsplit(rows: np.ndarray) -> Family:
    _, kv, width, stored, batch, context, seconds, _ = rows.T
    return Family(
        "gqa_decode, no KV split",
        unsplit_law,
        eff.Unsplit.of(memory=0.9, fixed=5e-6, slots=100.0, sharpness=4.0),
        ("memory", "fixed", "slots", "sharpness"),
        {"item": 2 * width * stored * context, "items": batch * kv},
        seconds,
        labels(rows[:, :3]),
    )


def fit_family(family: Family, chip: Chip, keep: np.ndarray | None = None) -> Any:
    """Coefficients of a family, fitted to all its rows or to those kept."""
    mask = slice(None) if keep is None else keep
    given = {name: jnp.asarray(values[mask]) for name, values in family.given.items()}
    made = fit(
        lambda c: family.law(c, given, chip),
        family.seconds[mask],
        family.start,
        family.names,
        scale=SCALE,
        restarts=3,
        spread=0.7,
    )
    return made.tree


def fitted(family: Family, chip: Chip, unseen: bool = True) -> Fitted:
    """A family fitted on all rows, and ``FOLDS`` times without some of its shapes."""

    def errors(c: Any) -> np.ndarray:
        return np.asarray(family.law(c, family.given, chip)) / family.seconds - 1

    whole = fit_family(family, chip)
    left = np.full(len(family.seconds), np.nan)
    folds = min(FOLDS, len(np.unique(family.shapes)))
    for i in range(folds if unseen and folds > 1 else 0):
        out = family.shapes % folds == i
        left[out] = errors(fit_family(family, chip, ~out))[out]
    return Fitted(family, whole, errors(whole), left)


def spread(errors: np.ndarray) -> tuple[float, float]:
    """Median and 90 % quantile of the absolute errors, in percent."""
    size = 100 * np.abs(errors)
    return float(np.median(size)), float(np.quantile(size, 0.9))
