"""What of a model the options of its server depend on."""

import pytest

from infer_jax.catalog import load_model
from infer_jax.launch import traits


@pytest.mark.parametrize(
    ("name", "several"),
    [
        ("llama-3.1-8b", False),
        ("deepseek-v3", False),
        ("mistral-7b", False),
        ("gpt-oss-20b", True),  # windows on every other layer
        ("gemma-3-27b", True),
        ("jamba-v0.1", True),  # states beside caches
        ("nemotron-h-8b", True),
    ],
)
def test_hybrids_keep_caches_of_several_kinds(name, several):
    assert traits(load_model(name).architecture)["hybrid"] == several
