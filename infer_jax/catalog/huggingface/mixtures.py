"""Readers of the config.json of each family of mixtures of experts.

Shapes and defaults are those of the family's modules in transformers 5.
"""

from dataclasses import replace

from infer_jax.catalog.huggingface.attention import (
    INDEXED,
    Piece,
    compressed,
    grouped_query,
    heads,
    latent,
    sparse,
)
from infer_jax.catalog.huggingface.dense import alternating, full
from infer_jax.catalog.huggingface.facts import Facts
from infer_jax.catalog.huggingface.feedforward import dense, experts
from infer_jax.catalog.huggingface.layers import (
    ConfigLayer,
    Decoder,
    Family,
    decoder,
    depth,
    late_windows,
    routed,
    sparse_after_first,
    sparse_by_step,
    stack,
    windows,
)
from infer_jax.specs import KimiDelta

ROUTED = ("n_routed_experts", "num_routed_experts", "num_experts", "num_local_experts")
RATIOS = {"compressed_sparse_attention": INDEXED, "heavily_compressed_attention": 128}
SHARED = ("n_shared_experts", "num_shared_experts")


def mixtral(facts: Facts) -> Decoder:
    """Mixtral: experts on every layer."""
    width, shape = facts.count("hidden_size"), heads(facts)
    mixture = experts(
        facts,
        width,
        facts.count("intermediate_size"),
        count=facts.count("num_local_experts"),
        active=facts.count("num_experts_per_tok"),
        module="block_sparse_moe.experts",
    )

    def attention(window: float) -> Piece:
        return grouped_query(width, shape, window=window)

    return decoder(facts, stack(facts, attention, lambda i: mixture, windows(facts)))


def qwen_experts(facts: Facts, *, shared: bool) -> Piece:
    """Qwen's routed experts; beside them one shared expert behind a gate of one number."""
    width = facts.count("hidden_size")
    always = None
    if shared:
        hidden = facts.count("shared_expert_intermediate_size")
        always = dense(width, hidden, module="mlp.shared_expert")
    return experts(
        facts,
        width,
        facts.count("moe_intermediate_size"),
        count=facts.count("num_experts", "num_local_experts"),
        active=facts.count("num_experts_per_tok"),
        shared=always,
        vectors=width * shared,
    )


def qwen2_moe(facts: Facts) -> Decoder:
    """Qwen 1.5 and 2 mixtures: biased queries, keys and values, a shared expert."""
    width, shape = facts.count("hidden_size"), heads(facts)
    bias = facts.flag("qkv_bias", default=True)
    feedforward = routed(facts, sparse_by_step(facts), qwen_experts(facts, shared=True))

    def attention(window: float) -> Piece:
        return grouped_query(width, shape, window=window, qkv_bias=bias)

    return decoder(facts, stack(facts, attention, feedforward, late_windows(facts)))


def qwen3_moe(facts: Facts) -> Decoder:
    """Qwen 3 mixtures, and the text part of Qwen 3 VL mixtures: no shared expert."""
    width, shape = facts.count("hidden_size"), heads(facts)
    bias = facts.flag("attention_bias", default=False)
    feedforward = routed(facts, sparse_by_step(facts), qwen_experts(facts, shared=False))

    def attention(window: float) -> Piece:
        return grouped_query(
            width,
            shape,
            window=window,
            qkv_bias=bias,
            output_bias=bias,
            vectors=2 * shape[2],
        )

    return decoder(facts, stack(facts, attention, feedforward, late_windows(facts)))


def deepseek_experts(facts: Facts, *, correction: bool, module: str = "mlp") -> Piece:
    """Fine-grained experts and shared ones (arXiv 2401.06066)."""
    width, hidden = facts.count("hidden_size"), facts.count("moe_intermediate_size")
    count = facts.count(*ROUTED)
    shares = facts.count(*SHARED, default=0, low=0, silent=True)
    return experts(
        facts,
        width,
        hidden,
        count=count,
        active=facts.count("num_experts_per_tok", "num_experts_per_token"),
        module=f"{module}.experts",
        shared=dense(width, shares * hidden, module=f"{module}.shared_experts") if shares else None,
        vectors=correction * count,  # the bias that balances the load
    )


def _deepseek(facts: Facts, attention: Piece, *, correction: bool) -> list[ConfigLayer]:
    mixture = deepseek_experts(facts, correction=correction)
    feedforward = routed(facts, sparse_after_first(facts), mixture)
    return stack(facts, lambda window: attention, feedforward, full(facts))


