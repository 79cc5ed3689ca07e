"""The bundled TOML tables of constants, one file for each source."""

from functools import cache
from importlib.resources import files
from typing import NamedTuple

from infer_jax.catalog.foreign import Parsed, read_toml
from infer_jax.errors import InputError
from infer_jax.specs import Chip, Hardware, Hierarchy, Torus


@cache
def tables(source: str) -> Parsed:
    """The tables of a file of this folder, by the file's name without its ending."""
    return read_toml(str(files("infer_jax.catalog.published").joinpath(f"{source}.toml")))


def row_of(source: str, kind: str, name: str) -> Parsed:
    """One row of a table: a model or a chip, by its name.

    Raises:
        InputError: no row of that name.
    """
    table = tables(source)[kind]
    if name not in table:
        raise InputError(f"published {source}", kind, name, ", ".join(table))
    return table[name]


def hardware_of(row: Parsed) -> Hardware:
    """A chip in its network, as a row has it; rates that it lacks are the next wider ones."""
    narrow = row.get("flops_8", row["flops_16"])
    chip = Chip.of(
        flops_16=row["flops_16"],
        flops_8=narrow,
        flops_4=row.get("flops_4", narrow),
        memory=row["memory"],
        memory_bandwidth=row["memory_bandwidth"],
    )
    if "domain" in row:
        names = ("domain", "domain_bandwidth", "network_bandwidth")
        network = Hierarchy.of(**{name: row[name] for name in names})
    else:
        network = Torus.of(axes=row.get("axes", 3.0), link_bandwidth=row["link_bandwidth"])
    return Hardware.of(chip=chip, network=network, price=row.get("price", 0.0))


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
    return tuple(MicroBenchmark(**row) for row in tables("microbenchmarks")["benchmark"])
