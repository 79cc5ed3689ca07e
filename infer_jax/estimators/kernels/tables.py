"""Efficiencies from look-up tables, by the exact rule of the authors' tool.

Nothing is interpolated: a row applies, or the chip's default is taken and reported. Arrays are
of one device, padded to a common length, so that look-ups vmap and devices share a program.
Source: InferSim (https://github.com/alibaba/InferSim), its look-ups as of May 2026.
"""

import math
import os
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from infer_jax.catalog.kernel_tables import KernelTables, load_kernel_tables
from infer_jax.estimators.kernels.efficiency import (
    HEADLESS,
    MEASURED,
    NO_DTYPE,
    NO_ROW,
    NO_TABLE,
    ZERO,
    Gemm,
    Rating,
    Routed,
)
from infer_jax.physics import attention as att
from infer_jax.specs import Attention, Chip, Format, Spec, number, part, spec

FARTHEST = 1e9  # squared distance in (k, n) above which no measured product applies
LENGTH = 512  # rows a table is padded to, doubled where it has more
NOWHERE = -1.0  # a size that no shape has, for padding
Values = tuple[Array, ...]  # the carry of a scan over rows


@spec
class Tables(Spec):
    """The measured efficiencies of one device, and the defaults where there are none."""

    default: Array = number("MFU where no row fits", kind="fraction", high=1)
    missing_prefill: Array = number(
        "MFU of attention prefill of a shape without a table", kind="fraction", high=1
    )
    rows: dict[str, Array] = part("measured rows by family")
    shapes: dict[str, Array] = part("shapes that attention tables exist for, by family")
    headless: dict[str, Array] = part("shapes whose table has no header, by family")
    exists: dict[str, Array] = part("1 where the device has a file of that family")

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        device: str,
        default: float,
        missing_prefill: float,
    ) -> "Tables":
        """The tables of ``device`` in a folder of the authors' layout.

        Raises:
            InputError: as ``load_kernel_tables``.
        """
        return cls.pack(load_kernel_tables(folder, device), default, missing_prefill)

    @classmethod
    def pack(cls, tables: KernelTables, default: float, missing_prefill: float) -> "Tables":
        """Tables in memory as padded arrays."""
        families = tables.families
        return cls.of(
            default=default,
            missing_prefill=missing_prefill,
            rows={name: _padded(rows.values) for name, rows in families.items()},
            shapes={name: _padded(rows.shapes, 16) for name, rows in families.items()},
            headless={
                name: _padded(np.array([s for f, s in tables.headless if f == name]), 4, keys)
                for name, keys in ((n, r.shapes.shape[1]) for n, r in families.items())
            },
            exists={n: np.asarray(float(r.exists)) for n, r in families.items()},
        )

    def product(self, chip: Chip, shape: Gemm, weights: Format) -> Rating:
        """Least squared distance among k' >= k, n' >= n; of these the last row with m' <= m."""
        rows = self.rows["gemm"]
        wanted = lax.stop_gradient((shape.m, shape.k, shape.n))

        def nearest(best: Values, i: Array, row: Array) -> Values:
            _, k, n = row[:3]
            distance = (k - wanted[1]) ** 2 + (n - wanted[2]) ** 2
            near = (k >= wanted[1]) & (n >= wanted[2]) & (distance < best[0])
            return jax.tree.map(partial(jnp.where, near), (distance, k, n), best)

        _, k, n = _scan(rows, nearest, (FARTHEST, NOWHERE, NOWHERE))
        i = _last(
            rows, lambda row: (row[1] == k) & (row[2] == n) & (row[0] <= wanted[0]) & (k >= 0)
        )
        return self._rating(rows, 4, i, jnp.where(self.exists["gemm"] > 0, NO_ROW, NO_TABLE))

    def routed(self, chip: Chip, routed: Routed, stage: str) -> Rating:
        """Rows of exactly this layer: in decode the nearest batch, in prefill the floor.

        The better of the up- and the down-product counts for all three.
        """
        family, experts = f"grouped.{stage}", routed.experts
        rows = self.rows[family]
        local = jnp.floor(experts.experts / jnp.maximum(routed.spread, 1.0))
        wanted = (experts.experts, routed.gpus, local, experts.active, routed.width, experts.width)
        shape = jnp.stack(jnp.broadcast_arrays(*wanted))
        if stage == "decode":
            i = _nearest(rows, shape, lambda row: jnp.abs(row[6] - routed.tokens))
        else:
            i = _floor(rows, shape, 6, routed.tokens)
        best = jnp.maximum(rows[:, 9], rows[:, 11])
        lack = jnp.where(self.exists[family] > 0, NO_ROW, NO_TABLE)
        return self._rating(jnp.stack([best], axis=1), 0, i, lack)

    def decode(
        self, chip: Chip, core: Attention, sequences: Array, context: Array, cache: Format
    ) -> Rating:
        """The row of this shape and cache format nearest in |batch| + |context|."""
        family, shape = _key(core, "decode")
        rows = self.rows[family]
        stored = jnp.append(shape, cache.bytes)  # the column after the three of the shape
        i = _nearest(
            rows, stored, lambda row: jnp.abs(row[4] - sequences) + jnp.abs(row[5] - context)
        )
        lack = jnp.where(self._has(family, shape), NO_DTYPE, self._absent(family, shape))
        return self._rating(rows, 7, i, lack)

    def prefill(self, chip: Chip, core: Attention, length: Array) -> Rating:
        """The last row of this shape before the first one that is longer."""
        family, shape = _key(core, "prefill")
        rows = self.rows[family]
        i = _floor(rows, shape, 3, length)
        has = self._has(family, shape)
        lack = jnp.where(has, NO_ROW, self._absent(family, shape))
        rated = self._rating(rows, 5, i, lack)
        return rated._replace(mfu=jnp.where(has, rated.mfu, self.missing_prefill))

    def linear(
        self, chip: Chip, core: Attention, count: Array, stage: str, state: Array
    ) -> tuple[Array, Rating]:
        """The microseconds of the row nearest in size, in proportion to the size."""
        family, shape = _key(core, stage)
        rows = self.rows[family]
        i = _nearest(rows, shape, lambda row: jnp.abs(row[5] - count))
        row = rows[jnp.maximum(i, 0)]
        there = i >= 0
        seconds = jnp.where(there, row[6] * 1e-6 * count / jnp.where(there, row[5], 1.0), 0.0)
        absent = self._absent(family, shape)
        lack = jnp.where(there, MEASURED, jnp.where(absent == HEADLESS, absent, NO_DTYPE))
        return seconds, Rating(self.default, 1.0 * lack, 1.0 * i)

    def _has(self, family: str, shape: Array) -> Array:
        return jnp.any(_matches(self.shapes[family], shape))

    def _absent(self, family: str, shape: Array) -> Array:
        damaged = jnp.any(_matches(self.headless[family], shape))
        return jnp.where(damaged, HEADLESS, NO_TABLE)

    def _rating(self, rows: Array, column: int, index: Array, lack: Array) -> Rating:
        """The MFU in a row, or the default where there is no row or its MFU is zero."""
        mfu, there = rows[jnp.maximum(index, 0), column], index >= 0
        lack = jnp.where(there, jnp.where(mfu > 0, MEASURED, ZERO), lack)
        rated = jnp.where(there & (mfu > 0), mfu, self.default)
        return Rating(rated, 1.0 * lack, 1.0 * index)


