"""Limits for JSON, and in words if one is exceeded."""

from infer_jax.estimators import Limit
from infer_jax.results.numbers import digits, size


def limit_of(name: str, limit: Limit) -> dict[str, object]:
    """A limit for JSON: bytes where it is one of memory, else plain numbers."""
    unit = "_bytes" if name.endswith("memory") else ""
    return {
        f"need{unit}": limit.need,
        f"capacity{unit}": limit.capacity,
        f"slack{unit}": limit.capacity - limit.need,
        "met": bool(limit.need <= limit.capacity),
    }


def broken(name: str, limit: Limit) -> str:
    """By how much a limit is exceeded, in words."""
    if name == "arrivals":
        asked, most = (digits(x) for x in (limit.need, limit.capacity))
        return f"{asked} requests/s arrive and at most {most} are completed"
    said = size if name.endswith("memory") else digits
    short = float(limit.need - limit.capacity)
    return (
        f"{name} needs {said(limit.need)} of {said(limit.capacity)}: {said(short)} short"
        f" ({short / max(float(limit.capacity), 1e-300):.1%})"
    )
