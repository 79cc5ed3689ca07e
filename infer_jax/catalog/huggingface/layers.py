"""The layers of a decoder in order, and the rules by which families name their kinds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infer_jax.catalog.huggingface.facts import LAYERS, Facts
from infer_jax.specs import UNBOUNDED, Attention, Feedforward

FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True)
class Piece:
    """One attention or feedforward layer as a checkpoint stores it.

    ``matrices`` maps the names of ``module``'s matrices to elements: what a quantisation may or
    may not convert. ``vectors`` counts biases, norms and sinks. ``shared`` are the shared experts
    of a mixture.
    """

    spec: Attention | Feedforward
    module: str
    matrices: Mapping[str, int]
    vectors: int = 0
    shared: "Piece | None" = None


@dataclass(frozen=True)
class ConfigLayer:
    """One layer: how tokens mix, how channels mix, and the norms around both."""

    attention: Piece | None
    feedforward: Piece | None
    vectors: int


@dataclass(frozen=True)
class Decoder:
    """A language model as its config.json has it, one layer after the other.

    ``facts`` hold the keys that all families share; ``tied``: whether embedding and head are one
    where no key says so; ``vectors``: numbers outside of layers, by default the final norm's.
    """

    facts: Facts
    layers: Sequence[ConfigLayer]
    tied: bool = False
    vectors: int | None = None
    parallel: bool = False
    drafts: int = 0


def decoder(
    facts: Facts,
    mixers: Sequence[Piece],
    feedforward: Sequence[Piece],
    *,
    norms: int = 2,
    more_norms: int = 0,
    tied: bool = False,
    parallel: bool = False,
    drafts: int = 0,
) -> Decoder:
    """Layers of an attention and a feedforward each, with norms around them.

    A layer has ``norms`` of the model's width and ``more_norms`` numbers.
    """
    vectors = norms * facts.count("hidden_size") + more_norms
    pairs = zip(mixers, feedforward, strict=True)
    layers = [ConfigLayer(mixer, channels, vectors) for mixer, channels in pairs]
    return Decoder(facts, layers, tied, None, parallel, drafts)


def next_tokens(facts: Facts) -> int:
    """Layers that draft the next tokens."""
    return facts.count("num_nextn_predict_layers", default=0, low=0, silent=True)


def depth(facts: Facts) -> int:
    """The number of layers."""
    return facts.count("num_hidden_layers", "n_layer", high=LAYERS)


def full(facts: Facts) -> list[float]:
    """No window on any layer."""
    return [UNBOUNDED] * depth(facts)


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


def full_unless_named(facts: Facts) -> list[float]:
    """No window, unless ``layer_types`` names one."""
    return windows(facts, [FULL] * depth(facts))


def late_windows(facts: Facts) -> list[float]:
    """Qwen's rule: with ``use_sliding_window``, layers from ``max_window_layers`` on slide."""
    layers = depth(facts)
    first = layers
    if facts.flag("use_sliding_window", default=False):
        first = facts.count("max_window_layers", low=0)
    return windows(facts, [SLIDING if i >= first else FULL for i in range(layers)])


def alternating(facts: Facts) -> list[float]:
    """A window on every other layer, beginning with the first."""
    return windows(facts, [SLIDING if i % 2 == 0 else FULL for i in range(depth(facts))])


def periodic(facts: Facts, every: int, other: str = SLIDING) -> list[str]:
    """Full attention on every ``every``-th layer, another kind on the others."""
    return [FULL if (i + 1) % every == 0 else other for i in range(depth(facts))]
