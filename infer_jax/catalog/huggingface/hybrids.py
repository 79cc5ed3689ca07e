"""Readers of the config.json of hybrids, whose layers are of different kinds.

Shapes and defaults are those of the family's modules in transformers 5.
"""

import math

from infer_jax.catalog.huggingface.attention import (
    Piece,
    gated_delta,
    grouped_query,
    heads,
    mamba,
)
from infer_jax.catalog.huggingface.facts import LAYERS, Facts
from infer_jax.catalog.huggingface.feedforward import dense, experts
from infer_jax.catalog.huggingface.layers import (
    FULL,
    ConfigLayer,
    Decoder,
    Family,
    decoder,
    depth,
    periodic,
    routed,
    sparse_after_first,
    sparse_by_step,
    stack,
    windows,
)
from infer_jax.catalog.huggingface.mixtures import deepseek_experts, qwen_experts
from infer_jax.specs import UNBOUNDED, StateSpace

LINEAR = "linear_attention"
CHUNKED = "chunked_attention"
MIXERS = {
    "M": "mamba",
    "-": "mlp",
    "*": "attention",
    "E": "moe",
    LINEAR: "mamba",
    FULL: "attention",
    **{name: name for name in ("mamba", "mlp", "attention", "moe")},
}


def qwen3_next(facts: Facts) -> Decoder:
    """Qwen3-Next and Qwen 3.5: gated delta layers, gated full attention on every fourth."""
    width, layers = facts.count("hidden_size"), depth(facts)
    shape = heads(facts, 256)
    bias = facts.flag("attention_bias", default=False)
    kinds = facts.items("layer_types", length=layers, allowed=(FULL, LINEAR))
    if kinds is None:
        every = facts.count("full_attention_interval", default=4)
        kinds = periodic(layers, every, LINEAR)
    mixers = {
        LINEAR: gated_delta(facts, width),
        FULL: grouped_query(
            width,
            shape,
            gate=facts.flag("attn_output_gate", default=True),
            qkv_bias=bias,
            output_bias=bias,
            vectors=2 * shape[2],
        ),
    }

    mixture = qwen_experts(facts, shared=True) if "num_experts" in facts else None
    is_sparse = sparse_by_step(facts) if mixture else lambda i: False
    feedforward = routed(facts, is_sparse, mixture)
    in_order = stack(facts, mixers.__getitem__, feedforward, kinds)
    drafts = facts.count("mtp_num_hidden_layers", default=0, low=0, silent=True)
    return decoder(facts, in_order, drafts=drafts)


def llama4(facts: Facts) -> Decoder:
    """Llama 4: experts on every ``interleave_moe_layer_step``-th layer, chunked attention.

    A query of a chunked layer sees its own chunk only; the chunk is taken as a window, which
    is the most it sees.
    """
    width, layers, shape = facts.count("hidden_size"), depth(facts), heads(facts)
    hidden = facts.count("intermediate_size")
    bias = facts.flag("attention_bias", default=False)
    step = facts.count("interleave_moe_layer_step")
    chosen = facts.items("moe_layers", allowed=range(LAYERS))
    feedforward = routed(
        facts,
        lambda i: (i + 1) % step == 0 if chosen is None else i in chosen,
        experts(
            facts,
            width,
            hidden,
            count=facts.count("num_local_experts"),
            active=facts.count("num_experts_per_tok"),
            module="feed_forward.experts",
            shared=dense(width, hidden, module="feed_forward.shared_expert"),
        ),
        lambda: dense(width, facts.count("intermediate_size_mlp"), module="feed_forward"),
    )
    kinds = facts.items("layer_types", length=layers, allowed=(FULL, CHUNKED))
    if kinds is None:
        every = facts.count("no_rope_layer_interval", default=4, silent=True)
        kinds = periodic(layers, every, CHUNKED)
    chunk = facts.count("attention_chunk_size", default=UNBOUNDED, silent=True)
    if chunk < UNBOUNDED:
        facts.note(f"attention in chunks of {chunk} tokens is taken as a window of {chunk}")
    mixers = {
        kind: grouped_query(width, shape, window=window, qkv_bias=bias, output_bias=bias)
        for kind, window in ((FULL, UNBOUNDED), (CHUNKED, chunk))
    }
    return decoder(facts, stack(facts, mixers.__getitem__, feedforward, kinds))


