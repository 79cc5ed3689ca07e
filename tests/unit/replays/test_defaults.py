"""Defaults of vLLM's scheduler, and the room that drafts take."""

from infer_jax.footprint import EngineSettings, default_numbers
from infer_jax.replays import vllm


def test_vllms_defaults():
    """EngineArgs.get_batch_defaults on GPUs of 70 GiB and more, as a server: 8192 and 1024.

    vllm/engine/arg_utils.py at v0.11; blocks of 16 tokens in vllm/config/cache.py.
    """
    rules, server = vllm(blocks=100), default_numbers(EngineSettings)
    assert (float(rules.slots), float(rules.budget), float(rules.block)) == (1024, 8192, 16)
    assert (float(server.sequences), float(server.batched_tokens)) == (1024, 8192)
