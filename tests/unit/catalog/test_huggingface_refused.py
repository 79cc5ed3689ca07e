"""Configs that cannot be read are refused in one sentence, whatever is in them."""

import json

import pytest

from infer_jax.catalog.models import BUNDLED, load_model
from infer_jax.errors import InputError
from infer_jax.specs import leaves
from tests.unit.catalog.test_huggingface import FAMILY, LLAMA, read


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
