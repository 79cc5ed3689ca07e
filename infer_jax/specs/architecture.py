"""The model: a decoder as width, vocabulary and blocks of attention and feedforward.

A model whose layers differ (three dense layers, then experts; windows on every other layer)
is a tuple of blocks, each a count of equal layers. Counts are floats, so every one of them is
a sweep axis and has a gradient.
"""

from functools import partial
from typing import Self

import numpy as np
from jax import Array

from infer_jax.errors import InputError
from infer_jax.specs.fields import Spec, number, part, spec

__all__ = [
    "UNBOUNDED",
    "Architecture",
    "Attention",
    "Block",
    "Compressed",
    "Dense",
    "Experts",
    "Feedforward",
    "Format",
    "GroupedQuery",
    "KimiDelta",
    "Latent",
    "Linear",
    "Sparse",
    "StateSpace",
]

UNBOUNDED = 2.0**40  # tokens: a window no context reaches, finite so that gradients are


@spec
class Format(Spec):
    """How one kind of number is stored and multiplied.

    Stored bytes include scales and zero points (mxfp4: 0.53125), the matmul class does not:
    weights stored in 4 bits may be multiplied in 16. ``rows`` and ``columns`` decide how a matrix
    may be cut (``infer_jax.legal``); no time depends on them.
    """

    bytes: Array = number("stored bytes per element, scales included", unit="bytes", kind="size")
    bits: Array = number("matmul class", unit="bits", kind="choice", low=4, high=16)
    rows: Array = number(
        "outputs of a matrix that share a scale; 1: cut anywhere",
        kind="count",
        low=1,
        default=1.0,
    )
    columns: Array = number(
        "inputs of a matrix that share a scale; 1: cut anywhere", kind="count", low=1, default=1.0
    )


bf16 = partial(Format.of, bytes=2.0, bits=16.0)


@spec
class GroupedQuery(Spec):
    """Softmax attention with shared key and value heads: MHA, GQA and MQA, windowed or not."""

    query_heads: Array = number("query heads", kind="count")
    kv_heads: Array = number("key-value heads", kind="count")
    head_width: Array = number("width of a query or key head", kind="count")
    value_width: Array = number("width of a value head", kind="count")
    window: Array = number(
        "tokens a query sees at most", unit="tokens", kind="count", default=UNBOUNDED
    )
    query_gate: Array = number(
        "1 where a gate as wide as the queries is projected too",
        kind="choice",
        high=1,
        default=0.0,
        choices=("no", "yes"),
    )
    kv_matrices: Array = number(
        "projections among K and V that the layer owns and caches: 2; 1 where V is K; "
        "0 where the layer reads another layer's cache",
        kind="count",
        high=2,
        default=2.0,
    )
    weights: Format = part("format of the projections", default_factory=bf16)


@spec
class Latent(Spec):
    """Multi-head latent attention (MLA): keys and values through a low-rank latent."""

    query_heads: Array = number("query heads", kind="count")
    nope_width: Array = number("width of a head's part without rotary position", kind="count")
    rope_width: Array = number("width of a head's rotary part (shared key)", kind="count")
    value_width: Array = number("width of a value head", kind="count")
    kv_rank: Array = number("width of the cached latent", kind="count")
    query_rank: Array = number("width of the query latent; 0: none", kind="count", default=0.0)
    weights: Format = part("format of the projections", default_factory=bf16)


@spec
class Sparse(Spec):
    """Sparse attention: an indexer scores the context and attention reads the top k tokens."""

    base: "GroupedQuery | Latent" = part("the attention over the chosen tokens")
    top_k: Array = number("tokens attended to at most", unit="tokens", kind="count")
    index_heads: Array = number("query heads of the indexer", kind="count")
    index_width: Array = number("width of an indexer head", kind="count")
    index_query_input: Array = number(
        "width that the indexer's queries are projected from", kind="count"
    )
    index_cache: Format = part("format of the cached index keys", default_factory=bf16)


@spec
class Linear(Spec):
    """Linear attention with a matrix state: gated delta rule (GDN) and Mamba-2.

    Mamba-2 in these terms: value_heads x value_width is its inner width, key_width its state,
    key_heads its groups, one gate a head, no delta rule.
    """

    key_heads: Array = number("heads that share a query and a key", kind="count")
    key_width: Array = number("width of a key: rows of the state", kind="count")
    value_heads: Array = number("value heads: one state each", kind="count")
    value_width: Array = number("width of a value: columns of the state", kind="count")
    conv_width: Array = number("taps of the causal convolution", kind="count", default=4.0)
    head_gates: Array = number(
        "numbers projected per head: GDN 2, Mamba-2 1", kind="count", default=2.0
    )
    delta: Array = number(
        "1 where the state is read before it is written (delta rule)",
        kind="choice",
        high=1,
        default=1.0,
        choices=("no", "yes"),
    )
    weights: Format = part("format of the projections", default_factory=bf16)
    state: Format = part(
        "format of the recurrent state", default_factory=lambda: Format.of(bytes=4.0, bits=16.0)
    )


@spec
class StateSpace(Spec):
    """Selective state space (Mamba, the first): every channel decays each number of its own state.

    Time steps come through a low rank, decays from a matrix of channels x ``state_width``.
    """

    channels: Array = number("channels, each with a state of its own", kind="count")
    state_width: Array = number("numbers of a channel's state", kind="count")
    step_rank: Array = number("width that time steps are projected through", kind="count")
    conv_width: Array = number("taps of the causal convolution", kind="count", default=4.0)
    weights: Format = part("format of the projections", default_factory=bf16)
    state: Format = part("format of the recurrent state", default_factory=bf16)


