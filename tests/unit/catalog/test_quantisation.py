"""Formats of checkpoints: bytes by definition, parts by module names, as Python's re says."""

import json
import random
import re
import time
from typing import Any

import pytest

from infer_jax.catalog.huggingface.module_names import Work, expression
from infer_jax.catalog.models import BUNDLED, load_model
from infer_jax.errors import InputError

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000,
    "max_position_embeddings": 512, "torch_dtype": "bfloat16",
}  # fmt: skip
MIXTURE: dict[str, Any] = LLAMA | {
    "model_type": "deepseek_v3", "num_key_value_heads": 4, "moe_intermediate_size": 32,
    "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "first_k_dense_replace": 1, "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8, "v_head_dim": 16,
}  # fmt: skip


def load(tmp_path, config, published=None, **options) -> Any:
    (tmp_path / "config.json").write_text(json.dumps(config))
    if published is not None:
        (tmp_path / "hf_quant_config.json").write_text(json.dumps(published))
    return load_model(tmp_path, **options)


def stored(spec) -> tuple[float, float]:
    return float(spec.weights.bytes), float(spec.weights.bits)


def parts(model):
    """Formats of attention, dense, routed and shared parts of the last block, and the head."""
    block = model.architecture.blocks[-1]
    mixture = block.feedforward
    head = model.architecture.head
    return (
        stored(block.attention),
        stored(mixture),
        stored(mixture.shared) if hasattr(mixture, "shared") else None,
        (float(head.bytes), float(head.bits)),
    )


# (bits + scale and zero point bits / group) / 8, and the class of the product
@pytest.mark.parametrize(
    ("config", "bytes_", "bits"),
    [
        ({"quant_method": "fp8"}, 1.0, 8),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 1 + 4 / 16384, 8),
        ({"quant_method": "fbgemm_fp8"}, 1.0, 8),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, (4 + 20 / 128) / 8, 16),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, (4 + 20 / 32) / 8, 16),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 1.0, 16),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 1.0, 8),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 0.5 + 4 / 64, 16),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 0.5 + 1 / 16, 4),
        ({"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"}, 0.5 + 1 / 16, 16),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, 1 + 1 / 32, 8),
        ({"quant_algo": "FP8"}, 1.0, 8),
    ],
)
def test_methods(tmp_path, config, bytes_, bits):
    model = load(tmp_path, {**LLAMA, "quantization_config": config})
    attention, dense, _, _ = parts(model)
    assert attention == dense == pytest.approx((bytes_, bits), rel=1e-12)
    assert float(model.architecture.embedding.bytes) == 2


INT4: dict[str, Any] = {"type": "int", "num_bits": 4, "group_size": 128}
FLOAT5 = {"weights": {"type": "float", "num_bits": 5}}
COMPRESSED: dict[str, Any] = {"quant_method": "compressed-tensors"}


@pytest.mark.parametrize(
    ("weights", "inputs", "bytes_", "bits"),
    [
        ({"type": "float", "num_bits": 8, "strategy": "channel"}, 8, 1.0, 8),
        ({"type": "float", "num_bits": 8, "block_structure": [128, 128]}, 8, 1 + 4 / 16384, 8),
        ({"type": "int", "num_bits": 8}, 8, 1.0, 8),
        (INT4, None, (4 + 16 / 128) / 8, 16),
        (INT4 | {"symmetric": False}, None, (4 + 20 / 128) / 8, 16),
        ({"type": "float", "num_bits": 4, "group_size": 16}, 4, 0.5625, 4),
        ({"type": "float", "num_bits": 4, "group_size": 32}, None, 0.53125, 16),
        (INT4, 8, (4 + 16 / 128) / 8, 8),
    ],
)
def test_compressed_tensors(tmp_path, weights, inputs, bytes_, bits):
    activations = None if inputs is None else {"num_bits": inputs}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": activations}
    config = COMPRESSED | {"config_groups": {"group_0": group}}
    config |= {"ignore": ["lm_head", "re:.*self_attn.*"]}
    config |= {"kv_cache_scheme": {"type": "float", "num_bits": 8}}
    model = load(tmp_path, {**LLAMA, "quantization_config": config})
    attention, dense, _, head = parts(model)
    assert attention == head == (2, 16)
    assert dense == pytest.approx((bytes_, bits), rel=1e-12)
    assert float(model.architecture.cache.bytes) == 1