def deepseek_v2(facts: Facts) -> Decoder:
    """DeepSeek V2: latent attention, shared experts."""
    attention = latent(facts, facts.count("hidden_size"))
    return decoder(facts, _deepseek(facts, attention, correction=False))


def deepseek_v3(facts: Facts) -> Decoder:
    """DeepSeek V3 and R1, Kimi K2: the same with a load-balancing bias."""
    attention = latent(facts, facts.count("hidden_size"))
    layers = _deepseek(facts, attention, correction=True)
    return decoder(facts, layers, drafts=_drafts(facts))


def deepseek_v32(facts: Facts) -> Decoder:
    """DeepSeek V3.2 and GLM-5: latent attention over the tokens an indexer chose.

    ``indexer_types`` names the layers that reuse the choice of an earlier one.
    """
    width = facts.count("hidden_size")
    base = latent(facts, width)
    kinds = facts.items("indexer_types", length=depth(facts), allowed=("full", "shared"))
    indexed = {own: sparse(facts, base, width, own) for own in (True, False)}
    layers = [
        ConfigLayer(indexed[kinds is None or kinds[i] == "full"], layer.feedforward, layer.vectors)
        for i, layer in enumerate(_deepseek(facts, base, correction=True))
    ]
    return decoder(facts, layers, drafts=_drafts(facts))


def deepseek_v4(facts: Facts) -> Decoder:
    """DeepSeek-V4: windows, compressed contexts, residual streams that are mixed (mHC).

    ``compress_ratios`` gives the tokens of an entry layer by layer, or ``layer_types`` the kinds.
    Each of both sublayers mixes ``hc_mult`` streams n by a matrix of (2 + n) n x n d numbers.
    """
    layers, width = depth(facts), facts.count("hidden_size")
    ratios = facts.items("compress_ratios", allowed=(0, *RATIOS.values()))
    if ratios is None:
        named = facts.items("layer_types", length=layers, allowed=("sliding_attention", *RATIOS))
        if named is None:
            wanted = "compress_ratios, or layer_types"
            raise facts.error("compress_ratios", "missing", wanted)
        ratios = [RATIOS.get(name, 0) for name in named]
    if len(ratios) < layers:
        raise facts.error("compress_ratios", f"{len(ratios)} items", f"one a layer: {layers}")
    window = facts.count("sliding_window")
    kinds = {ratio: compressed(facts, ratio, window) for ratio in dict.fromkeys(ratios[:layers])}
    mixture = deepseek_experts(facts, correction=True)
    streams = facts.count("hc_mult", default=4)
    mixing = (2 + streams) * streams
    vectors = 2 * width + 2 * (mixing * streams * width + mixing + 3)
    in_order = [ConfigLayer(kinds[ratio], mixture, vectors) for ratio in ratios[:layers]]
    facts.note("the traffic of the residual streams (mHC) is not counted")
    return decoder(facts, in_order, drafts=_drafts(facts))


def glm4_moe(facts: Facts) -> Decoder:
    """GLM-4.5 to 4.7: grouped queries with DeepSeek's experts."""
    width, shape = facts.count("hidden_size"), heads(facts)
    attention = grouped_query(
        width,
        shape,
        qkv_bias=facts.flag("attention_bias", default=False),
        vectors=2 * shape[2] * facts.flag("use_qk_norm", default=False),
    )
    layers = _deepseek(facts, attention, correction=True)
    return decoder(facts, layers, drafts=_drafts(facts))


def kimi_linear(facts: Facts) -> Decoder:
    """Kimi Linear: Kimi delta attention, latent attention on every fourth layer, experts.

    Layers are numbered from 1; the first ``first_k_dense_replace`` have no experts.
    Shapes and keys are those of configuration_kimi.py and modeling_kimi.py beside the checkpoint
    (huggingface.co/moonshotai/Kimi-Linear-48B-A3B-Instruct).

    Raises:
        InputError: layers that are neither or both.
    """
    width, every = facts.count("hidden_size"), range(1, depth(facts) + 1)
    own = facts.of("linear_attn_config", facts.values.get("linear_attn_config"))
    latent_layers = own.items("full_attn_layers", allowed=range(every.stop)) or []
    linear = own.items("kda_layers", allowed=range(every.stop)) or []
    if sorted([*latent_layers, *linear]) != [*every]:
        raise own.error("kda_layers", linear, f"all of 1 to {every[-1]} but full_attn_layers")
    attention = {True: latent(facts, width), False: kimi_delta(own, width)}
    mixture = deepseek_experts(facts, correction=True, module="block_sparse_moe")
    feedforward = routed(facts, sparse_after_first(facts), mixture)
    layers = [
        ConfigLayer(attention[i in latent_layers], feedforward(i - 1), 2 * width) for i in every
    ]
    longest = facts.count("model_max_length", default=None, silent=True)
    return replace(decoder(facts, layers, drafts=_drafts(facts)), max_positions=longest)


