"""Coefficients of an engine, and of a generation of chips."""

from jax import Array

from infer_jax.catalog.published import serving_coefficients, serving_form
from infer_jax.specs import Spec, number, spec

ENGINES = ("trtllm", "sglang", "vllm")
GENERATIONS = ("hopper", "blackwell", "cdna3", "cdna4")


@spec
class Engine(Spec):
    """A serving engine: its launch gaps, its host, its scheduling."""

    layer_gap: Array = number(
        "tau_L: launch gap of a layer, grouped-query attention", unit="s", kind="time"
    )
    expert_gap: Array = number("tau_E: what a mixture adds to it", unit="s", kind="time")
    sequence_time: Array = number(
        "tau_S: host time per running sequence and pass", unit="s", kind="time"
    )
    eager: Array = number(
        "f_e: gaps of a pass that holds a prefill, without CUDA graphs, over those with",
        kind="size",
    )
    quantising: Array = number(
        "q_e: launches of quantising activations over those of an engine that fuses none",
        kind="size",
        default=1.0,
    )
    admission: Array = number("nu: decode steps until a request is taken in", kind="size")
    sync: Array = number("s: odds that prefills of others fall before a first token", kind="size")
    sync_fixed: Array = number("s where all requests have the same lengths", kind="size")
    slot: Array = number(
        "requests of a fixed-length benchmark that are not running on average",
        kind="size",
        high=1,
        default=0.0,
    )
    held_output: Array = number(
        "share of its output that a request holds when places are counted",
        kind="fraction",
        high=1,
        default=0.75,
    )

    @classmethod
    def published(cls, name: str) -> "Engine":
        """An engine as fitted; half a slot is TensorRT-LLM's alone."""
        return cls.of(**_of(name), slot=0.5 if name == "trtllm" else 0.0)


@spec
class Generation(Spec):
    """A generation of chips: the share of its peak that a dense product reaches, by class.

    ``gap``, ``quantising`` and ``grouped`` are over Hopper's. CDNA's were fitted apart, to rows
    of AMD's chips, with all else as fitted to NVIDIA's.
    """

    gemm_16: Array = number("eta_c of 16-bit products", kind="fraction", high=1)
    gemm_8: Array = number("eta_c of 8-bit products", kind="fraction", high=1)
    gemm_4: Array = number("eta_c of 4-bit products", kind="fraction", high=1)
    gap: Array = number("g: launch gaps over those of Hopper", kind="size", default=1.0)
    quantising: Array = number(
        "q_g: launches of quantising activations over those of Hopper", kind="size", default=1.0
    )
    grouped: Array = number(
        "e_g: share of a dense product's rate that products of experts reach, over Hopper's",
        kind="size",
        default=1.0,
    )

    @classmethod
    def published(cls, name: str) -> "Generation":
        """A generation as fitted; Hopper multiplies 4-bit numbers as 8-bit ones."""
        return cls.of(**_of(name))


def _of(part: str) -> dict[str, float]:
    """The fitted and the fixed leaves of a part of ``Serving``."""
    fitted = {name: row.value for name, row in serving_coefficients().items()}
    dot = f"{part}."
    every = (serving_form() | fitted).items()
    return {name.removeprefix(dot): x for name, x in every if name.startswith(dot)}
