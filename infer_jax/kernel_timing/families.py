"""The law of each family of kernels, the columns that its rows need, and its fit to them.

One builder a law. Columns are arrays of one value a row; a kernel of several products has them
in rows of their own, (products, rows). Seconds and bytes; ``shapes`` labels rows whose errors
belong together and that are left out together.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, cast

import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.calibration import covariance, fit, interval, predict_held_out
from infer_jax.estimators.kernels.efficiency import Gemm, product_bytes
from infer_jax.physics import efficiency as eff
from infer_jax.physics.matmul import rate
from infer_jax.specs import Chip, Format, Spec

Column = np.ndarray  # one value a row
C = TypeVar("C", bound=Spec)  # the coefficients of a family's law
FP8, BF16 = Format.of(bytes=1.0, bits=8.0), Format.of(bytes=2.0, bits=16.0)
PRODUCT = ("compute", "memory", "fixed", "rows", "depth", "tail")


class Family(NamedTuple, Generic[C]):
    """Rows of one family: ``law(*columns, coefficients)`` are seconds, fitted in ``names``."""

    name: str
    law: Callable[..., Array]
    start: C
    names: tuple[str, ...]
    columns: tuple[Column, ...]
    seconds: Column
    shapes: Column

    def predicted(self, coefficients: C) -> Array:
        """Seconds of every row by the law at these coefficients."""
        return self.law(*map(jnp.asarray, self.columns), coefficients)


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
    columns = (m, k, n, _moved(m, k, n, weights), *_rates(chip, weights))
    start = _start(eff.Product, seconds, compute=0.7, rows=64, depth=150, tail=1e5)
    return Family(name, eff.product, start, PRODUCT, columns, seconds, labels(k, n))


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
    """Groups of products, (products, rows of each), by ``efficiency.grouped_product_time``."""

    def law(*x: Array) -> Array:
        return eff.grouped_product_time(*x).sum(axis=0)  # pyright: ignore[reportArgumentType]

    columns = (groups, m, k, n, groups * _moved(m, k, n, weights), *_rates(chip, weights))
    start = _start(eff.Product, seconds, compute=0.7, rows=64, depth=200, tail=1e4, halo=20)
    return Family(name, law, start, (*PRODUCT, "halo"), columns, seconds, shapes)


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
    """Attention over a cache: ``efficiency.decode_attention_time``.

    ``alone``: fit also how few sequences leave the chip idle.
    """
    names = ("compute", "memory", "fixed", "sharpness", *(("alone",) if alone else ()))
    start = _start(eff.Attending, seconds, compute=0.55, sharpness=3.0, alone=float(alone))
    columns = (flops, moved, batch, *_rates(chip, BF16))
    return Family(name, eff.decode_attention_time, start, names, columns, seconds, shapes)


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
    """Causal attention over prompts: ``efficiency.prefill_attention_time``."""
    names = ("compute", "fixed", "ramp") if ramp else ("compute", "fixed")
    fixed = 0.5 * float(seconds.min())
    start = eff.Prompting.of(compute=0.7, fixed=fixed, ramp=300.0 if ramp else 0.0)
    columns = (flops, length, np.asarray(chip.flops_16))
    return Family(name, eff.prefill_attention_time, start, names, columns, seconds, shapes)


def moving(
    name: str,
    moved: Column,
    seconds: Column,
    shapes: Column,
    chip: Chip,
    names: tuple[str, ...] = ("memory", "fixed", "sharpness"),
) -> Family[eff.Recurring]:
    """Bytes through memory or a link, above a floor: ``efficiency.state_update_time``."""
    fixed = 0.8 * float(seconds.min()) if "fixed" in names else 0.0
    start = eff.Recurring.of(memory=0.3, fixed=fixed, sharpness=2.0)
    columns = (moved, np.asarray(chip.memory_bandwidth))
    return Family(name, eff.state_update_time, start, names, columns, seconds, shapes)


def _moved(m: Column, k: Column, n: Column, weights: Format) -> Column:
    """Bytes that a product reads and writes."""
    gemm = Gemm(cast(Array, m), cast(Array, k), cast(Array, n))
    return np.asarray(product_bytes(gemm, weights))


def _rates(chip: Chip, weights: Format) -> tuple[Column, Column]:
    """Peak FLOP/s in this format, and bytes/s of memory."""
    return np.asarray(rate(chip, weights.bits)), np.asarray(chip.memory_bandwidth)


def _start(law: type[C], seconds: Column, **values: float) -> C:
    """Where a fit starts: half of the shortest time is fixed."""
    return law.of(memory=0.9, fixed=0.5 * float(seconds.min()), **values)


SCALE = 0.01  # residuals above it count by their size, not by their square
FOLDS = 6  # of whole shapes, each left out once
RESTARTS, SPREAD = 3, 0.7
SHARE = 0.8  # probability that an interval covers
USELESS = 30  # per cent: the median error above which a curve says nothing
SHARPEST = 1000.0  # largest sharpness: corners beyond it look the same


class FittedFamily(NamedTuple):
    """A fitted family: coefficients, their intervals, relative errors in sample and unseen.

    ``unseen`` has, of each row, the error of a fit without the row's shape; it is empty where
    the family has one shape only.
    """

    family: Family
    coefficients: Spec
    intervals: dict[str, tuple[float, float]]
    seen: np.ndarray
    unseen: np.ndarray


def fitted(family: Family, *, unseen: bool = True, restarts: int = RESTARTS) -> FittedFamily:
    """A family's curve: robust least squares of log seconds, and the errors it leaves.

    Raises:
        InputError: fewer rows than coefficients, or times that are not above 0; see
            ``calibrate.fit``.
    """
    problem = (family.predicted, family.seconds, family.start, family.names)
    options: dict[str, Any] = {"scale": SCALE, "restarts": restarts, "spread": SPREAD}
    if "sharpness" in family.names:
        options["bounds"] = {"sharpness": (1.0, SHARPEST)}
    result = fit(*problem, **options)
    clusters = family.shapes.tolist() if len(set(family.shapes)) > 1 else None
    folds = (family.shapes % min(FOLDS, len(set(family.shapes)))).tolist()
    left = np.zeros(0)
    if unseen and clusters is not None:
        left = predict_held_out(*problem, folds, **options) / family.seconds - 1.0
    spans = interval(result, covariance(result, clusters), SHARE) if len(result.errors) > 1 else {}
    return FittedFamily(family, result.tree, spans, result.errors, left)


def spread(errors: np.ndarray) -> tuple[float, float]:
    """Median and 90 % quantile of the absolute errors, in percent.

    >>> spread(np.array([0.01, -0.02, 0.03]))[0]
    2.0
    """
    size = 100.0 * np.abs(errors)
    return float(np.median(size)), float(np.quantile(size, 0.9))


def useless(fits: Sequence[FittedFamily]) -> list[str]:
    """The names of the families whose curve errs by more than ``USELESS`` % in the median."""
    return [fit.family.name for fit in fits if spread(fit.seen)[0] > USELESS]
