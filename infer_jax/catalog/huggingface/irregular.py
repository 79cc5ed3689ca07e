"""Readers of families whose layers are not attention and feedforward by one rule.

Shapes and defaults are those of the family's modules in transformers 5.
"""

from infer_jax.catalog.huggingface.attention import grouped_query, heads, mamba
from infer_jax.catalog.huggingface.facts import LAYERS, Facts
from infer_jax.catalog.huggingface.feedforward import dense, experts
from infer_jax.catalog.huggingface.layers import (
    FULL,
    ConfigLayer,
    Decoder,
    depth,
    next_tokens,
    periodic,
    windows,
)
from infer_jax.specs import UNBOUNDED

MIXERS = {
    "M": "mamba",
    "-": "mlp",
    "*": "attention",
    "E": "moe",
    "linear_attention": "mamba",
    FULL: "attention",
    **{name: name for name in ("mamba", "mlp", "attention", "moe")},
}


def opt(facts: Facts) -> Decoder:
    """OPT: learned positions (two more than the context), biases everywhere, plain ReLU."""
    width, hidden = facts.count("hidden_size"), facts.count("ffn_dim")
    if facts.count("word_embed_proj_dim", default=width, silent=True) != width:
        value = facts.values["word_embed_proj_dim"]
        raise facts.error("word_embed_proj_dim", value, f"{width}, the hidden_size")
    bias = facts.flag("enable_bias", default=True)
    attention = grouped_query(width, heads(facts, grouped=False), qkv_bias=bias, output_bias=bias)
    mlp = dense(width, hidden, gated=False, bias=bias)
    layers = [ConfigLayer(attention, mlp, 4 * width)] * depth(facts)
    positions = (facts.count("max_position_embeddings") + 2) * width
    final = 2 * width * facts.flag("do_layer_norm_before", default=True)
    return Decoder(facts, layers, tied=True, vectors=positions + final)


def gpt2(facts: Facts) -> Decoder:
    """GPT-2: learned positions, biases everywhere."""
    width, queries = facts.count("n_embd"), facts.count("n_head")
    shape = (queries, queries, facts.divided("n_embd", width, "n_head", queries))
    hidden = facts.count("n_inner", default=4 * width, silent=True)
    attention = grouped_query(width, shape, qkv_bias=True, output_bias=True)
    layer = ConfigLayer(attention, dense(width, hidden, gated=False, bias=True), 4 * width)
    positions = facts.count("n_positions") * width
    return Decoder(facts, [layer] * depth(facts), tied=True, vectors=positions + 2 * width)


def falcon(facts: Facts) -> Decoder:
    """Falcon: attention beside feedforward, one shared head or a few."""
    width, queries = facts.count("hidden_size"), facts.count("num_attention_heads")
    new = facts.flag("new_decoder_architecture", default=False)
    parallel = facts.flag("parallel_attn", default=True)
    shared = queries
    if new:
        shared = facts.count("num_kv_heads", default=queries, silent=True)
        facts.divided("num_attention_heads", queries, "num_kv_heads", shared)
    elif facts.flag("multi_query", default=True):
        shared = 1
    bias = facts.flag("bias", default=False)
    head = facts.divided("hidden_size", width, "num_attention_heads", queries)
    hidden = facts.count("ffn_hidden_size", default=4 * width, silent=True)
    attention = grouped_query(width, (queries, shared, head), qkv_bias=bias, output_bias=bias)
    norms = facts.count("num_ln_in_parallel_attn", default=2 if new else 1, high=2, silent=True)
    vectors = 2 * width * (norms if parallel else 2)
    layer = ConfigLayer(attention, dense(width, hidden, gated=False, bias=bias), vectors)
    in_order = [layer] * depth(facts)
    return Decoder(facts, in_order, tied=True, vectors=2 * width, parallel=parallel)


