"""Defaults of vLLM's scheduler, and the room that drafts take."""

import jax.numpy as jnp

from infer_jax.footprint import EngineSettings, default_numbers
from infer_jax.replays import vllm
from infer_jax.replays.drafts import Drafted, blocked_tokens
from infer_jax.replays.state import empty


def test_vllms_defaults():
    """EngineArgs.get_batch_defaults on GPUs of 70 GiB and more, as a server: 8192 and 1024.

    vllm/engine/arg_utils.py at v0.11; blocks of 16 tokens in vllm/config/cache.py.
    """
    rules, server = vllm(blocks=100), default_numbers(EngineSettings)
    assert (float(rules.slots), float(rules.budget), float(rules.block)) == (1024, 8192, 16)
    assert (float(server.sequences), float(server.batched_tokens)) == (1024, 8192)


def test_a_pass_with_drafts_takes_room_for_those_it_feeds_and_the_next_ones():
    """k drafts beside the token of a pass, and k that are drafted for the next: 2 k more."""
    kind = jnp.dtype(jnp.float32)
    drafts = Drafted.empty(4, 3, kind)._replace(since=jnp.array([5, 5, 9]))
    server = empty(4, 3, 8, kind, 0).update(slots={"base": jnp.array([100, 50, 21])})
    server = server._replace(drafts=drafts)
    _, now = blocked_tokens(server, jnp.asarray(5), jnp.asarray(3), jnp.asarray(False))
    assert now.tolist() == [106, 56, 20]  # the last is not decoding yet