@pytest.mark.parametrize(
    ("quant", "bytes_", "bits"),
    [
        ("bf16", 2.0, 16), ("fp8", 1.0, 8), ("fp8_block", 1 + 4 / 16384, 8), ("int8", 1.0, 8),
        ("int4", (4 + 20 / 128) / 8, 16), ("awq", (4 + 20 / 128) / 8, 16),
        ("gptq", (4 + 20 / 128) / 8, 16), ("nvfp4", 0.5625, 4), ("mxfp4", 0.53125, 16),
    ],
)  # fmt: skip
def test_quant_overrides_all_matrices_but_embedding_and_head(tmp_path, quant, bytes_, bits):
    config = {**MIXTURE, "quantization_config": {"quant_method": "fp8"}}
    attention, routed, shared, head = parts(load(tmp_path, config, quant=quant))
    assert attention == routed == shared == pytest.approx((bytes_, bits), rel=1e-12)
    assert head == (2, 16)


@pytest.mark.parametrize(("kv", "bytes_"), [("bf16", 2), ("fp16", 2), ("fp8", 1), ("auto", 1)])
def test_kv_dtype(tmp_path, kv, bytes_):
    published = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    model = load(tmp_path, LLAMA, published, kv_dtype=kv)
    assert float(model.architecture.cache.bytes) == bytes_


def test_excluded_modules_keep_their_format_and_split_blocks(tmp_path):
    left_out = ["lm_head", "model.layers.2.mlp.shared_experts*", "model.layers.3*"]
    left_out += [f"model.layers.{i}.self_attn.q_a_proj" for i in range(4)]
    facts = {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": left_out}
    model = load(tmp_path, MIXTURE, {"quantization": facts})
    blocks = model.architecture.blocks
    assert [float(b.count) for b in blocks] == [1, 1, 1, 1]  # dense, then three mixtures
    mixtures = [b.feedforward for b in blocks[1:]]
    assert [stored(m)[0] for m in mixtures] == [0.5625, 0.5625, 2]
    assert [stored(m.shared)[0] for m in mixtures] == [0.5625, 2, 2]
    # by hand: q_a 64*24 in bf16; q_b 24*96, kv_a 64*24, kv_b 16*128, o 64*64 in nvfp4
    wide, narrow = 64 * 24, 24 * 96 + 64 * 24 + 16 * 128 + 64 * 64
    mean = (2 * wide + 0.5625 * narrow) / (wide + narrow)
    assert stored(blocks[0].attention) == pytest.approx((mean, 16), rel=1e-12)


def test_mixed_precision_is_looked_up_by_module(tmp_path):
    layers = {
        f"model.layers.{i}.self_attn.{p}_proj": {"quant_algo": "FP8"}
        for i in range(4)
        for p in "qkvo"
    }
    layers |= {f"model.layers.{i}.mlp": {"quant_algo": "W4A16_NVFP4"} for i in range(2)}
    layers["lm_head"] = {"quant_algo": "NVFP4"}
    published = {"quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}}
    model = load(tmp_path, LLAMA, published)
    first, last = model.architecture.blocks
    assert stored(first.attention) == stored(last.attention) == (1, 8)
    assert (stored(first.feedforward), stored(last.feedforward)) == ((0.5625, 16), (2, 16))
    assert float(model.architecture.head.bytes) == 0.5625


def test_mxfp4_converts_experts_only():
    attention, routed, _, head = parts(load_model("gpt-oss-120b"))
    assert (attention, routed, head) == ((2, 16), (0.53125, 16), (2, 16))


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"quant_method": "magic"}, "quantization_config.quant_method"),
        ({}, "quantization_config.quant_method"),
        ("fp8", "quantization_config"),
        ({"quant_algo": "FP3"}, "quantization_config.quant_algo"),
        ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size"),
        ({"quant_method": "fp8", "weight_block_size": [0, -1]}, "weight_block_size"),
        ({"quant_method": "fp8", "modules_to_not_convert": [3]}, "modules_to_not_convert"),
        ({"quant_method": "awq", "bits": "four"}, "quantization_config.bits"),
        ({"quant_method": "gptq", "bits": 4, "dynamic": {"-:x": {}}}, "dynamic"),
        ({"quant_method": "bitsandbytes"}, "load_in_4bit"),
        (COMPRESSED, "config_groups"),
        (COMPRESSED | {"config_groups": {"g": {}}}, "weights"),
        (COMPRESSED | {"config_groups": {"g": FLOAT5}}, "num_bits"),
        (COMPRESSED | {"config_groups": {}, "ignore": ["re:("]}, "ignore"),
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "FP2"}, "kv_cache_quant_algo"),
        ({"quant_algo": "MIXED_PRECISION"}, "quantized_layers"),
    ],
)
def test_bad_formats_are_refused_in_one_sentence(tmp_path, config, field):
    with pytest.raises(InputError, match=re.escape(field)):
        load(tmp_path, {**LLAMA, "quantization_config": config})


