"""`infer-jax models`, `hardware`, `estimators`: what ships, with its key facts and sources."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from infer_jax.catalog import Model, System, list_models, list_systems
from infer_jax.catalog.published import unseen_errors
from infer_jax.estimators import VARIANTS
from infer_jax.physics import decoder
from infer_jax.results import Column, Notes, Result, Rows, Section, number, scaled
from infer_jax.specs import UNBOUNDED, Hierarchy, leaves
from infer_jax.verbs.inputs import named_model, named_system
from infer_jax.verbs.option import Option

Name = Annotated[
    str | None, Option("One of them, with all that is known of it.", "[NAME]", by_place=True)
]
MODELS = (
    Column("model", "", "name"),
    Column("type", "", "type"),
    Column("layers", "", "layers"),
    Column("parameters", "1e9", "parameters", scaled(1e-9)),
    Column("active", "1e9", "active_parameters", scaled(1e-9)),
    Column("context", "tokens", lambda row: row["context_tokens"] or "any", left=False),
)
SYSTEMS = (
    Column("name", "", "name"),
    Column("16 bit", "TFLOP/s", "flops_16", scaled(1e-12, 4)),
    Column("8 bit", "TFLOP/s", "flops_8", scaled(1e-12, 4)),
    Column("memory", "GB", "memory_bytes", scaled(1e-9, 4)),
    Column("bandwidth", "TB/s", "memory_bandwidth_bytes_per_s", scaled(1e-12)),
    Column("domain", "GPUs", lambda row: row["domain"] or "torus", left=False),
    Column("price", "USD/h", "price_per_hour_usd"),
)
NUMBERS = (
    Column("number", "", "field"),
    Column("value", "", "value", number),
    Column("unit", "", "unit"),
)
ESTIMATORS = tuple(Column(name, "", name) for name in ("name", "summary", "source"))
LEFT_OUT = (
    Column("median error of serving, of", "", "left_out"),
    Column("rows", "", "rows"),
    *(Column(time.upper(), "%", f"{time}_median_error_percent") for time in ("tpot", "ttft")),
)
# what is new to the fit of serving, by its name in the file of the fit
NEW_TO_FIT = {
    "system": "a system (kind of chip) that was left out whole",
    "model": "a model that was left out",
    "amd": "a server of AMD's chips that was left out",
    "make": "AMD's chips by a fit to NVIDIA's alone",
    "pools": "prefill and decode in two pools, by servers alone",
}


@dataclass(frozen=True, repr=False)
class Listing(Result):
    """Sections of what ships."""

    content: Sequence[Section]

    def sections(self) -> Iterator[Section]:
        """The content."""
        yield from self.content


def models(name: Name = None) -> Listing:
    """The bundled models: layers, parameters in all and per token, longest context."""
    listed = [named_model("NAME", one) for one in ([name] if name else list_models())]
    content: list[Section] = [Rows("models", [_model(one) for one in listed], MODELS)]
    if name:
        notes = listed[0].notes
        source = listed[0].published.get("source", listed[0].source)
        content.append(Notes([f"Formats: {listed[0].quantisation}.", f"Source: {source}.", *notes]))
    return Listing(content)


def _model(model: Model) -> dict[str, object]:
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


def hardware(name: Name = None) -> Listing:
    """The shipped systems: matmul rates, memory, network, price; of one, every source."""
    if not name:
        rows = [_system(named_system("NAME", one)) for one in list_systems()]
        more = Notes(["Every number with its source: infer-jax hardware NAME."])
        return Listing([Rows("hardware", rows, SYSTEMS), more])
    system = named_system("NAME", name)
    numbers = _numbers(system)
    sources = [f"{x['field']}: {x['source']}" for x in numbers if x["source"]]
    notes = [*sources, *system.filled, *([system.notes] if system.notes else [])]
    all_of_it = Rows("hardware", [_system(system)])
    return Listing([system.title, all_of_it, Rows("", numbers, NUMBERS), Notes(notes)])


def _system(system: System) -> dict[str, object]:
    chip, network = system.hardware.chip, system.hardware.network
    return {
        "name": system.name,
        "title": system.title,
        "released": system.released,
        "flops_16": float(chip.flops_16),
        "flops_8": float(chip.flops_8),
        "flops_4": float(chip.flops_4),
        "memory_bytes": float(chip.memory),
        "memory_bandwidth_bytes_per_s": float(chip.memory_bandwidth),
        "domain": float(network.domain) if isinstance(network, Hierarchy) else None,
        "price_per_hour_usd": float(system.hardware.price),
        "numbers": _numbers(system),
        "coefficients": system.coefficients,
        "filled": list(system.filled),
        "notes": system.notes,
    }


def _numbers(system: System) -> list[dict[str, object]]:
    return [
        {
            "field": path,
            "value": float(value),
            "unit": meta["unit"],
            "source": system.sources.get(path, ""),
        }
        for path, meta, value in leaves(system.hardware)
    ]


def estimators() -> Listing:
    """The estimators and their variants, by the names that --estimator takes.

    Then the errors of serving on what no fit has seen.
    """
    rows = [
        {"name": name, "summary": variant.summary, "source": variant.source}
        for name, variant in VARIANTS.items()
    ]
    errors = unseen_errors()
    left_out = [
        {"left_out": what, "rows": errors[kind].rows}
        | {f"{n}_median_error_percent": x for n, x in errors[kind].median.items()}
        for kind, what in NEW_TO_FIT.items()
    ]
    return Listing(
        [
            Rows("estimators", rows, ESTIMATORS),
            Rows("left_out_of_the_fit_of_serving", left_out, LEFT_OUT),
        ]
    )
