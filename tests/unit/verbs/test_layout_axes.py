"""Layouts on GPUs, which have no torus: every divisor of their number, and whole numbers alone."""

import pytest

from infer_jax.verbs.layout_result import _axes


@pytest.mark.parametrize("chips", [1, 7, 12, 64])
def test_gpus_are_cut_by_their_divisors(chips):
    found = _axes(chips, None)
    assert [x for x, _, _ in found] == [d for d in range(1, chips + 1) if chips % d == 0]
    assert all(x * y * z == chips and z == int(z) for x, y, z in found)
