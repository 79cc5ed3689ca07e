"""Cached tokens of each prompt, from the hashes of its blocks.

Traces that hash their prompts (Mooncake, arXiv 2407.00079, Section 4) name each block of 512
tokens by a number that stands for the block and all before it: equal numbers are equal prefixes.
"""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

BLOCK = 512  # tokens a hashed block of Mooncake's traces


def cached_tokens(
    hashes: Sequence[Sequence[int]],
    prompts: np.ndarray,
    *,
    block: int = BLOCK,
    capacity: int | None = None,
) -> np.ndarray:
    """Tokens at the start of each prompt that an earlier prompt left in the cache.

    ``hashes`` are the blocks of each prompt in order of arrival, ``prompts`` its tokens;
    ``capacity`` is the cache in blocks, which evicts the least recently used block (None: an
    unbounded cache). Blocks after the first miss do not hit.

    >>> cached_tokens([[1, 2], [1, 2, 3], [4, 2]], np.array([1000.0, 1500.0, 900.0])).tolist()
    [0.0, 1024.0, 0.0]
    """
    kept: OrderedDict[int, None] = OrderedDict()
    cached = np.zeros(len(prompts))
    for index, (blocks, tokens) in enumerate(zip(hashes, prompts, strict=True)):
        hits = 0
        while hits < len(blocks) and blocks[hits] in kept:
            hits += 1
        cached[index] = min(hits * block, float(tokens))
        for one in reversed(blocks):  # the first block last, as it is shared most
            kept[one] = None
            kept.move_to_end(one)
        while capacity is not None and len(kept) > capacity:
            kept.popitem(last=False)
    return cached
