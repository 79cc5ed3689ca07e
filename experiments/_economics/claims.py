"""What does the paper claim of latency (Section 2), networks, chips, drafts and contexts?"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments._claims import Claim, Ours, beside
from experiments._economics.fronts import BANDWIDTH, Front, draw, front_of, fronts_of, hops, reads
from infer_jax.catalog.published import economics_hardware, economics_model
from infer_jax.estimators import Economics
from infer_jax.physics import decoder, feedforward
from infer_jax.physics.network.collectives import Link, fastest_instance, nccl_protocols, nccl_tree
from infer_jax.specs import Architecture, ForwardPass, Plan

PING = 0.1  # s: the round trip that makes a faster prefill pointless (Section 4.3)
PROMPT = 2048.0  # tokens
MODEL = Economics.level4()
MODELS = ("Llama_3_8B", "Llama_3_70B", "GPT_3", "PaLM_540B", "GPT_4")
BASIS = "Llama_3_70B"
SLOW = 20.0  # tokens/s
RENT = 2.0  # USD/h, as the text has it in Section 4.3
LONG = 100_000.0  # tokens of the long context


def elasticity(function: Callable[[Array], Array], at: float) -> float:
    """d log function / d log x at x = ``at``."""
    with jax.enable_x64(True):
        value, slope = jax.value_and_grad(function)(jnp.asarray(at))
        return float(slope * at / value)


def toy_time(hop: Array | float, read: Array | float) -> Array:
    """Seconds per token at the fastest instance, without base latency."""
    return fastest_instance(jnp.asarray(hop), jnp.asarray(read)).time


def with_base(bandwidth: float) -> float:
    """Least seconds per token of Llama 3 70B at level 2 with its base latency of 6 us."""
    hardware, _ = economics_hardware("H100")
    chip = hardware.chip.with_(memory_bandwidth=bandwidth, memory=1e15)
    model = Economics.level2().with_(memory_cap=1.0, flop_cap=1.0)
    arch = economics_model(BASIS)

    def time(n: Array) -> Array:
        forward = ForwardPass.of(sequences=1.0)
        plan = Plan.of().replace(tp=n)
        return model.step(arch, hardware.replace(chip=chip), forward, plan).time

    with jax.enable_x64(True):
        return float(jax.jit(jax.vmap(time))(np.geomspace(1.0, 1e4, 4001)).min())


def all_claims() -> list[Claim]:
    """Every claim in the order of the paper.

    Many figures were lost when the paper was turned into text. Beside those stands what its tables,
    its program's stored points, model configurations, data sheets or arithmetic by hand make of
    them; what none of these has is out of reach, with what was tried.
    """
    parts = (_minimum, _scaling, _bandwidth, _steinhardt, _machine, _generations, _speculation)
    ours = {key: value for part in (*parts, _inputs) for key, value in part().items()}
    with jax.enable_x64(True):
        ours |= _intensity() | _mistral() | _latent()
    return beside(Path(__file__).with_name("claims.csv"), ours)


def _minimum() -> Ours:
    ratios, errors = [], []
    for name in MODELS:
        a, m = hops(name), reads(name)
        with jax.enable_x64(True):
            chips, time = map(float, fastest_instance(jnp.asarray(a), jnp.asarray(m)))
        ratios.append(chips * time / m)
        errors.append(abs(ratios[-1] - (3 - 2 ** (2 / 3) * (a / m) ** (1 / 3))))
    layer = 2 * 70e9 / 80
    return {
        "cost_ratio": (min(ratios), max(ratios)),
        "closed_ratio": max(errors),
        "layer": layer / 1e9,
        "cached_chips": layer / 50e6,
    }


def _scaling() -> Ours:
    a, m = hops(BASIS), reads(BASIS)
    exact = elasticity(lambda k: toy_time(a * k, m * k), 1.0)
    width = elasticity(lambda k: toy_time(a, m * k**2), 1.0)
    sizes, times = np.log([8, 62, 540]), np.log([4, 13, 32])
    slope = float(np.polyfit(sizes, times, 1)[0])
    depth = elasticity(lambda k: toy_time(1e-9 * a * k, m * k), 1.0)
    far = elasticity(lambda k: toy_time(1e-9 * a, m * k**2), 1.0)
    layers = np.polyfit(np.log([8, 62, 540]), np.log([32, 64, 118]), 1)[0]
    return {
        "depth_width": (depth, far, exact, width),
        "speed_by_size": tuple(400 * math.sqrt(8 / size) for size in (70, 405)),
        "depth_by_size": float(layers),
        "palm": slope,
    }


def _bandwidth() -> Ours:
    a, m = hops(BASIS), reads(BASIS)
    memory = -elasticity(lambda x: toy_time(a, x), m)
    latency = elasticity(lambda x: toy_time(x, m), a)
    more = [1 - float(toy_time(a, m / 2) / toy_time(a, m)), 1 - 2 ** (-1 / 3)]
    lpu = float(economics_hardware("Groq_LPU")[0].chip.memory_bandwidth)
    limit, based = (lpu / BANDWIDTH) ** (1 / 3), with_base(BANDWIDTH) / with_base(lpu)
    bare = float(toy_time(a, m) / toy_time(a, m * BANDWIDTH / lpu))
    chips = np.geomspace(1.0, 1e4, 100001)
    slow, fast = (float(np.min(a * (np.sqrt(chips) - 1) + x / chips)) for x in (m, m / 2))
    return {
        "bandwidth_or_latency": (memory, latency, latency - abs(memory)),
        "twice_bandwidth": (*more, more[0] - (1 - fast / slow)),
        "half_bytes": 2 ** (1 / 3) - 1,
        "groq": (limit, based, bare),
    }


def _steinhardt() -> Ours:
    """Speed per doubled cost at level 4, without any latency and with all of it."""
    hardware, coefficients = economics_hardware("H100")
    real = Economics.level4().fitted(coefficients)
    none = tuple(p.with_(base=0.0, intra=0.0, inter=0.0) for p in real.protocols)
    ideal = real.with_(launch=0.0).replace(protocols=none)
    arch = economics_model(BASIS)
    free, held = (front_of(draw(arch, hardware, model, 0.0)) for model in (ideal, real))

    def gain(front: Front, times: float) -> float:
        least = float(front.points.cost.min()) * times
        return front.at_cost(2 * least) / front.at_cost(least)

    slow, fast = gain(held, 2.0), gain(held, 16.0)
    return {"no_latency": gain(free, 2), "with_latency": (slow, fast, slow - fast)}


def _machine() -> Ours:
    hardware, _ = economics_hardware("H100")
    chip, network = hardware.chip, cast(Any, hardware.network)
    size, ranks = jnp.asarray(2.0 * 8192 * 100), jnp.asarray(8.0)
    with jax.enable_x64(True):
        half = Link(intra=network.domain_bandwidth / 2, inter=network.network_bandwidth / 2)
        args = (ranks, jnp.ones(()))
        first = nccl_protocols()[:1]
        full = nccl_tree(*args, size, half, first, reduces=True)
        empty = nccl_tree(*args, 0 * size, half, first, reduces=True)
    read = float(chip.memory / chip.memory_bandwidth)
    rates = (float(network.domain_bandwidth) / 1e9, float(network.network_bandwidth) / 1e9)
    front = fronts_of("quantization_comparison")["Llama 3 70B 16-bit"]
    near = int(np.argmin(abs(front.points.speed - 70.0)))
    hops, move = 2 * 7 * 0.6 + 6.8, 7 / 8 * 2 * 8192 * 100 / (225e9 * 0.5) * 1e6
    ours = (float(full - empty) * 1e6, float(empty) * 1e6)
    return {
        "all_reduce": (*ours, ours[0] / move, ours[1] / hops),
        "links": rates,
        "reading": (read * 1e3, 1 / read),
        "utilisation": float(front.points.mfu[near]),
    }


def _gains(better: Front, worse: Front, column: str = "speed") -> np.ndarray:
    """``better`` over ``worse`` at equal cost, from twice the least common cost to 30 times."""
    least = max(float(better.points.cost.min()), float(worse.points.cost.min()))
    costs = least * np.geomspace(2.0, 30.0, 25)
    return np.array([better.at_cost(c, column) / worse.at_cost(c, column) for c in costs])


def _spread(ratios: np.ndarray) -> tuple[float, ...]:
    """Geometric mean, least and most."""
    return tuple(map(float, (np.exp(np.log(ratios).mean()), ratios.min(), ratios.max())))


def _generations() -> Ours:
    fronts = fronts_of("gpus_comparison")
    pairs = (("A100", "V100"), ("H100", "A100"))
    speeds = np.concatenate([_gains(fronts[a], fronts[b]) for a, b in pairs])
    chips = np.concatenate([1 / _gains(fronts[a], fronts[b], "chips") for a, b in pairs])
    return {
        "prices": tuple(float(economics_hardware(x)[0].price) for x in ("H100", "A100", "V100")),
        "generation_speed": _spread(speeds),
        "generation_chips": _spread(chips),
    }


def _speculation() -> Ours:
    """Drafts, and weights of fewer bits."""
    drafted, plain, large_drafted, large_plain = fronts_of("spec_dec_comparison").values()
    fronts = fronts_of("quantization_comparison").values()
    best, preferred = ([getattr(x, at)["speed"] for x in fronts] for at in ("fastest", "best"))

    steps = (x[i + 1] / x[i] - 1 for x in (best, preferred) for i in (0, 1))
    return {
        "draft_70b": _spread(_gains(drafted, plain)),
        "draft_405b": _spread(_gains(large_drafted, large_plain)),
        "providers": (),
        "formats": (*steps, *preferred),
    }


def _inputs() -> Ours:
    """Price of input over output: the cheapest prefill within a ping, beside Table 6's decode."""
    hardware, coefficients = economics_hardware("H100")
    model, arch = Economics.level4().fitted(coefficients), economics_model("Llama_3_70B")
    front = fronts_of("quantization_comparison")["Llama 3 70B 16-bit"]
    cost, mfu = front.best["cost"], front.best["mfu"]

    def prefill(n: Array) -> tuple[Array, Array]:
        forward = ForwardPass.of(sequences=1.0, new_tokens=PROMPT)
        phase = model.step(arch, hardware, forward, Plan.of().replace(tp=n))
        return phase.time, phase.mfu

    with jax.enable_x64(True):
        time, share = map(np.asarray, jax.jit(jax.vmap(prefill))(np.geomspace(1.0, 64.0, 200)))
    reached = float(share[time <= PING].max())
    prices = {"full_price": (cost * mfu, mfu), "cheap_input": 3 * mfu}
    return prices | {"input_price": (reached / mfu, reached)}