def kimi_delta(own: Facts, width: int) -> Piece:
    """Kimi delta attention; decays and gates are projected through the width of a head."""
    count, head = own.count("num_heads"), own.count("head_dim")
    taps, inner = own.count("short_conv_kernel_size"), count * head
    into = {f"{name}_proj": width * inner for name in "qkvo"} | {"b_proj": width * count}
    into |= {f"{name}_a_proj": width * head for name in "fg"}
    into |= {f"{name}_b_proj": head * inner for name in "fg"}
    into |= {f"{name}_conv1d": inner * taps for name in "qkv"}
    spec = KimiDelta.of(heads=count, head_width=head, gate_rank=head, conv_width=taps)
    vectors = count + inner + head  # decay of a head, bias of the decays, norm of the outputs
    return Piece(spec, {f"self_attn.{name}": size for name, size in into.items()}, vectors)


def _drafts(facts: Facts) -> int:
    return facts.count("num_nextn_predict_layers", default=0, low=0, silent=True)


def gpt_oss(facts: Facts) -> Decoder:
    """gpt-oss: sinks, biases everywhere, a window on every other layer."""
    width, hidden = facts.count("hidden_size"), facts.count("intermediate_size")
    shape = heads(facts, 64)
    count = facts.count("num_local_experts")
    mixture = experts(
        facts,
        width,
        hidden,
        count=count,
        active=facts.count("num_experts_per_tok", "experts_per_token"),
        vectors=count * (1 + 2 * hidden + width),  # biases of router and experts
    )
    bias = facts.flag("attention_bias", default=True)

    def attention(window: float) -> Piece:
        return grouped_query(
            width, shape, window=window, qkv_bias=bias, output_bias=bias, vectors=shape[0]
        )

    return decoder(facts, stack(facts, attention, lambda i: mixture, alternating(facts)))


def minimax_m2(facts: Facts) -> Decoder:
    """MiniMax M2: queries and keys normed over all heads at once."""
    width, shape = facts.count("hidden_size"), heads(facts, 128)
    layers = depth(facts)
    facts.items("attn_type_list", length=layers, allowed=(1,))
    if facts.count("shared_intermediate_size", default=0, low=0, silent=True):
        value = facts.values["shared_intermediate_size"]
        raise facts.error("shared_intermediate_size", value, "0: no shared expert")
    count = facts.count("num_local_experts")
    mixture = experts(
        facts,
        width,
        facts.count("intermediate_size"),
        count=count,
        active=facts.count("num_experts_per_tok"),
        module="block_sparse_moe.experts",
        vectors=count * facts.flag("use_routing_bias", default=True),
    )
    normed = (shape[0] + shape[1]) * shape[2] * facts.flag("use_qk_norm", default=True)
    attention = grouped_query(width, shape, vectors=normed)
    drafts = 0
    if facts.flag("use_mtp", default=False):
        each = facts.count("mtp_transformer_layers", default=1, low=0, silent=True)
        drafts = each * facts.count("num_mtp_modules", low=0)
    in_order = stack(facts, lambda window: attention, lambda i: mixture, full(facts))
    return decoder(facts, in_order, drafts=drafts)


FAMILIES: dict[str, Family] = {
    "deepseek_v2": deepseek_v2,
    "deepseek_v3": deepseek_v3,
    "deepseek_v32": deepseek_v32,
    "deepseek_v4": deepseek_v4,
    "glm4_moe": glm4_moe,
    "glm_moe_dsa": deepseek_v32,
    "gpt_oss": gpt_oss,
    "kimi_k2": deepseek_v3,
    "kimi_k25": deepseek_v3,
    "kimi_linear": kimi_linear,
    "minimax_m2": minimax_m2,
    "mixtral": mixtral,
    "qwen2_moe": qwen2_moe,
    "qwen3_moe": qwen3_moe,
    "qwen3_vl_moe": qwen3_moe,
    "qwen3_vl_moe_text": qwen3_moe,
}
