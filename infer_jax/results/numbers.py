"""Formats of numbers: significant digits, bytes in GB, plain numbers for JSON."""

import math
from collections.abc import Callable, Mapping
from typing import SupportsFloat, cast


def to_json_types(value: object) -> object:
    """``value`` in JSON's types: numbers of NumPy and JAX become numbers, tuples become lists."""
    if isinstance(value, Mapping):
        return {str(key): to_json_types(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_json_types(item) for item in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if is_truth(value):
        return bool(value)
    number = float(cast(SupportsFloat, value))
    if not math.isfinite(number):
        return None
    return int(number) if number == int(number) and abs(number) < 2**53 else number


def digits(value: SupportsFloat, count: int = 3) -> str:
    """A number with ``count`` significant digits, never in powers of ten below 1e15.

    >>> digits(0.0123456), digits(1234567.0), digits(16.0), digits(4.03)
    ('0.0123', '1234567', '16', '4.03')
    """
    value = float(value)
    if value == 0 or not math.isfinite(value) or not 1e-6 <= abs(value) < 1e15:
        return f"{value:.{count}g}"
    places = max(0, count - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text and value == round(value) else text


def count(value: SupportsFloat) -> str:
    """A number of tokens or requests: whole from 100 on, with three significant digits below.

    >>> count(1387.32566667), count(4096.0), count(2.5)
    ('1,387', '4,096', '2.5')
    """
    number = float(value)
    return f"{number:,.0f}" if abs(number) >= 100.0 else f"{number:.3g}"


def amount(value: SupportsFloat) -> str:
    """A number of dollars or joules: whole from 10 on, with three significant digits below.

    >>> amount(144157.9), amount(76.8), amount(0.4231)
    ('144,158', '77', '0.423')
    """
    number = float(value)
    return f"{number:,.0f}" if abs(number) >= 10.0 else digits(number)


def rounded_percent(share: SupportsFloat) -> int:
    """A share as whole per cent, in which -1e-16 is 0 and not -0.

    >>> f"{rounded_percent(-1e-16):+d} {rounded_percent(-0.026):+d}"
    '+0 -3'
    """
    return round(100.0 * float(share))


def round_row(row: Mapping[str, object]) -> dict[str, object]:
    """A row whose numbers with a fraction have four significant digits.

    >>> round_row({"name": "TTFT", "ms": 12.34567, "requests": 12345})
    {'name': 'TTFT', 'ms': 12.35, 'requests': 12345}
    """
    return {k: float(f"{x:.4g}") if isinstance(x, float) else x for k, x in row.items()}


def scaled_format(factor: float, count: int = 3) -> Callable[[SupportsFloat], str]:
    """A format of numbers in another unit: of FLOP in GFLOP by 1e-9.

    >>> scaled_format(1e-9)(2.5e9)
    '2.50'
    """
    return lambda value: digits(factor * float(value), count)


percent = scaled_format(100.0)


def number(value: SupportsFloat | str | None) -> str:
    """A number with four significant digits, or "unknown" for None; a word as it is."""
    return value if isinstance(value, str) else or_unknown(value, 4)


def cell(value: SupportsFloat | str) -> str:
    """A number with three significant digits, a word as it is, a truth as yes or no."""
    if isinstance(value, str):
        return value
    return ("no", "yes")[bool(value)] if is_truth(value) else digits(value)


def is_truth(value: object) -> bool:
    """Whether a value is True or False, of Python or of NumPy."""
    return type(value).__name__ == "bool"


def size(count: SupportsFloat) -> str:
    """Bytes in the decimal unit that suits them.

    >>> size(16.06e9), size(-2.5e6)
    ('16.1 GB', '-2.50 MB')
    """
    value = float(count)
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= factor:
            return f"{digits(value / factor)} {unit}"
    return f"{value:.0f} bytes"


def duration(seconds: SupportsFloat) -> str:
    """A time in the unit of which it has two or more, of seconds where none.

    >>> duration(7 * 86400.0), duration(86400.0), duration(95.0), duration(0.5)
    ('7 days', '24 hours', '95 s', '0.500 s')
    """
    value = float(seconds)
    for unit, factor in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if value >= 2.0 * factor:
            return f"{digits(value / factor)} {unit}"
    return f"{digits(value)} s"


def quantity(count: SupportsFloat, thing: str) -> str:
    """A number of things, in words: one or several.

    >>> quantity(1, "GPU"), quantity(100000, "request"), quantity(60.0519, "request")
    ('1 GPU', '100,000 requests', '60.05 requests')
    """
    value = float(count)
    value = value if value % 1.0 == 0.0 else float(f"{value:.4g}")
    return f"{value:,.6g} {thing}" if value == 1.0 else f"{value:,.12g} {thing}s"


def or_unknown(value: SupportsFloat | None, count: int = 3) -> str:
    """``digits`` of a number, or "unknown" for None.

    >>> or_unknown(12.345), or_unknown(None)
    ('12.3', 'unknown')
    """
    return "unknown" if value is None else digits(value, count)
