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
MIN_SHARE = 1e-6
Changes = Mapping[str, Iterable[float]]


def check_bounds(
    where: str,
    key: str,
    field: str,
    raw: float,
    unit: str,
    factor: float,
    unchecked: Collection[str],
    *,
    fitted: bool = False,
) -> None:
    """Raise if no machine could have this value of a hardware field, or no fit a coefficient.

    ``key`` is the file's name of ``field``; ``raw`` its value there, ``factor`` the SI units of
    one; ``fitted``: whether it is a coefficient of an estimator.

    Raises:
        InputError: out of bounds, and ``field`` not among ``unchecked``.
    """
    low, high = (_coefficient_bounds if fitted else _hardware_bounds)(field, unit)
    may_be_zero = not fitted and field.startswith(ABSENT)
    if field in unchecked or (may_be_zero and raw == 0.0) or low <= raw * factor <= high:
        return
    allowed = f"{'0 or ' if may_be_zero else ''}{low / factor:g} to {high / factor:g}"
    allowed += f', as of any machine that there is; or unchecked = ["{field}"], if it is meant'
    raise InputError(where, key, raw, allowed)


def sensible_changes(where: str, part: str, tree: object, changes: Changes) -> None:
    """Raise if no machine could have this new value of a number of ``tree``, by dotted field.

    ``part`` is ``hardware``, or ``estimator`` with its coefficients; the bounds are those of a
    profile. A name that ``tree`` does not have is not checked.

    Raises:
        InputError: out of bounds.
    """
    units = {path: meta.get("unit", "") for path, meta, _ in leaves(tree)}
    for field, values in changes.items():
        bounds = _hardware_bounds if part == "hardware" else _coefficient_bounds
        low, high = bounds(field, units.get(field, ""))
        zero = part == "hardware" and field.startswith(ABSENT)
        for value in values:
            if not ((zero and value == 0.0) or low <= value <= high):
                allowed = f"{'0 or ' if zero else ''}{low:g} to {high:g}, as of any machine"
                raise InputError(where, f"{part}.{field}", value, f"{allowed} that there is")


def _hardware_bounds(field: str, unit: str) -> tuple[float, float]:
    return FIELDS.get(field, UNITS.get(unit, (-math.inf, math.inf)))


def _coefficient_bounds(field: str, unit: str) -> tuple[float, float]:
    high = COEFFICIENTS.get(unit, math.inf)
    return MIN_SHARE if unit == "1" and field.endswith(SHARES) else -high, high
