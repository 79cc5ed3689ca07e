"""Requests of a replay: arrival (s), tokens in and out, and what is cached or drafted."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jax import Array
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from infer_jax.errors import InputError
from infer_jax.replays.prefixes import Prefixes, power_of_two

if TYPE_CHECKING:
    from infer_jax.replays.drafts import Drafts

FAR_FUTURE = 1e30  # seconds or tokens that nothing reaches: no infinity in an array
LONGEST = 2**30  # tokens: 32-bit whole numbers


class Requests(NamedTuple):
    """Requests in order of arrival (s), padded to a power of two with requests that never come.

    One more entry at the end takes what is written nowhere.
    """

    arrival: Float[Array, " n"]
    prompt: Int[Array, " n"]
    output: Int[Array, " n"]
    count: Int[Array, ""]
    cached: Int[Array, " n"]  # prompt tokens that are in the cache and not computed
    drafts: "Drafts | None" = None  # where tokens are drafted
    prefixes: Prefixes | None = None  # where the scheduler keeps prompts in its cache

    @classmethod
    def of(
        cls,
        arrival: ArrayLike,
        prompt: ArrayLike,
        output: ArrayLike,
        cached: ArrayLike | None = None,
        drafts: "Drafts | None" = None,
        prefixes: Prefixes | None = None,
    ) -> "Requests":
        """Requests of plain arrays, checked and padded; ``cached`` is 0 where not given.

        >>> Requests.of([0.0, 1.5], [100, 200], [10, 20]).prompt
        array([100, 200,   1], dtype=int32)

        Raises:
            InputError: arrays of different lengths, arrivals that go back in time, lengths that
                are not whole numbers of at least one token, or a prompt that is cached entirely:
                an engine computes its last token at least.
        """
        times = np.asarray(arrival, float)
        found = np.zeros(times.shape) if cached is None else cached
        sizes = [np.asarray(x) for x in (prompt, output, found)]
        if times.ndim != 1 or not len(times) or any(x.shape != times.shape for x in sizes):
            shapes = (times.shape, *(x.shape for x in sizes))
            raise InputError("Requests", "lengths", shapes, "three lists of one length, not empty")
        if not np.all(np.isfinite(times)) or times[0] < 0 or np.any(np.diff(times) < 0):
            raise InputError("Requests", "arrival", times, "seconds that never decrease, from 0")
        for name, x in zip(("prompt", "output"), sizes[:2], strict=True):
            if not np.all((x >= 1) & (x < LONGEST) & (x == np.floor(x))):
                raise InputError("Requests", name, x, f"whole tokens from 1 to {LONGEST}")
        if not np.all((sizes[2] >= 0) & (sizes[2] < sizes[0]) & (sizes[2] == np.floor(sizes[2]))):
            raise InputError("Requests", "cached", sizes[2], "whole tokens, fewer than the prompt")
        count = len(times)
        more = 1 + power_of_two(count) - count
        padding = np.ones((3, more)) * [[1], [1], [0]]
        sizes = [np.concatenate(x).astype(np.int32) for x in zip(sizes, padding, strict=True)]
        times = np.concatenate([times, np.full(more, FAR_FUTURE)])
        prompts, outputs, hits = sizes
        own = None if drafts is None else drafts.padded(len(times))
        parts = None if prefixes is None else prefixes.padded(len(times))
        return cls._make((times, prompts, outputs, np.asarray(count, np.int32), hits, own, parts))
