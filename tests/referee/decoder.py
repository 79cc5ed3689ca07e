"""What does a whole decoder compute, built from an ``Architecture`` and nothing else?

Blocks of mixer and feedforward with a norm before each, an embedding and a head. Linear
attention and the feedforwards are here, softmax attention in ``attending``.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from infer_jax import specs

from .attending import Grouped, Latent, Sparse, linear, norm, stored, whole


class Recurrent(nnx.Module):
    """Gated delta rule (arXiv 2412.06464) and Mamba-2 (arXiv 2405.21060).

    By steps: decay the state, read it (delta rule), write, read.
    """

    def __init__(self, spec: specs.Linear, width, *, dtype, rngs):
        self.groups, self.rows = whole(spec.key_heads), whole(spec.key_width)
        self.heads, self.columns = whole(spec.value_heads), whole(spec.value_width)
        self.taps, self.delta = whole(spec.conv_width), whole(spec.delta)
        self.dtype = stored(spec.state)
        self.keys, self.inner = self.groups * self.rows, self.heads * self.columns
        self.channels = 2 * self.keys + self.inner
        gates, new = whole(spec.head_gates) * self.heads, {"dtype": dtype, "rngs": rngs}
        self.into = linear(width, self.channels + self.inner + gates, **new)
        self.out = linear(self.inner, width, **new)
        random = nnx.initializers.normal(0.5)

        def vector(*shape):
            return nnx.Param(random(rngs.params(), shape, dtype))

        self.kernel, self.rate, self.shift = (
            vector(self.taps, self.channels),
            vector(self.heads),
            vector(self.heads),
        )
        self.norm = norm(self.columns if self.delta else self.inner, **new)
        if not self.delta:
            self.skip, self.bias = vector(self.heads), vector(self.channels)

    def empty(self, batch: int, dtype, tokens: int = 0):
        """The state and the convolution's last inputs, of one size whatever the tokens."""
        state = (batch, self.heads, self.rows, self.columns)
        return {
            "state": jnp.zeros(state, self.dtype),
            "taps": jnp.zeros((batch, self.taps - 1, self.channels), dtype),
        }

    def __call__(self, x, cache, first: int):
        batch, tokens, _ = x.shape
        sizes = np.cumsum([self.channels, self.inner])
        raw, gate, gates = jnp.split(self.into(x), sizes, -1)
        taps = jnp.concatenate([cache["taps"], raw.astype(cache["taps"].dtype)], 1)
        windows = jnp.stack([taps[:, i : i + tokens] for i in range(self.taps)], 2)
        mixed = jnp.einsum("bstc,tc->bsc", windows.astype(x.dtype), self.kernel[...])
        mixed = jax.nn.silu(mixed if self.delta else mixed + self.bias[...])
        query, key, value = jnp.split(mixed, [self.keys, 2 * self.keys], -1)
        query, key = (
            jnp.repeat(
                m.reshape(batch, tokens, self.groups, self.rows), self.heads // self.groups, 2
            )
            for m in (query, key)
        )
        value = value.reshape(batch, tokens, self.heads, self.columns)
        step = jax.nn.softplus(gates[..., : self.heads] + self.shift[...])
        fade = -jnp.exp(self.rate[...]) * step
        if self.delta:
            query, key = (m / jnp.linalg.norm(m, axis=-1, keepdims=True) for m in (query, key))
            strength = jax.nn.sigmoid(gates[..., self.heads :])
        else:
            strength = step
        state = cache["state"].astype(x.dtype)
        read, state = self.by_steps(query, key, value, fade, strength, state)
        if self.delta:
            read = self.norm(read).reshape(batch, tokens, self.inner) * jax.nn.silu(gate)
        else:
            read = (read + self.skip[...][:, None] * value).reshape(batch, tokens, self.inner)
            read = self.norm(read * jax.nn.silu(gate))
        left = {"state": state.astype(cache["state"].dtype), "taps": taps[:, tokens:]}
        return self.out(read), left

    def by_steps(self, query, key, value, fade, strength, state):
        """One token after the other through the state."""
        reads = []
        for i in range(query.shape[1]):
            state = state * jnp.exp(fade[:, i])[..., None, None]
            write = value[:, i]
            if self.delta:
                write = write - jnp.einsum("bhkv,bhk->bhv", state, key[:, i])
            write = strength[:, i][..., None] * write
            state = state + key[:, i][..., None] * write[..., None, :]
            reads.append(jnp.einsum("bhkv,bhk->bhv", state, query[:, i]))
        return jnp.stack(reads, 1), state


class Dense(nnx.Module):
    """A feedforward of one or two matrices in, and one out."""

    def __init__(self, spec: specs.Dense, width, *, dtype, rngs):
        self.inward, hidden = whole(spec.inward), whole(spec.width)
        self.into = linear(width, self.inward * hidden, dtype=dtype, rngs=rngs)
        self.out = linear(hidden, width, dtype=dtype, rngs=rngs)

    def __call__(self, x):
        return self.out(bent(self.into(x), self.inward))


