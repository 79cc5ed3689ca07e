"""Which numbers can a machine have? Wide bounds that catch a wrong unit or a slip, by field.

Two or more powers of ten beyond any machine that there is, on both sides. A profile that means
what is outside names the field in ``unchecked``; docs/hardware-profiles.md says how.
"""

import math
from collections.abc import Collection

from infer_jax.errors import InputError

ABSENT = ("host", "power", "price")  # what may be 0: not there, or not known, or free
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
# of the coefficients of theories: by unit, and shares of a peak, which times are divided by
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


def sensible(
    where: str, key: str, field: str, raw: float, unit: str, factor: float, but: Collection[str]
) -> None:
    """Raise where a fact of hardware is none of any machine.

    ``key`` is how the file spells ``field``; ``raw`` is what stands there, ``factor`` SI units.

    Raises:
        InputError: out of bounds, and ``field`` not named in ``but``.
    """
    low, high = FIELDS.get(field, UNITS.get(unit, (0.0, math.inf)))
    absent = raw == 0.0 and field.startswith(ABSENT)
    if field in but or absent or low <= raw * factor <= high:
        return
    zero = "0 or " if field.startswith(ABSENT) else ""
    raise _beyond(where, key, field, raw, f"{zero}{low / factor:g} to {high / factor:g}")


def sensible_coefficient(
    where: str, key: str, field: str, raw: float, unit: str, factor: float, but: Collection[str]
) -> None:
    """Raise where a coefficient is none of any fit; as ``sensible``.

    Raises:
        InputError: out of bounds, and ``field`` not named in ``but``.
    """
    high = COEFFICIENTS[unit]
    low = LEAST_SHARE if unit == "1" and field.endswith(SHARES) else -high
    if field not in but and not low <= raw * factor <= high:
        span = f"{low / factor:g} to {high / factor:g}"
        raise _beyond(where, key, field, raw, span)


def _beyond(where: str, key: str, field: str, raw: float, span: str) -> InputError:
    allowed = f'{span}, as of any machine that there is; or unchecked = ["{field}"], if it is meant'
    return InputError(where, key, raw, allowed)
