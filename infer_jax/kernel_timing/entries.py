"""Fitted curves as entries of a profile's ``[kernels]`` table, errors in the notes."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from infer_jax.kernel_timing.fitting import SHARE, FittedFamily, spread
from infer_jax.specs import leaves

WIDEST = 100.0  # ratio of an interval's ends above which it says nothing
NARROWEST = 1.0 + 1e-4  # and below which the prediction does not depend on the coefficient
SUFFIX = {"s": ("_us", 1e6), "tokens": ("_tokens", 1.0)}


def entry(key: str, value: float, source: str, note: str = "", ends: Sequence[float] = ()) -> str:
    """One line of a profile, numbers to four digits; ``ends``: of the 80 % interval, if known.

    >>> entry("gemm_memory", 0.98765, "fit")
    'gemm_memory = { value = 0.9877, source = "fit" }'
    """
    noted = f', note = "{note}"' if note else ""
    numbers = {"value": value}
    if len(ends) == 2:
        numbers |= {"low": ends[0], "high": ends[1]}
    written = ", ".join(f"{name} = {float(f'{float(x):.4g}')!r}" for name, x in numbers.items())
    return f'{key} = {{ {written}, source = "{source}"{noted} }}'


def curve(name: str, one: FittedFamily, source: str, note: str = "") -> Iterator[str]:
    """The entries of one family, each with its interval, the first with errors or ``note``."""
    for i, (path, meta, value) in enumerate(leaves(one.coefficients)):
        suffix, factor = SUFFIX.get(meta["unit"], ("", 1.0))
        notes = [note or errors(one)] if i == 0 else []
        if path in one.intervals and not note:
            notes.append(interval(*(x * factor for x in one.intervals[path])))
        yield entry(f"{name}_{path}{suffix}", float(value) * factor, source, "; ".join(notes))


def interval(low: float, high: float) -> str:
    """An interval in words, or that the data do not determine it.

    >>> interval(0.0, 3.0)
    'the data do not determine it'
    """
    if not (low > 0.0 and NARROWEST * low < high < WIDEST * low):
        return "the data do not determine it"
    return f"{100 * SHARE:.0f} % interval {low:.4g} to {high:.4g}"


def copied(name: str, one: FittedFamily, source: str) -> Iterator[str]:
    """The entries of a family that copies the curve of a measured one."""
    if name.startswith(f"{one.family.name}_"):
        return curve(name, one, source)
    return curve(name, one, source, f"not measured here: that of {one.family.name}")


def errors(one: FittedFamily) -> str:
    """The errors of a family in words."""

    def median_and_p90(values: np.ndarray) -> str:
        return "{:.1f}/{:.1f} %".format(*spread(values))

    seen = f"median/p90 error {median_and_p90(one.seen)} of {len(one.seen)} rows"
    return seen + (f", on unseen shapes {median_and_p90(one.unseen)}" if len(one.unseen) else "")


def filled(
    curves: Mapping[str, FittedFamily],
    known: Sequence[str],
    fills: Mapping[str, Sequence[str]],
    source: str,
) -> Iterator[str]:
    """Entries of the fitted families that are ``known``, and of others that ``fills`` name.

    A missing family takes the curve of the first of its stand-ins that was fitted.
    """
    for name in known:
        if name in curves:
            yield from curve(name, curves[name], source)
    for name, others in fills.items():
        other = next((o for o in others if o in curves), None)
        if name not in curves and other is not None:
            yield from copied(name, curves[other], source)
