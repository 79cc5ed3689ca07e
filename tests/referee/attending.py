"""How does each kind of softmax attention compute, with a cache and without?

Each query is multiplied with exactly the keys it sees, one query position at a time, so that what
XLA counts is what a causal law counts. Position is added to queries and keys by rotation.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from infer_jax import specs


def whole(value) -> int:
    """A count of a spec as a Python int."""
    return int(value)


def linear(inputs: int, outputs: int, *, dtype, rngs) -> nnx.Linear:
    """A product without bias."""
    return nnx.Linear(inputs, outputs, use_bias=False, dtype=dtype, param_dtype=dtype, rngs=rngs)


def norm(width: int, *, dtype, rngs) -> nnx.RMSNorm:
    """Root-mean-square norm: ``width`` parameters."""
    return nnx.RMSNorm(width, dtype=dtype, param_dtype=dtype, rngs=rngs)


def stored(fmt: specs.Format):
    """The array type of a format's stored bytes."""
    types = {1: jnp.float8_e4m3fn, 2: jnp.bfloat16, 4: jnp.float32, 8: jnp.float64}
    return types[whole(fmt.bytes)]


def rotated(x, first: int):
    """Rotary position over the last axis of (batch, tokens, heads, width)."""
    half = x.shape[-1] // 2
    places = first + np.arange(x.shape[1])
    angle = places[:, None] * 100.0 ** (-np.arange(half) / half)
    cos, sin = (jnp.asarray(f(angle)[:, None, :], x.dtype) for f in (np.cos, np.sin))
    left, right = x[..., :half], x[..., half:]
    return jnp.concatenate([left * cos - right * sin, left * sin + right * cos], -1)


