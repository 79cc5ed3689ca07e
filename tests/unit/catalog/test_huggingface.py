"""Reading config.json: every family by its modules' parameters, real files, bad files."""

import copy
import json
from typing import Any

import jax
import pytest

from infer_jax.catalog.huggingface.assembly import architecture
from infer_jax.catalog.huggingface.facts import Facts
from infer_jax.catalog.models import BUNDLED, load_model
from infer_jax.errors import InputError
from infer_jax.physics import decoder
from infer_jax.specs import UNBOUNDED, Architecture, leaves

SMALL: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100,
    "max_position_embeddings": 64, "torch_dtype": "bfloat16"}  # fmt: skip
LLAMA = {"model_type": "llama", **SMALL}
MINIMAX = {"model_type": "minimax_m2", **SMALL, "num_local_experts": 4, "num_experts_per_tok": 2}

# Families (or their rarer keys) that no bundled model shows, with the parameters of the
# modules of transformers 5.23 on the meta device. The latent mixture adds two load biases of 8.
FAMILY: dict[str, tuple[dict[str, Any], int]] = {
    "gpt2": ({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
        "vocab_size": 50257}, 124439808),
    "falcon-7b": ({"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32,
        "num_attention_heads": 71, "vocab_size": 65024}, 6921720704),
    "falcon-40b": ({"model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60,
        "num_attention_heads": 128, "num_kv_heads": 8, "new_decoder_architecture": True,
        "vocab_size": 65024}, 41303293952),
    "gemma-7b": ({"model_type": "gemma", "hidden_size": 3072, "intermediate_size": 24576,
        "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16,
        "head_dim": 256, "vocab_size": 256000}, 8537680896),
    "gemma-3-4b": ({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text",
        "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
        "sliding_window": 1024}, "vision_config": {"hidden_size": 1152}}, 3880263168),
    "glm-4-9b-0414": ({"model_type": "glm4", "hidden_size": 4096, "intermediate_size": 13696,
        "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 2,
        "head_dim": 128, "attention_bias": True, "vocab_size": 151552}, 9400279040),
    "phi-3-mini": ({"model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
        "vocab_size": 32064, "sliding_window": 2047}, 3821079552),
    "qwen1.5-moe-a2.7b": ({"model_type": "qwen2_moe", "hidden_size": 2048,
        "intermediate_size": 5632, "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632, "num_experts": 60, "num_experts_per_tok": 4,
        "num_hidden_layers": 24, "num_attention_heads": 16, "num_key_value_heads": 16,
        "vocab_size": 151936}, 14315784192),
    "llama with biases": (SMALL | {"model_type": "llama", "attention_bias": True, "mlp_bias": True,
        "tie_word_embeddings": True}, 118976),
    "gemma 4 with shared caches": (SMALL | {"num_hidden_layers": 12, "vocab_size": 1000,
        "model_type": "gemma4_text", "global_head_dim": 32, "num_global_key_value_heads": 1,
        "attention_k_eq_v": True, "num_kv_shared_layers": 6, "use_double_wide_mlp": True,
        "hidden_size_per_layer_input": 0, "sliding_window": 32}, 647056),
    "dense hybrid": (SMALL | {"num_hidden_layers": 5, "model_type": "qwen3_5_text",
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
        "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "full_attention_interval": 2,
        "tie_word_embeddings": True}, 208584),
    "experts of a latent width": (SMALL | {"num_hidden_layers": 6, "model_type": "nemotron_h",
        "hybrid_override_pattern": "ME*M-E", "mamba_num_heads": 8, "mamba_head_dim": 8,
        "ssm_state_size": 16, "n_groups": 2, "conv_kernel": 4, "moe_latent_size": 32,
        "moe_intermediate_size": 48, "moe_shared_expert_intermediate_size": 96,
        "n_routed_experts": 8, "num_experts_per_tok": 2}, 160112 + 16),
}  # fmt: skip


def parameters(arch: Architecture, active: bool = False) -> float:
    """All parameters by the package's laws, or those one token uses; the counts judge them."""
    with jax.enable_x64(True):
        if active:
            return float(decoder.active_parameters(arch))
        return float(decoder.total(decoder.parameters(arch).values()))


def read(config, **options) -> tuple[Any, list[str]]:
    facts = Facts(copy.deepcopy(config), "config.json")
    return architecture(facts, **options)[0], facts.notes


@pytest.mark.parametrize("name", FAMILY)
def test_families_have_the_parameters_of_their_modules(name):
    config, expected = FAMILY[name]
    assert parameters(read(config)[0]) == expected


@pytest.mark.parametrize(
    ("name", "more", "layers"),
    [
        # transformers' NemotronHConfig has no such field of its own
        ("experts of a latent width", {"num_nextn_predict_layers": 1}, 1.0),
        ("dense hybrid", {"mtp_num_hidden_layers": 1}, 1.0),
        (MINIMAX, {"use_mtp": True, "num_mtp_modules": 3}, 3.0),
        (MINIMAX, {"use_mtp": True, "num_mtp_modules": 3, "mtp_transformer_layers": 2}, 6.0),
        (MINIMAX, {"num_mtp_modules": 3}, 0.0),
    ],
)
def test_layers_that_draft_are_those_that_the_file_names(name, more, layers):
    """None by default."""
    config = FAMILY[name][0] if isinstance(name, str) else name
    alone, drafting = (float(read({**config, **x})[0].draft_layers) for x in ({}, more))
    assert (alone, drafting) == (0.0, layers)


