"""Coefficients of an engine, the rules of its scheduler, and coefficients of chips' generations."""

from collections.abc import Collection
from functools import partial

from jax import Array

from infer_jax import engines
from infer_jax.catalog.published import serving_coefficients
from infer_jax.engines.engine import BUDGET
from infer_jax.specs import Spec, number, part, spec

# choices by their codes, which fits and sweeps store
ENGINES = tuple(sorted(engines.ENGINES, key=lambda name: engines.ENGINES[name].code))
GENERATIONS = ("hopper", "blackwell", "cdna3", "cdna4")
# rows that decode attention multiplies at least; on Blackwell those of two blocks (tcgen05.mma with
# cta_group::2, M = 256), which the rows of servers with and without drafts ask for
TILES = {"hopper": 64.0, "blackwell": 256.0, "cdna3": 16.0, "cdna4": 16.0}
NO_YES = ("no", "yes")


@spec
class Engine(Spec):
    """A serving engine: launch gaps, host times, and the rules of its scheduler."""

    layer_gap: Array = number(
        "tau_L: launch gap of a layer, grouped-query attention", unit="s", kind="time"
    )
    expert_gap: Array = number(
        "tau_E: what a mixture adds to it", unit="s", kind="time", default=0.0
    )
    rank_kernels: Array = number(
        "k_R: what many ranks of experts of more than 4 bits add to a mixture's layer gap, in layer"
        " gaps, where attention is tensor parallel",
        kind="size",
        default=0.0,
    )
    exchange: Array = number(
        "tau_X: exchange of tokens among attention groups, beside its bytes: the kernels that hand"
        " tokens over and collect them, and the wait for the last group",
        unit="s",
        kind="time",
        default=0.0,
    )
    acceptance: Array = number(
        "acc: probability that the first token which a model's own heads draft is accepted, as in"
        " this engine's measured servers",
        kind="fraction",
        high=1,
        default=0.65,
    )
    sequence_time: Array = number(
        "tau_S: host time per running sequence and pass", unit="s", kind="time"
    )
    eager: Array = number(
        "f_e: gaps of a pass that holds a prefill, without CUDA graphs, over those with",
        kind="size",
    )
    front: Array = number(
        "t0: network, tokeniser and server before a prompt's first pass",
        unit="s",
        kind="time",
    )
    prefill_first: Array = number(
        "whether prompts go in passes of their own, before anyone decodes on",
        kind="choice",
        high=1,
        default=0.0,
        choices=NO_YES,
    )
    whole: Array = number(
        "whether a pass takes a whole prompt, where the plan does not say how much",
        kind="choice",
        high=1,
        default=0.0,
        choices=NO_YES,
    )
    phase: Array = number(
        "share of the pass that runs at an arrival which is still to come",
        kind="fraction",
        high=1,
        default=0.5,
    )
    ahead: Array = number(
        "passes that the host has put together before the next that an arrival can be in",
        kind="count",
        default=1.0,
    )
    budget: Array = number(
        "tokens of a pass, where the plan does not say",
        unit="tokens",
        kind="count",
        low=1,
        default=BUDGET,
    )
    held_output: Array = number(
        "share of its output that a request holds when places are counted",
        kind="fraction",
        high=1,
        default=0.5,
    )

    @classmethod
    def published(cls, name: str) -> "Engine":
        """An engine as fitted (or as ``fitted_engine`` is), with its scheduler's own rules."""
        return cls.of(**_of(fitted_engine(name)), **engines.ENGINES[name].scheduling)


def engines_beside(names: Collection[str]) -> type[Spec]:
    """A spec with a part for each registered engine beside those of ``names``, by its name."""
    others = [engine for name, engine in engines.ENGINES.items() if name not in names]
    parts = {
        x.name: part(x.title, default_factory=partial(Engine.published, x.name)) for x in others
    }
    kinds = {"__annotations__": dict.fromkeys(parts, Engine), "__module__": __name__}
    return spec(type("FurtherEngines", (Spec,), {**kinds, **parts}))


@spec
class Generation(Spec):
    """A generation of chips: the share of its peak that a dense product reaches, by class.

    ``gap`` and ``quantising`` are multiples of Hopper's.
    """

    gemm_16: Array = number("eta_c of 16-bit products", kind="fraction", high=1)
    gemm_8: Array = number("eta_c of 8-bit products", kind="fraction", high=1)
    gemm_4: Array = number("eta_c of 4-bit products", kind="fraction", high=1)
    gap: Array = number("g: launch gaps over those of Hopper", kind="size", default=1.0)
    quantising: Array = number(
        "q_g: launches of quantising activations over those of Hopper", kind="size", default=1.0
    )
    grouped: Array = number(
        "e_g: share of a dense product's rate that products of experts reach, over NVIDIA's",
        kind="size",
        default=1.0,
    )
    attention_16: Array = number(
        "eta_16: decode attention on a 16-bit cache, share of the 16-bit peak in full tiles",
        kind="fraction",
        high=1,
        default=0.6,
    )
    attention_8: Array = number(
        "eta_8: the same on an 8-bit cache, multiplied in 8 bits where kernels can",
        kind="fraction",
        high=2,
        default=0.6,
    )
    tile: Array = number(
        "M: rows that decode attention multiplies at least", kind="count", low=1, default=64.0
    )
    blocked: Array = number(
        "e_B: rate of 8-bit products with scales by block over those with scales per tensor."
        " Hopper adds up partial sums outside of its tensor cores (DeepSeek-V3, arXiv 2412.19437,"
        " Sections 3.3.2 and 3.5.2)",
        kind="fraction",
        high=1,
        default=1.0,
    )

    @classmethod
    def published(cls, name: str) -> "Generation":
        """A generation as fitted; Hopper multiplies 4-bit numbers as 8-bit ones."""
        return cls.of(**_of(name), tile=TILES[name])


def fitted_engine(name: str) -> str:
    """The engine whose fitted coefficients an engine has: itself, once servers of it are measured.

    >>> fitted_engine("sglang")
    'sglang'
    """
    return name if _of(name) else engines.ENGINES[name].like


def _of(part: str) -> dict[str, float]:
    """The fitted leaves of a part of ``Serving``."""
    dot = f"{part}."
    rows = serving_coefficients().items()
    return {name.removeprefix(dot): row.value for name, row in rows if name.startswith(dot)}
