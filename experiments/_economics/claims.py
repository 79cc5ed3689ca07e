"""What do networks, chips, drafts, formats and long contexts change? Section 3.4 and 4 to 4.3."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments._claims import Claim, Ours, beside, is_close
from experiments._economics import claims_latency
from experiments._economics.fronts import Front, fronts_of
from infer_jax.catalog.published import economics_hardware, economics_model
from infer_jax.estimators import Economics
from infer_jax.physics import decoder, feedforward
from infer_jax.physics.network.collectives import Link, nccl_protocols, nccl_tree
from infer_jax.specs import (
    Architecture,
    Experts,
    ForwardPass,
    GroupedQuery,
    Hierarchy,
    Latent,
    Plan,
)

PRICES = {"H100": 2.1, "A100": 1.5, "V100": 0.42}  # USD/h, as printed in Section 4
PING = 0.1  # s: the round trip that makes a faster prefill pointless (Section 4.3)
PROMPT = 2048.0  # tokens
MODEL = Economics.level4()
SLOW = 20.0  # tokens/s
RENT = 2.0  # USD/h, as the text has it in Section 4.3
LONG = 100_000.0  # tokens of the long context


def all_claims() -> list[Claim]:
    """Every claim in the order of the paper.

    Many figures were lost when the paper was turned into text. Beside those stands what its tables,
    its program's stored points, model configurations, data sheets or arithmetic by hand make of
    them; what none of these has is out of reach, with what was tried.
    """
    ours = claims_latency.claims() | _machine() | _generations() | _speculation() | _inputs()
    with jax.enable_x64(True):
        ours |= _intensity() | _mistral() | _latent()
    return beside(Path(__file__).with_name("claims.csv"), ours)


def _machine() -> Ours:
    hardware, _ = economics_hardware("H100")
    chip, network = hardware.chip, hardware.network
    assert isinstance(network, Hierarchy)
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
    stored = 0.1893  # of the authors' program, golden/economics_fronts.json, at 69.6 tokens/s
    return {
        "all_reduce": (
            f"{ours[0]:.1f} us beside {ours[1]:.1f} us of latency",
            is_close(ours[0], move, 1e-3) and is_close(ours[1], hops, 1e-3),
        ),
        "links": (f"{rates[0]:.0f} and {rates[1]:.0f} GB/s", rates == (450.0, 50.0)),
        "reading": (f"{read * 1e3:.1f} ms; {1 / read:.1f} tok/s", is_close(read, 80 / 3350, 0.02)),
        "utilisation": (
            f"near the front: {front.points.mfu[near]:.1%} at 70 tok/s",
            is_close(front.points.mfu[near], stored, 0.03),
        ),
    }


def _gains(better: Front, worse: Front, column: str = "speed") -> np.ndarray:
    """``better`` over ``worse`` at equal cost, from twice the least common cost to 30 times."""
    least = max(float(better.points.cost.min()), float(worse.points.cost.min()))
    costs = least * np.geomspace(2.0, 30.0, 25)
    return np.array([better.at_cost(c, column) / worse.at_cost(c, column) for c in costs])


def _spread(ratios: np.ndarray) -> str:
    mean = float(np.exp(np.log(ratios).mean()))
    return f"{mean:.2f} ({ratios.min():.2f} to {ratios.max():.2f})"


def _generations() -> Ours:
    fronts = fronts_of("gpus_comparison")
    prices = {name: float(economics_hardware(name)[0].price) for name in PRICES}
    pairs = (("A100", "V100"), ("H100", "A100"))
    speeds = np.concatenate([_gains(fronts[a], fronts[b]) for a, b in pairs])
    chips = np.concatenate([1 / _gains(fronts[a], fronts[b], "chips") for a, b in pairs])
    ours = ", ".join(f"{price:.2f}" for price in prices.values())
    agrees = all(abs(prices[name] - price) < 0.01 for name, price in PRICES.items())
    printed = ((152 / 105) ** 0.5, (102 / 24) ** 0.5)  # of one generation, from two
    inside = [x.min() <= y <= x.max() for x, y in zip((speeds, chips), printed, strict=True)]
    return {
        "prices": (ours, agrees),
        "generation_speed": (f"x {_spread(speeds)}", inside[0]),
        "generation_chips": (f"/ {_spread(chips)}", inside[1]),
    }


def _speculation() -> Ours:
    """Drafts, and weights of fewer bits."""
    drafted, plain, large_drafted, large_plain = fronts_of("spec_dec_comparison").values()
    small, large = _gains(drafted, plain), _gains(large_drafted, large_plain)
    doubled = float(np.exp(np.log(large).mean()))
    fronts, printed = fronts_of("quantization_comparison").values(), (83.0, 99.0, 122.0)
    best, preferred = ([getattr(x, at)["speed"] for x in fronts] for at in ("fastest", "best"))

    def steps(x: list[float]) -> str:
        return f"{x[1] / x[0] - 1:.0%}, {x[2] / x[1] - 1:.0%}"

    return {
        "draft_70b": (f"x {_spread(small)}", small.min() <= 95 / 69 <= small.max()),
        "draft_405b": (f"x {_spread(large)}", abs(doubled - 2) < 0.1),
        "providers": ("-", None),
        "formats": (
            f"{steps(best)} at most, {steps(preferred)} preferred",
            all(is_close(a, b, 0.01) for a, b in zip(preferred, printed, strict=True)),
        ),
    }


def _inputs() -> Ours:
    """Price of input over output: the cheapest prefill within a ping, beside Table 6's decode."""
    hardware, coefficients = economics_hardware("H100")
    model, arch = Economics.level4().fitted(coefficients), economics_model("Llama_3_70B")
    front = fronts_of("quantization_comparison")["Llama 3 70B 16-bit"]
    cost, mfu = front.best["cost"], front.best["mfu"]

    def prefill(n: jax.Array) -> tuple[jax.Array, jax.Array]:
        forward = ForwardPass.of(sequences=1.0, new_tokens=PROMPT)
        phase = model.step(arch, hardware, forward, Plan.of().replace(tp=n))
        return phase.time, phase.mfu

    with jax.enable_x64(True):
        time, share = map(np.asarray, jax.jit(jax.vmap(prefill))(np.geomspace(1.0, 64.0, 200)))
    reached = float(share[time <= PING].max())
    full = 2 * 70e9 / 989e12 * 1e6 / 3600 * PRICES["H100"]
    ours = f"{reached / mfu:.1f} (prefill of {PROMPT:.0f} tokens within {PING:g} s: {reached:.0%})"
    return {
        "full_price": (
            f"${cost * mfu:.3f}, so {mfu:.1%} in Table 6",
            is_close(cost * mfu, full, 0.03),
        ),
        "cheap_input": (f"{3 * mfu:.0%}", abs(3 * mfu - 3 * full / 0.70) < 0.01),
        "input_price": (ours, 3 <= reached / mfu <= 5),
    }


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
        attention = arch.blocks[0].attention
        assert isinstance(attention, GroupedQuery)
        group = float(attention.query_heads / attention.kv_heads)
        intensities.append(core_flops(arch) / cache(arch))
        errors.append(abs(intensities[-1] - 2 * group / float(arch.cache.bytes)))
    plain = economics_model("GPT_3")
    alone = core_flops(plain) / cache(plain) / _ridge(16)
    sheet = 989e12 / 3.35e12
    result = f"{min(intensities):.0f} to {max(intensities):.0f} of {_ridge(16):.0f} FLOP/byte"
    return {
        "intensity": (f"2 G / p_a, off by {max(errors):.0e}", max(errors) < 1e-9),
        "plain_heads": (f"{alone:.2%}", abs(alone * sheet - 1) < 0.04),
        "grouped": (result, max(intensities) < _ridge(16)),
        "ridge": (
            f"{_ridge(16):.0f} heads at 16 bits (3.3 TB/s)",
            is_close(_ridge(16), sheet, 0.04),
        ),
    }


