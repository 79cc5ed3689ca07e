"""The law of each family of kernels, and the columns that its rows need.

One builder a law. Columns are arrays of one value a row; a kernel of several products has them
in rows of their own, (products, rows). Seconds and bytes; ``shapes`` labels rows whose errors
belong together and that are left out together.
"""

from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar, cast

import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.estimators.kernels.curves import product_bytes
from infer_jax.estimators.kernels.efficiency import Gemm
from infer_jax.physics import efficiency as eff
from infer_jax.physics.matmul import rate
from infer_jax.specs import Chip, Format, Spec

Column = np.ndarray  # one value a row
Given = Mapping[str, Array]
C = TypeVar("C", bound=Spec)  # the coefficients of a family's law
FP8, BF16 = Format.of(bytes=1.0, bits=8.0), Format.of(bytes=2.0, bits=16.0)


class Family(NamedTuple, Generic[C]):
    """Rows of one family: ``law(coefficients, given)`` are seconds, fitted in ``names``."""

    name: str
    law: Callable[[C, Given], Array]
    start: C
    names: tuple[str, ...]
    given: Mapping[str, Column]
    seconds: Column
    shapes: Column

    def predicted(self, coefficients: C) -> Array:
        """Seconds of every row by the law at these coefficients."""
        given = {name: jnp.asarray(values) for name, values in self.given.items()}
        return self.law(coefficients, given)


def labels(*columns: Column) -> Column:
    """A number for each row, equal where all columns are.

    >>> labels(np.array([8, 8, 4])).tolist()
    [1, 1, 0]
    """
    rows = np.stack(columns, axis=1)
    return np.unique(rows, axis=0, return_inverse=True)[1].ravel()


def products(
    name: str, m: Column, k: Column, n: Column, seconds: Column, weights: Format, chip: Chip
) -> Family[eff.Product]:
    """Products of one shape each: ``efficiency.product``; a shape is its (k, n)."""
    given = {
        **{"m": m, "k": k, "n": n, "moved": np.asarray(product_bytes(_gemm(m, k, n), weights))},
        **_rates(chip, weights),
    }

    def law(c: eff.Product, x: Given) -> Array:
        return eff.product(x["m"], x["k"], x["n"], x["moved"], x["peak"], x["bandwidth"], c)

    names = ("compute", "memory", "fixed", "rows", "depth", "tail")
    start = _started(eff.Product, seconds, compute=0.7, rows=64, depth=150, tail=1e5)
    return Family(name, law, start, names, given, seconds, labels(k, n))


def grouped(
    name: str,
    groups: Column,
    m: Column,
    k: Column,
    n: Column,
    seconds: Column,
    shapes: Column,
    weights: Format,
    chip: Chip,
) -> Family[eff.Product]:
    """Groups of products of m rows each, (products, rows): the sum of ``efficiency.grouped``."""
    moved = groups * np.asarray(product_bytes(_gemm(m, k, n), weights))
    given = {"groups": groups, "m": m, "k": k, "n": n, "moved": moved, **_rates(chip, weights)}

    def law(c: eff.Product, x: Given) -> Array:
        shape = (x["groups"], x["m"], x["k"], x["n"], x["moved"])
        return eff.grouped(*shape, x["peak"], x["bandwidth"], c).sum(axis=0)

    names = ("compute", "memory", "fixed", "rows", "depth", "tail", "halo")
    start = _started(eff.Product, seconds, compute=0.7, rows=64, depth=200, tail=1e4, halo=20)
    return Family(name, law, start, names, given, seconds, shapes)


def attending(
    name: str,
    flops: Column,
    moved: Column,
    batch: Column,
    seconds: Column,
    shapes: Column,
    chip: Chip,
    *,
    alone: bool = False,
) -> Family[eff.Attending]:
    """Attention over a cache: ``efficiency.attending``.

    ``alone``: fit also how few sequences leave the chip idle.
    """
    given = {"flops": flops, "moved": moved, "batch": batch, **_rates(chip, BF16)}

    def law(c: eff.Attending, x: Given) -> Array:
        return eff.attending(x["flops"], x["moved"], x["batch"], x["peak"], x["bandwidth"], c)

    names = ("compute", "memory", "fixed", "sharpness", *(("alone",) if alone else ()))
    start = _started(eff.Attending, seconds, compute=0.55, sharpness=3.0, alone=float(alone))
    return Family(name, law, start, names, given, seconds, shapes)


def prompting(
    name: str,
    flops: Column,
    length: Column,
    seconds: Column,
    shapes: Column,
    chip: Chip,
    *,
    ramp: bool = True,
) -> Family[eff.Prompting]:
    """Causal attention over prompts: ``efficiency.prompting``."""
    given = {"flops": flops, "length": length, "peak": np.asarray(chip.flops_16)}

    def law(c: eff.Prompting, x: Given) -> Array:
        return eff.prompting(x["flops"], x["length"], x["peak"], c)

    names = ("compute", "fixed", "ramp") if ramp else ("compute", "fixed")
    floor = 0.5 * float(seconds.min())
    start = eff.Prompting.of(compute=0.7, fixed=floor, ramp=300.0 if ramp else 0.0)
    return Family(name, law, start, names, given, seconds, shapes)


def moving(
    name: str,
    moved: Column,
    seconds: Column,
    shapes: Column,
    chip: Chip,
    names: tuple[str, ...] = ("memory", "fixed", "sharpness"),
) -> Family[eff.Recurring]:
    """Bytes through memory or a link, above a floor: ``efficiency.recurring``."""
    given = {"moved": moved, "bandwidth": np.asarray(chip.memory_bandwidth)}

    def law(c: eff.Recurring, x: Given) -> Array:
        return eff.recurring(x["moved"], x["bandwidth"], c)

    floor = 0.8 * float(seconds.min()) if "fixed" in names else 0.0
    start = eff.Recurring.of(memory=0.3, fixed=floor, sharpness=2.0)
    return Family(name, law, start, names, given, seconds, shapes)


def _gemm(m: Column, k: Column, n: Column) -> Gemm:
    return Gemm(cast(Array, m), cast(Array, k), cast(Array, n))


def _rates(chip: Chip, weights: Format) -> dict[str, Column]:
    peak, bandwidth = rate(chip, weights.bits), chip.memory_bandwidth
    return {"peak": np.asarray(peak), "bandwidth": np.asarray(bandwidth)}


def _started(law: type[C], seconds: Column, **values: float) -> C:
    """Where a fit starts: half of the shortest time is fixed."""
    return law.of(memory=0.9, fixed=0.5 * float(seconds.min()), **values)
