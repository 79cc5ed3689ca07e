"""How does each kind of softmax attention compute, with a cache and without?

Each query is multiplied with exactly the keys it sees, one query position at a time, so that what
XLA counts is what a causal law counts. Position is added to queries and keys by rotation.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from infer_jax import specs


class Weights:
    """The parameters of a decoder by name, each made when it is first asked for.

    ``drawn`` with NumPy, a matrix's by its inputs and others near 1; else zeros, of which shapes
    alone are of use.
    """

    def __init__(self, dtype: Any = np.float32, *, drawn: bool = False):
        self.dtype, self.drawn = dtype, drawn
        self.held: dict[tuple[str, ...], np.ndarray] = {}

    def __call__(self, *name_and_shape: str | int):
        name = tuple(x for x in name_and_shape if isinstance(x, str))
        shape = tuple(x for x in name_and_shape if isinstance(x, int))
        if name not in self.held:
            self.held[name] = self._made(name, shape)
        return jnp.asarray(self.held[name])

    def _made(self, name: tuple[str, ...], shape: tuple[int, ...]) -> np.ndarray:
        if not self.drawn:
            return np.zeros(shape, self.dtype)
        random = np.random.default_rng([*" ".join(name).encode()]).normal(size=shape)
        near = random * shape[-2] ** -0.5 if len(shape) > 1 else 1.0 + 0.2 * random
        return near.astype(self.dtype)


class Sizes:
    """The counts of a spec as Python ints."""

    def __init__(self, spec: Any):
        self._spec = spec

    def __getattr__(self, name: str) -> int:
        return int(getattr(self._spec, name))


def linear(x, weights, name: str, outputs: int):
    """A product without bias."""
    return x @ weights(name, x.shape[-1], outputs)


def norm(x, weights, name: str):
    """Root-mean-square norm: as many parameters as ``x`` is wide."""
    mean = jnp.mean(jnp.square(x), -1, keepdims=True)
    return x * jax.lax.rsqrt(mean + 1e-6) * weights(name, x.shape[-1])


def stored(fmt: specs.Format):
    """The array type of a format's stored bytes."""
    return {1: jnp.float8_e4m3fn, 2: jnp.bfloat16, 4: jnp.float32, 8: jnp.float64}[int(fmt.bytes)]


def rotated(x, first: int):
    """Rotary position over the last axis of (batch, tokens, heads, width)."""
    half = x.shape[-1] // 2
    places = first + np.arange(x.shape[1])
    angle = places[:, None] * 100.0 ** (-np.arange(half) / half)
    cos, sin = (jnp.asarray(f(angle)[:, None, :], x.dtype) for f in (np.cos, np.sin))
    left, right = x[..., :half], x[..., half:]
    return jnp.concatenate([left * cos - right * sin, left * sin + right * cos], -1)


class Mixer:
    """What the softmax mixers share: the cache, and one query after the other."""

    def __init__(self, spec: Any, width: int, weights, *, absorbed: bool, head_norms: bool):
        self.n, self.width, self.weights = Sizes(spec), width, weights
        self.absorbed, self.head_norms = absorbed, head_norms
        self.window = int(getattr(spec, "window", specs.UNBOUNDED))

    def empty(self, batch: int, dtype, tokens: int = 0) -> dict[str, Any]:
        """A cache of ``tokens`` zeros."""
        raise NotImplementedError

    def project(self, x, first: int) -> tuple[dict, dict]:
        """Queries, and the memory that new tokens leave."""
        raise NotImplementedError

    def attend(self, queries, memory):
        raise NotImplementedError

    def combine(self, queries, mixed):
        return linear(mixed, self.weights, "out", self.width)

    def prepare(self, memory):
        return memory

    def __call__(self, x, cache, first: int):
        """Mixed tokens and the cache that is left: the last ``window`` tokens."""
        queries, fresh = self.project(x, first)
        memory = jax.tree.map(
            lambda old, new: jnp.concatenate([old, new.astype(old.dtype)], 1), cache, fresh
        )
        left = jax.tree.map(lambda m: m[:, max(0, m.shape[1] - self.window) :], memory)
        read = self.prepare(jax.tree.map(lambda m: m.astype(x.dtype), memory))
        return self.combine(queries, self.by_position(queries, read, x.shape[1])), left

    def by_position(self, queries, memory, tokens: int):
        """One query at a time over the keys it sees."""
        held = jax.tree.leaves(memory)[0].shape[1] - tokens
        outputs = []
        for i in range(tokens):
            end = held + i + 1
            start = max(0, end - self.window)
            seen = jax.tree.map(lambda m, a=start, b=end: m[:, a:b], memory)
            query = jax.tree.map(lambda q, i=i: q[:, i : i + 1], queries)
            outputs.append(self.attend(query, seen))
        return jnp.concatenate(outputs, 1)