class Mixer(nnx.Module):
    """What the softmax mixers share: the cache, and one query after the other."""

    window: int

    def project(self, x, first: int) -> tuple[dict, dict]:
        """Queries, and the memory that new tokens leave."""
        raise NotImplementedError

    def attend(self, queries, memory):
        raise NotImplementedError

    def combine(self, queries, mixed):
        raise NotImplementedError

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

    def __init__(self, spec: specs.GroupedQuery, width, *, head_norms=False, dtype, rngs):
        self.heads, self.groups = whole(spec.query_heads), whole(spec.kv_heads)
        self.keys, self.values = whole(spec.head_width), whole(spec.value_width)
        self.window, self.gated = whole(spec.window), whole(spec.query_gate)
        into = self.heads * self.keys * (1 + self.gated) + self.groups * (self.keys + self.values)
        self.into = linear(width, into, dtype=dtype, rngs=rngs)
        self.out = linear(self.heads * self.values, width, dtype=dtype, rngs=rngs)
        self.normed = head_norms
        if head_norms:
            self.query_norm = norm(self.keys, dtype=dtype, rngs=rngs)
            self.key_norm = norm(self.keys, dtype=dtype, rngs=rngs)

    def empty(self, batch: int, dtype, tokens: int = 0):
        shape = (batch, min(tokens, self.window), self.groups)
        return {
            "keys": jnp.zeros((*shape, self.keys), dtype),
            "values": jnp.zeros((*shape, self.values), dtype),
        }

    def project(self, x, first):
        """Queries (and gate) and the new keys and values."""
        sizes = [self.heads * self.keys] * (1 + self.gated)
        sizes += [self.groups * self.keys, self.groups * self.values]
        *asked, key, value = jnp.split(self.into(x), np.cumsum(sizes)[:-1], -1)
        query = asked[0].reshape(*x.shape[:2], self.heads, self.keys)
        key = key.reshape(*x.shape[:2], self.groups, self.keys)
        if self.normed:
            query, key = self.query_norm(query), self.key_norm(key)
        queries = {"query": rotated(query, first), "source": x}
        if self.gated:
            queries["gate"] = asked[1]
        value = value.reshape(*x.shape[:2], self.groups, self.values)
        return queries, {"keys": rotated(key, first), "values": value}

    def attend(self, queries, memory):
        query = queries["query"]
        shape = (*query.shape[:2], self.groups, self.heads // self.groups, self.keys)
        scores = jnp.einsum("bsgrd,bngd->bgrsn", query.reshape(shape), memory["keys"])
        shares = jax.nn.softmax(scores / self.keys**0.5, -1)
        mixed = jnp.einsum("bgrsn,bnge->bsgre", shares, memory["values"])
        return mixed.reshape(*query.shape[:2], self.heads * self.values)

    def combine(self, queries, mixed):
        if self.gated:
            mixed = mixed * jax.nn.sigmoid(queries["gate"])
        return self.out(mixed)


class Latent(Mixer):
    """Multi-head latent attention: expanded to heads, or absorbed into the latent space."""

    def __init__(self, spec: specs.Latent, width, *, absorbed: bool, dtype, rngs):
        self.window, self.absorbed = whole(specs.UNBOUNDED), absorbed
        self.heads, self.rank = whole(spec.query_heads), whole(spec.kv_rank)
        self.nope, self.rope = whole(spec.nope_width), whole(spec.rope_width)
        self.values, self.query_rank = whole(spec.value_width), whole(spec.query_rank)
        new = {"dtype": dtype, "rngs": rngs}
        self.down = linear(width, self.query_rank + self.rank + self.rope, **new)
        self.query = linear(self.query_rank or width, self.heads * (self.nope + self.rope), **new)
        self.up = linear(self.rank, self.heads * (self.nope + self.values), **new)
        self.out = linear(self.heads * self.values, width, **new)
        self.latent_norm = norm(self.rank, **new)
        if self.query_rank:
            self.query_norm = norm(self.query_rank, **new)

    def empty(self, batch: int, dtype, tokens: int = 0):
        return {
            "latent": jnp.zeros((batch, tokens, self.rank), dtype),
            "rope": jnp.zeros((batch, tokens, self.rope), dtype),
        }

    def project(self, x, first):
        """Queries and the new latents with their shared rotary keys."""
        sizes = np.cumsum([self.query_rank, self.rank])
        source, latent, rope = jnp.split(self.down(x), sizes, -1)
        source = self.query_norm(source) if self.query_rank else x
        query = self.query(source).reshape(*x.shape[:2], self.heads, self.nope + self.rope)
        nope, turned = query[..., : self.nope], rotated(query[..., self.nope :], first)
        rope = rotated(rope[:, :, None], first)[:, :, 0]
        queries = {"nope": nope, "rope": turned, "source": source}
        return queries, {"latent": self.latent_norm(latent), "rope": rope}

    def prepare(self, memory):
        """Latents as they are, or expanded to keys and values of every head."""
        if self.absorbed:
            return memory
        latent = memory["latent"]
        both = self.up(latent).reshape(*latent.shape[:2], self.heads, self.nope + self.values)
        return {
            "keys": both[..., : self.nope],
            "values": both[..., self.nope :],
            "rope": memory["rope"],
        }

    def attend(self, queries, memory):
        """Scores and weighted values, in heads or in the latent space."""
        nope = queries["nope"]
        up = self.up.kernel[...].reshape(self.rank, self.heads, self.nope + self.values)
        scores = jnp.einsum("bshd,bnd->bhsn", queries["rope"], memory["rope"])
        if self.absorbed:
            nope = jnp.einsum("bshd,rhd->bshr", nope, up[..., : self.nope])
            scores += jnp.einsum("bshr,bnr->bhsn", nope, memory["latent"])
        else:
            scores += jnp.einsum("bshd,bnhd->bhsn", nope, memory["keys"])
        shares = jax.nn.softmax(scores / (self.nope + self.rope) ** 0.5, -1)
        if self.absorbed:
            mixed = jnp.einsum("bhsn,bnr->bshr", shares, memory["latent"])
            mixed = jnp.einsum("bshr,rhe->bshe", mixed, up[..., self.nope :])
        else:
            mixed = jnp.einsum("bhsn,bnhe->bshe", shares, memory["values"])
        return mixed.reshape(*nope.shape[:2], self.heads * self.values)

    def combine(self, queries, mixed):
        return self.out(mixed)


class Sparse(Mixer):
    """The top k of an indexer's scores over the context, then the base over those tokens.

    score of a key = sum over index heads of weight * relu(query . key); the weighted sum is
    elementwise work beside the products, as in the released kernels.
    """

    def __init__(self, spec: specs.Sparse, width, base, *, dtype, rngs):
        self.base, self.window = base, whole(specs.UNBOUNDED)
        self.top, self.dtype = whole(spec.top_k), stored(spec.index_cache)
        self.heads, self.size = whole(spec.index_heads), whole(spec.index_width)
        new = {"dtype": dtype, "rngs": rngs}
        self.query = linear(whole(spec.index_query_input), self.heads * self.size, **new)
        self.into = linear(width, self.size + self.heads, **new)
        self.norm = nnx.LayerNorm(self.size, dtype=dtype, param_dtype=dtype, rngs=rngs)

    def empty(self, batch: int, dtype, tokens: int = 0):
        """The base's, and index keys."""
        keys = jnp.zeros((batch, tokens, self.size), self.dtype)
        return {"base": self.base.empty(batch, dtype, tokens), "index": keys}

    def project(self, x, first):
        """The base's queries and memory with the indexer's."""
        queries, fresh = self.base.project(x, first)
        key, weight = jnp.split(self.into(x), [self.size], -1)
        query = self.query(queries["source"]).reshape(*x.shape[:2], self.heads, self.size)
        key = rotated(self.norm(key)[:, :, None], first)[:, :, 0]
        mine = {"base": queries, "query": rotated(query, first), "weight": weight}
        return mine, {"base": fresh, "index": key}

    def prepare(self, memory):
        """The base's memory prepared, index keys as they are."""
        return {"base": self.base.prepare(memory["base"]), "index": memory["index"]}

    def attend(self, queries, memory):
        """The base over the best ``top`` tokens, which are gathered."""
        scores = jnp.einsum("bshd,bnd->bshn", queries["query"], memory["index"])
        scores = jnp.sum(jax.nn.relu(scores) * queries["weight"][..., None], 2)
        best = jax.lax.top_k(scores[:, 0], min(self.top, scores.shape[-1]))[1]
        chosen = jax.tree.map(
            lambda m: jnp.take_along_axis(m, best.reshape(*best.shape, *[1] * (m.ndim - 2)), 1),
            memory["base"],
        )
        return self.base.attend(queries["base"], chosen)

    def combine(self, queries, mixed):
        return self.base.combine(queries["base"], mixed)