@spec
class KimiDelta(Spec):
    """Kimi delta attention (KDA): the delta rule on a matrix state, each key channel decays alone.

    Decays of the channels and the gate of the outputs come through a low rank.
    """

    heads: Array = number("heads of queries, keys and values: one state each", kind="count")
    head_width: Array = number("width of a head, of keys and values alike", kind="count")
    gate_rank: Array = number("width that decays, and gates, are projected through", kind="count")
    conv_width: Array = number("taps of the causal convolutions", kind="count", default=4.0)
    weights: Format = part("format of the projections", default_factory=bf16)
    state: Format = part(
        "format of the recurrent state", default_factory=lambda: Format.of(bytes=4.0, bits=16.0)
    )


@spec
class Compressed(Spec):
    """A window of tokens, and before it the context pooled into entries of ``ratio`` tokens.

    DeepSeek-V4's attention: one head that is key and value at once, queries through a latent, an
    output projection by groups of heads. An indexer chooses ``top_k`` entries where it has heads.
    """

    query_heads: Array = number("query heads", kind="count")
    head_width: Array = number("width of a head, of keys and values alike", kind="count")
    query_rank: Array = number("width of the query latent", kind="count")
    output_groups: Array = number("groups of heads of the output projection", kind="count")
    output_rank: Array = number("width that a group is projected to first", kind="count")
    window: Array = number("last tokens that are seen as they are", unit="tokens", kind="count")
    ratio: Array = number(
        "tokens of an entry of the pooled context; 0: none is kept", unit="tokens", kind="count"
    )
    overlap: Array = number(
        "windows of ``ratio`` tokens that an entry pools: 2 where they overlap",
        kind="count",
        default=1.0,
    )
    top_k: Array = number(
        "entries attended to at most", unit="entries", kind="count", default=UNBOUNDED
    )
    index_heads: Array = number("query heads of the indexer; 0: none", kind="count", default=0.0)
    index_width: Array = number("width of an indexer head", kind="count", default=0.0)
    index_cache: Format = part("format of the cached index keys", default_factory=bf16)
    weights: Format = part("format of the projections", default_factory=bf16)


@spec
class Dense(Spec):
    """A feedforward every token passes: ``inward`` matrices in (2 when gated), one out."""

    width: Array = number("hidden width", kind="count")
    inward: Array = number("matrices into the hidden layer: gated 2, plain 1", kind="count")
    weights: Format = part("format of the matrices", default_factory=bf16)


def no_feedforward() -> Dense:
    """A feedforward of width zero: the shared expert of a model that has none."""
    return Dense.of(width=0.0, inward=2.0)


@spec
class Experts(Spec):
    """A mixture of experts (MoE): ``active`` of ``experts`` per token, and shared ones."""

    experts: Array = number("routed experts", kind="count")
    active: Array = number("routed experts a token visits", kind="count")
    width: Array = number("hidden width of one expert", kind="count")
    inward: Array = number("matrices into the hidden layer: gated 2, plain 1", kind="count")
    router: Array = number(
        "1 where the router's width x experts matrix is counted", kind="count", default=1.0
    )
    outer_width: Array = number(
        "width the experts read and write, where it is not the model's; 0: the model's",
        kind="count",
        default=0.0,
    )
    shared: Dense = part("experts every token visits, as one", default_factory=no_feedforward)
    weights: Format = part("format of the routed experts", default_factory=bf16)

    @classmethod
    def of(cls, **values: object) -> Self:
        """As ``Spec.of``.

        Raises:
            InputError: what ``Spec.of`` refuses, or a token that visits more experts than exist.
        """
        made = super().of(**values)
        counts: tuple[object, ...] = made.experts, made.active
        if all(isinstance(x, np.ndarray) for x in counts) and made.active > made.experts:
            allowed = f"at most {float(made.experts):g}, the routed experts"
            raise InputError(cls.__name__, "active", f"{float(made.active):g}", allowed)
        return made


Attention = GroupedQuery | Latent | Sparse | Linear | StateSpace | KimiDelta | Compressed
Feedforward = Dense | Experts


@spec
class Block(Spec):
    """``count`` equal layers; attention or feedforward is None where the layer has none."""

    count: Array = number("layers", kind="count")
    attention: "Attention | None" = part("how tokens mix")
    feedforward: "Feedforward | None" = part("how channels mix")
    vectors: Array = number(
        "parameters of one layer outside matrix products: norms, biases, sinks",
        kind="count",
        default=0.0,
    )


@spec
class Architecture(Spec):
    """A decoder-only language model: its shape and its number formats."""

    width: Array = number("model width", kind="count")
    vocabulary: Array = number("rows of the embedding", kind="count")
    tied: Array = number(
        "1 where the head is the embedding", kind="choice", high=1, choices=("no", "yes")
    )
    blocks: tuple[Block, ...] = part("the layers, equal ones counted")
    vectors: Array = number(
        "parameters outside layers, embedding and head: final norm, learned positions",
        kind="count",
        default=0.0,
    )
    parallel: Array = number(
        "1 where attention and feedforward run side by side",
        kind="choice",
        high=1,
        default=0.0,
        choices=("no", "yes"),
    )
    max_positions: Array = number("longest context", unit="tokens", kind="count", default=UNBOUNDED)
    draft_layers: Array = number(
        "multi-token-prediction layers shipped beside the model", kind="count", default=0.0
    )
    embedding: Format = part("format of the embedding", default_factory=bf16)
    head: Format = part("format of the output head", default_factory=bf16)
    activations: Format = part("format of activations on the wire", default_factory=bf16)
    cache: Format = part("format of the KV cache", default_factory=bf16)
