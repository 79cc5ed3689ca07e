"""What do InferSim's Figures 2 to 4 look like: measured MFU, the curve, and the roofline?

Measured points are those of the published tables; where the tables have fewer than the paper
drew (one number of MLA heads, no H20 experts of DeepSeek-V3), the caption says so.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments._kernels.printed import curves_of
from infer_jax.catalog import load_system
from infer_jax.catalog.kernel_tables import KernelTables, load_kernel_tables
from infer_jax.estimators.kernels.curves import HELD, product_bytes
from infer_jax.estimators.kernels.efficiency import Gemm, Routed
from infer_jax.kernel_timing.families import BF16, FP8
from infer_jax.plots.style import INK, QUIET, TONES, panels, save, style
from infer_jax.specs import Chip, Dense, Experts, GroupedQuery, Latent

DEVICES = {"h20": "H20", "h800": "H800"}
CONTEXT, BATCH, WIDTH, KV = 4096.0, 256.0, 128.0, 2.0
SOURCE = "Points: kernel measurements of InferSim (https://github.com/alibaba/InferSim). "


class Panel(NamedTuple):
    """One device: measured (size, MFU), and MFU by the curve and by the roofline over ``sizes``."""

    device: str
    measured: np.ndarray
    sizes: np.ndarray
    curve: np.ndarray
    roofline: np.ndarray
    balance: float


def chip(device: str) -> Chip:
    """The device by its data sheet."""
    return load_system(f"{device}_sxm").hardware.chip


def _decode_mfu(
    device: str, chip: Chip, sizes: np.ndarray, core: Callable[[Any], GroupedQuery | Latent]
) -> np.ndarray:
    """MFU of decoding with attention cores of some sizes, by the curves."""
    source, batch, context = curves_of(device), jnp.asarray(BATCH), jnp.asarray(CONTEXT)

    def mfu(size: Any) -> Any:
        return source.decode(chip, core(size), batch, context, BF16).mfu

    return np.asarray(jax.jit(jax.vmap(mfu))(sizes))


def _row(rows: np.ndarray, batch: float) -> np.ndarray:
    """Rows at 16-bit cache, this batch and context."""
    return rows[(rows[:, 3] == HELD) & (rows[:, 4] == batch) & (rows[:, 5] == CONTEXT)]


def group_sizes(device: str, tables: KernelTables, chip: Chip) -> Panel:
    """Figure 2: grouped-query attention in decode against queries a key-value head."""
    rows = tables.families["mha.decode"].values
    rows = _row(rows[(rows[:, 1] == KV) & (rows[:, 2] == WIDTH)], BATCH)
    order = np.argsort(rows[:, 0])
    sizes, width = np.geomspace(4.0, 256.0, 60), jnp.asarray(WIDTH)

    def core(group: Any) -> GroupedQuery:
        heads = {"query_heads": group * KV, "kv_heads": jnp.asarray(KV)}
        return GroupedQuery(**heads, head_width=width, value_width=width)

    # 4 n d FLOP over 2 n_kv d elements of 2 bytes: a group's FLOP per byte is its size
    balance = float(chip.flops_16 / chip.memory_bandwidth)
    points = np.stack([rows[order, 0] / KV, rows[order, 7]])
    curve = _decode_mfu(device, chip, sizes, core)
    return Panel(device, points, sizes, curve, np.minimum(sizes / balance, 1), balance)


def latent_heads(device: str, tables: KernelTables, chip: Chip) -> Panel:
    """Figure 3: latent attention in decode against its heads."""
    rows = _row(tables.families["mla.decode"].values, BATCH)
    sizes, width = np.geomspace(8.0, 256.0, 60), jnp.asarray(WIDTH)
    rank, rope = 512.0, 64.0

    def core(heads: Any) -> Latent:
        sizes: dict[str, Any] = {"nope_width": width, "value_width": width}
        sizes |= {"rope_width": jnp.asarray(rope), "kv_rank": jnp.asarray(rank)}
        return Latent(query_heads=heads, query_rank=jnp.asarray(1536.0), **sizes)

    per_head = 2 * (2 * rank + rope) / ((rank + rope) * HELD)
    ratio = float(chip.flops_16 / chip.memory_bandwidth)
    points = np.stack([rows[:, 0], rows[:, 7]])
    roofline = np.minimum(sizes * per_head / ratio, 1)
    curve = _decode_mfu(device, chip, sizes, core)
    return Panel(device, points, sizes, curve, roofline, ratio / per_head)


# experts, active, hidden and inner width, batch a GPU: the paper's layer, where it was measured
LAYERS = {"h800": (256.0, 8.0, 7168.0, 2048.0, 128.0), "h20": (128.0, 8.0, 4096.0, 1536.0, 128.0)}


def expert_ranks(device: str, tables: KernelTables, chip: Chip) -> Panel:
    """Figure 4: grouped products of routed experts in decode against the GPUs they are spread on.

    The better of the products into and out of the experts, as the tool has it.
    """
    experts, active, width, inner, batch = LAYERS[device]
    rows = tables.families["grouped.decode"].values
    same = (rows[:, 0] == experts) & (rows[:, 3] == active) & (rows[:, 4] == width)
    rows = rows[same & (rows[:, 5] == inner) & (rows[:, 6] == batch)]
    rows = rows[np.argsort(rows[:, 1])]
    sizes, source = np.geomspace(1.0, experts, 60), curves_of(device)

    def layer(ranks: Any) -> Routed:
        one = Experts(
            experts=jnp.asarray(experts),
            active=jnp.asarray(active),
            width=jnp.asarray(inner),
            inward=jnp.asarray(2.0),
            shared=Dense.of(width=0.0, inward=2.0, weights=FP8),
            weights=FP8,
        )
        return Routed(one, jnp.asarray(width), jnp.asarray(batch), ranks, ranks)

    each: Any = sizes * batch * active / experts
    outer: Any = width
    middle: Any = inner
    moved = sum(np.asarray(product_bytes(Gemm(each, k, n), FP8))
                for k, n in ((outer, 2 * middle), (middle, outer)))  # fmt: skip
    balance = float(chip.flops_8 / chip.memory_bandwidth)
    roofline = np.minimum(6 * each * width * inner / moved / balance, 1)
    mfu = jax.vmap(lambda ranks: source.routed(chip, layer(ranks), "decode").mfu)
    curve = np.asarray(jax.jit(mfu)(sizes))
    points = np.stack([rows[:, 1], np.maximum(rows[:, 9], rows[:, 11])])
    needed = balance / 2 * experts / active / batch
    return Panel(device, points, sizes, curve, roofline, needed)


class Figure(NamedTuple):
    """A figure: what its panels show, its titles and its caption."""

    panel: Callable[[str, KernelTables, Chip], Panel]
    title: str
    axis: str
    caption: str


FIGURES = {
    "2": Figure(
        group_sizes,
        "Grouped-query attention, decode, batch 256, context 4096",
        "queries a key-value head",
        "Two key-value heads of 128, 16-bit cache. The dotted line is the balance at 16 bits, "
        "for the kernel runs at them; the paper's 37 and 296 take the 8-bit peak.",
    ),
    "3": Figure(
        latent_heads,
        "Latent attention, decode, batch 256, context 4096",
        "heads",
        "Ranks 512 and 64. The published tables have 128 heads alone: the paper's other points "
        "are lost, and the curve away from 128 is the law's. Dotted: the balance at 16 bits.",
    ),
    "4": Figure(
        expert_ranks,
        "Routed experts, decode, 128 requests a GPU",
        "GPUs the experts are spread on",
        "H800: 256 experts, 8 active, 7168 x 2048 (DeepSeek-V3). The tables have no H20 row of "
        "that layer: H20 shows 128 experts, 8 active, 4096 x 1536. Dotted: the balance.",
    ),
}


def draw(name: str, folder: Path, out: Path) -> Path:
    """Draw a figure, one panel a device.

    Raises:
        InputError: a folder without the tables; a place that cannot be written.
    """
    one = FIGURES[name]
    with jax.enable_x64(True):
        results = [one.panel(d, load_kernel_tables(folder, d), chip(d)) for d in DEVICES]
    with style():
        apart = " Curve over measured where it is farthest: "
        apart += "; ".join(f"{DEVICES[p.device]} {_farthest(p)}" for p in results)
        figure, axes = panels(len(results), one.title, f"{SOURCE}{one.caption}{apart}.")
        for ax, panel in zip(axes, results, strict=True):
            ax.plot(panel.sizes, panel.roofline, color=QUIET, dashes=(6, 2), label="roofline")
            ax.plot(panel.sizes, panel.curve, color=TONES[2], label="curve")
            ax.plot(*panel.measured, "o", color=INK, label="measured")
            ax.axvline(panel.balance, color=QUIET, linewidth=1, linestyle=":")
            ax.set(xscale="log", ylim=(0, 1.05), title=DEVICES[panel.device], xlabel=one.axis)
            ax.set_xticks(ticks := _ticks(panel.sizes), [f"{x:g}" for x in ticks])
            ax.minorticks_off()
        axes[0].set_ylabel("model FLOP utilisation")
        axes[-1].legend(loc="upper left")  # where curves are low
        return save(figure, out / f"kernels_figure_{name}.png")


def _farthest(panel: Panel) -> str:
    """Where the curve is farthest from what was measured, and the points within a tenth."""
    sizes, measured = panel.measured
    ratio = np.interp(np.log(sizes), np.log(panel.sizes), panel.curve) / measured
    worst = int(np.argmax(np.abs(np.log(ratio))))
    near = int(np.sum(np.abs(ratio - 1.0) <= 0.1))
    return f"{ratio[worst] - 1.0:+.0%} at {sizes[worst]:g} ({near} of {len(sizes)} within 10 %)"


def _ticks(sizes: np.ndarray) -> np.ndarray:
    """Powers of two within."""
    return 2.0 ** np.arange(np.ceil(np.log2(sizes[0])), np.floor(np.log2(sizes[-1])) + 1)