def gemma4(facts: Facts) -> Decoder:
    """Gemma 4: full layers with heads of their own, keys reused as values, experts beside.

    Raises:
        InputError: per-layer embeddings (E2B and E4B), which are not modelled.
    """
    width, layers = facts.count("hidden_size"), depth(facts)
    hidden = facts.count("intermediate_size")
    extra = facts.count("hidden_size_per_layer_input", default=256, low=0)
    if extra:
        raise facts.error(
            "hidden_size_per_layer_input", extra, "0: per-layer embeddings are not modelled"
        )
    queries, shared, head = heads(facts, 256)
    equal = facts.flag("attention_k_eq_v", default=False)
    wide = facts.count("global_head_dim", default=512)
    few = shared
    if equal:
        few = facts.count("num_global_key_value_heads", default=shared, silent=True)
        facts.divided("num_attention_heads", queries, "num_global_key_value_heads", few)
    reusing = layers - facts.count(
        "num_kv_shared_layers", default=0, low=0, high=layers, silent=True
    )
    double = facts.flag("use_double_wide_mlp", default=False)
    mixture = facts.flag("enable_moe_block", default=False)
    in_order = []
    for i, window in enumerate(windows(facts, periodic(layers, 6))):
        sliding, reuse = window < UNBOUNDED, i >= reusing
        shape = (queries, shared, head) if sliding else (queries, few, wide)
        attention = grouped_query(
            width,
            shape,
            window=window,
            kv_matrices=0 if reuse else 2 if sliding or not equal else 1,
            vectors=shape[2] * (1 if reuse else 2),
        )
        feedforward = dense(width, hidden * (2 if double and reuse else 1))
        norms = 4
        if mixture:
            count = facts.count("num_experts")
            feedforward = experts(
                facts,
                width,
                facts.count("moe_intermediate_size", "expert_intermediate_size"),
                count=count,
                active=facts.count("top_k_experts"),
                module="experts",
                shared=feedforward,
                vectors=width + count,  # scales of the router
            )
            norms = 7
        in_order.append(ConfigLayer(attention, feedforward, norms * width))
    return decoder(facts, in_order, tied=True)


def nemotron_h(facts: Facts) -> Decoder:
    """Nemotron-H and Nemotron 3: each layer is Mamba-2, attention, a plain MLP or experts.

    The projections into and out of a latent width, which every token passes, have the shape
    of a plain MLP and are counted with the shared expert.
    """
    width = facts.count("hidden_size")
    pattern = facts.text("hybrid_override_pattern", default=None)
    kinds = facts.items("layers_block_type", allowed=tuple(MIXERS))
    named = "layers_block_type"
    if pattern is not None:
        named, kinds = "hybrid_override_pattern", list(pattern)
        for letter in kinds:
            if letter not in MIXERS:
                raise facts.error(named, letter, "the letters M, E, * and -")
    if not kinds or len(kinds) > LAYERS:
        raise facts.error(named, "missing" if not kinds else len(kinds), "the kinds of layers")
    if facts.count("num_hidden_layers", default=len(kinds), silent=True) != len(kinds):
        raise facts.error(named, len(kinds), "as many layers as num_hidden_layers")

    def attention() -> ConfigLayer:
        queries, shared = facts.count("num_attention_heads"), facts.count("num_key_value_heads")
        facts.divided("num_attention_heads", queries, "num_key_value_heads", shared)
        shape = (queries, shared, facts.count("head_dim", "attention_head_dim"))
        return ConfigLayer(grouped_query(width, shape, module="mixer"), None, width)

    def mlp() -> ConfigLayer:
        hidden, bias = facts.count("intermediate_size"), facts.flag("mlp_bias", default=False)
        plain = dense(width, hidden, gated=False, bias=bias, module="mixer")
        return ConfigLayer(None, plain, width)

    def moe() -> ConfigLayer:
        narrow = facts.count("moe_latent_size", default=0, low=0, silent=True)
        always = facts.count("moe_shared_expert_intermediate_size", low=0) + narrow
        count = facts.count("n_routed_experts")
        mixture = experts(
            facts,
            width,
            facts.count("moe_intermediate_size"),
            count=count,
            active=facts.count("num_experts_per_tok"),
            outer=narrow,
            gated=False,
            module="mixer.experts",
            shared=dense(width, always, gated=False, module="mixer.shared_experts"),
            vectors=count,  # the bias that balances the load
        )
        if narrow:
            facts.note("the projections around the experts' latent width count as shared expert")
        return ConfigLayer(None, mixture, width)

    makers = {
        "mamba": lambda: ConfigLayer(mamba(facts, width), None, width),
        "attention": attention,
        "mlp": mlp,
        "moe": moe,
    }
    by_kind = {kind: makers[kind]() for kind in dict.fromkeys(MIXERS[kind] for kind in kinds)}
    drafts = facts.count("num_nextn_predict_layers", default=0, low=0, silent=True)
    return decoder(facts, [by_kind[MIXERS[kind]] for kind in kinds], drafts=drafts)