def _mistral() -> Ours:
    arch, other = economics_model("Mistral_Large_2"), economics_model("DeepSeek_V3")
    weights, held = 2.0 * size(arch), cache(arch) * LONG
    bandwidth = float(economics_hardware("H100")[0].chip.memory_bandwidth)
    price = 1e6 * held / bandwidth * RENT / 3600
    dear = fronts_of("mistral_large_comparison")["Long context"].points
    cheap = fronts_of("deepseek_v3_context_len_comparison")["Long context"].points
    costs = [float(np.interp(SLOW, p.speed[::-1], p.cost[::-1])) for p in (dear, cheap)]
    ratio = costs[0] / costs[1]
    token = 2 * 88 * 8 * 128 * 2
    return {
        "mistral_size": (f"{size(arch) / 1e9:.1f}", round(size(arch) / 1e9) == 123),
        "mistral_token": (f"{cache(arch):,.0f} bytes", cache(arch) == token),
        "mistral_cache": (
            f"{held / 1e9:.1f} GB; {weights / 1e9:.0f} GB",
            is_close(weights, 246e9, 0.01) and held == 1e5 * token,
        ),
        "mistral_batch": (
            f"{weights / held:.1f}",
            is_close(weights / held, 246e9 / (1e5 * token), 0.01),
        ),
        "mistral_price": (
            f"${price:.2f} (3.3 TB/s, ${RENT:.0f}/h)",
            is_close(price, 1e6 * 1e5 * token / 3.35e12 * 2 / 3600, 0.02),
        ),
        "deepseek_token": (f"{cache(other):,.0f} bytes", False),
        "deepseek_price": (
            f"{cache(arch) / cache(other):.2f} (cache), {ratio:.2f} (at {SLOW:.0f} tok/s)",
            5.5 < ratio < 6.5,
        ),
    }


