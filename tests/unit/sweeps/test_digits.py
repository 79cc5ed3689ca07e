"""Digits and wide indices, at and beyond 2^31, 2^32 and 2^63, with and without 64-bit numbers."""

from math import prod

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from infer_jax.sweeps import digits as wide

EDGES = [2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**63 + 1, 2**70 - 9]
SIZES = (2**10,) * 8


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("index", EDGES)
def test_device_digits_are_the_digits_of_the_index(index, x64):
    offsets = np.array([0, 1, 2, 1023, 1024, 2**20 + 7, wide.MAX_SEGMENT - 1], np.int32)
    with jax.enable_x64(x64):
        start = [jnp.asarray(d) for d in wide.to_digits(index, SIZES)]
        got = np.stack(wide.advance(start, SIZES, jnp.asarray(offsets)), -1)
        words = [jnp.asarray(x) for x in wide.to_words(index, 3)]
        sums = np.stack(wide.add(words, jnp.asarray(offsets, jnp.uint32)), -1)
    for row, words, offset in zip(got, sums, offsets.tolist(), strict=True):
        assert wide.to_index(words) == index + offset
        value = 0
        for digit in row.tolist():
            value = value * 2**10 + digit
        assert value == index + offset


@settings(max_examples=60)
@given(st.lists(st.integers(1, 5000), min_size=1, max_size=12), st.data())
def test_any_radices(sizes, data):
    index = data.draw(st.integers(0, prod(sizes) - 1))
    offset = data.draw(st.integers(0, min(prod(sizes) - 1 - index, wide.MAX_SEGMENT)))
    digits = [np.int32(d) for d in wide.to_digits(index, sizes)]
    got = wide.advance([jnp.asarray(d) for d in digits], sizes, jnp.asarray(offset, jnp.int32))
    assert [int(d) for d in got] == wide.to_digits(index + offset, sizes).tolist()


@given(st.integers(0, 2**96 - 1), st.integers(0, 2**96 - 1))
@settings(max_examples=60)
def test_words_are_ordered_as_indices(a, b):
    x, y = (list(wide.to_words(i, 3)) for i in (a, b))
    assert bool(wide.before(x, y)) == (a < b)
    assert wide.to_index(wide.to_words(a, 3)) == a
