"""Positions in a grid of any size: mixed-radix digits and wide indices, exact.

A grid may have more points than 64 bits count. The host holds an index as a Python integer;
a device gets the digits and the 32-bit words of a segment's first point and adds the offset
of each lane, with carries. No number on the device is wider than 32 bits.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

MAX_SEGMENT = 2**30  # points of one segment: an offset and a digit add up within 32 bits
Numbers = TypeVar("Numbers", Array, np.ndarray)  # of a device, or of the host
WideIndex = tuple[Array, ...]  # most significant first, uint32


def words_needed(size: int) -> int:
    """32-bit words of an index below ``size``.

    >>> words_needed(2**32), words_needed(2**32 + 1)
    (1, 2)
    """
    return max(1, -(-(size - 1).bit_length() // 32))


def to_words(index: int, count: int) -> np.ndarray:
    """The ``count`` words of an index, most significant first."""
    return np.frombuffer(index.to_bytes(4 * count), ">u4").astype(np.uint32)


def to_index(words: Iterable[int]) -> int:
    """The index of words, most significant first.

    >>> to_index(to_words(2**70 + 5, 3)) == 2**70 + 5
    True
    """
    return int.from_bytes(np.array([*words], ">u4").tobytes())


def add(words: Sequence[Array], offset: Array) -> WideIndex:
    """The words of index + offset; ``offset`` is below 2^32."""
    carry = jnp.asarray(offset, jnp.uint32)
    out: list[Array] = []
    for word in reversed(words):
        new = word + carry
        carry = (new < carry).astype(jnp.uint32)
        out.append(new)
    return tuple(reversed(out))


def to_digits(index: int, sizes: Sequence[int]) -> np.ndarray:
    """The digits of an index, the last one fastest.

    >>> to_digits(7, (2, 3, 4)).tolist()
    [0, 1, 3]
    """
    digits: list[int] = []
    for size in reversed(sizes):
        index, digit = divmod(index, size)
        digits.append(digit)
    return np.array(digits[::-1], np.int32)


def advance(digits: Sequence[Array], sizes: Sequence[int], offset: Array) -> tuple[Array, ...]:
    """The digits of the point ``offset`` (at most 2^30) after the one with ``digits``."""
    carry = jnp.asarray(offset, jnp.uint32)
    out: list[Array] = []
    for digit, size in zip(reversed(digits), reversed(sizes), strict=True):
        total = digit.astype(jnp.uint32) + carry
        width = jnp.full_like(total, size)
        out.append(lax.rem(total, width).astype(jnp.int32))
        carry = lax.div(total, width)
    return tuple(reversed(out))


def before(a: Sequence[Numbers], b: Sequence[Numbers]) -> Numbers:
    """Whether a comes before b, column by column: the order in which ties are broken."""
    less, same = a[0] < b[0], a[0] == b[0]
    for x, y in zip(a[1:], b[1:], strict=True):
        less, same = less | (same & (x < y)), same & (x == y)
    return less  # pyright: ignore[reportReturnType]
