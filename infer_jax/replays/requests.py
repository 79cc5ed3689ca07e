"""Requests of a replay: arrival (s), tokens in and out, and what is cached or drafted.

They are as recorded, or drawn as benchmarks draw them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jax import Array
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from infer_jax.catalog.traces import BLOCK, cached_tokens
from infer_jax.errors import InputError
from infer_jax.replays.prefixes import Prefixes, power_of_two
from infer_jax.results import option

if TYPE_CHECKING:
    from infer_jax.replays.drafts import Drafts
    from infer_jax.replays.rules import Rules

FAR_FUTURE = 1e30  # seconds or tokens that nothing reaches: no infinity in an array
LONGEST = 2**30  # tokens: 32-bit whole numbers
MAX_SECONDS = 1e9  # of a run, 32 years: a clock in 64 bits still tells passes apart


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
    # of several servers: the next one of the same server, or the last entry; None: the next one
    following: Int[Array, " n"] | None = None

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
        sizes = (prompts, outputs, np.asarray(count, np.int32), hits)
        return cls._make((times, *sizes, own, parts, None))


class ArrivingRequests(NamedTuple):
    """Requests of one run in order of arrival; ``arrival`` (s) is not read in a closed loop.

    ``hashes``: one of each ``length`` tokens of each prompt, where prefixes are cached; else none.
    """

    arrival: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    hashes: Sequence[Sequence[int]] = ()
    drafts: "Drafts | None" = None
    length: int = BLOCK

    def of(self, dealt: slice) -> "ArrivingRequests":
        """Some of them."""
        times = (self.arrival[dealt], self.prompt[dealt], self.output[dealt])
        drafts = None if self.drafts is None else self.drafts.of(dealt)
        return ArrivingRequests(*times, self.hashes[dealt], drafts, self.length)

    def requests(self, rules: "Rules") -> Requests:
        """The same for a server whose scheduler looks prompts up by its ``rules``."""
        if not self.hashes:
            return Requests.of(*self[:3], drafts=self.drafts)
        sizes = {"length": self.length, "block": int(float(rules.block))}
        return Requests.of(*self[:3], prefixes=Prefixes.of(self.hashes, self.prompt, **sizes))

    def cached(self, tokens: float) -> np.ndarray:
        """Tokens of each prompt that are in a cache of ``tokens`` tokens, its last one never.

        So it is in two pools and with drafts, where no scheduler looks prompts up: by the order of
        arrival. An earlier prompt left them there; the block not used for longest goes first.
        """
        if not self.hashes:
            return np.zeros_like(self.prompt)
        sizes = {"block": self.length, "capacity": int(tokens // self.length)}
        return np.minimum(cached_tokens(self.hashes, self.prompt, **sizes), self.prompt - 1)


def drawn_lengths(
    random: np.random.Generator, length: float, ratio: float, count: int
) -> np.ndarray:
    """Tokens of requests: whole numbers from ratio x length up to length, equally likely.

    As InferenceX draws them: SemiAnalysisAI/InferenceX, utils/bench_serving/benchmark_serving.py at
    086eabb, ``sample_random_requests``. `vllm bench serve` of today draws about the length.
    """
    low = shortest(length, ratio)
    return random.integers(low, int(length), count, endpoint=True).astype(float)


def shortest(length: float, ratio: float) -> int:
    """Tokens of the shortest request that is drawn."""
    return max(int(length * ratio), 1)


def drawn_arrivals(
    random: np.random.Generator,
    count: int,
    rate: float,
    burstiness: float = 1.0,
    ramp_up: float | None = None,
) -> np.ndarray:
    """Seconds at which requests come, with times between them by a gamma law.

    Of shape ``burstiness`` and mean 1 / rate: 1 is Poisson, less is burstier. The last comes at
    count / rate. With ``ramp_up`` the rate rises from there to ``rate``, linearly from the first
    request to the last, and times are left as drawn. Source: vllm-project/vllm,
    vllm/benchmarks/serve.py at 009e6d4, ``get_request``.

    Raises:
        InputError: a rate or shape by which the last comes after 32 years.

    >>> times = drawn_arrivals(np.random.default_rng(0), 1000, 8.0)
    >>> float(times[-1])
    125.0
    """
    first = rate if ramp_up is None else ramp_up
    rates = first + (rate - first) * np.arange(count) / max(count - 1, 1)
    with np.errstate(all="ignore"):
        times = np.cumsum(random.gamma(burstiness, 1.0 / (rates * burstiness)))
        times = times if ramp_up is not None else times * (count / rate / times[-1])
    if not times[-1] <= MAX_SECONDS:
        name, value = "request_rate", rate
        if ramp_up is not None:
            name, value = "ramp_up", ramp_up
        elif count <= rate * MAX_SECONDS:
            name, value = "burstiness", burstiness
        allowed = f"one whose {count} requests come within {MAX_SECONDS:g} s"
        raise InputError("infer-jax", option(name), f"{value:g}", allowed)
    return times
