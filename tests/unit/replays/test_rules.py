"""Blocks that hold tokens: whole numbers, by real arithmetic."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.replays import GuaranteedNoEvict

TOKENS = np.array([0, 1, 2, 15, 16, 17, 47, 48, 49, 4095, 4096, 4097, 10**6 - 1, 10**6], np.int32)


@pytest.mark.parametrize("bits", [32, 64])
def test_blocks_of_tokens_are_whole_and_just_enough(bits):
    """Compiled with the size of a block as a number that is known, and as an argument."""
    with jax.enable_x64(bits == 64):
        for size in (1, 3, 16, 48):
            rules = GuaranteedNoEvict.of(budget=512, slots=8, block=size)
            expected = -(-TOKENS // size)
            known = jax.jit(lambda tokens, r=rules: r.integers().blocks_of(tokens))(TOKENS)
            given = jax.jit(lambda r, tokens: r.integers().blocks_of(tokens))(rules, TOKENS)
            assert known.dtype == given.dtype == jnp.int32
            np.testing.assert_array_equal(known, expected)
            np.testing.assert_array_equal(given, expected)
