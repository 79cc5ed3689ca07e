"""The architecture that a Hugging Face config.json describes, and the config.json of one."""

from collections.abc import Mapping
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from infer_jax.catalog.huggingface import quantisation
from infer_jax.catalog.huggingface.attention import LATENT
from infer_jax.catalog.huggingface.facts import Facts
from infer_jax.catalog.huggingface.families import FAMILIES as FAMILIES, READERS
from infer_jax.catalog.huggingface.layers import ConfigLayer, Decoder, Piece
from infer_jax.catalog.huggingface.quantisation import Quantisation
from infer_jax.errors import InputError
from infer_jax.results.problems import by_command
from infer_jax.specs import (
    UNBOUNDED,
    Architecture,
    Attention,
    Block,
    Experts,
    Feedforward,
    GroupedQuery,
    Latent,
    Sparse,
    leaves,
)

# numbers and lists of a config that all families read, or that say nothing of its shape
COMMON = ("vocab_size", "max_position_embeddings", "n_positions", "model_max_length")
ENDINGS = ("_id", "_ids", "architectures", "rope_theta", "max_window_layers", "pretraining_tp")
USUAL = ("llama", "qwen3", "mistral", "qwen3_moe", "mixtral", "deepseek_v3")  # what new ones copy
# keys of a config.json that spell numbers: their ends, and those of layers by what they are of
COUNTED = ("size", "dim", "rank", "experts", "heads", "layers", "window")
EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts")
HEADS = {"query_heads": "num_attention_heads", "kv_heads": "num_key_value_heads",
         "head_width": "head_dim"}  # fmt: skip


def architecture(
    config: Facts,
    published: Facts | None = None,
    *,
    quant: str | None = None,
    kv_dtype: str | None = None,
    family: str | None = None,
) -> tuple[Architecture, str, str]:
    """The architecture of a config.json, its model type and its formats in words.

    Args:
        config: the file; a nested ``text_config`` is the language model, and parts beside it
            (vision, audio) are left out and noted.
        published: hf_quant_config.json, if there is one; it takes precedence.
        quant: a format for all matrices instead of the checkpoint's.
        kv_dtype: a format for the KV cache instead of the checkpoint's.
        family: the model type to read it as, instead of its own.

    Raises:
        InputError: an unknown model type, a key that is missing or wrong.
    """
    text = config.section("text_config") or config
    for key in ("vision_config", "audio_config"):
        if key in config:
            config.note(f"{key} is left out: only the language model is counted")
    own = text.text("model_type", default=None)
    own = own or (config.text("model_type") if family is None else "not said")
    name = family or own
    if name not in FAMILIES:
        first, *others = nearest_families(own, text)
        way = f"--as {first}" if by_command() else f'"{config.where}:{first}"'
        more = f"{' or '.join(others)} are near, too"
        raise text.error("model_type", own, f"{way}, which reads it as the nearest shape; {more}")
    if family is not None:
        unread = ", ".join(unread_keys(family, text) or ())
        rest = f"; not read of it: {unread}" if unread else ""
        config.note(f"its model_type is {own}, read as {family}{rest}")
    if text is not config and "tie_word_embeddings" not in text:
        values = {"tie_word_embeddings": config.values.get("tie_word_embeddings"), **text.values}
        text = Facts(values, text.where, text.prefix, text.notes)
    formats = quantisation.override(quantisation.read(text, config, published), quant, kv_dtype)
    model = FAMILIES[name](text)
    if model.drafts:
        text.note(f"{model.drafts} multi-token-prediction layers are not counted as layers")
    return _assemble(model, formats), config.text("model_type", default=name), formats.sentence()


def nearest_families(name: str, config: Facts) -> list[str]:
    """The three families that leave the fewest keys of a config unread, by likeness of names."""
    unread = {names.split()[0]: unread_keys(names.split()[0], config) for names in READERS}

    def rank(family: str) -> tuple[bool, int, bool, float]:
        keys = unread[family]
        alike = SequenceMatcher(None, name, family).ratio()
        return keys is None, len(keys or ()), family not in USUAL, -alike

    return sorted(unread, key=rank)[:3]


def unread_keys(family: str, config: Facts) -> list[str] | None:
    """Keys of numbers and lists that a family does not read; None where it cannot read the rest."""
    values = _WatchedKeys(config.values)
    try:
        FAMILIES[family](Facts(values, config.where, config.prefix))
    except InputError:
        return None
    return [
        key
        for key, value in config.values.items()
        if isinstance(value, int | list)
        and not isinstance(value, bool)
        and not key.endswith((*COMMON, *ENDINGS))
        and key not in values.read
    ]