def nemotron_nas(facts: Facts) -> Decoder:
    """Llama Nemotron (DeciLM): every layer has its own heads and width, or skips a part."""
    width, queries = facts.count("hidden_size"), facts.count("num_attention_heads")
    head = facts.divided("hidden_size", width, "num_attention_heads", queries)
    blocks = facts.items("block_configs", length=depth(facts))
    if blocks is None:
        raise facts.error("block_configs", "missing", "a list of layers")

    def part(block: Facts, kind: str) -> Facts | None:
        inner = block.require(kind)
        if inner.flag("replace_with_linear", default=False):
            raise inner.error("replace_with_linear", True, "false: such layers are not modelled")
        return None if inner.flag("no_op", default=False) else inner

    layers = []
    for i, values in enumerate(blocks):
        block = facts.of(f"block_configs.{i}", values)
        mixing, channels = part(block, "attention"), part(block, "ffn")
        attention = feedforward = None
        if mixing is not None:
            group = mixing.count("n_heads_in_group")
            if queries % group:
                raise mixing.error("n_heads_in_group", group, f"a divisor of {queries}")
            window = mixing.count("window_length", default=UNBOUNDED, silent=True)
            attention = grouped_query(width, (queries, queries // group, head), window=window)
        if channels is not None:
            units = int(2 * channels.number("ffn_mult", high=1e6) * width / 3)
            feedforward = dense(width, max(-(-units // 256), 1) * 256)  # next multiple of 256
        norms = (attention is not None) + (feedforward is not None)
        layers.append(ConfigLayer(attention, feedforward, norms * width))
    return Decoder(facts, layers)


def gemma4(facts: Facts) -> Decoder:
    """Gemma 4: full layers with heads of their own, keys reused as values, experts beside.

    Raises:
        InputError: per-layer embeddings (E2B and E4B), which are not modelled.
    """
    width, layers = facts.count("hidden_size"), depth(facts)
    hidden = facts.count("intermediate_size")
    key = "hidden_size_per_layer_input"
    if extra := facts.count(key, default=256, low=0):
        raise facts.error(key, extra, "0: per-layer embeddings are not modelled")
    queries, shared, head = heads(facts, 256)
    equal = facts.flag("attention_k_eq_v", default=False)
    wide, few = facts.count("global_head_dim", default=512), shared
    if equal:
        few = facts.count("num_global_key_value_heads", default=shared, silent=True)
        facts.divided("num_attention_heads", queries, "num_global_key_value_heads", few)
    reused = facts.count("num_kv_shared_layers", default=0, low=0, high=layers, silent=True)
    double = facts.flag("use_double_wide_mlp", default=False)
    mixture = facts.flag("enable_moe_block", default=False)
    in_order = []
    for i, window in enumerate(windows(facts, periodic(facts, 6))):
        sliding, reuse = window < UNBOUNDED, i >= layers - reused
        shape = (queries, shared, head) if sliding else (queries, few, wide)
        attention = grouped_query(
            width,
            shape,
            window=window,
            kv_matrices=0 if reuse else 2 if sliding or not equal else 1,
            vectors=shape[2] * (1 if reuse else 2),
        )
        feedforward = dense(width, hidden * (2 if double and reuse else 1))
        if mixture:
            count = facts.count("num_experts")
            feedforward = experts(
                facts,
                facts.count("moe_intermediate_size", "expert_intermediate_size"),
                count,
                active=facts.count("top_k_experts"),
                module="experts",
                shared=feedforward,
                vectors=width + count,  # scales of the router
            )
        in_order.append(ConfigLayer(attention, feedforward, (7 if mixture else 4) * width))
    return Decoder(facts, in_order, tied=True)


def nemotron_h(facts: Facts) -> Decoder:
    """Nemotron-H and Nemotron 3: each layer is Mamba-2, attention, a plain MLP or experts."""
    pattern = facts.text("hybrid_override_pattern", default=None)
    kinds = facts.items("layers_block_type", allowed=tuple(MIXERS))
    key = "layers_block_type"
    if pattern is not None:
        key, kinds = "hybrid_override_pattern", list(pattern)
        for letter in kinds:
            if letter not in MIXERS:
                raise facts.error(key, letter, "the letters M, E, * and -")
    if not kinds or len(kinds) > LAYERS:
        raise facts.error(key, "missing" if not kinds else len(kinds), "the kinds of layers")
    if facts.count("num_hidden_layers", default=len(kinds), silent=True) != len(kinds):
        raise facts.error(key, len(kinds), "as many layers as num_hidden_layers")
    names = [MIXERS[kind] for kind in kinds]
    by_name = {name: _nemotron_layer(facts, name) for name in dict.fromkeys(names)}
    return Decoder(facts, [by_name[name] for name in names], drafts=next_tokens(facts))


def _nemotron_layer(facts: Facts, name: str) -> ConfigLayer:
    """One layer; experts may read a latent width.

    The projections into and out of it, which every token passes, have the shape of a plain MLP
    and are counted with the shared expert.
    """
    width = facts.count("hidden_size")
    if name == "mamba":
        return ConfigLayer(mamba(facts), None, width)
    if name == "attention":
        queries, shared = facts.count("num_attention_heads"), facts.count("num_key_value_heads")
        facts.divided("num_attention_heads", queries, "num_key_value_heads", shared)
        shape = (queries, shared, facts.count("head_dim", "attention_head_dim"))
        return ConfigLayer(grouped_query(width, shape, module="mixer"), None, width)
    if name == "mlp":
        hidden, bias = facts.count("intermediate_size"), facts.flag("mlp_bias", default=False)
        mlp = dense(width, hidden, gated=False, bias=bias, module="mixer")
        return ConfigLayer(None, mlp, width)
    narrow = facts.count("moe_latent_size", default=0, low=0, silent=True)
    always = facts.count("moe_shared_expert_intermediate_size", low=0) + narrow
    count = facts.count("n_routed_experts")
    mixture = experts(
        facts,
        facts.count("moe_intermediate_size"),
        count,
        outer=narrow,
        gated=False,
        module="mixer.experts",
        shared=dense(width, always, gated=False, module="mixer.shared_experts"),
        vectors=count,  # the bias that balances the load
    )
    if narrow:
        facts.note("the projections around the experts' latent width count as shared expert")
    return ConfigLayer(None, mixture, width)
