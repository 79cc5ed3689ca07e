"""The bundled TOML tables of constants, one file for each source, and what papers say in them."""

import math
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from infer_jax.catalog.foreign import Parsed, read_toml
from infer_jax.errors import InputError
from infer_jax.specs import (
    Architecture,
    Block,
    Chip,
    Dense,
    Experts,
    Format,
    GroupedQuery,
    Hardware,
    Hierarchy,
    Latent,
    Torus,
)


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


def economics_model(name: str, *, multi_query: bool = False) -> Architecture:
    """A model of the paper by its name; ``multi_query`` gives it one KV head.

    Raises:
        InputError: the paper has no such model.
    """
    row = row_of("economics", "models", name)
    if "scaled_from" in row:
        row = _scaled(tables("economics")["models"][row["scaled_from"]], row["scale"])
    weights = Format.of(bytes=row["weight_bytes"], bits=8.0 * row["weight_bytes"])
    # The paper multiplies attention at the weights' precision and stores the cache at the
    # activations'.
    held = Format.of(bytes=row["activation_bytes"], bits=8.0 * row["weight_bytes"])
    head = row["head_width"]
    shared = {"query_heads": row["query_heads"], "value_width": head, "weights": weights}
    if "kv_rank" in row:
        ranks = {name: row[name] for name in ("kv_rank", "query_rank")}
        attention = Latent.of(**shared, **ranks, nope_width=head, rope_width=0.0)
    else:
        groups = 1.0 if multi_query else row["query_heads"] / row["group"]
        attention = GroupedQuery.of(**shared, kv_heads=groups, head_width=head)
    shape = {"width": row["feedforward_width"], "inward": row["inward"], "weights": weights}
    if row.get("experts", 1) > 1:
        feedforward: Dense | Experts = Experts.of(
            experts=row["experts"], active=row["active"], router=0.0, **shape
        )
    else:
        feedforward = Dense.of(**shape)
    block = Block.of(count=row["layers"], attention=attention, feedforward=feedforward)
    return Architecture.of(
        width=row["width"],
        vocabulary=row["vocabulary"],
        tied=0.0,
        blocks=(block,),
        parallel=row.get("parallel", 0),
        embedding=weights,
        head=weights,
        activations=held,
        cache=held,
    )


def economics_hardware(name: str) -> tuple[Hardware, dict[str, float]]:
    """A chip of the paper by its name, and the coefficients the paper gives it.

    Raises:
        InputError: the paper has no such chip.
    """
    row = row_of("economics", "hardware", name)
    known = ("flop_cap", "memory_cap", "launch", "protocol_base")
    return hardware_of(row), {key: row[key] for key in known if key in row}


def _scaled(row: dict[str, float], scale: float) -> dict[str, float]:
    """A model scaled to ``scale`` times its parameters as the paper's program scales it."""
    wide, heads = scale ** (1 / 3), scale ** (1 / 6)
    count = math.ceil(row["query_heads"] * heads)
    return row | {
        "width": row["width"] * wide,
        "feedforward_width": row["feedforward_width"] * wide,
        "layers": math.floor(row["layers"] * wide),
        "query_heads": count,
        "group": count / (row["query_heads"] / row["group"]),
        "head_width": row["head_width"] * heads,
    }


def kernels_constants() -> dict[str, float]:
    """The tool's constants by name: shares, gigas (over 1e9), scheduling times in s, reserve."""
    return dict(tables("kernels")["constants"])