@pytest.mark.parametrize("options", [{"quant": "fp5"}, {"kv_dtype": "int2"}, {"quant": 8}])
def test_unknown_choices_list_the_known(options):
    with pytest.raises(InputError, match="allowed: bf16, fp"):
        load_model("llama-3.1-8b", **options)


PARTS = ["a", "b", "ab", ".", ".*", "[ab]", "[^a.]", r"\d", r"\d+", r"\w*?", "(a|b.)", "(?:ab)*"]
PARTS += ["a{2}", "b{1,3}", "(a*b?)+", "^", "$", r"\b", r"\B", "(?=b)", "(?!.*b)", r"\.", "x|a"]
PARTS += ["(|a)", "((a|b)*a)?", "[0-9_]{0,2}", r"[\W\d]", "(?:a(?!b))*", ".+", r"\s", r"\D"]


def test_as_python_says():
    """2,000 random patterns on short names, which Python's backtracking finishes, too."""
    dice, agreed = random.Random(0), 0
    for _ in range(2000):
        pattern = "".join(dice.choices(PARTS, k=dice.randrange(1, 6)))
        name = "".join(dice.choices("ab.01_ ", k=dice.randrange(1, 8)))
        try:
            wanted = re.compile(pattern)
        except re.error:
            with pytest.raises(ValueError):
                expression(pattern)
            continue
        result = bool(expression(pattern)(name, {0}, Work()))
        assert result == bool(wanted.match(name)), (pattern, name)
        agreed += result
    assert 400 < agreed < 1600


@pytest.mark.parametrize(
    "pattern",
    [
        "(a*)*$", "(a|a)*$", "((a+)+)+$", "(.*.*.*)*!", ".*a.*a.*a.*a.*a.*a.*a.*a!",
        "(a{1,60}){1,60}!", "(?:" * 30 + "bc" + "){1,2}" * 30, "(?:" * 30 + "bc" + "){1,}" * 30,
    ],
)  # fmt: skip
def test_patterns_that_take_python_years(pattern):
    begun = time.process_time()
    assert not expression(pattern)("a" * 60 + "b", {0}, Work())
    assert time.process_time() - begun < 0.5


@pytest.mark.parametrize(
    "pattern", ["(", r"(a)\1", "(?<=a)b", "(?i)a", "(?>a)", "a" * 2001, "(" * 40 + ")" * 40, "a*+"]
)
def test_patterns_that_are_refused(pattern):
    with pytest.raises(ValueError):
        expression(pattern)


def config(folder, name, **changes):
    whole = json.loads((BUNDLED / f"{name}.json").read_text())["config"]
    (folder / "config.json").write_text(json.dumps(whole | changes))
    return folder / "config.json"


def skipping(names, method="compressed-tensors"):
    weights = {"weights": {"type": "float", "num_bits": 8}}
    facts = {"quant_method": method, "config_groups": {"all": weights}, "ignore": names}
    return {"quantization_config": facts}


@pytest.mark.parametrize(
    "changes, said",
    [
        (skipping(["re:(.*)*$", "re:((l|a|y)+)+$"]), None),
        (skipping(["*a*" * 5000 + "!"]), None),
        (skipping([f"layers.{i}.mlp" for i in range(200_000)]), None),
        (skipping(["x"] * 300_000), "a list of at most 262144"),
        pytest.param(
            *(skipping([f"re:.*(a|b|{i})*(c|d)*!" for i in range(9000)]), "9000 patterns"),
            marks=pytest.mark.slow,
        ),
        (skipping([f"*a*b*{i}" for i in range(200_000)]), "200000 patterns"),
        ({"mlp_only_layers": [0] * 1_000_000}, "a list of at most 1000"),
        ({"num_hidden_layers": 10_000}, "from 1 to 1000"),
    ],
    ids=range(8),
)
def test_no_config_takes_long(tmp_path, changes, said):
    path = config(tmp_path, "qwen3-30b-a3b", **changes)
    begun = time.process_time()
    if said is None:
        load_model(path)
    else:
        with pytest.raises(InputError, match=said):
            load_model(path)
    assert time.process_time() - begun < 10.0
