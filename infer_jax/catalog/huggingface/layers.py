"""The layers of a decoder in order, and the rules by which families name their kinds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from infer_jax.catalog.huggingface.attention import Piece, grouped_query, heads
from infer_jax.catalog.huggingface.facts import LAYERS, REQUIRED, Facts
from infer_jax.catalog.huggingface.feedforward import ByLayer, dense_layers
from infer_jax.specs import UNBOUNDED

FULL, SLIDING = "full_attention", "sliding_attention"
BOTH = ("qkv", "output")  # projections that may have biases


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


Mixer = Callable[..., Piece]  # the attention of a kind of layer
Family = Callable[[Facts], Decoder]  # how the configs of one model_type are read


def softmax(
    facts: Facts,
    *,
    head: int = REQUIRED,
    grouped: bool = True,
    biased: Sequence[str] = (),
    bias: bool | None = None,
    bias_key: str = "attention_bias",
    vectors: Callable[[Facts, tuple[int, int, int]], int] = lambda facts, shape: 0,
) -> Mixer:
    """Grouped-query attention by its window.

    ``head``: the width of a head that is not given; ``biased``: which of the projections ``BOTH``
    have biases, if ``bias_key`` says so, of which ``bias`` is the default (None: it is not read);
    ``vectors``: numbers of norms and sinks, of a shape.
    """
    width, shape = facts.count("hidden_size"), heads(facts, head, grouped)
    has_bias = True if bias is None else facts.flag(bias_key, default=bias)
    others = vectors(facts, shape)
    return lambda window: grouped_query(
        width,
        shape,
        window=window,
        qkv_bias=has_bias and "qkv" in biased,
        output_bias=has_bias and "output" in biased,
        vectors=others,
    )


def family(
    kinds: Callable[[Facts], Sequence[object]],
    mixers: Callable[..., Mixer] = softmax,
    feedforward: Callable[[Facts], ByLayer] = dense_layers,
    *,
    norms: int = 2,
    more_norms: Callable[[Facts], int] = lambda facts: 0,
    drafts: Callable[[Facts], int] = lambda facts: 0,
    tied: bool = False,
    parallel: bool = False,
    **attention: object,
) -> Family:
    """The reader of a family whose layers are attention and feedforward with norms around them.

    ``kinds`` names what the attention of each layer differs by, a window or the name of a mixer;
    ``mixers`` makes the attention of a kind, with the options ``attention``; ``feedforward`` the
    other half of layer i. A layer has ``norms`` of the model's width and ``more_norms`` numbers.
    """

    def read(facts: Facts) -> Decoder:
        order = kinds(facts)
        mixer = mixers(facts, **attention)
        by_kind = {kind: mixer(kind) for kind in dict.fromkeys(order)}
        by_layer = feedforward(facts)
        vectors = norms * facts.count("hidden_size") + more_norms(facts)
        layers = [ConfigLayer(by_kind[x], by_layer(i), vectors) for i, x in enumerate(order)]
        return Decoder(facts, layers, tied, None, parallel, drafts(facts))

    return read


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
