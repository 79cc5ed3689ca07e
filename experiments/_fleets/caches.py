"""Hits of a cache by its capacity (Mooncake), and links from which fetching pays (LMCache).

Mooncake: Qin et al. 2024, arXiv 2407.00079, Table 1: shares of the blocks of an hour of requests
that one cache has, least recently used blocks leaving first. The trace is not carried; Section 4.2
has what goes in here: requests of the hour, their mean length, tokens of a block. Blocks are of two
kinds: some that are asked for all the time, and others whose next use, if they have one, is
exponential. Two cells say how many are of the first kind and how long the second wait; the others
are predicted.
LMCache: Liu et al. 2025, arXiv 2510.09665, sensitivity to the network: models on 8 H100.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import root

from infer_jax.estimators.serving import Deployment
from infer_jax.physics import decoder
from infer_jax.physics.root import crossing
from infer_jax.physics.scheduling.session_cache import Turns, break_even_bandwidth, tier_hits
from infer_jax.specs import ForwardPass
from infer_jax.verbs import inputs

REQUESTS, TOKENS, BLOCK = 23_608 / 3600.0, 7590.0, 512.0  # 1/s, of a prompt, of a block
CELLS = {1e3: 0.30, 1e4: 0.40, 3e4: 0.48, 5e4: 0.50, 1e5: 0.51}  # blocks that fit: hits
ALL = 0.51  # that a cache without bounds has
LEVELS = np.linspace(0.0, 1.0, 201)
LONGEST = 0.999  # of an exponential gap, where the table of gaps ends
MODELS = {"llama-3.1-70b": None, "qwen2.5-72b": None, "qwen3-coder-480b-a35b": "fp8"}
GBPS, SHORTEST, LIMIT = 1e9 / 8.0, 1e3, 1e6  # bytes/s; tokens of contexts


def block_hits(capacity: float, hot: float, wait: float) -> float:
    """Share of blocks that are found: ``hot`` ones, and of others those whose gap is short enough.

    ``wait``: mean time to the next use, s, of a block that is used again. Hot blocks are few, and
    take no room.
    """
    blocks = REQUESTS * (TOKENS / BLOCK + 0.5)  # the last one is full by half
    again = (ALL - hot) / (1.0 - hot)
    rare = (1.0 - hot) * blocks
    numbers = (rare * (1.0 - again), 1.0 / (1.0 - again), 1.0, 0.0, 0.0)
    gaps = np.maximum(-wait * np.log1p(-np.minimum(LEVELS, LONGEST)), 1e-3 * wait)
    turns = Turns(*map(jnp.asarray, numbers), jnp.asarray(LEVELS), jnp.asarray(gaps))  # pyright: ignore
    return hot + (ALL - hot) * float(tier_hits(turns, jnp.asarray([capacity])).turns[0])


def mooncake() -> dict[str, tuple[float, ...]]:
    """Hits at three capacities, and the hot share and mean wait that two others say."""
    known = list(CELLS.items())[:2]

    def missed(x: np.ndarray) -> list[float]:
        return [block_hits(size, x[0], math.exp(x[1])) - hits for size, hits in known]

    hot, wait = root(missed, [0.28, math.log(200.0)], tol=1e-6).x
    found = [block_hits(size, hot, math.exp(wait)) for size in list(CELLS)[2:]]
    return {"lru": (*found, hot, math.exp(wait)), "lfu": ()}


def links(model: str, quant: str | None) -> tuple[float, float]:
    """Tokens from which a link of 32 Gbit/s pays on 8 H100, and the most Gbit/s that any needs."""
    setup = inputs.setup(model, "h100_sxm", quant, None, None)
    serving, arch = inputs.serving("serving.vllm", setup), setup.model.architecture
    plan, nothing = Deployment.of(tp=8), jnp.zeros(())

    def link(tokens: jax.Array) -> jax.Array:
        prompt = ForwardPass(sequences=jnp.ones(()), new_tokens=tokens, cached_tokens=nothing)
        time = serving.step(arch, setup.hardware, prompt, plan).time
        return break_even_bandwidth(decoder.cache_bytes(arch, tokens) / tokens, tokens, time)

    lengths = jnp.geomspace(SHORTEST, LIMIT, 31)
    most = lengths[jnp.argmax(jax.lax.map(link, lengths))]
    pays = crossing(lambda x: 32.0 * GBPS - link(x), most, jnp.asarray(LIMIT))
    return float(pays), float(link(most) / GBPS)


def lmcache() -> dict[str, tuple[float, ...]]:
    """Of the models that fill 8 H100: the fewest and most tokens, and the fastest link."""
    tokens, most = zip(*(links(*model) for model in MODELS.items()), strict=True)
    return {"link_32": (min(tokens) / 1e3, max(tokens) / 1e3), "link_64": (max(most),)}
