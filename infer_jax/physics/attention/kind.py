"""Base class of the kinds of attention: bytes kept and read, FLOP, and tensor parallelism.

A kind of attention is one class: its file says all that is particular about it, and nothing
outside this package asks which kind a layer is. Bytes and FLOP follow from the kind's numbers
(``row.Row``) alike for all kinds. All figures are of one layer; of one sequence where a context
enters. Contexts are in tokens.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import jax.numpy as jnp
from jax import Array

from infer_jax.errors import InputError
from infer_jax.physics import matmul
from infer_jax.physics.attention.row import Row
from infer_jax.physics.matmul import Matrix
from infer_jax.specs import Architecture, Attention, Format

A = TypeVar("A", bound=Attention, covariant=True)
T = TypeVar("T", covariant=True)


def stored() -> Format:
    """A format for figures that do not depend on stored bytes, made anew for every call.

    JAX caches the array it makes of a NumPy constant: a module-level one that was first used in
    32 bits would stay 32 bits wide in a later 64-bit call.
    """
    return Format.of(bytes=2.0, bits=16.0)


class Core(NamedTuple):
    """The kernels that an attention core runs in, by name.

    ``kernel``: what a table of kernels calls it; ``curve``: its curves of efficiency; ``table``:
    the folder of its measured tables.
    """

    kernel: str
    curve: str
    table: str


GROUPED = Core("attention", "gqa", "mha")
LATENT = Core("attention", "mla", "mla")
DELTA = Core("linear attention", "linear", "gdn")
SCAN = Core("linear attention", "linear", "ssm")


class Timing(Protocol[T]):
    """The laws of the time of an attention core: over a cache, and of a state."""

    def attending(self, layer: "Kind[Attention]", /) -> T:
        """Queries attend to the keys of a cache."""
        ...

    def recurring(self, layer: "Kind[Attention]", /) -> T:
        """Tokens update a state in turn."""
        ...


class Cached(NamedTuple):
    """Window and state of a layer's cache; layers that agree in them share one kind of cache.

    ``window``: tokens kept at most; ``near``: last tokens kept beside a compressed context;
    ``state``: bytes of recurrent state of one sequence.
    """

    window: Array
    near: Array
    state: Array


class Operands(NamedTuple):
    """Heads, the width of all queries and the width of a token's keys, in the attention core."""

    heads: Array
    queries: Array
    keys: Array


class Dealt(NamedTuple):
    """Elements of a layer's projections by how tensor ranks deal them.

    ``split``: over all ranks; ``grouped``: over the ranks up to one KV head each, and copied
    beyond; ``copied``: whole on every rank.
    """

    split: Array
    grouped: Array
    copied: Array


class Cut(NamedTuple):
    """A matrix that tensor ranks cut: numbers on that side, and a block of its format there."""

    width: Array
    block: Array | float


