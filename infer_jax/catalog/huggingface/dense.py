"""Readers of the config.json of each family of dense decoders.

Shapes and defaults are those of the family's modules in transformers 5.
"""

from infer_jax.catalog.huggingface.attention import Piece, grouped_query, heads
from infer_jax.catalog.huggingface.facts import REQUIRED, Facts
from infer_jax.catalog.huggingface.feedforward import dense
from infer_jax.catalog.huggingface.layers import (
    FULL,
    SLIDING,
    ConfigLayer,
    Decoder,
    Family,
    decoder,
    depth,
    late_windows,
    periodic,
    stack,
    windows,
)
from infer_jax.specs import UNBOUNDED


def llama(facts: Facts) -> Decoder:
    """Llama 1 to 3: two norms, biases only on request."""
    width, shape = facts.count("hidden_size"), heads(facts, grouped=False)
    bias = facts.flag("attention_bias", default=False)
    mlp = dense(
        width,
        facts.count("intermediate_size"),
        bias=facts.flag("mlp_bias", default=False),
    )

    def attention(window: float) -> Piece:
        return grouped_query(width, shape, window=window, qkv_bias=bias, output_bias=bias)

    whole = [FULL] * depth(facts)
    return decoder(facts, stack(facts, attention, lambda i: mlp, windows(facts, whole)))


def mistral(facts: Facts) -> Decoder:
    """Mistral and Ministral: a window on every layer where one is given."""
    return _plain(facts, windows(facts))


def phi3(facts: Facts) -> Decoder:
    """Phi-3 and Phi-4: fused matrices of the same elements."""
    return _plain(facts, windows(facts), grouped=False)


def qwen2(facts: Facts) -> Decoder:
    """Qwen 2 and 2.5: biased queries, keys and values."""
    return _plain(facts, late_windows(facts), qkv_bias=True)


def mimo(facts: Facts) -> Decoder:
    """MiMo 7B: Qwen 2 with multi-token-prediction layers."""
    bias = facts.flag("attention_bias", default=True)
    drafts = facts.count("num_nextn_predict_layers", default=0, low=0, silent=True)
    return _plain(facts, late_windows(facts), qkv_bias=bias, drafts=drafts)


def qwen3(facts: Facts) -> Decoder:
    """Qwen 3 and the text part of Qwen 3 VL: normed queries and keys."""
    bias = facts.flag("attention_bias", default=False)
    return _plain(facts, late_windows(facts), qkv_bias=bias, output_bias=bias, head=128, norm=True)


def gemma(facts: Facts) -> Decoder:
    """Gemma 1: tied embedding, heads of their own width."""
    whole = windows(facts, [FULL] * depth(facts))
    return _plain(facts, whole, head=256, tied=True)


def gemma2(facts: Facts) -> Decoder:
    """Gemma 2: a window on every other layer, four norms."""
    kinds = [SLIDING if i % 2 == 0 else FULL for i in range(depth(facts))]
    return _plain(facts, windows(facts, kinds), head=256, norms=4, tied=True)


def gemma3(facts: Facts) -> Decoder:
    """Gemma 3: five windows to one full layer, four norms, normed queries and keys.

    Published configs leave out what equals the defaults of transformers.
    """
    defaults = {
        "vocab_size": 262208,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
    }
    taken = [key for key in defaults if key not in facts]
    if len(taken) == len(defaults):
        raise facts.error("hidden_size", "missing", "a whole number")
    for key in taken:
        facts.note(f"{key} is missing: {defaults[key]}, the default of transformers, is taken")
    whole = {**facts.values, **{key: defaults[key] for key in taken}}
    facts = Facts(whole, facts.where, facts.prefix, facts.notes)
    every = facts.count("sliding_window_pattern", default=6, silent=True)
    layers = windows(facts, periodic(depth(facts), every))
    return _plain(facts, layers, norms=4, norm=True, tied=True)


def glm4(facts: Facts) -> Decoder:
    """GLM-4 0414: biased queries, keys and values, four norms."""
    bias = facts.flag("attention_bias", default=True)
    whole = [UNBOUNDED] * depth(facts)
    return _plain(facts, whole, qkv_bias=bias, head=128, norms=4)


