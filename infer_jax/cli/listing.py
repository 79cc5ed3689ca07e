"""`infer-jax models`, `hardware`, `estimators`: what ships, with its key facts and sources."""

from typing import Annotated, Any

from infer_jax.catalog import Model, System, list_models, list_systems
from infer_jax.catalog.published import unseen_errors
from infer_jax.cli import show
from infer_jax.cli.runtime import prepare
from infer_jax.estimators import VARIANTS
from infer_jax.physics import decoder
from infer_jax.results import numbers
from infer_jax.specs import UNBOUNDED, Hierarchy, leaves
from infer_jax.verbs.inputs import named_model, named_system
from infer_jax.verbs.option import Option

One = Annotated[
    str | None, Option("One of them, with all that is known of it.", "[NAME]", by_place=True)
]
# what is new to the fit of serving, by its name in the file of the fit
LEFT_OUT = {
    "system": "a system (kind of chip) that was left out whole",
    "model": "a model that was left out",
    "amd": "a server of AMD's chips that was left out",
    "make": "AMD's chips by a fit to NVIDIA's alone",
    "pools": "prefill and decode in two pools, by servers alone",
}


def models(name: One = None, *, as_json: bool = False) -> None:
    """The bundled models: layers, parameters in all and per token, longest context."""
    prepare()
    rows = [_model(named_model("NAME", one)) for one in ([name] if name else list_models())]
    if as_json:
        show.print_json({"models": rows})
        return
    show.table(
        (
            show.Column("model", left=True),
            show.Column("type", left=True),
            show.Column("layers"),
            show.Column("parameters", "1e9"),
            show.Column("active", "1e9"),
            show.Column("context", "tokens"),
        ),
        [
            [
                row["name"],
                row["type"],
                numbers.digits(row["layers"]),
                numbers.digits(row["parameters"] / 1e9),
                numbers.digits(row["active_parameters"] / 1e9),
                numbers.digits(row["context_tokens"]) if row["context_tokens"] else "any",
            ]
            for row in rows
        ],
    )
    if name:
        row = rows[0]
        show.notes([f"Formats: {row['formats']}.", f"Source: {row['source']}.", *row["notes"]])


def _model(model: Model) -> dict[str, Any]:
    arch = model.architecture
    longest = float(arch.max_positions)
    return {
        "name": model.name,
        "type": model.model_type,
        "layers": sum(float(b.count) for b in arch.blocks),
        "parameters": float(decoder.total(decoder.parameters(arch).values())),
        "active_parameters": float(decoder.active_parameters(arch)),
        "context_tokens": None if longest >= UNBOUNDED else longest,
        "formats": model.quantisation,
        "published": dict(model.published),
        "source": model.published.get("source", model.source),
        "notes": list(model.notes),
    }


def hardware(name: One = None, *, as_json: bool = False) -> None:
    """The shipped systems: matmul rates, memory, network, price; of one, every source."""
    rows = [_system(named_system("NAME", one)) for one in ([name] if name else list_systems())]
    if as_json:
        show.print_json({"hardware": rows})
        return
    if name:
        row = rows[0]
        show.say(row["title"], "")
        show.table(
            (
                show.Column("number", left=True),
                show.Column("value"),
                show.Column("unit", left=True),
            ),
            [[x["field"], numbers.digits(x["value"], 4), x["unit"]] for x in row["numbers"]],
        )
        show.notes(
            [
                *(f"{x['field']}: {x['source']}" for x in row["numbers"] if x["source"]),
                *row["filled"],
                *([row["notes"]] if row["notes"] else []),
            ]
        )
        return
    show.table(
        (
            show.Column("name", left=True),
            show.Column("16 bit", "TFLOP/s"),
            show.Column("8 bit", "TFLOP/s"),
            show.Column("memory", "GB"),
            show.Column("bandwidth", "TB/s"),
            show.Column("domain", "GPUs"),
            show.Column("price", "USD/h"),
        ),
        [
            [
                row["name"],
                numbers.digits(row["flops_16"] / 1e12, 4),
                numbers.digits(row["flops_8"] / 1e12, 4),
                numbers.digits(row["memory_bytes"] / 1e9, 4),
                numbers.digits(row["memory_bandwidth_bytes_per_s"] / 1e12),
                numbers.digits(row["domain"]) if row["domain"] else "torus",
                numbers.digits(row["price_per_hour_usd"]),
            ]
            for row in rows
        ],
    )
    show.notes(["Every number with its source: infer-jax hardware NAME."])


def _system(system: System) -> dict[str, Any]:
    hardware = system.hardware
    network = hardware.network
    return {
        "name": system.name,
        "title": system.title,
        "released": system.released,
        "flops_16": float(hardware.chip.flops_16),
        "flops_8": float(hardware.chip.flops_8),
        "flops_4": float(hardware.chip.flops_4),
        "memory_bytes": float(hardware.chip.memory),
        "memory_bandwidth_bytes_per_s": float(hardware.chip.memory_bandwidth),
        "domain": float(network.domain) if isinstance(network, Hierarchy) else None,
        "price_per_hour_usd": float(hardware.price),
        "numbers": [
            {
                "field": path,
                "value": float(value),
                "unit": meta["unit"],
                "source": system.sources.get(path, ""),
            }
            for path, meta, value in leaves(hardware)
        ],
        "coefficients": system.coefficients,
        "filled": list(system.filled),
        "notes": system.notes,
    }


def estimators(*, as_json: bool = False) -> None:
    """The estimators and their variants, by the names that --estimator takes.

    Then the errors of serving on what no fit has seen.
    """
    rows = [
        {"name": name, "summary": variant.summary, "source": variant.source}
        for name, variant in VARIANTS.items()
    ]
    found = unseen_errors()
    left_out = [
        {"left_out": what, "rows": found[kind].rows}
        | {f"{n}_median_error_percent": x for n, x in found[kind].median.items()}
        for kind, what in LEFT_OUT.items()
    ]
    if as_json:
        show.print_json({"estimators": rows, "left_out_of_the_fit_of_serving": left_out})
        return
    columns = ("name", "summary", "source")
    show.table(
        [show.Column(c, left=True) for c in columns], [[r[c] for c in columns] for r in rows]
    )
    columns = ("rows", "TPOT", "TTFT")
    heads = [show.Column(c, "%" if c.isupper() else "") for c in columns]
    show.table(
        [show.Column("median error of serving, of", left=True), *heads],
        [[numbers.digits(x) if not isinstance(x, str) else x for x in row.values()]
         for row in left_out],
    )  # fmt: skip
