"""Wide bounds on the numbers of a machine, by field, which catch wrong units and typos.

They are two or more powers of ten beyond any existing machine, on both sides. A profile that is
right to be outside names the field in ``unchecked``; see docs/hardware-profiles.md.
"""

import math
from collections.abc import Collection, Iterable, Mapping

from infer_jax.errors import InputError
from infer_jax.specs import leaves

ABSENT = ("host", "power", "price")  # parts and fields that may be 0: absent, unknown or free
UNITS = {
    "FLOP/s": (1e9, 1e19),
    "bytes/s": (1e6, 1e16),
    "bytes": (1e6, 1e16),
    "W": (0.1, 1e6),
    "USD/h": (1e-4, 1e5),
    "1": (1.0, 1e6),
}
FIELDS = {
    "chip.memory_bandwidth": (1e8, 1e16),
    "network.axes": (1.0, 16.0),
    "host.flops": (1e6, 1e18),
}
# of the coefficients of estimators: by unit, and shares of a peak, which times are divided by
COEFFICIENTS = {
    "s": 1e4,
    "bytes": 1e16,
    "bytes/s": 1e16,
    "FLOP/s": 1e19,
    "W": 1e6,
    "USD/h": 1e5,
    "tokens": 1e12,
    "bits": 1e3,
    "1": 1e12,
}
SHARES = ("_cap", "efficiency", "_share", "_read", "_compute", "_memory")
LEAST_SHARE = 1e-6
Changes = Mapping[str, Iterable[float]]


def sensible(
    where: str,
    key: str,
    field: str,
    raw: float,
    unit: str,
    factor: float,
    unchecked: Collection[str],
) -> None:
    """Raise if no machine could have this value of a hardware field.

    ``key`` is the file's name of ``field``; ``raw`` its value there, ``factor`` the SI units of
    one.

    Raises:
        InputError: out of bounds, and ``field`` not among ``unchecked``.
    """
    low, high = _fact(field, unit)
    absent = raw == 0.0 and field.startswith(ABSENT)
    if field in unchecked or absent or low <= raw * factor <= high:
        return
    zero = "0 or " if field.startswith(ABSENT) else ""
    raise _beyond(where, key, field, raw, f"{zero}{low / factor:g} to {high / factor:g}")


def sensible_changes(where: str, part: str, tree: object, changes: Changes) -> None:
    """Raise if no machine could have this new value of a number of ``tree``, by dotted field.

    ``part`` is ``hardware``, or ``estimator`` with its coefficients; the bounds are those of a
    profile. A name that ``tree`` has not is left to others.

    Raises:
        InputError: out of bounds.
    """
    units = {path: meta.get("unit", "") for path, meta, _ in leaves(tree)}
    for field, values in changes.items():
        bounds = _fact if part == "hardware" else _coefficient
        low, high = bounds(field, units.get(field, ""))
        zero = part == "hardware" and field.startswith(ABSENT)
        for value in values:
            if not ((zero and value == 0.0) or low <= value <= high):
                allowed = f"{'0 or ' if zero else ''}{low:g} to {high:g}, as of any machine"
                raise InputError(where, f"{part}.{field}", value, f"{allowed} that there is")


def sensible_coefficient(
    where: str,
    key: str,
    field: str,
    raw: float,
    unit: str,
    factor: float,
    unchecked: Collection[str],
) -> None:
    """Raise if no fit could give this coefficient; otherwise as ``sensible``.

    Raises:
        InputError: out of bounds, and ``field`` not among ``unchecked``.
    """
    low, high = _coefficient(field, unit)
    if field not in unchecked and not low <= raw * factor <= high:
        span = f"{low / factor:g} to {high / factor:g}"
        raise _beyond(where, key, field, raw, span)


def _fact(field: str, unit: str) -> tuple[float, float]:
    return FIELDS.get(field, UNITS.get(unit, (-math.inf, math.inf)))


def _coefficient(field: str, unit: str) -> tuple[float, float]:
    high = COEFFICIENTS.get(unit, math.inf)
    return LEAST_SHARE if unit == "1" and field.endswith(SHARES) else -high, high


def _beyond(where: str, key: str, field: str, raw: float, span: str) -> InputError:
    allowed = f'{span}, as of any machine that there is; or unchecked = ["{field}"], if it is meant'
    return InputError(where, key, raw, allowed)