def _latent() -> Ours:
    arch = economics_model("DeepSeek_V3")
    attention, experts = arch.blocks[0].attention, arch.blocks[0].feedforward
    assert isinstance(attention, Latent) and isinstance(experts, Experts)
    factor = float(attention.kv_rank / attention.nope_width)
    routed = float(decoder.parameters(arch, MODEL.laws.projections)["experts"])
    active = size(arch) - routed * (1 - 1 / float(feedforward.floored_sparsity(experts)))
    even = 2 * active / core_flops(arch)
    intensity = core_flops(arch) / cache(arch)
    bound = {tokens: _turns(tokens) for tokens in (1.0, 5.0)}
    with_draft = f"{bound[5.0]:,.0f} tokens with 5 tokens a pass"
    return {
        "latent_arithmetic": (f"x {factor:.0f}", factor == 512 / 128),
        "latent_from": (f"{even:,.0f} tokens", even <= 1e4),
        "latent_bound_drafts": (with_draft, 5e3 <= bound[5.0] <= 2e4),
        "latent_bound": (
            "never" if np.isinf(bound[1.0]) else f"{bound[1.0]:,.0f}",
            bound[1.0] <= 2e4,
            f"{intensity:.0f} FLOP per cached byte stays below the {_ridge(16):.0f} of an "
            f"H100 at 16 bits and the {_ridge(8):.0f} at the 8 bits the program takes",
        ),
    }


def _turns(tokens: float) -> float:
    """The context from which DeepSeek-V3 computes longer than it reads (16,384 on 512 H100)."""
    hardware, coefficients = economics_hardware("H100")
    arch, model = economics_model("DeepSeek_V3"), MODEL.fitted(coefficients)

    def excess(context: jax.Array) -> jax.Array:
        forward = ForwardPass.of(sequences=2.0**14, new_tokens=tokens)
        forward = forward.replace(cached_tokens=context)
        terms = model.step(arch, hardware, forward, Plan.of(tp=512.0)).terms
        return terms["compute"] - terms["memory"]

    contexts = np.geomspace(100.0, LONG, 301)
    over = np.asarray(jax.jit(jax.vmap(excess))(contexts)) > 0
    return float(contexts[np.argmax(over)]) if over.any() else np.inf
