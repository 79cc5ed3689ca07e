"""`infer-jax models`, `hardware`, `estimators`, `doctor`: what ships, and whether it computes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from infer_jax.results import Column, Notes, Result, Rows, Section, number, scaled_format
from infer_jax.verbs.option import Option

if TYPE_CHECKING:
    from infer_jax.catalog import Model
    from infer_jax.doctor import Verdicts

Name = Annotated[str | None, Option("One of them, with all known of it.", "[NAME]", by_place=True)]
MODELS = (
    Column("model", "", "name"),
    Column("type", "", "type"),
    Column("layers", "", "layers"),
    Column("parameters", "1e9", "parameters", scaled_format(1e-9)),
    Column("active", "1e9", "active_parameters", scaled_format(1e-9)),
    Column("context", "tokens", lambda row: row["context_tokens"] or "any", left=False),
)
SYSTEMS = (
    Column("name", "", "name"),
    Column("16 bit", "TFLOP/s", "flops_16", scaled_format(1e-12, 4)),
    Column("8 bit", "TFLOP/s", "flops_8", scaled_format(1e-12, 4)),
    Column("memory", "GB", "memory_bytes", scaled_format(1e-9, 4)),
    Column("bandwidth", "TB/s", "memory_bandwidth_bytes_per_s", scaled_format(1e-12)),
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
    from infer_jax.catalog import list_models
    from infer_jax.verbs.inputs import named_model

    listed = [named_model("NAME", x) for x in ([name] if name else list_models())]
    rows = [_model_fields(x) for x in listed]
    content: list[Section] = [Rows("models", rows, MODELS)]
    if name:
        sentences = [f"Formats: {rows[0]['formats']}.", f"Source: {rows[0]['source']}."]
        content.append(Notes([*sentences, *listed[0].notes]))
    return Listing(content)


def _model_fields(model: "Model") -> dict[str, object]:
    from infer_jax.physics import decoder
    from infer_jax.specs import UNBOUNDED

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
    from infer_jax.catalog import list_systems
    from infer_jax.verbs.inputs import named_system

    if not name:
        rows = [named_system("NAME", x).fields() for x in list_systems()]
        more = Notes(["Every number with its source: infer-jax hardware NAME."])
        return Listing([Rows("hardware", rows, SYSTEMS), more])
    system = named_system("NAME", name)
    row, numbers = Rows("hardware", [system.fields()]), system.numbers()
    sources = [f"{x['field']}: {x['source']}" for x in numbers if x["source"]]
    notes = [*sources, *system.filled, *([system.notes] if system.notes else [])]
    return Listing([system.title, row, Rows("", numbers, NUMBERS), Notes(notes)])


def estimators() -> Listing:
    """The estimators and their variants, by the names that --estimator takes.

    Then the errors of serving on what no fit has seen.
    """
    from infer_jax.catalog.published import unseen_errors
    from infer_jax.estimators import VARIANTS

    rows = [{"name": k, "summary": x.summary, "source": x.source} for k, x in VARIANTS.items()]
    errors = unseen_errors()
    left_out = [
        {"left_out": what, "rows": errors[kind].rows}
        | {f"{time}_median_error_percent": x for time, x in errors[kind].median.items()}
        for kind, what in NEW_TO_FIT.items()
    ]
    shipped = Rows("estimators", rows, ESTIMATORS)
    return Listing([shipped, Rows("left_out_of_the_fit_of_serving", left_out, LEFT_OUT)])


def doctor() -> "Verdicts":
    """Compute stored answers on every device; exit 1 where one disagrees."""
    from infer_jax.doctor import Verdicts, examine
    from infer_jax.verbs.progress import busy

    with busy("computing the stored answers on every device"):
        return Verdicts(examine())
