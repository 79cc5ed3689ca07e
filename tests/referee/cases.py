"""Which architectures does the referee look at? One per kind of attention and feedforward.

Each is given with its ``vectors`` added up by hand: the norms of the decoder, and what the
kind adds.
"""

from infer_jax.specs import (
    Architecture,
    Attention,
    Block,
    Dense,
    Experts,
    Feedforward,
    Format,
    GroupedQuery,
    Latent,
    Linear,
    Sparse,
)

KINDS = ("grouped", "window", "latent", "direct", "sparse", "sparse grouped", "delta", "mamba")
HEAD_NORMS = ("window",)


def format_of(size: float) -> Format:
    """A format of ``size`` stored bytes."""
    return Format.of(bytes=size, bits=16)


def attention(kind: str, scale: int, window: int, state: float = 4.0, index: float = 1.0):
    """An attention of a kind and the parameters it has outside matrices, its norms included.

    ``scale`` multiplies widths; heads stay few. ``window`` is also the top k of sparse kinds.
    """
    grouped = GroupedQuery.of(
        query_heads=4, kv_heads=2, head_width=4 * scale, value_width=4 * scale
    )
    latent = Latent.of(
        query_heads=4, nope_width=4 * scale, rope_width=2 * scale, value_width=3 * scale,
        kv_rank=8 * scale, query_rank=6 * scale,
    )  # fmt: skip
    sparse = {
        "top_k": window,
        "index_heads": 2,
        "index_width": 4 * scale,
        "index_cache": format_of(index),
    }
    latents = (8 + 6) * scale
    match kind:
        case "grouped":
            return grouped, 0
        case "window":
            gated = grouped.with_(window=window, query_gate=1.0)
            return gated, 2 * 4 * scale  # norms of queries and keys
        case "latent":
            return latent, latents
        case "direct":
            return latent.with_(query_rank=0.0), 8 * scale
        case "sparse":
            built = Sparse.of(base=latent, index_query_input=6 * scale, **sparse)
            return built, latents + 2 * 4 * scale  # layer norm of the index key
        case "sparse grouped":
            built = Sparse.of(base=grouped, index_query_input=16 * scale, **sparse)
            return built, 2 * 4 * scale
    shape = {
        "key_heads": 2, "key_width": 4 * scale, "value_heads": 4, "value_width": 3 * scale,
        "state": format_of(state),
    }  # fmt: skip
    if kind == "delta":
        built = Linear.of(head_gates=2, delta=1.0, **shape)
        return built, 2 * 4 + 3 * scale  # decay, step bias; norm of a head
    built = Linear.of(head_gates=1, delta=0.0, **shape)
    channels = 2 * 2 * 4 * scale + 4 * 3 * scale
    return built, 3 * 4 + 4 * 3 * scale + channels  # decay, step bias, skip; norm; conv bias


def feedforward(kind: str, scale: int) -> Feedforward:
    """A gated or plain dense feedforward, or experts with or without a shared one."""
    match kind:
        case "gated":
            return Dense.of(width=40 * scale, inward=2)
        case "plain":
            return Dense.of(width=48 * scale, inward=1)
        case "experts":
            return Experts.of(experts=8, active=2, width=12 * scale, inward=1)
        case _:
            shared = Dense.of(width=20 * scale, inward=2)
            return Experts.of(experts=6, active=3, width=8 * scale, inward=2, shared=shared)


def decoder(
    kind: str,
    *,
    scale: int,
    window: int = 5,
    feedforwards: tuple[str, ...] = ("gated", "shared"),
    cache: float = 2.0,
    state: float = 4.0,
    index: float = 1.0,
    tied: bool = False,
    layers: int = 1,
    vocabulary: int = 50,
) -> Architecture:
    """A model of width 16 * scale with one block of ``layers`` layers per feedforward."""
    width = 16 * scale
    mixer, vectors = attention(kind, scale, window, state, index)
    blocks = [
        block(mixer, feedforward(name, scale), vectors + 2 * width, layers) for name in feedforwards
    ]
    return assembled(blocks, width, vocabulary=vocabulary, cache=cache, tied=tied)


def hybrid(scale: int, cache: float = 2.0, state: float = 4.0, index: float = 1.0) -> Architecture:
    """Layers of every kind in one model, and layers that lack a mixer or a feedforward."""
    width, blocks = 16 * scale, []
    for kind in KINDS:
        if kind != "window":  # its head norms would be asked of all grouped layers
            mixer, vectors = attention(kind, scale, 5, state, index)
            blocks.append(block(mixer, None, vectors + width, 1))
    blocks.append(block(None, feedforward("experts", scale), width, 2))
    return assembled(blocks, width, cache=cache, tied=True)


def block(mixer: Attention | None, feed: Feedforward | None, vectors: float, count: int) -> Block:
    """A block of ``count`` layers."""
    return Block.of(count=count, attention=mixer, feedforward=feed, vectors=vectors)


def assembled(
    blocks: list[Block],
    width: float,
    *,
    vocabulary: int = 50,
    cache: float = 2.0,
    tied: bool = False,
) -> Architecture:
    """A model of blocks, with its final norm."""
    return Architecture.of(
        width=width, vocabulary=vocabulary, tied=float(tied), blocks=tuple(blocks), vectors=width,
        cache=format_of(cache),
    )  # fmt: skip