def _plain(
    facts: Facts,
    layers: list[float],
    *,
    head: int = REQUIRED,
    grouped: bool = True,
    qkv_bias: bool = False,
    output_bias: bool = False,
    norm: bool = False,
    norms: int = 2,
    tied: bool = False,
    drafts: int = 0,
) -> Decoder:
    width = facts.count("hidden_size")
    shape = heads(facts, head, grouped)
    mlp = dense(width, facts.count("intermediate_size"))

    def attention(window: float) -> Piece:
        return grouped_query(
            width,
            shape,
            window=window,
            qkv_bias=qkv_bias,
            output_bias=output_bias,
            vectors=2 * shape[2] * norm,
        )

    in_order = stack(facts, attention, lambda i: mlp, layers, norms)
    return decoder(facts, in_order, tied=tied, drafts=drafts)


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
    return decoder(facts, layers, tied=True, vectors=positions + final)


def gpt2(facts: Facts) -> Decoder:
    """GPT-2: learned positions, biases everywhere."""
    width, queries = facts.count("n_embd"), facts.count("n_head")
    shape = (queries, queries, facts.divided("n_embd", width, "n_head", queries))
    hidden = facts.count("n_inner", default=4 * width, silent=True)
    attention = grouped_query(width, shape, qkv_bias=True, output_bias=True)
    layer = ConfigLayer(attention, dense(width, hidden, gated=False, bias=True), 4 * width)
    positions = facts.count("n_positions") * width
    return decoder(facts, [layer] * depth(facts), tied=True, vectors=positions + 2 * width)


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
    shape = (
        queries,
        shared,
        facts.divided("hidden_size", width, "num_attention_heads", queries),
    )
    hidden = facts.count("ffn_hidden_size", default=4 * width, silent=True)
    attention = grouped_query(width, shape, qkv_bias=bias, output_bias=bias)
    norms = facts.count("num_ln_in_parallel_attn", default=2 if new else 1, high=2, silent=True)
    vectors = 2 * width * (norms if parallel else 2)
    layer = ConfigLayer(attention, dense(width, hidden, gated=False, bias=bias), vectors)
    in_order = [layer] * depth(facts)
    return decoder(facts, in_order, tied=True, vectors=2 * width, parallel=parallel)


def nemotron_nas(facts: Facts) -> Decoder:
    """Llama Nemotron (DeciLM): every layer has its own heads and width, or skips a part."""
    width, queries = facts.count("hidden_size"), facts.count("num_attention_heads")
    head = facts.divided("hidden_size", width, "num_attention_heads", queries)
    blocks = facts.items("block_configs", length=depth(facts))
    if blocks is None:
        raise facts.error("block_configs", "missing", "a list of layers")
    layers = []
    for i, block in enumerate(blocks):
        block = facts.of(f"block_configs.{i}", block)
        parts: dict[str, Facts | None] = {}
        for kind in ("attention", "ffn"):
            part = block.section(kind)
            if part is None:
                raise block.error(kind, "missing", "a JSON object")
            if part.flag("replace_with_linear", default=False):
                raise part.error("replace_with_linear", True, "false: such layers are not modelled")
            parts[kind] = None if part.flag("no_op", default=False) else part
        attention = feedforward = None
        if parts["attention"] is not None:
            group = parts["attention"].count("n_heads_in_group")
            if queries % group:
                raise parts["attention"].error("n_heads_in_group", group, f"a divisor of {queries}")
            window = parts["attention"].count("window_length", default=UNBOUNDED, silent=True)
            attention = grouped_query(width, (queries, queries // group, head), window=window)
        if parts["ffn"] is not None:
            units = int(2 * parts["ffn"].number("ffn_mult", high=1e6) * width / 3)
            feedforward = dense(width, max(-(-units // 256), 1) * 256)  # next multiple of 256
        norms = (attention is not None) + (feedforward is not None)
        layers.append(ConfigLayer(attention, feedforward, norms * width))
    return decoder(facts, layers)


FAMILIES: dict[str, Family] = {
    "falcon": falcon,
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3": gemma3,
    "gemma3_text": gemma3,
    "glm4": glm4,
    "gpt2": gpt2,
    "llama": llama,
    "mimo": mimo,
    "ministral3": mistral,
    "mistral": mistral,
    "mistral3": mistral,
    "nemotron-nas": nemotron_nas,
    "opt": opt,
    "phi3": phi3,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "qwen3_vl": qwen3,
    "qwen3_vl_text": qwen3,
}
