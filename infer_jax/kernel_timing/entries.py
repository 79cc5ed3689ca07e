"""Fitted curves as entries of a profile's ``[kernels]`` table, errors in the notes."""

from collections.abc import Iterator, Mapping, Sequence

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
    numbers = {"value": value}
    if len(ends) == 2:
        numbers |= {"low": ends[0], "high": ends[1]}
    written = ", ".join(f"{name} = {float(f'{float(x):.4g}')!r}" for name, x in numbers.items())
    noted = f', note = "{note}"' if note else ""
    return f'{key} = {{ {written}, source = "{source}"{noted} }}'


def curve(name: str, fit: FittedFamily, source: str, note: str = "") -> Iterator[str]:
    """The entries of one family, each with its interval, the first with errors or ``note``."""
    for i, (path, meta, value) in enumerate(leaves(fit.coefficients)):
        suffix, factor = SUFFIX.get(meta["unit"], ("", 1.0))
        notes = [note or errors(fit)] if i == 0 else []
        if path in fit.intervals and not note:
            notes.append(interval(*(x * factor for x in fit.intervals[path])))
        yield entry(f"{name}_{path}{suffix}", float(value) * factor, source, "; ".join(notes))


def interval(low: float, high: float) -> str:
    """An interval in words, or that the data do not determine it.

    >>> interval(0.0, 3.0)
    'the data do not determine it'
    """
    if not (low > 0.0 and NARROWEST * low < high < WIDEST * low):
        return "the data do not determine it"
    return f"{100 * SHARE:.0f} % interval {low:.4g} to {high:.4g}"


def errors(fit: FittedFamily) -> str:
    """The errors of a family in words."""
    words = "median/p90 error {:.1f}/{:.1f} % of {} rows".format(*spread(fit.seen), len(fit.seen))
    if len(fit.unseen):
        words += ", on unseen shapes {:.1f}/{:.1f} %".format(*spread(fit.unseen))
    return words


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
        other = next((curves[x] for x in others if x in curves), None)
        if name not in curves and other is not None:
            own = name.startswith(f"{other.family.name}_")
            note = "" if own else f"not measured here: that of {other.family.name}"
            yield from curve(name, other, source, note)