class Experts(nnx.Module):
    """Each token through the experts its router picks, and the shared ones.

    The picked experts' matrices are gathered, so that the products are those of exactly the
    routed tokens.
    """

    def __init__(self, spec: specs.Experts, width, *, dtype, rngs):
        count, hidden = whole(spec.experts), whole(spec.width)
        self.active, self.inward = whole(spec.active), whole(spec.inward)
        self.router = linear(width, count, dtype=dtype, rngs=rngs)
        make = nnx.initializers.lecun_normal(batch_axis=0)
        into, out = (count, width, self.inward * hidden), (count, hidden, width)
        self.into = nnx.Param(make(rngs.params(), into, dtype))
        self.out = nnx.Param(make(rngs.params(), out, dtype))
        self.helped = whole(spec.shared.width) > 0
        if self.helped:
            self.shared = Dense(spec.shared, width, dtype=dtype, rngs=rngs)

    def __call__(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        share, picked = jax.lax.top_k(jax.nn.softmax(self.router(tokens), -1), self.active)
        hidden = jnp.einsum("td,tadf->taf", tokens, self.into[...][picked])
        out = jnp.einsum("taf,tafd->tad", bent(hidden, self.inward), self.out[...][picked])
        out = jnp.sum(share[..., None] * out, 1).reshape(x.shape)
        return out + self.shared(x) if self.helped else out


def bent(hidden, inward: int):
    """The activation: gated SiLU of two halves, or squared ReLU of one."""
    if inward == 1:
        return jnp.square(jax.nn.relu(hidden))
    gate, value = jnp.split(hidden, 2, -1)
    return jax.nn.silu(gate) * value


def mixer(spec: specs.Attention, width, *, absorbed, head_norms, dtype, rngs):
    """The module that computes an attention spec."""
    new = {"dtype": dtype, "rngs": rngs}
    match spec:
        case specs.GroupedQuery():
            return Grouped(spec, width, head_norms=head_norms, **new)
        case specs.Latent():
            return Latent(spec, width, absorbed=absorbed, **new)
        case specs.Linear():
            return Recurrent(spec, width, **new)
        case specs.Sparse():
            base = mixer(spec.base, width, absorbed=absorbed, head_norms=head_norms, **new)
            return Sparse(spec, width, base, **new)
    raise AssertionError(f"the referee has no {type(spec).__name__}")


def feedforward(spec: specs.Feedforward, width, *, dtype, rngs):
    """The module that computes a feedforward spec."""
    if isinstance(spec, specs.Experts):
        return Experts(spec, width, dtype=dtype, rngs=rngs)
    return Dense(spec, width, dtype=dtype, rngs=rngs)


class Layer(nnx.Module):
    """A mixer and a feedforward, each behind a norm and beside a residual; one may be absent."""

    def __init__(self, block: specs.Block, width, *, dtype, rngs, **choices):
        new = {"dtype": dtype, "rngs": rngs}
        self.mixes, self.feeds = block.attention is not None, block.feedforward is not None
        if block.attention is not None:
            self.mixer = mixer(block.attention, width, **choices, **new)
            self.mixer_norm = norm(width, **new)
        if block.feedforward is not None:
            self.feedforward = feedforward(block.feedforward, width, **new)
            self.feedforward_norm = norm(width, **new)

    def __call__(self, x, cache, first):
        if self.mixes:
            mixed, cache = self.mixer(self.mixer_norm(x), cache, first)
            x = x + mixed
        if self.feeds:
            x = x + self.feedforward(self.feedforward_norm(x))
        return x, cache


class Decoder(nnx.Module):
    """An ``Architecture`` that computes."""

    def __init__(
        self,
        arch: specs.Architecture,
        *,
        absorbed: bool = False,
        head_norms: bool = False,
        dtype=jnp.float32,
    ):
        width, rows, rngs = whole(arch.width), whole(arch.vocabulary), nnx.Rngs(0)
        new = {"dtype": dtype, "rngs": rngs}
        choices = {"absorbed": absorbed, "head_norms": head_norms}
        self.dtype = stored(arch.cache)
        self.embedding = nnx.Embed(rows, width, param_dtype=dtype, **new)
        self.layers = nnx.List(
            Layer(block, width, **choices, **new)
            for block in arch.blocks
            for _ in range(whole(block.count))
        )
        self.norm = norm(width, **new)
        self.tied = whole(arch.tied) == 1
        if not self.tied:
            self.head = linear(width, rows, **new)

    def empty(self, batch: int, tokens: int = 0) -> list:
        """The caches of all layers, of ``tokens`` zeros; None where a layer keeps none."""
        return [
            layer.mixer.empty(batch, self.dtype, tokens) if layer.mixes else None
            for layer in self.layers
        ]

    def __call__(self, tokens, caches: Sequence, first: int = 0):
        """Logits of every token, and the caches after them; ``first`` tokens went before."""
        x, left = self.embedding(tokens), []
        for layer, cache in zip(self.layers, caches, strict=True):
            x, cache = layer(x, cache, first)
            left.append(cache)
        x = self.norm(x)
        return self.embedding.attend(x) if self.tied else self.head(x), left


def drawn(arch: specs.Architecture, **choices) -> Decoder:
    """A decoder whose parameters are drawn with NumPy: a matrix's by its inputs, others near 1."""
    structure, shapes = nnx.split(nnx.eval_shape(lambda: Decoder(arch, **choices)))
    random = np.random.default_rng(0)

    def draw(shape):
        scale = shape.shape[-2] ** -0.5 if len(shape.shape) > 1 else 0.2
        offset = 0.0 if len(shape.shape) > 1 else 1.0
        return jnp.asarray(offset + scale * random.normal(size=shape.shape), shape.dtype)

    return nnx.merge(structure, jax.tree.map(draw, shapes))