def core_flops(arch: Architecture) -> float:
    """FLOP of attention per new token and cached token, all layers."""
    one = jnp.ones(())
    layers = ((b.count, b.attention) for b in arch.blocks if b.attention is not None)
    return float(sum(count * MODEL.laws.core(attention, one, one) for count, attention in layers))


def cache(arch: Architecture) -> float:
    """Bytes of cache per token."""
    return float(decoder.cache_bytes(arch, jnp.ones(())))


def size(arch: Architecture) -> float:
    """Parameters as the paper counts them."""
    return sum(map(float, decoder.parameters(arch, MODEL.laws.projections).values()))


def _ridge(bits: int) -> float:
    """FLOP per byte at which an H100 turns compute-bound, peaks without caps."""
    chip = economics_hardware("H100")[0].chip
    return float({16: chip.flops_16, 8: chip.flops_8}[bits] / chip.memory_bandwidth)


def _intensity() -> Ours:
    errors, intensities = [], []
    for name in ("Llama_3_70B", "Mistral_Large_2", "Llama_3_405B"):
        arch = economics_model(name)
        attention: Any = arch.blocks[0].attention
        group = float(attention.query_heads / attention.kv_heads)
        intensities.append(core_flops(arch) / cache(arch))
        errors.append(abs(intensities[-1] - 2 * group / float(arch.cache.bytes)))
    plain = economics_model("GPT_3")
    ridge, (least, *_, most) = _ridge(16), sorted(intensities)
    return {
        "intensity": max(errors),
        "plain_heads": core_flops(plain) / cache(plain) / ridge,
        "grouped": (least, most, ridge, ridge - most),
        "ridge": ridge,
    }


