"""Radix trees that outgrow the arrays they were given first."""

import numpy as np
from jax.tree_util import Partial

from infer_jax.replays import Prefixes, Requests, serve, serve_copies, sglang

COUNT, PROMPT, CHUNK = 40, 1280, 64


def test_a_tree_without_room_for_a_part_is_replayed_in_larger_arrays():
    """40 prompts of 20 parts each, all kept: more parts than the first arrays have room for."""
    rules = sglang(tokens=100_000, budget=CHUNK, slots=4)
    tokens = [PROMPT] * COUNT
    prefixes = Prefixes.of([[i // 2] for i in range(COUNT)], tokens, length=CHUNK, block=1)
    # one at a time: the second of each two finds what they share, and all is kept
    given = Requests.of(np.arange(COUNT), tokens, [4] * COUNT, prefixes=prefixes)
    step = Partial(lambda c, decoding, context, new, pairs: c + 1e-5 * new, 0.001)
    one = serve(step, rules, given)
    routed = serve_copies(step, rules, given, 1, "round_robin")
    expected = np.tile([0, CHUNK], COUNT // 2)
    assert one.complete and routed.complete
    np.testing.assert_array_equal(np.asarray(one.cached)[:COUNT], expected)
    np.testing.assert_array_equal(np.asarray(routed.of("cached"))[:COUNT], expected)
    # of all but the last, which still runs: 3 tokens decoded and one once more, shared parts once
    kept = (COUNT - 1) * (PROMPT + 4) - COUNT // 2 * CHUNK
    assert one.path.kept is not None and routed.logs.path.kept is not None
    end = int(one.turns) - 1
    assert int(one.path.kept[end]) == int(routed.logs.path.kept[0, end]) == kept
