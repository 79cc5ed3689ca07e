"""Which checkpoint a plan is started with, and in which format."""

import json
from pathlib import Path

import pytest

from infer_jax.catalog import load_model
from infer_jax.launch import checkpoint, launches
from tests.unit.launch.test_launch import PLAIN

MODELS = (
    "llama-3.1-8b", "qwen3-32b", "deepseek-r1", "gpt-oss-20b", "kimi-k2.5", "opt-13b", "palm-8b",
)  # fmt: skip


@pytest.mark.parametrize("quant", [None, "bf16", "fp8", "fp8_block", "awq", "nvfp4"])
def test_a_plan_is_never_served_in_another_format(quant):
    """The checkpoint's own format, a repository in the format, a cast, or nothing at all."""
    for name in MODELS:
        load = checkpoint(name, quant)
        own, given = load_model(name), load_model(name, quant=quant)
        if not own.source.startswith("https://huggingface.co/"):
            assert load.missing, name
            continue
        repository = own.repository
        if load.missing or load.cast:
            assert own.quantisation != given.quantisation, name
            assert load.cast in ("", quant)
            assert not load.cast or own.quantisation.startswith(("bfloat16", "float16"))
        elif load.repository == repository and quant not in (None, "bf16"):
            assert own.quantisation == given.quantisation, name
        elif load.repository != repository:
            assert load.repository.startswith(repository)  # -FP8, -AWQ of the same publisher


@pytest.mark.parametrize(
    ("name", "repository"),
    [
        ("llama-3.1-70b", "meta-llama/Llama-3.1-70B-Instruct"),
        ("meta-llama/Meta-Llama-3.1-70B", "meta-llama/Meta-Llama-3.1-70B"),
        ("mistral-7b", "mistralai/Mistral-7B-Instruct-v0.3"),
        ("qwen3-32b", "Qwen/Qwen3-32B"),
    ],
)
def test_a_bundled_name_is_served_by_the_weights_that_follow_instructions(name, repository):
    """A base model's whole id stays what it is."""
    assert checkpoint(name).repository == repository


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8",
        "Qwen/Qwen3-32B-AWQ",
        "meta-llama/Llama-3.1-8B-Instruct",
        "nvidia/DeepSeek-R1-NVFP4",
        "deepseek-ai/DeepSeek-R1-0528",
    ],
)
def test_the_repository_that_was_asked_for_is_served(name):
    """Not the one whose shape it has: the id as it was given, in its own format."""
    load = checkpoint(name)
    assert (load.repository, load.cast, load.missing) == (name, "", "")
    assert load_model(name).repository == name
    assert checkpoint(f"https://huggingface.co/{name}/").repository == name
    served = launches(PLAIN._replace(checkpoint=load))
    assert all(name in launch.steps[0].command for launch in served)


def test_another_format_than_that_of_the_named_repository_is_cast_or_refused():
    """16 bits are cast while they are loaded; what is stored in fewer is not cast again."""
    cast = checkpoint("meta-llama/Llama-3.1-8B-Instruct", "fp8")
    assert (cast.repository, cast.cast) == ("meta-llama/Llama-3.1-8B-Instruct", "fp8")
    assert checkpoint("Qwen/Qwen3-32B-AWQ", "awq").missing == ""
    for name, quant in (("Qwen/Qwen3-32B-AWQ", "fp8"), ("Qwen/Qwen3-32B-FP8", "bf16")):
        assert f"{name} is stored in" in checkpoint(name, quant).missing
    # the original's FP8 build is not one of a tuning of it
    tuned = checkpoint("Qwen/Qwen3-235B-A22B-Instruct-2507", "fp8_block")
    assert (tuned.repository, tuned.cast) == ("Qwen/Qwen3-235B-A22B-Instruct-2507", "fp8_block")


def test_a_repository_in_16_bits_is_not_taken_for_the_quantised_original():
    """gpt-oss is published in MXFP4: what its name says to be BF16 has four times the bytes."""
    name = "unsloth/gpt-oss-20b-BF16"
    assert load_model("gpt-oss-20b").quantisation.startswith("mxfp4")
    assert load_model(name).quantisation.startswith("bfloat16")
    assert checkpoint(name).repository == name
    nano = "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"  # in 16 bits by config and name
    assert checkpoint(nano, "fp8")[:2] == (nano, "fp8")
    assert checkpoint(nano, "bf16") == checkpoint(nano)


def test_a_name_without_its_publisher_serves_nothing_else():
    assert checkpoint("Llama-3.3-70B-Instruct").repository == "meta-llama/Llama-3.3-70B-Instruct"
    load = checkpoint("Qwen2.5-7B-Instruct")  # of the base model's shape, other weights
    assert not load.repository and "whole id on Hugging Face" in load.missing


def test_a_checkpoint_of_a_user_is_served_from_its_folder(tmp_path):
    source = Path(load_model.__code__.co_filename).parent / "architectures" / "qwen3-8b.json"
    config = json.loads(source.read_text())
    folder = tmp_path / "my model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config.get("config", config)))
    for given in (folder, folder / "config.json"):
        load = checkpoint(str(given))
        assert (load.repository, load.missing) == (str(folder), "")
        (launch,) = launches(PLAIN._replace(checkpoint=load), "vllm")
        assert f"vllm serve '{folder}'" in launch.steps[0].command
