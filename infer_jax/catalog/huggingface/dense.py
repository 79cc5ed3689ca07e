"""Readers of the config.json of each family of dense decoders.

Shapes and defaults are those of the family's modules in transformers 5.
"""

from collections.abc import Callable, Sequence
from functools import partial

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

    return decoder(facts, stack(facts, attention, lambda i: mlp, full_unless_named(facts)))


def plain(
    facts: Facts,
    layers: Callable[[Facts], list[float]],
    *,
    head: int = REQUIRED,
    grouped: bool = True,
    biased: Sequence[str] = (),
    bias: bool | None = None,
    norm: bool = False,
    norms: int = 2,
    tied: bool = False,
    draft_layers: str = "",
) -> Decoder:
    """A decoder of gated feedforwards whose family differs in these respects alone.

    ``layers``: the window of every layer; ``head``: the width of a head that is not given;
    ``biased``: which of the projections "qkv" and "output" have biases, if ``attention_bias`` says
    so, of which ``bias`` is the default (None: it is not read); ``norm``: whether queries and keys
    are normed; ``norms``: norms of a layer; ``draft_layers``: the key of their number.
    """
    width, shape = facts.count("hidden_size"), heads(facts, head, grouped)
    has_bias = True if bias is None else facts.flag("attention_bias", default=bias)
    mlp = dense(width, facts.count("intermediate_size"))

    def attention(window: float) -> Piece:
        return grouped_query(
            width,
            shape,
            window=window,
            qkv_bias=has_bias and "qkv" in biased,
            output_bias=has_bias and "output" in biased,
            vectors=2 * shape[2] * norm,
        )

    in_order = stack(facts, attention, lambda i: mlp, layers(facts), norms)
    drafts = facts.count(draft_layers, default=0, low=0, silent=True) if draft_layers else 0
    return decoder(facts, in_order, tied=tied, drafts=drafts)


def full(facts: Facts) -> list[float]:
    """No window on any layer."""
    return [UNBOUNDED] * depth(facts)


def full_unless_named(facts: Facts) -> list[float]:
    """No window, unless ``layer_types`` names one."""
    return windows(facts, [FULL] * depth(facts))


def alternating(facts: Facts) -> list[float]:
    """A window on every other layer, beginning with the first."""
    return windows(facts, [SLIDING if i % 2 == 0 else FULL for i in range(depth(facts))])


# Gemma 3 by the defaults of transformers, which published configs leave out
GEMMA3 = {
    "vocab_size": 262208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 4096,
}


def gemma3(facts: Facts) -> Decoder:
    """Gemma 3: five windows to one full layer, four norms, normed queries and keys."""
    missing = {key: value for key, value in GEMMA3.items() if key not in facts}
    if len(missing) == len(GEMMA3):
        raise facts.error("hidden_size", "missing", "a whole number")
    for key, value in missing.items():
        facts.note(f"{key} is missing: {value}, the default of transformers, is taken")
    facts = Facts({**facts.values, **missing}, facts.where, facts.prefix, facts.notes)
    every = facts.count("sliding_window_pattern", default=6, silent=True)
    layers = windows(facts, periodic(depth(facts), every))
    return plain(facts, lambda _: layers, norms=4, norm=True, tied=True)


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


MISTRAL = partial(plain, layers=windows)  # a window on every layer where one is given
QWEN3 = partial(plain, layers=late_windows, biased=("qkv", "output"), bias=False, head=128,
                norm=True)  # fmt: skip
FAMILIES: dict[str, Family] = {
    "falcon": falcon,
    "gemma": partial(plain, layers=full_unless_named, head=256, tied=True),
    "gemma2": partial(plain, layers=alternating, head=256, norms=4, tied=True),
    "gemma3": gemma3,
    "gemma3_text": gemma3,
    "glm4": partial(plain, layers=full, biased=("qkv",), bias=True, head=128, norms=4),
    "gpt2": gpt2,
    "llama": llama,
    "mimo": partial(plain, layers=late_windows, biased=("qkv",), bias=True,
                    draft_layers="num_nextn_predict_layers"),
    "ministral3": MISTRAL,
    "mistral": MISTRAL,
    "mistral3": MISTRAL,
    "nemotron-nas": nemotron_nas,
    "opt": opt,
    "phi3": partial(plain, layers=windows, grouped=False),  # fused matrices, equal elements
    "qwen2": partial(plain, layers=late_windows, biased=("qkv",)),
    "qwen3": QWEN3,
    "qwen3_vl": QWEN3,
    "qwen3_vl_text": QWEN3,
}  # fmt: skip
