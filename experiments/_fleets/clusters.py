"""Clusters of Splitwise, and the deployments that Vidur's search compares.

Splitwise: Patel et al. 2023, arXiv 2311.18677. Machines are DGX of 8 GPUs; prompts and outputs have
the medians of Azure's two services (Section III), and a pool has as many of the machines as its
share of a request's time. Vidur: Agrawal et al. 2024, arXiv 2405.05465, Section 7.3; lengths are
means of the traces that its program reads, prices those that the program has
(vidur 0.0.26, config_optimizer/analyzer/constants.py).

Hits of a cache by its capacity (Mooncake), and links from which fetching pays (LMCache).

Mooncake: Qin et al. 2024, arXiv 2407.00079, Table 1: shares of the blocks of an hour of requests
that one cache has, least recently used blocks leaving first. The trace is not carried; Section 4.2
has what goes in here: requests of the hour, their mean length, tokens of a block. Blocks are of two
kinds: some that are asked for all the time, and others whose next use, if they have one, is
exponential. Two cells say how many are of the first kind and how long the second wait; the others
are predicted.
LMCache: Liu et al. 2025, arXiv 2510.09665, sensitivity to the network: models on 8 H100.
"""

import math
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.optimize import root

from experiments._replay.server import model_of
from infer_jax.catalog import Model
from infer_jax.catalog.foreign import read_json
from infer_jax.compiling import SOME, once
from infer_jax.estimators.serving import Deployment, ServerEstimate, Serving, shape
from infer_jax.fleets import ServiceLimits, tabulate
from infer_jax.fleets.replica import POINTS
from infer_jax.physics import decoder
from infer_jax.physics.root import crossing
from infer_jax.physics.scheduling.session_cache import Turns, break_even_bandwidth, tier_hits
from infer_jax.planning import Layout
from infer_jax.planning.instances import PlannedServer, degrees, varied_estimates
from infer_jax.specs import Architecture, Arrivals, ForwardPass, Hardware, Workload
from infer_jax.verbs import inputs

CONFIGS = read_json(Path(__file__).with_name("configs.json"))
CODING, TALKING = (1500.0, 13.0), (1020.0, 129.0)  # tokens of prompts and outputs, medians
MACHINES = {"h100_sxm": 40.0, "a100_sxm": 70.0}  # of equal power
USD = {"h100_sxm": 4.25, "a100_sxm": 2.21}  # of a GPU hour in February 2024
TRACES = {"chat": (462.0, 210.0), "arxiv": (2588.0, 291.0), "bwb": (1072.0, 1602.0)}
LIMITS = ServiceLimits.of(ttft=2.0, tpot=0.2, goodput=0.9)
TP8, LAYOUTS = Deployment.of(tp=8), ("tp4", "tp2 pp2", "tp4 pp2")


@cache
def model(name: str) -> Model:
    """A model of the papers by the numbers of its config.json."""
    return model_of(CONFIGS[name])


@jax.jit
def _seconds(serving: Serving, arch: Architecture, hardware: Hardware, forward: ForwardPass,
             plan: Deployment) -> Array:  # fmt: skip
    return serving.step(arch, hardware, forward, plan).time


@jax.jit
def _alone(serving: Serving, arch: Architecture, hardware: Hardware, work: Workload,
           plan: Deployment) -> ServerEstimate:  # fmt: skip
    return serving.estimate(arch, hardware, work, plan)


class Machine:
    """A DGX with one model on its 8 GPUs, under vLLM."""

    def __init__(self, name: str, system: str) -> None:
        setup = inputs.setup(model(name), system, None, None, None)
        serving = inputs.serving("serving.vllm", setup)
        self.parts = serving, setup.model.architecture, setup.hardware

    def seconds(self, sequences: float, new: float, cached: float) -> float:
        """A pass."""
        forward = ForwardPass.of(sequences=sequences, new_tokens=new, cached_tokens=cached)
        return float(_seconds(*self.parts, forward, TP8))

    def alone(self, isl: float, osl: float) -> ServerEstimate:
        """One request at a time."""
        return _alone(*self.parts, Workload.of(isl=isl, osl=osl, batch=1.0), TP8)

    def places(self, isl: float, osl: float) -> float:
        """Requests that memory has room for."""
        return float(self.alone(isl, osl).decode.limits["requests"].capacity)

    def prompt_pool(self, isl: float, osl: float) -> float:
        """Share of machines that prefill, where others decode with a full memory."""
        sequences = self.places(isl, osl)
        token = self.seconds(sequences, 1.0, isl + osl / 2.0) / sequences
        prompt = self.seconds(1.0, isl, 0.0)
        return prompt / (prompt + (osl - 1.0) * token)