class _WatchedKeys(dict[str, object]):
    """The values of a config, and the keys that were read of it."""

    def __init__(self, values: Mapping[str, object]):
        super().__init__(values)
        self.read = set[str]()

    def get(self, key: str, default: object = None) -> object:
        self.read.add(key)
        return super().get(key, default)


def _assemble(model: Decoder, formats: Quantisation) -> Architecture:
    wide = formats.unquantised.format()
    blocks: dict[tuple[tuple[str, float], ...], list[Block]] = {}  # equal layers by their numbers
    for i, layer in enumerate(model.layers):
        block = _block(layer, formats, f"layers.{i}.")
        key = tuple((path, float(value)) for path, _, value in leaves(block))
        blocks.setdefault(key, []).append(block)
    facts = model.facts
    width, vocabulary = facts.count("hidden_size", "n_embd"), facts.count("vocab_size")
    tied = facts.flag("tie_word_embeddings", default=model.tied)
    lengths = ("max_position_embeddings", "n_positions", "model_max_length")
    head = formats.scheme("lm_head") if formats.head and not tied else formats.unquantised
    return Architecture.of(
        width=width,
        vocabulary=vocabulary,
        tied=float(tied),
        blocks=tuple(equal[0].with_(count=len(equal)) for equal in blocks.values()),
        vectors=width if model.vectors is None else model.vectors,
        parallel=float(model.parallel),
        max_positions=facts.count(*lengths, default=UNBOUNDED, silent=True),
        draft_layers=model.drafts,
        embedding=wide,
        head=head.format(),
        activations=wide,
        cache=(formats.cache or formats.unquantised).format(),
    )


def _block(layer: ConfigLayer, formats: Quantisation, prefix: str) -> Block:
    """One layer as a block, its matrices in the formats the checkpoint stores them in."""

    def spec(piece: Piece | None) -> Attention | Feedforward | None:
        if piece is None:
            return None
        weights = formats.format(piece.matrices, f"{prefix}{piece.module}.")
        if isinstance(piece.spec, Sparse):
            return piece.spec.with_(base=piece.spec.base.with_(weights=weights))
        stored = piece.spec.with_(weights=weights)
        return stored if piece.shared is None else stored.with_(shared=spec(piece.shared))

    inner = sum(piece.vectors for piece in (layer.attention, layer.feedforward) if piece)
    return Block.of(
        count=1,
        attention=spec(layer.attention),
        feedforward=spec(layer.feedforward),
        vectors=layer.vectors + inner,
    )


def config_of(arch: Architecture, base: Mapping[str, Any]) -> dict[str, object]:
    """``base`` with the keys that spell the shape of ``arch``; text_config is looked into."""
    if "text_config" in base:
        return {**base, "text_config": config_of(arch, base["text_config"])}
    new: dict[str, object] = {**base, "hidden_size": arch.width, "vocab_size": arch.vocabulary}
    new["num_hidden_layers"] = sum(float(b.count) for b in arch.blocks)
    if "num_nextn_predict_layers" in base or float(arch.draft_layers):
        new["num_nextn_predict_layers"] = arch.draft_layers
    for block in arch.blocks:
        attention = block.attention.base if isinstance(block.attention, Sparse) else block.attention
        if isinstance(attention, GroupedQuery):
            new |= {key: getattr(attention, name) for name, key in HEADS.items()}
            if "sliding_window" in base and float(attention.window) < UNBOUNDED:
                new["sliding_window"] = attention.window
        elif isinstance(attention, Latent):
            new |= {key: getattr(attention, name) for name, key in LATENT.items()}
            new["q_lora_rank"] = attention.query_rank
            new["num_key_value_heads"] = attention.query_heads
        layer = block.feedforward
        width_key = "intermediate_size"
        if isinstance(layer, Experts):
            new[next(k for k in EXPERTS if k in base)] = layer.experts
            new["num_experts_per_tok"] = layer.active
            if "moe_intermediate_size" in base:
                width_key = "moe_intermediate_size"
            if "n_shared_experts" in base:
                new["n_shared_experts"] = float(layer.shared.width) / float(layer.width)
            if "shared_expert_intermediate_size" in base:
                new["shared_expert_intermediate_size"] = layer.shared.width
        if layer is not None:
            new[width_key] = layer.width
    return {key: _plain(key, value) for key, value in new.items()}


def _plain(key: str, value: object) -> object:
    """Counts as whole numbers; everything else as it was."""
    if not isinstance(value, np.ndarray | np.generic | float):
        return value
    number = float(value)
    if not number.is_integer() and key.endswith(COUNTED):
        raise InputError("config.json", key, number, "a whole number")
    return int(number) if number.is_integer() else number