def mimo_v2_flash(facts: Facts) -> Decoder:
    """MiMo V2 Flash: windows with sinks and heads of their own, values narrower than keys."""
    width, layers = facts.count("hidden_size"), depth(facts)
    flags = facts.items("hybrid_layer_pattern", length=layers, allowed=(0, 1))
    if flags is None:
        raise facts.error("hybrid_layer_pattern", "missing", f"a list of {layers}: 1 slides")
    full = heads(facts)
    queries = facts.count("swa_num_attention_heads")
    shared = facts.count("swa_num_key_value_heads")
    facts.divided("swa_num_attention_heads", queries, "swa_num_key_value_heads", shared)
    sliding = (queries, shared, facts.count("swa_head_dim"))
    bias = facts.flag("attention_bias", default=False)
    mixers = {
        0: grouped_query(
            width,
            full,
            value_width=facts.count("v_head_dim"),
            qkv_bias=bias,
            vectors=full[0] * facts.flag("add_full_attention_sink_bias", default=False),
        ),
        1: grouped_query(
            width,
            sliding,
            value_width=facts.count("swa_v_head_dim"),
            window=facts.count("sliding_window", "sliding_window_size"),
            qkv_bias=bias,
            vectors=queries * facts.flag("add_swa_attention_sink_bias", default=True),
        ),
    }
    mixture = deepseek_experts(facts, correction=True)
    feedforward = routed(facts, sparse_after_first(facts), mixture)
    return decoder(facts, stack(facts, mixers.__getitem__, feedforward, flags))


def jamba(facts: Facts) -> Decoder:
    """Jamba: attention on every ``attn_layer_period``-th layer, else the first Mamba; experts.

    Defaults are those of transformers' configuration_jamba.
    """
    width, layers = facts.count("hidden_size"), depth(facts)
    period = facts.count("attn_layer_period", default=8)
    offset = facts.count("attn_layer_offset", default=4, low=0)
    step = facts.count("expert_layer_period", default=2)
    first = facts.count("expert_layer_offset", default=1, low=0)
    hidden, count = facts.count("intermediate_size"), facts.count("num_experts", default=16)
    attention, recurrent = grouped_query(width, heads(facts)), selective(facts, width)
    plain = dense(width, hidden, module="feed_forward")
    mixture = plain
    if count > 1:
        active = facts.count("num_experts_per_tok", default=2)
        module = "feed_forward.experts"
        mixture = experts(facts, width, hidden, count=count, active=active, module=module)
    in_order = stack(
        facts,
        lambda is_attention: attention if is_attention else recurrent,
        lambda i: mixture if i % step == first else plain,
        [i % period == offset for i in range(layers)],
    )
    return decoder(facts, in_order)


def selective(facts: Facts, width: int) -> Piece:
    """The first Mamba with norms of step, B and C; A, which is not multiplied, is a vector.

    States are kept in the format of activations, vLLM's default.
    """
    channels = width * facts.count("mamba_expand", default=2)
    state, taps = facts.count("mamba_d_state", default=16), facts.count("mamba_d_conv", default=4)
    rank = math.ceil(width / 16)
    if facts.values.get("mamba_dt_rank") != "auto":
        rank = facts.count("mamba_dt_rank", default=rank)
    matrices = {
        "mamba.in_proj": width * 2 * channels,
        "mamba.conv1d": channels * taps,
        "mamba.x_proj": channels * (rank + 2 * state),
        "mamba.dt_proj": rank * channels,
        "mamba.out_proj": channels * width,
    }
    vectors = channels * state + 2 * channels + rank + 2 * state  # A, skip and step bias, norms
    vectors += facts.flag("mamba_conv_bias", default=True) * channels
    vectors += facts.flag("mamba_proj_bias", default=False) * (2 * channels + width)
    spec = StateSpace.of(channels=channels, state_width=state, step_rank=rank, conv_width=taps)
    return Piece(spec, matrices, vectors)


FAMILIES: dict[str, Family] = {
    "gemma4": gemma4,
    "gemma4_text": gemma4,
    "jamba": jamba,
    "llama4": llama4,
    "llama4_text": llama4,
    "mimo_v2_flash": mimo_v2_flash,
    "nemotron_h": nemotron_h,
    "qwen3_5": qwen3_next,
    "qwen3_5_moe": qwen3_next,
    "qwen3_5_moe_text": qwen3_next,
    "qwen3_5_text": qwen3_next,
    "qwen3_next": qwen3_next,
}