def splitwise() -> dict[str, tuple[float, ...]]:
    """Single machines with Llama-2-70B, and pools with BLOOM-176B."""
    new, old = (Machine("llama-2-70b", system) for system in MACHINES)
    times = [m.alone(*lengths) for lengths in (CODING, TALKING) for m in (old, new)]
    big = {system: Machine("bloom-176b", system) for system in MACHINES}
    fast, (isl, osl) = big["h100_sxm"], TALKING
    token = fast.seconds(1.0, 1.0, CODING[0])
    tpot = [1e3 * float(x.tpot) for x in times]
    return {
        "alone_ttft": tuple(1e3 * float(x.ttft) for x in times),
        "alone_tbt": tuple(tpot),
        "tbt_ratio": (tpot[1] / tpot[0], tpot[3] / tpot[2]),
        "prompt_tokens": (fast.seconds(1.0, CODING[0], 0.0) / token,),
        "batch": (fast.seconds(64.0, 1.0, isl) / fast.seconds(1.0, 1.0, isl),),
        "places": (fast.places(isl, osl),),
        "prompt_pools": tuple(
            count * big[system].prompt_pool(*lengths)
            for system, count in MACHINES.items()
            for lengths in (TALKING, CODING)
        ),
        "split_gain": (),
    }


def rate_per_dollar(name: str, system: str, lengths: tuple[float, float]) -> dict[str, float]:
    """Requests/s within Vidur's limits for a dollar an hour, by layout."""
    setup = inputs.setup(model(name), system, None, None, USD[system])
    models, serving = (
        (once(shape, setup.model.architecture), None),
        inputs.serving("serving.vllm", setup),
    )
    work = Workload.of(isl=lengths[0], osl=lengths[1], arrivals=Arrivals.of(rate=1.0))
    common = Deployment.of(max_sequences=256)
    served, found = PlannedServer(serving, models, setup.hardware, work, common), {}
    for words in LAYOUTS:
        rows = degrees([Layout.of(f"{words} chunk512")], np.zeros(POINTS, int))

        def estimate(rate: Array, varied: Array, rows: dict = rows) -> ServerEstimate:
            loads = np.asarray(rate), np.asarray(varied)
            return once(varied_estimates, served, rows, *loads, points=SOME)

        table = tabulate(estimate, setup.hardware, 1.0)
        found[words] = float(table.rate_within(LIMITS) / table.usd_per_hour)
    return found


def vidur() -> dict[str, tuple[float, ...]]:
    """The best of its deployments by model, chip and trace."""
    every = {
        (name, system, trace): rate_per_dollar(name, system, lengths)
        for name in ("llama-2-70b", "qwen-72b")
        for system in USD
        for trace, lengths in TRACES.items()
    }
    best = {key: max(values.values()) for key, values in every.items()}
    top = {(n, t): max(best[n, s, t] for s in USD) for n, _, t in best}
    over = {(n, t): best[n, "h100_sxm", t] / best[n, "a100_sxm", t] for n, _, t in best}
    chat, arxiv, bwb = (top["llama-2-70b", t] / top["qwen-72b", t] for t in TRACES)
    one, two, three = (top["llama-2-70b", t] for t in TRACES)
    return {
        "sku": tuple(over[n, t] for n in ("llama-2-70b", "qwen-72b") for t in ("chat", "bwb")),
        "heads": ((chat * arxiv * bwb) ** (1 / 3), chat, arxiv, bwb),
        "traces": (one, two / one, three / two),
        "per_dollar": (every["qwen-72b", "h100_sxm", "arxiv"]["tp4"], one),
        "pareto": (),
    }


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
    numbers = (rare * (1.0 - again), 1.0 / (1.0 - again), 1.0, 0.0, 0.0, again / (1.0 - again))
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
