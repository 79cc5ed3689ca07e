"""Bundled models: their parameters are those of the checkpoints, their names resolve."""

import json
import re
from typing import Any

import pytest

from infer_jax.catalog.models import BUNDLED, Model, list_models, load_model
from infer_jax.errors import InputError
from infer_jax.specs import leaves
from tests.unit.catalog.test_huggingface import parameters

SHIPPED = {name: load_model(name) for name in list_models()}

# Parameters of the modules of transformers 5.23, built on the meta device from the same
# facts. They leave out the bias that balances the load of experts (under 1e-7 of the total).
MODULES = {
    "deepseek-r1": 671026404352, "deepseek-v2-lite": 15706484224, "deepseek-v3": 671026404352,
    "deepseek-v3.2": 671877929216, "gemma-2-27b": 27227128320, "gemma-3-27b": 27009346304,
    "glm-4.5": 352797814784, "glm-4.5-air": 106852245504, "glm-5": 743911199232,
    "gpt-oss-120b": 116829156672, "gpt-oss-20b": 20914757184, "kimi-k2": 1026408209408,
    "kimi-k2.5": 1026408209408, "llama-3.1-405b": 405853388800, "llama-3.1-70b": 70553706496,
    "llama-3.1-8b": 8030261248, "llama-3.2-1b": 1235814400, "llama-3.2-3b": 3212749824,
    "llama-3.3-70b": 70553706496, "llama-4-maverick": 400711848960, "llama-4-scout": 107769861120,
    "mimo-v2-flash": 308778768832, "minimax-m2.5": 228689748992, "mistral-7b": 7248023552,
    "mistral-large-2": 122610069504, "mistral-small-24b": 23572403200,
    "mixtral-8x22b": 140620634112, "mixtral-8x7b": 46702792704,
    "nemotron-3-nano-30b-a3b": 31577937344, "nemotron-h-8b": 8100852736, "opt-13b": 12853473280,
    "opt-175b": 174604468224, "opt-30b": 29974540288, "opt-6.7b": 6658473984,
    "opt-66b": 65719701504, "phi-3-medium": 13960238080, "phi-4": 14659507200,
    "qwen2.5-72b": 72706203648, "qwen2.5-7b": 7615616512, "qwen3-0.6b": 596049920,
    "qwen3-1.7b": 1720574976, "qwen3-235b-a22b": 235093634560, "qwen3-30b-a3b": 30532122624,
    "qwen3-32b": 32762123264, "qwen3-8b": 8190735360, "qwen3-coder-480b-a35b": 480154875392,
    "qwen3-next-80b-a3b": 79674391296, "qwen3.5-397b-a17b": 396346350336,
}  # fmt: skip
# No module of transformers has these shapes: counted from the papers' tables. PaLM: a layer has
# 2 H d_h E of Q and O, 2 d_h E of K and V, 3 E F, and a norm; the embedding is tied, with a final
# norm (arXiv 2204.02311, Table 1). Megatron-Turing: a GPT-2 of 105 layers, 12 E^2 + 13 E each,
# 2048 learned positions, a final norm (arXiv 2201.11990).
MODULES |= {
    name: layers * (2 * heads * 256 * e + 2 * 256 * e + 12 * e * e + e) + 256000 * e + e
    for name, layers, e, heads in (
        ("palm-540b", 118, 18432, 48),
        ("palm-540b-padded", 118, 18432, 64),
        ("palm-62b", 64, 8192, 32),
        ("palm-8b", 32, 4096, 16),
    )
}


def deepseek_v4(width, layers, heads, rank, groups, experts, hidden, first):
    """Counted from the shapes of transformers 5.10's modules, models/deepseek_v4.

    From the third layer on, even layers pool 4 tokens into overlapping entries and have an indexer
    (64 heads of 128), odd ones pool 128; ``first`` is what the first two pool.
    """
    total = 2 * 129280 * width + width
    for i in range(layers):
        ratio = first if i < 2 else 4 if i % 2 == 0 else 128
        pools = {0: 0, 4: 2, 128: 1}[ratio]
        total += width * (rank + 512) + rank * heads * 512  # q_a, kv, q_b
        total += heads * 512 * 1024 + groups * 1024 * width  # o_a by groups, o_b
        total += 2 * width * pools * 512 + ratio * pools * 512 + 512 * (pools > 0)
        total += rank + 512 + heads + 2 * width  # norms and sinks
        if ratio == 4:
            total += rank * 64 * 128 + width * 64 + 2 * width * 256 + 4 * 256 + 128
        total += 3 * width * hidden * (experts + 1) + width * experts
        total += 2 * (24 * 4 * width + 24 + 3)  # four residual streams, mixed twice
    return total