def _key(core: Attention, stage: str) -> tuple[str, Array]:
    """The family of an attention table, and the numbers that its file name consists of."""
    layer = att.of(core)
    shape = jnp.stack(jnp.broadcast_arrays(*map(jnp.asarray, layer.table_sizes(stage))))
    return f"{layer.core.table}.{stage}", shape


def _scan(
    rows: Array, step: Callable[[Values, Array, Array], Values], first: tuple[ArrayLike, ...]
) -> Values:
    """The carry of ``step(kept, i, row)`` after all rows, which have no gradient here.

    A scan over rows, so that under ``vmap`` each row is compared with all points at once: an argmin
    or a running sum per point runs several times slower.
    """
    rows, numbers = lax.stop_gradient(rows), jnp.arange(len(rows))
    kept = [jnp.asarray(x, rows.dtype if isinstance(x, float) else None) for x in first]

    def turn(kept: list[Array], at: tuple[Array, Array]) -> tuple[list[Array], None]:
        after = step(tuple(kept), *at)
        return [jnp.asarray(x, k.dtype) for x, k in zip(after, kept, strict=True)], None

    return tuple(lax.scan(turn, kept, (numbers, rows), unroll=8)[0])


def _nearest(rows: Array, shape: Array, distance: Callable[[Array], Array]) -> Array:
    """The first row of a shape with the least distance; -1 where there is none."""

    def step(best: Values, i: Array, row: Array) -> Values:
        away = lax.stop_gradient(distance(row))
        nearer = _matches(row, shape) & (away < best[0])
        return jnp.where(nearer, away, best[0]), jnp.where(nearer, i, best[1])

    return _scan(rows, step, (float(np.finfo(np.float32).max), -1))[1]


def _floor(rows: Array, shape: Array, column: int, size: Array) -> Array:
    """The last row of a shape and at most this size before the first larger one; or -1."""

    def step(kept: Values, i: Array, row: Array) -> Values:
        same, larger = _matches(row, shape), row[column] > lax.stop_gradient(size)
        passed = kept[0] | (same & larger)
        return passed, jnp.where(same & ~passed, i, kept[1])

    return _scan(rows, step, (False, -1))[1]


def _last(rows: Array, valid: Callable[[Array], Array]) -> Array:
    """The last valid row; -1 where there is none."""
    return _scan(rows, lambda kept, i, row: (jnp.where(valid(row), i, kept[0]),), (-1,))[0]


def _matches(rows: Array, shape: Array) -> Array:
    return jnp.all(rows[..., : len(shape)] == shape, axis=-1)


def _padded(values: np.ndarray, least: int = LENGTH, columns: int | None = None) -> np.ndarray:
    """Rows padded with impossible shapes to a length that many tables share."""
    rows, width = values.shape if values.ndim == 2 else (0, columns or 0)
    length = least * 2 ** max(0, math.ceil(math.log2(max(rows, 1) / least)))
    padded = np.full((length, width), NOWHERE)
    padded[:rows] = values.reshape(rows, width)
    return padded
