"""What does a whole decoder compute, built from an ``Architecture`` and nothing else?

Blocks of mixer and feedforward with a norm before each, an embedding and a head. Linear
attention and the feedforwards are here, softmax attention in ``attending``.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from infer_jax import specs

from .attending import Grouped, Latent, Sizes, Sparse, Weights, linear, norm, stored


class Recurrent:
    """Gated delta rule (arXiv 2412.06464) and Mamba-2 (arXiv 2405.21060).

    By steps: decay the state, read it (delta rule), write, read.
    """

    def __init__(self, spec: specs.Linear, width: int, weights):
        self.n, self.width, self.weights = Sizes(spec), width, weights
        self.dtype = stored(spec.state)
        self.keys = self.n.key_heads * self.n.key_width
        self.inner = self.n.value_heads * self.n.value_width
        self.channels = 2 * self.keys + self.inner

    def empty(self, batch: int, dtype, tokens: int = 0):
        """The state and the convolution's last inputs, of one size whatever the tokens."""
        state = (batch, self.n.value_heads, self.n.key_width, self.n.value_width)
        taps = (batch, self.n.conv_width - 1, self.channels)
        return {"state": jnp.zeros(state, self.dtype), "taps": jnp.zeros(taps, dtype)}

    def convolved(self, taps, tokens: int):
        """Queries, keys and values of new tokens, from the inputs before each of them."""
        n, own = self.n, self.weights
        windows = jnp.stack([taps[:, i : i + tokens] for i in range(n.conv_width)], 2)
        kernel = own("kernel", n.conv_width, self.channels)
        mixed = jnp.einsum("bstc,tc->bsc", windows.astype(kernel.dtype), kernel)
        mixed = jax.nn.silu(mixed if n.delta else mixed + own("bias", self.channels))
        query, key, value = jnp.split(mixed, [self.keys, 2 * self.keys], -1)
        query, key = (
            jnp.repeat(m.reshape(*m.shape[:2], n.key_heads, -1), n.value_heads // n.key_heads, 2)
            for m in (query, key)
        )
        return query, key, value.reshape(*value.shape[:2], n.value_heads, -1)

    def __call__(self, x, cache, first: int):
        n, own, tokens = self.n, self.weights, x.shape[1]
        sizes = [self.channels, self.inner, n.head_gates * n.value_heads]
        into = linear(x, own, "into", sum(sizes))
        raw, gate, gates = jnp.split(into, np.cumsum(sizes)[:-1], -1)
        taps = jnp.concatenate([cache["taps"], raw.astype(cache["taps"].dtype)], 1)
        query, key, value = self.convolved(taps, tokens)
        step = jax.nn.softplus(gates[..., : n.value_heads] + own("shift", n.value_heads))
        fade, strength = -jnp.exp(own("rate", n.value_heads)) * step, step
        if n.delta:
            query, key = (m / jnp.linalg.norm(m, axis=-1, keepdims=True) for m in (query, key))
            strength = jax.nn.sigmoid(gates[..., n.value_heads :])
        state = cache["state"].astype(x.dtype)
        read, state = self.by_steps(query, key, value, fade, strength, state)
        if n.delta:
            read = norm(read, own, "norm").reshape(gate.shape) * jax.nn.silu(gate)
        else:
            read = (read + own("skip", n.value_heads)[:, None] * value).reshape(gate.shape)
            read = norm(read * jax.nn.silu(gate), own, "norm")
        left = {"state": state.astype(cache["state"].dtype), "taps": taps[:, tokens:]}
        return linear(read, own, "out", self.width), left

    def by_steps(self, query, key, value, fade, strength, state):
        """One token after the other through the state."""
        reads = []
        for i in range(query.shape[1]):
            state = state * jnp.exp(fade[:, i])[..., None, None]
            write = value[:, i]
            if self.n.delta:
                write = write - jnp.einsum("bhkv,bhk->bhv", state, key[:, i])
            write = strength[:, i][..., None] * write
            state = state + key[:, i][..., None] * write[..., None, :]
            reads.append(jnp.einsum("bhkv,bhk->bhv", state, query[:, i]))
        return jnp.stack(reads, 1), state


def feedforward(spec: specs.Feedforward, x, weights):
    """One or two matrices in, and one out; or experts."""
    if isinstance(spec, specs.Experts):
        return experts(spec, x, weights)
    n = Sizes(spec)
    hidden = bent(linear(x, weights, "into", n.inward * n.width), n.inward)
    return linear(hidden, weights, "out", x.shape[-1])


def experts(spec: specs.Experts, x, weights):
    """Each token through the experts its router picks, and the shared ones.

    The picked experts' matrices are gathered, so that the products are those of exactly the
    routed tokens.
    """
    n, width = Sizes(spec), x.shape[-1]
    tokens = x.reshape(-1, width)
    chances = jax.nn.softmax(linear(tokens, weights, "router", n.experts), -1)
    share, picked = jax.lax.top_k(chances, n.active)
    into = weights("into", n.experts, width, n.inward * n.width)[picked]
    hidden = bent(jnp.einsum("td,tadf->taf", tokens, into), n.inward)
    out = jnp.einsum("taf,tafd->tad", hidden, weights("out", n.experts, n.width, width)[picked])
    out = jnp.sum(share[..., None] * out, 1).reshape(x.shape)
    if spec.shared.width > 0:
        out = out + feedforward(spec.shared, x, partial(weights, "shared"))
    return out


def bent(hidden, inward: int):
    """The activation: gated SiLU of two halves, or squared ReLU of one."""
    if inward == 1:
        return jnp.square(jax.nn.relu(hidden))
    gate, value = jnp.split(hidden, 2, -1)
    return jax.nn.silu(gate) * value


def mixer(spec: specs.Attention, width: int, weights, **choices: bool):
    """What computes an attention spec."""
    match spec:
        case specs.GroupedQuery():
            return Grouped(spec, width, weights, **choices)
        case specs.Latent():
            return Latent(spec, width, weights, **choices)
        case specs.Linear():
            return Recurrent(spec, width, weights)
        case specs.Sparse():
            return Sparse(spec, width, weights, mixer(spec.base, width, weights, **choices))
    raise AssertionError(f"the referee has no {type(spec).__name__}")


class Decoder:
    """An ``Architecture`` that computes with ``weights``."""

    def __init__(
        self,
        arch: specs.Architecture,
        weights: Weights,
        *,
        absorbed: bool = False,
        head_norms: bool = False,
    ):
        self.n, self.weights, self.dtype = Sizes(arch), weights, stored(arch.cache)
        self.blocks = [block for block in arch.blocks for _ in range(int(block.count))]
        self.mixers = [
            block.attention
            and mixer(
                block.attention, self.n.width, partial(weights, f"mixer {i}"),
                absorbed=absorbed, head_norms=head_norms,
            )
            for i, block in enumerate(self.blocks)
        ]  # fmt: skip

    def empty(self, batch: int, tokens: int = 0) -> list:
        """The caches of all layers, of ``tokens`` zeros; None where a layer keeps none."""
        return [mix and mix.empty(batch, self.dtype, tokens) for mix in self.mixers]

    def __call__(self, tokens, caches: Sequence, first: int = 0):
        """Logits of every token, and the caches after them; ``first`` tokens went before."""
        embedding = self.weights("embedding", self.n.vocabulary, self.n.width)
        x, left = embedding[tokens], []
        for i, (block, mix, cache) in enumerate(zip(self.blocks, self.mixers, caches, strict=True)):
            own = partial(self.weights, f"layer {i}")
            if mix is not None:
                mixed, cache = mix(norm(x, own, "mixer norm"), cache, first)
                x = x + mixed
            if block.feedforward is not None:
                normed = norm(x, own, "feedforward norm")
                x = x + feedforward(block.feedforward, normed, own)
            left.append(cache)
        x = norm(x, self.weights, "norm")
        head = embedding.T if self.n.tied else self.weights("head", self.n.width, self.n.vocabulary)
        return x @ head, left