MODULES["deepseek-v4-flash"] = deepseek_v4(4096, 43, 64, 1024, 8, 256, 2048, 0)
MODULES["deepseek-v4-pro"] = deepseek_v4(7168, 61, 128, 1536, 16, 384, 3072, 128)
MODULES["mt-nlg-530b"] = 105 * (12 * 20480**2 + 13 * 20480) + (51200 + 2048 + 2) * 20480
# Jamba: 4 layers of grouped-query attention, 28 of Mamba with 8192 channels of 16 numbers and
# steps through 256 (in, convolution with bias, step B C, steps with bias, A, skip, norms, out),
# 16 of 16 experts and 16 dense, counted from the shapes of transformers' modules, models/jamba.
MODULES["jamba-v0.1"] = (
    4 * (2 * 4096 * 4096 + 2 * 4096 * 1024)
    + 28 * (8192 * (2 * 4096 + 5 + 288 + 257 + 16 + 1 + 4096) + 288)
    + 16 * (16 * 3 * 4096 * 14336 + 16 * 4096)
    + 16 * 3 * 4096 * 14336
    + (2 * 65536 + 2 * 32 + 1) * 4096
)
# Kimi Linear: 20 layers of Kimi delta attention (Q, K, V, O and the strength of a write, decays and
# gates through 128, three convolutions of four taps, decay, bias and norm), 7 of latent attention,
# 26 of 256 experts beside a shared one, counted from the shapes of vLLM's modules (layers/kda.py,
# models/kimi_linear.py).
MODULES["kimi-linear-48b-a3b"] = (
    20 * (2304 * (4 * 4096 + 32) + 2 * 128 * (2304 + 4096) + 3 * 4096 * 4 + 32 + 4096 + 128)
    + 7 * (2304 * (32 * 192 + 576) + 512 * 32 * 256 + 4096 * 2304 + 512)
    + 26 * (257 * 3 * 2304 * 1024 + 256 * 2304 + 256)
    + 3 * 2304 * 9216
    + (2 * 163840 + 2 * 27 + 1) * 2304
)


def test_every_bundled_model_is_counted_and_there_are_enough():
    assert set(list_models()) == set(MODULES)
    assert len(list_models()) >= 28


@pytest.mark.parametrize("name", SHIPPED)
def test_a_bundled_model(name):
    """Layers add up, numbers are within bounds, parameters are those of the modules.

    In 1e9 the publishers round, count vision towers or draft layers, or leave the embedding out of
    the active ones; how far that takes them from the count is the tolerance. Its name on Hugging
    Face, of the repository that the config was read from, is a name of the model.
    """
    model = SHIPPED[name]
    facts, arch = json.loads((BUNDLED / f"{name}.json").read_text()), model.architecture
    assert facts["name"] == name and facts["source"]
    assert sum(float(b.count) for b in arch.blocks) == facts["config"]["num_hidden_layers"]
    for path, meta, value in leaves(arch):
        assert meta["low"] <= float(value) <= meta["high"], path
    counted = parameters(arch)
    assert counted == pytest.approx(MODULES[name], rel=1.5e-7)
    if "huggingface.co/" in model.source:
        assert load_model(model.source.split("huggingface.co/")[1].split("/blob")[0]).name == name
    assert set(facts["published"]) in (set(), {"total", "active", "source"})
    if model.published:
        total, active = model.published["total"], model.published["active"]
        assert model.published["source"]
        assert isinstance(total, int) and isinstance(active, int)
        assert counted == pytest.approx(total, rel=0.06)
        used, embedding = parameters(arch, active=True), float(arch.vocabulary * arch.width)
        assert min(abs(used - active), abs(used - embedding - active)) <= 0.2 * active


def test_a_folder_and_a_file_are_read(tmp_path):
    folder = tmp_path / "my-model"
    folder.mkdir()
    config = json.loads((BUNDLED / "qwen3-8b.json").read_text())["config"]
    (folder / "config.json").write_text(json.dumps(config))
    model = load_model(folder)
    assert isinstance(model, Model) and model.name == "my-model"
    assert parameters(model.architecture) == MODULES["qwen3-8b"]
    assert load_model(str(folder / "config.json")).architecture.width == 4096
    published = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    (folder / "hf_quant_config.json").write_text(json.dumps(published))
    arch: Any = load_model(folder).architecture
    assert float(arch.blocks[0].attention.weights.bytes) == 1
    assert float(arch.cache.bytes) == 1


NEAR = ("llama-3.1-9b", "meta-llama/Llama-3-8B-Instruct")


@pytest.mark.parametrize("name", [*NEAR, "", "no such model", "\0", "x" * 5000, 7, None])
def test_unknown_names_are_refused_in_one_sentence(name):
    with pytest.raises(InputError, match="load_model: model is") as caught:
        load_model(name)
    assert "\n" not in str(caught.value)
    if name in NEAR:
        assert re.search(r"llama-3.1-8b, .* or .* are closest; ", str(caught.value))
        assert len(str(caught.value)) < 250 and "opt-13b" not in str(caught.value)


def test_a_format_in_a_name_is_that_of_the_matrices():
    """Qwen's FP8 has scales by block of 128 x 128 (config.json of Qwen/Qwen3-32B-FP8)."""
    plain = load_model("qwen3-32b", quant="fp8_block")
    named = load_model("Qwen/Qwen3-32B-FP8")
    assert named.quantisation == plain.quantisation
    assert any("fp8_block by its name" in note for note in named.notes)
    assert load_model("Qwen/Qwen3-32B-FP8", quant="bf16").quantisation.startswith("bfloat16")


def test_a_folder_of_that_name_comes_before_a_bundled_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "Qwen" / "Qwen3-32B"
    folder.mkdir(parents=True)
    with pytest.raises(InputError, match="config"):
        load_model("Qwen/Qwen3-32B")
