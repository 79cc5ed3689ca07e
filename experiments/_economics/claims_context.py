"""What does a long context change? Section 4.3: arithmetic intensity, Mistral, DeepSeek."""

import jax
import jax.numpy as jnp
import numpy as np

from experiments._claims import Claim, derived, stated
from experiments._economics.fronts import LONG, fronts_of
from infer_jax.catalog.published import economics_hardware, economics_model
from infer_jax.estimators import Economics
from infer_jax.physics import decoder, feedforward
from infer_jax.specs import Architecture, Experts, ForwardPass, GroupedQuery, Latent, Plan

MODEL = Economics.level4()
SLOW = 20.0  # tokens/s
RENT = 2.0  # USD/h, as the text has it in Section 4.3


def claims() -> list[Claim]:
    """The claims on long contexts."""
    with jax.enable_x64(True):
        return [*_intensity(), *_mistral(), *_latent()]


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


def _intensity() -> list[Claim]:
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
    return [
        derived("intensity of attention, FLOP per byte", "Sec. 4.3", "4 d G over 2 d p_a",
                "2 G / p_a", f"2 G / p_a, off by {max(errors):.0e}", max(errors) < 1e-9),
        derived("best utilisation without grouped queries (G = 1)", "Sec. 4.3",
                "1 FLOP/byte, 989 TFLOP/s, 3.35 TB/s", f"{sheet**-1:.2%}", f"{alone:.2%}",
                abs(alone * sheet - 1) < 0.04),
        stated("grouped queries at long context: bound by memory", "Sec. 5.2", "always", result,
               max(intensities) < _ridge(16)),
        derived("group that would end this", "Sec. 5.2", "989 TFLOP/s over 3.35 TB/s",
                f"{sheet:.0f} heads", f"{_ridge(16):.0f} heads at 16 bits (3.3 TB/s)",
                abs(_ridge(16) / sheet - 1) < 0.04),
    ]  # fmt: skip


def _mistral() -> list[Claim]:
    arch, other = economics_model("Mistral_Large_2"), economics_model("DeepSeek_V3")
    weights, held = 2.0 * size(arch), cache(arch) * LONG
    bandwidth = float(economics_hardware("H100")[0].chip.memory_bandwidth)
    price = 1e6 * held / bandwidth * RENT / 3600
    dear = fronts_of("mistral_large_comparison")["Long context"].points
    cheap = fronts_of("deepseek_v3_context_len_comparison")["Long context"].points
    costs = [float(np.interp(SLOW, p.speed[::-1], p.cost[::-1])) for p in (dear, cheap)]
    ratio = costs[0] / costs[1]
    token = 2 * 88 * 8 * 128 * 2
    return [
        stated("Mistral Large 2: parameters", "Sec. 4.3", "123 billion", f"{size(arch) / 1e9:.1f}",
               round(size(arch) / 1e9) == 123),
        derived("its cache per token", "Sec. 4.3", "config: 88 layers, 8 heads of 128",
                f"{token:,.0f} bytes", f"{cache(arch):,.0f} bytes", cache(arch) == token),
        derived("its cache at 100,000 tokens; its weights", "Sec. 4.3", "by hand",
                f"{token / 1e4:.1f} GB; 246 GB", f"{held / 1e9:.1f} GB; {weights / 1e9:.0f} GB",
                abs(weights / 246e9 - 1) < 0.01 and held == 1e5 * token),
        derived("batch from which its cache outweighs its weights", "Sec. 4.3", "by hand",
                f"{246e9 / (1e5 * token):.1f}", f"{weights / held:.1f}",
                abs(weights / held / (246e9 / (1e5 * token)) - 1) < 0.01),
        derived("price of reading its cache, per million tokens", "Sec. 4.3",
                "3.35 TB/s of the data sheet", f"${1e6 * 1e5 * token / 3.35e12 * 2 / 3600:.2f}",
                f"${price:.2f} (3.3 TB/s, ${RENT:.0f}/h)",
                abs(price / (1e6 * 1e5 * token / 3.35e12 * 2 / 3600) - 1) < 0.02),
        derived("DeepSeek-V3: cache per token", "Sec. 4.3", "config: 61 layers of 512",
                f"{61 * 512 * 2:,} bytes", f"{cache(other):,.0f} bytes", False,
                why="the authors' program has the 58 layers with experts alone, as ours here"),
        stated("DeepSeek-V3 cheaper at 100,000 tokens, slow", "Sec. 4.3", "around 6 times",
               f"{cache(arch) / cache(other):.2f} (cache), {ratio:.2f} (at {SLOW:.0f} tok/s)",
               5.5 < ratio < 6.5),
    ]  # fmt: skip


def _latent() -> list[Claim]:
    arch = economics_model("DeepSeek_V3")
    attention, experts = arch.blocks[0].attention, arch.blocks[0].feedforward
    assert isinstance(attention, Latent) and isinstance(experts, Experts)
    factor = float(attention.kv_rank / attention.nope_width)
    routed = float(decoder.parameters(arch, MODEL.laws.projections)["experts"])
    active = size(arch) - routed * (1 - 1 / float(feedforward.sparsity(experts)))
    even = 2 * active / core_flops(arch)
    intensity = core_flops(arch) / cache(arch)
    bound = {tokens: _turns(tokens) for tokens in (1.0, 5.0)}
    with_draft = f"{bound[5.0]:,.0f} tokens with 5 tokens a pass"
    return [
        derived("MLA: arithmetic of attention against plain heads", "Sec. 3.1",
                "config: 512 over 128", "x 4", f"x {factor:.0f}", factor == 512 / 128),
        stated("MLA: attention is most of the arithmetic from", "Sec. 5.2", "about 10,000 tokens",
               f"{even:,.0f} tokens", even <= 1e4),
        stated("MLA: bound by arithmetic from, speculating", "Sec. 5.2", "about 10,000 tokens",
               with_draft, 5e3 <= bound[5.0] <= 2e4),
        stated("MLA: bound by arithmetic from, one token a pass", "Sec. 5.2",
               "about 10,000 tokens", "never" if np.isinf(bound[1.0]) else f"{bound[1.0]:,.0f}",
               bound[1.0] <= 2e4,
               why=f"{intensity:.0f} FLOP per cached byte stays below the {_ridge(16):.0f} of an "
               f"H100 at 16 bits and the {_ridge(8):.0f} at the 8 bits the program takes"),
    ]  # fmt: skip


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