class Grouped(Mixer):
    """Grouped-query attention, with a window, a query gate and head norms where asked."""

    def empty(self, batch, dtype, tokens=0):
        shape = (batch, min(tokens, self.window), self.n.kv_heads)
        widths = {"keys": self.n.head_width, "values": self.n.value_width}
        return {name: jnp.zeros((*shape, width), dtype) for name, width in widths.items()}

    def project(self, x, first):
        """Queries (and gate) and the new keys and values."""
        n, own = self.n, self.weights
        sizes = [n.query_heads * n.head_width] * (1 + n.query_gate)
        sizes += [n.kv_heads * n.head_width, n.kv_heads * n.value_width]
        *asked, key, value = jnp.split(
            linear(x, own, "into", sum(sizes)), np.cumsum(sizes)[:-1], -1
        )
        query, key = (y.reshape(*x.shape[:2], -1, n.head_width) for y in (asked[0], key))
        if self.head_norms:
            query, key = norm(query, own, "query norm"), norm(key, own, "key norm")
        queries = {"query": rotated(query, first), "source": x}
        if n.query_gate:
            queries["gate"] = asked[1]
        value = value.reshape(*x.shape[:2], -1, n.value_width)
        return queries, {"keys": rotated(key, first), "values": value}

    def attend(self, queries, memory):
        query, groups = queries["query"], self.n.kv_heads
        grouped = query.reshape(*query.shape[:2], groups, -1, self.n.head_width)
        scores = jnp.einsum("bsgrd,bngd->bgrsn", grouped, memory["keys"])
        shares = jax.nn.softmax(scores / self.n.head_width**0.5, -1)
        mixed = jnp.einsum("bgrsn,bnge->bsgre", shares, memory["values"])
        return mixed.reshape(*query.shape[:2], -1)

    def combine(self, queries, mixed):
        mixed = mixed * jax.nn.sigmoid(queries["gate"]) if self.n.query_gate else mixed
        return super().combine(queries, mixed)


