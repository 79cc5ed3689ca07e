"""Configs that cannot be read are refused in one sentence, whatever is in them."""

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from infer_jax.catalog.models import BUNDLED, load_model
from infer_jax.errors import InputError
from tests.unit.catalog.test_huggingface import FAMILY, LLAMA, read


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"model_type": "llama", "hidden', "not JSON"),
        (b"", "not JSON"),
        (b"\x00\x01\x02", "binary"),
        (b'{"model_type": "\xff"}', "byte 16"),
        (b"[1, 2]", "top level is 'list'"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (b" " * (16 * 2**20 + 1), "size"),
    ],
    ids=["truncated", "empty", "binary", "encoding", "list", "deep", "digits", "huge"],
)
def test_bad_files(tmp_path, content, told):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load_model(path)
    assert told in str(caught.value) and str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_an_empty_folder(tmp_path):
    for place in (tmp_path, tmp_path / "nothing.json"):
        with pytest.raises(InputError, match="no such file"):
            load_model(place)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"hidden_size": float("nan")}, "hidden_size"),
        ({"hidden_size": float("inf")}, "hidden_size"),
        ({"hidden_size": -64}, "hidden_size"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"hidden_size": "64"}, "hidden_size"),
        ({"hidden_size": 64.5}, "hidden_size"),
        ({"hidden_size": True}, "hidden_size"),
        ({"hidden_size": None}, "hidden_size"),
        ({"hidden_size": 10**400}, "hidden_size"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"num_key_value_heads": 8}, "num_key_value_heads"),
        ({"head_dim": None, "num_attention_heads": 6}, "num_attention_heads"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings"),
        ({"torch_dtype": "int3"}, "torch_dtype"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": ["full_attention", "odd", "odd"]}, "layer_types"),
        ({"text_config": [1]}, "text_config"),
        ({"model_type": None}, "model_type"),
        ({"model_type": 5}, "model_type"),
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
    with pytest.raises(InputError, match=f"config.json: {key} is 'missing'"):
        read(config)


def test_more_active_experts_than_experts_are_refused():
    config = json.loads((BUNDLED / "mixtral-8x7b.json").read_text())["config"]
    with pytest.raises(InputError, match="num_experts_per_tok is 9; allowed: at most 8"):
        read({**config, "num_experts_per_tok": 9})


def test_per_layer_embeddings_are_refused():
    config = {**FAMILY["gemma 4 with shared caches"][0], "hidden_size_per_layer_input": 256}
    with pytest.raises(InputError, match="per-layer embeddings are not modelled"):
        read(config)


def test_an_unknown_type_is_named_with_the_closest_known():
    with pytest.raises(InputError, match=r"model_type is 'llama5'; allowed: llama4? is closest"):
        read({**LLAMA, "model_type": "llama5"})


# --- anything else

VALID = [json.loads(path.read_text())["config"] for path in sorted(BUNDLED.glob("*.json"))]
VALID += [config for config, _ in FAMILY.values()]
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.integers(-2, 300)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["full_attention", "sliding_attention", "modelopt", "FP8", "re:(", "awq"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["quant_method", "bits", "weights", "x"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


@settings(
    derandomize=True, max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(data=st.data())
def test_any_mutation_imports_or_is_refused(data):
    config = copy.deepcopy(data.draw(st.sampled_from(VALID)))
    for _ in range(data.draw(st.integers(1, 3))):
        target = config
        nested = [v for v in config.values() if isinstance(v, dict) and v]
        if nested and data.draw(st.booleans()):
            target = data.draw(st.sampled_from(nested))
        key = data.draw(
            st.sampled_from([*target, "quantization_config", "layer_types", "head_dim"])
        )
        if data.draw(st.booleans()):
            target.pop(key, None)
        else:
            target[key] = data.draw(JUNK)
    try:
        read(config)
    except InputError as error:
        assert "\n" not in str(error)
