"""Wide bounds on the numbers of a machine, by field, which catch wrong units and typos.

They are two or more powers of ten beyond any existing machine, on both sides. A profile that is
right to be outside names the field in ``unchecked``; see docs/hardware-profiles.md.
"""

import math
import sys
from collections.abc import Iterable, Mapping

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
COEFFICIENTS = {"s": 1e4, "bytes": 1e16, "bytes/s": 1e16, "FLOP/s": 1e19, "W": 1e6, "USD/h": 1e5,
                "tokens": 1e12, "bits": 1e3, "1": 1e12}  # fmt: skip
SHARES = ("_cap", "efficiency", "_share", "_read", "_compute", "_memory")
MIN_SHARE = 1e-6


def bounds_broken(field: str, unit: str, value: float, factor: float, fitted: bool) -> str:
    """The bounds, in words, of a value in multiples of ``factor`` of its SI unit; "" within them.

    ``fitted``: whether it is a coefficient of an estimator, else of a hardware.
    """
    if fitted:
        high = COEFFICIENTS.get(unit, math.inf)
        low = MIN_SHARE if unit == "1" and field.endswith(SHARES) else -high
    else:
        low, high = FIELDS.get(field, UNITS.get(unit, (-math.inf, math.inf)))
    may_be_zero = not fitted and field.startswith(ABSENT)
    within = min(max(value, -sys.float_info.max), sys.float_info.max)  # an integer may be larger
    if (may_be_zero and value == 0.0) or low <= within * factor <= high:
        return ""
    return f"{'0 or ' if may_be_zero else ''}{low / factor:g} to {high / factor:g}"


def sensible_changes(
    where: str, part: str, tree: object, changes: Mapping[str, Iterable[float]]
) -> None:
    """Raise if no machine could have this new value of a number of ``tree``, by dotted field.

    ``part`` is ``hardware``, or ``estimator`` with its coefficients; the bounds are those of a
    profile. A name that ``tree`` does not have is not checked.

    Raises:
        InputError: out of bounds.
    """
    units = {path: meta.get("unit", "") for path, meta, _ in leaves(tree)}
    for field, values in changes.items():
        for value in values:
            allowed = bounds_broken(field, units.get(field, ""), value, 1.0, part != "hardware")
            if allowed:
                allowed += ", as of any machine that there is"
                raise InputError(where, f"{part}.{field}", value, allowed)
