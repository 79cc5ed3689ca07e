"""The layers of a decoder in order: which use a sliding window, which hold experts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from infer_jax.catalog.huggingface.attention import Piece
from infer_jax.catalog.huggingface.facts import LAYERS, Facts
from infer_jax.catalog.huggingface.feedforward import dense
from infer_jax.specs import UNBOUNDED

FULL, SLIDING = "full_attention", "sliding_attention"
Kind = TypeVar("Kind")


@dataclass(frozen=True)
class ConfigLayer:
    """One layer: how tokens mix, how channels mix, and the norms around both."""

    attention: Piece | None
    feedforward: Piece | None
    vectors: int


@dataclass(frozen=True)
class Decoder:
    """A language model as its config.json has it, one layer after the other."""

    width: int
    vocabulary: int
    tied: bool
    layers: tuple[ConfigLayer, ...]
    vectors: int
    parallel: bool = False
    drafts: int = 0
    max_positions: int | None = None


Family = Callable[[Facts], Decoder]  # how the configs of one model_type are read


def decoder(
    facts: Facts,
    layers: Sequence[ConfigLayer],
    *,
    tied: bool = False,
    vectors: int | None = None,
    parallel: bool = False,
    drafts: int = 0,
) -> Decoder:
    """A decoder with the keys that all families share; ``vectors``: by default the final norm."""
    width = facts.count("hidden_size", "n_embd")
    return Decoder(
        width=width,
        vocabulary=facts.count("vocab_size"),
        tied=facts.flag("tie_word_embeddings", default=tied),
        layers=tuple(layers),
        vectors=width if vectors is None else vectors,
        parallel=parallel,
        drafts=drafts,
        max_positions=facts.count(
            "max_position_embeddings", "n_positions", default=None, silent=True
        ),
    )


def stack(
    facts: Facts,
    attention: Callable[[Kind], Piece],
    feedforward: Callable[[int], Piece],
    kinds: Sequence[Kind],
    norms: int = 2,
) -> list[ConfigLayer]:
    """Attention then feedforward in every layer, with ``norms`` norms of the model's width.

    ``kinds`` names what ``attention`` differs by, layer by layer: a window, or a mixer.
    """
    width = facts.count("hidden_size")
    by_kind = {kind: attention(kind) for kind in dict.fromkeys(kinds)}
    return [
        ConfigLayer(by_kind[kind], feedforward(i), norms * width) for i, kind in enumerate(kinds)
    ]


def depth(facts: Facts) -> int:
    """The number of layers."""
    return facts.count("num_hidden_layers", "n_layer", high=LAYERS)


def windows(facts: Facts, kinds: Sequence[str] | None = None) -> list[float]:
    """The window of every layer, from ``layer_types`` or else from ``kinds``.

    Without either, every layer slides where ``sliding_window`` is given and none otherwise.
    """
    layers = depth(facts)
    named = facts.items("layer_types", length=layers, allowed=(FULL, SLIDING)) or kinds
    if named is None:
        named = [SLIDING if "sliding_window" in facts else FULL] * layers
    if SLIDING not in named:
        return [UNBOUNDED] * layers
    window = float(facts.count("sliding_window"))
    return [window if kind == SLIDING else UNBOUNDED for kind in named]


def late_windows(facts: Facts) -> list[float]:
    """Qwen's rule: with ``use_sliding_window``, layers from ``max_window_layers`` on slide."""
    layers = depth(facts)
    first = layers
    if facts.flag("use_sliding_window", default=False):
        first = facts.count("max_window_layers", low=0)
    return windows(facts, [SLIDING if i >= first else FULL for i in range(layers)])


def periodic(layers: int, every: int, other: str = SLIDING) -> list[str]:
    """Full attention on every ``every``-th layer, another kind on the others."""
    return [FULL if (i + 1) % every == 0 else other for i in range(layers)]


def sparse_by_step(facts: Facts) -> Callable[[int], bool]:
    """Qwen's rule: experts on every ``decoder_sparse_step``-th layer not ``mlp_only_layers``."""
    step = facts.count("decoder_sparse_step", default=1, silent=True)
    plain = frozenset(facts.items("mlp_only_layers", allowed=range(LAYERS)) or [])
    return lambda i: i not in plain and (i + 1) % step == 0


def sparse_after_first(facts: Facts) -> Callable[[int], bool]:
    """DeepSeek's rule: dense layers first, then experts on every ``moe_layer_freq``-th layer.

    ``mlp_layer_types`` or a list under ``moe_layer_freq`` names every layer instead.
    """
    layers = depth(facts)
    kinds = facts.items("mlp_layer_types", length=layers, allowed=("dense", "sparse"))
    if kinds is not None:
        return lambda i: kinds[i] == "sparse"
    if isinstance(facts.values.get("moe_layer_freq"), list):
        flags = facts.items("moe_layer_freq", length=layers, allowed=(0, 1)) or []
        return lambda i: flags[i] == 1
    first = facts.count("first_k_dense_replace", low=0)
    step = facts.count("moe_layer_freq", default=1, silent=True)
    return lambda i: i >= first and i % step == 0


def routed(
    facts: Facts,
    is_sparse: Callable[[int], bool],
    experts: Piece | None,
    plain: Callable[[], Piece] | None = None,
) -> Callable[[int], Piece]:
    """The feedforward of layer i: ``experts`` where ``is_sparse(i)``, else the plain one.

    By default that has ``intermediate_size`` units, a key which is read only where it is needed.
    """

    @cache
    def other() -> Piece:
        if plain is not None:
            return plain()
        return dense(facts.count("hidden_size"), facts.count("intermediate_size"))

    return lambda i: experts if experts is not None and is_sparse(i) else other()
