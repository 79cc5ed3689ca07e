"""Models and chips of the economics paper, and the constants of InferSim."""

import math

from infer_jax.catalog.published.tables import hardware_of, row_of, tables
from infer_jax.specs import (
    Architecture,
    Block,
    Dense,
    Experts,
    Format,
    GroupedQuery,
    Hardware,
    Latent,
)


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