@dataclass(frozen=True)
class Kind(Generic[A]):
    """One layer of attention in numbers; a kind overrides what is particular to it."""

    attention: A
    core: ClassVar[Core]  # the kernels that its core runs in

    # what it is made of

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the kernels of its projections, in the order of ``matrices``."""
        raise NotImplementedError

    def core_time(self, by: Timing[T]) -> T:
        """Time of its attention core by a law of ``by``: over a cache, unless it has a state."""
        return by.attending(self)

    def table_sizes(self, stage: str) -> tuple[Array, ...]:
        """The sizes in the file names of its core's tables of measured kernels.

        ``stage``: ``decode`` or ``prefill``.

        Raises:
            InputError: there are no such files.
        """
        named = type(self.attention).__name__
        raise InputError("kernel tables", "attention", named, "one whose core has measured tables")

    @property
    def design_fields(self) -> dict[str, tuple[str, ...]]:
        """Fields of ``softmax`` that co-design changes, by the name of the design variable."""
        return {}

    @property
    def norm_fields(self) -> tuple[str, ...]:
        """Fields of ``softmax`` whose value is the length of a norm's vector of weights."""
        return ()

    # what it holds

    def matrices(self, width: Array) -> tuple[Matrix, ...]:
        """The projections of a layer, inputs fused where one kernel reads them once."""
        raise NotImplementedError

    @property
    def weights(self) -> Format:
        """The format that the projections are stored in."""
        return self.softmax.weights

    @property
    def softmax(self) -> Any:
        """The spec of the softmax attention; of sparse attention, of what its indexer feeds."""
        return self.attention

    def with_weights(self, weights: Format) -> A:
        """The same layer with its projections stored in another format."""
        return self.attention.replace(weights=weights)

    def tensors(self, width: Array) -> list[Array]:
        """Elements of each weight tensor, where inputs are not fused."""
        return [m.elements for m in self.matrices(width)]

    @property
    def convolution(self) -> Array:
        """Weights of the short convolution over queries, keys and values; 0 where none is."""
        return jnp.asarray(0.0)

    @property
    def output_width(self) -> Array:
        """Numbers per token that the input projections hand to the attention core."""
        raise NotImplementedError

    def numbers(self, cache: Format, activations: Format) -> Row:
        """The layer as numbers, its keys and values in one format, taps of a state in another."""
        raise NotImplementedError

    def cached(self, arch: Architecture) -> Cached:
        """Window and state of the layer's cache, by which servers group layers."""
        row = self.numbers(arch.cache, arch.activations)
        return Cached(row.window, row.near, row.state / 2.0)

    def held_bytes(self, cache: Format, context: Array) -> Array:
        """Bytes that one sequence of ``context`` tokens keeps in a layer's cache."""
        return self.numbers(cache, cache).held_bytes(context)

    def read_bytes(self, cache: Format, context: Array) -> Array:
        """Bytes of cache that one pass of one sequence moves in a layer."""
        return self.numbers(cache, cache).read_bytes(context)

    # what it computes

    def core_flops(self, new_tokens: Array, cached_tokens: Array) -> Array:
        """FLOP of the attention core for one sequence: scores and weighted values, causal."""
        return self.numbers(stored(), stored()).core_flops(new_tokens, cached_tokens)

    def absorbed_flops(self, new_tokens: Array, cached_tokens: Array) -> Array:
        """FLOP of the core as the economics paper counts it: cached tokens only, MLA absorbed.

        Source: Erdil 2025 (arXiv 2506.04645), Sections 3.1 and 3.6, attention FLOP.
        """
        return self.numbers(stored(), stored()).cached_flops(new_tokens, cached_tokens)

    @property
    def absorbed(self) -> Array:
        """FLOP of one query-key pair, all heads, in decode; 0 for a recurrent state."""
        return self.numbers(stored(), stored()).absorbed

    @property
    def expanded(self) -> Array:
        """FLOP of one query-key pair, all heads, in prefill."""
        return self.numbers(stored(), stored()).expanded

    @property
    def carried(self) -> Array:
        """Numbers of queries and outputs of a token that decoding moves beside its cache.

        0 where they are as narrow as the cached heads, so that their bytes are negligible.
        """
        return jnp.asarray(0.0)

    @property
    def reach(self) -> Array:
        """Tokens of context that a query attends to at most."""
        row = self.numbers(stored(), stored())
        return jnp.minimum(row.window, row.top_k)

    # how it is dealt out over tensor ranks

    @property
    def heads(self) -> tuple[Array, Array | float]:
        """Query heads that tensor ranks share, and KV heads that they share or copy."""
        raise NotImplementedError

    @property
    def cuts(self) -> tuple["Cut", ...]:
        """The projections that tensor ranks cut."""
        raise NotImplementedError

    def cache_share(self, tp: Array) -> Array:
        """The part of a layer's keys and values that each of ``tp`` ranks keeps."""
        return self.numbers(stored(), stored()).share(tp)

    def of_rank(self, tp: Array) -> A:
        """The part of the layer on one of ``tp`` ranks: its heads, at least one KV head."""
        raise NotImplementedError

    def dealt(self, width: Array) -> Dealt:
        """Elements of a layer's projections as tensor ranks deal them: all split by heads."""
        zero = jnp.asarray(0.0)
        return Dealt(matmul.elements(self.matrices(width)), zero, zero)

    # as published models count it

    def economics_weights(self, width: Array) -> tuple[Matrix, ...]:
        """The projections as the economics paper counts parameters.

        Source: the reference implementation of Erdil 2025 (arXiv 2506.04645).
        """
        return self.matrices(width)

    def economics_products(self, width: Array) -> tuple[Matrix, ...]:
        """The projections as the economics paper streams them through memory.

        Source: the reference implementation of Erdil 2025 (arXiv 2506.04645).
        """
        return self.matrices(width)

    @property
    def operands(self) -> Operands:
        """What FlexGen's buffers hold of the attention core (arXiv 2303.06865, Appendix A.3)."""
        raise NotImplementedError

    @property
    def grouped_width(self) -> Array:
        """Numbers in a row of the cache, along which compression forms groups."""
        raise NotImplementedError
