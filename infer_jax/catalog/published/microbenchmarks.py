"""Rates that chips reach in micro-benchmarks, with their sources."""

from functools import cache
from importlib.resources import files
from typing import NamedTuple, TypedDict, cast

from infer_jax.catalog.foreign import read_toml


class _Row(TypedDict):
    quantity: str
    what: str
    source: str
    measured: dict[str, float]


class MicroBenchmark(NamedTuple):
    """One benchmark of several chips, in the units of profiles (TFLOP/s, TB/s, GB/s).

    ``quantity``: gemm_16, gemm_8, memory or link; ``what``: what was run; ``measured``: by profile.
    """

    quantity: str
    what: str
    source: str
    measured: dict[str, float]


@cache
def measured_rates() -> tuple[MicroBenchmark, ...]:
    """Every benchmark that is known of chips of two makes.

    >>> sorted({x.quantity for x in measured_rates()})
    ['gemm_16', 'gemm_8', 'link', 'memory']
    """
    folder = files("infer_jax.catalog.published")
    table = read_toml(str(folder.joinpath("microbenchmarks.toml")))
    return tuple(MicroBenchmark(**row) for row in cast(list[_Row], table["benchmark"]))