def test_windows_follow_each_familys_rule():
    def window(config):
        return [float(b.attention.window) for b in read(config)[0].blocks]

    mistral = {**LLAMA, "model_type": "mistral"}
    assert window({**mistral, "sliding_window": 8}) == [8]
    assert window({**mistral, "sliding_window": None}) == [UNBOUNDED]
    qwen = {**LLAMA, "model_type": "qwen2", "sliding_window": 8, "max_window_layers": 2}
    assert window({**qwen, "use_sliding_window": False}) == [UNBOUNDED]
    assert window({**qwen, "use_sliding_window": True}) == [UNBOUNDED, 8]
    gemma = {**LLAMA, "model_type": "gemma2", "sliding_window": 8}
    assert window(gemma) == [8, UNBOUNDED]
    named = ["full_attention", "sliding_attention", "sliding_attention"]
    blocks = read({**gemma, "layer_types": named})[0].blocks
    assert [(float(b.count), float(b.attention.window)) for b in blocks] == [(1, UNBOUNDED), (2, 8)]


def test_what_is_left_out_or_assumed_is_told():
    notes = read(FAMILY["gemma-3-4b"][0])[1]
    assert any("vision_config is left out" in note for note in notes)
    assert any("num_attention_heads is missing: 8" in note for note in notes)
    assert any("torch_dtype is missing" in note for note in notes)
    assert read(LLAMA)[1] == []
    assert any("multi-token-prediction" in note for note in load_model("deepseek-v3").notes)


def test_a_layer_that_reuses_an_indexers_choice_has_no_indexer():
    config = json.loads((BUNDLED / "glm-5.json").read_text())["config"]
    kinds = ["full" if i < 3 or i % 4 == 2 else "shared" for i in range(78)]
    blocks = read({**config, "indexer_types": kinds})[0].blocks
    (shared,) = [block for block in blocks if float(block.attention.index_heads) == 0]
    assert float(shared.count) == kinds.count("shared")
    assert float(shared.attention.top_k) == 2048


def test_a_model_without_some_attention_layers():
    block = {
        "attention": {"n_heads_in_group": 2, "no_op": False},
        "ffn": {"ffn_mult": 6.0, "no_op": False},
    }
    skipped = {"attention": {"no_op": True}, "ffn": {"ffn_mult": 3.0}}
    config = {**LLAMA, "model_type": "nemotron-nas", "block_configs": [block, skipped, block]}
    first, second = read(config)[0].blocks
    assert (float(first.count), float(second.count)) == (2, 1)
    assert second.attention is None
    # 2 x 6 x 64 / 3 = 256 is a multiple of 256; 128 is rounded up to one
    assert float(first.feedforward.width) == float(second.feedforward.width) == 256


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"hidden_size": float("nan")}, "hidden_size"),
        ({"hidden_size": -64}, "hidden_size"),
        ({"hidden_size": "64"}, "hidden_size"),
        ({"hidden_size": 64.5}, "hidden_size"),
        ({"hidden_size": 10**400}, "hidden_size"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"head_dim": None, "num_attention_heads": 6}, "num_attention_heads"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings"),
        ({"torch_dtype": "int3"}, "torch_dtype"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"text_config": [1]}, "text_config"),
        ({"model_type": None}, "model_type"),
    ],
)
def test_bad_values_are_told_by_key(change, field):
    config = {**LLAMA, **change}
    with pytest.raises(InputError) as caught:
        read(config)
    assert caught.value.field == field and "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["hidden_size", "vocab_size", "num_hidden_layers", "model_type"])
def test_a_missing_key_is_named(key):
    config = {k: v for k, v in LLAMA.items() if k != key}
    with pytest.raises(InputError, match=f"config.json: {key} is missing"):
        read(config)


def test_more_active_experts_than_experts_are_refused():
    config = json.loads((BUNDLED / "mixtral-8x7b.json").read_text())["config"]
    with pytest.raises(InputError, match="num_experts_per_tok is 9; allowed: at most 8"):
        read({**config, "num_experts_per_tok": 9})


def test_per_layer_embeddings_are_refused():
    config = {**FAMILY["gemma 4 with shared caches"][0], "hidden_size_per_layer_input": 256}
    with pytest.raises(InputError, match="per-layer embeddings are not modelled"):
        read(config)


def test_an_unknown_type_is_refused_with_the_nearest_shapes():
    nearest = r"model_type is 'llama5'; allowed: .*:llama\", which reads it as the nearest shape; "
    with pytest.raises(InputError, match=nearest):
        read({**LLAMA, "model_type": "llama5"})
    config = json.loads((BUNDLED / "mixtral-8x7b.json").read_text())["config"]
    with pytest.raises(InputError, match=r'"config.json:mixtral", which reads'):
        read({**config, "model_type": "mix"})


def test_an_unknown_type_is_read_as_it_is_told_and_says_what_that_leaves_out(tmp_path):
    mixture = json.loads((BUNDLED / "qwen3-30b-a3b.json").read_text())["config"]
    place = tmp_path / "config.json"
    place.write_text(json.dumps({**mixture, "model_type": "novel"}))
    same, known = load_model(f"{place}:qwen3_moe"), load_model("qwen3-30b-a3b")
    numbers = [[float(x) for _, _, x in leaves(one.architecture)] for one in (same, known)]
    assert numbers[0] == numbers[1]
    assert any("model_type is novel, read as qwen3_moe" in note for note in same.notes)
    dense = load_model(f"{tmp_path}:llama")
    assert any("not read of it: " in note and "num_experts" in note for note in dense.notes)
    with pytest.raises(InputError, match="as is 'lama'; allowed: one of deepseek_v2"):
        load_model(f"{place}:lama")
