"""Units of numbers in files, by the suffix of their keys, and what no machine has of them.

``memory_bandwidth_tb_per_s = 3.35`` is 3.35e12 bytes/s. A field declares its SI unit once (see
`infer_jax.specs.fields`); this file says which suffixes stand for multiples of that unit.

Wide bounds on the numbers of a machine, by field, catch wrong units and typos: two or more powers
of ten beyond any existing machine, on both sides. A profile that is right to be outside names the
field in ``unchecked``; see docs/hardware-profiles.md.
"""

import math
import sys
from collections.abc import Iterable, Mapping

from infer_jax.errors import InputError
from infer_jax.specs import leaves

SUFFIXES: dict[str, dict[str, float]] = {
    "bytes": {"bytes": 1.0, "mb": 1e6, "gb": 1e9, "tb": 1e12,
              "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40},
    "bytes/s": {"bytes_per_s": 1.0, "mb_per_s": 1e6, "gb_per_s": 1e9, "tb_per_s": 1e12,
                "gib_per_s": 2.0**30},
    "FLOP/s": {"flop_per_s": 1.0, "gflops": 1e9, "tflops": 1e12, "pflops": 1e15},
    "s": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9},
    "USD/h": {"usd_per_hour": 1.0},
    "W": {"w": 1.0, "kw": 1e3},
    "tokens": {"tokens": 1.0},
    "bits": {"bits": 1.0},
    "1": {"": 1.0},
}  # fmt: skip

_FACTORS = {suffix: factor for unit in SUFFIXES.values() for suffix, factor in unit.items()}


def keys(name: str, unit: str) -> dict[str, float]:
    """Every key under which a field of this unit may be written, with its factor to SI.

    >>> keys("power", "W")
    {'power_w': 1.0, 'power_kw': 1000.0}
    >>> keys("domain", "1")
    {'domain': 1.0}
    """
    return {f"{name}_{suffix}".rstrip("_"): factor for suffix, factor in SUFFIXES[unit].items()}


def split(key: str, factors: Mapping[str, float] = _FACTORS) -> tuple[str, float] | None:
    """The name in a key and its factor to SI; None where the suffix is no known unit.

    The longest suffix wins; a key without one is dimensionless. ``factors``: those of other
    suffixes than this file's.

    >>> split("launch_us")
    ('launch', 1e-06)
    >>> split("flop_cap")
    ('flop_cap', 1.0)
    >>> split("page_kb_per_s") is None
    True
    """
    words = key.split("_")
    for start in range(1, len(words)):
        factor = factors.get("_".join(words[start:]))
        if factor is not None:
            # "x_per_s" is some rate whose unit is not above, not a time called "x_per"
            return None if words[start - 1] == "per" else ("_".join(words[:start]), factor)
    return key, 1.0


def unit_of(suffix: str) -> str:
    """The SI unit of a suffix; "1" of none.

    >>> unit_of("us"), unit_of("gb_per_s"), unit_of("")
    ('s', 'bytes/s', '1')
    """
    return next(unit for unit, suffixes in SUFFIXES.items() if suffix in suffixes)


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