def _mistral() -> Ours:
    arch, other = economics_model("Mistral_Large_2"), economics_model("DeepSeek_V3")
    weights, held = 2.0 * size(arch), cache(arch) * LONG
    bandwidth = float(economics_hardware("H100")[0].chip.memory_bandwidth)
    price = 1e6 * held / bandwidth * RENT / 3600
    dear = fronts_of("mistral_large_comparison")["Long context"].points
    cheap = fronts_of("deepseek_v3_context_len_comparison")["Long context"].points
    costs = [float(np.interp(SLOW, p.speed[::-1], p.cost[::-1])) for p in (dear, cheap)]
    return {
        "mistral_size": size(arch) / 1e9,
        "mistral_token": cache(arch),
        "mistral_cache": (held / 1e9, weights / 1e9),
        "mistral_batch": weights / held,
        "mistral_price": price,
        "deepseek_token": cache(other),
        "deepseek_price": (cache(arch) / cache(other), costs[0] / costs[1]),
    }


def _latent() -> Ours:
    arch = economics_model("DeepSeek_V3")
    attention, experts = cast(Any, (arch.blocks[0].attention, arch.blocks[0].feedforward))
    routed = float(decoder.parameters(arch, MODEL.laws.projections)["experts"])
    active = size(arch) - routed * (1 - 1 / float(feedforward.floored_sparsity(experts)))
    even = 2 * active / core_flops(arch)
    bound, intensity = _turns(1.0), core_flops(arch) / cache(arch)
    said = "never" if np.isinf(bound) else f"{bound:,.0f}"
    return {
        "latent_arithmetic": float(attention.kv_rank / attention.nope_width),
        "latent_from": even,
        "latent_bound_drafts": _turns(5.0),
        "latent_bound": (said, bound, intensity, _ridge(16), _ridge(8)),
    }


def _turns(tokens: float) -> float:
    """The context from which DeepSeek-V3 computes longer than it reads (16,384 on 512 H100)."""
    hardware, coefficients = economics_hardware("H100")
    arch, model = economics_model("DeepSeek_V3"), MODEL.fitted(coefficients)

    def excess(context: Array) -> Array:
        forward = ForwardPass.of(sequences=2.0**14, new_tokens=tokens)
        forward = forward.replace(cached_tokens=context)
        terms = model.step(arch, hardware, forward, Plan.of(tp=512.0)).terms
        return terms["compute"] - terms["memory"]

    contexts = np.geomspace(100.0, LONG, 301)
    over = np.asarray(jax.jit(jax.vmap(excess))(contexts)) > 0
    return float(contexts[np.argmax(over)]) if over.any() else np.inf