class Latent(Mixer):
    """Multi-head latent attention: expanded to heads, or absorbed into the latent space."""

    def empty(self, batch, dtype, tokens=0):
        widths = {"latent": self.n.kv_rank, "rope": self.n.rope_width}
        return {name: jnp.zeros((batch, tokens, width), dtype) for name, width in widths.items()}

    def project(self, x, first):
        """Queries and the new latents with their shared rotary keys."""
        n, own = self.n, self.weights
        sizes = [n.query_rank, n.kv_rank, n.rope_width]
        down = linear(x, own, "down", sum(sizes))
        source, latent, rope = jnp.split(down, np.cumsum(sizes)[:-1], -1)
        source = norm(source, own, "query norm") if n.query_rank else x
        query = linear(source, own, "query", n.query_heads * (n.nope_width + n.rope_width))
        query = query.reshape(*x.shape[:2], n.query_heads, -1)
        nope, turned = jnp.split(query, [n.nope_width], -1)
        rope = rotated(rope[:, :, None], first)[:, :, 0]
        queries = {"nope": nope, "rope": rotated(turned, first), "source": source}
        return queries, {"latent": norm(latent, own, "latent norm"), "rope": rope}

    def up(self):
        """From the latent space to keys and values of every head."""
        n = self.n
        own = self.weights("up", n.kv_rank, n.query_heads * (n.nope_width + n.value_width))
        return jnp.split(own.reshape(n.kv_rank, n.query_heads, -1), [n.nope_width], -1)

    def prepare(self, memory):
        """Latents as they are, or expanded to keys and values of every head."""
        if self.absorbed:
            return memory
        keys, values = (jnp.einsum("bnr,rhd->bnhd", memory["latent"], x) for x in self.up())
        return {"keys": keys, "values": values, "rope": memory["rope"]}

    def attend(self, queries, memory):
        """Scores and weighted values, in heads or in the latent space."""
        nope, (keys, values) = queries["nope"], self.up()
        scores = jnp.einsum("bshd,bnd->bhsn", queries["rope"], memory["rope"])
        if self.absorbed:
            nope = jnp.einsum("bshd,rhd->bshr", nope, keys)
            scores += jnp.einsum("bshr,bnr->bhsn", nope, memory["latent"])
        else:
            scores += jnp.einsum("bshd,bnhd->bhsn", nope, memory["keys"])
        shares = jax.nn.softmax(scores / (self.n.nope_width + self.n.rope_width) ** 0.5, -1)
        if self.absorbed:
            mixed = jnp.einsum("bhsn,bnr->bshr", shares, memory["latent"])
            mixed = jnp.einsum("bshr,rhe->bshe", mixed, values)
        else:
            mixed = jnp.einsum("bhsn,bnhe->bshe", shares, memory["values"])
        return mixed.reshape(*nope.shape[:2], -1)


class Sparse(Mixer):
    """The top k of an indexer's scores over the context, then the base over those tokens.

    score of a key = sum over index heads of weight * relu(query . key); the weighted sum is
    elementwise work beside the products, as in the released kernels.
    """

    def __init__(self, spec: specs.Sparse, width: int, weights, base: Mixer):
        super().__init__(spec, width, weights, absorbed=base.absorbed, head_norms=False)
        self.base, self.dtype = base, stored(spec.index_cache)

    def empty(self, batch, dtype, tokens=0):
        """The base's, and index keys."""
        keys = jnp.zeros((batch, tokens, self.n.index_width), self.dtype)
        return {"base": self.base.empty(batch, dtype, tokens), "index": keys}

    def project(self, x, first):
        """The base's queries and memory with the indexer's."""
        n, own = self.n, self.weights
        queries, fresh = self.base.project(x, first)
        into = linear(x, own, "index", n.index_width + n.index_heads)
        key, weight = jnp.split(into, [n.index_width], -1)
        key = (key - jnp.mean(key, -1, keepdims=True)) / jnp.std(key, -1, keepdims=True)
        key = key * own("index norm", n.index_width) + own("index bias", n.index_width)
        query = linear(queries["source"], own, "index query", n.index_heads * n.index_width)
        query = rotated(query.reshape(*x.shape[:2], n.index_heads, -1), first)
        key = rotated(key[:, :, None], first)[:, :, 0]
        return {"base": queries, "query": query, "weight": weight}, {"base": fresh, "index": key}

    def prepare(self, memory):
        """The base's memory prepared, index keys as they are."""
        return {"base": self.base.prepare(memory["base"]), "index": memory["index"]}

    def attend(self, queries, memory):
        """The base over the best tokens, which are gathered."""
        scores = jnp.einsum("bshd,bnd->bshn", queries["query"], memory["index"])
        scores = jnp.sum(jax.nn.relu(scores) * queries["weight"][..., None], 2)
        best = jax.lax.top_k(scores[:, 0], min(self.n.top_k, scores.shape[-1]))[1]
        chosen = jax.tree.map(
            lambda m: jnp.take_along_axis(m, best.reshape(*best.shape, *[1] * (m.ndim - 2)), 1),
            memory["base"],
        )
        return self.base.attend(queries["base"], chosen)

    def combine(self, queries, mixed):
        return self.base.combine(queries["base"], mixed)
