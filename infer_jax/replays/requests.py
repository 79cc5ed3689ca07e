"""Requests of a replay: arrival (s), tokens in and out, and what is cached, shared or drafted.

They are as recorded, or drawn as benchmarks draw them. Prompts that begin alike are a radix tree of
blocks: which parts are shared, and by whom.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jax import Array
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from infer_jax.catalog.traces import BLOCK, cached_tokens
from infer_jax.errors import InputError
from infer_jax.results import option

if TYPE_CHECKING:
    from infer_jax.replays.drafts import Drafts
    from infer_jax.replays.rules import Rules


class Prefixes(NamedTuple):
    """The shared parts of each prompt, first to last, and the size of each part.

    A part is a run of blocks that the same requests share; what one request has alone is in none.
    ``parts`` has a row for each request, filled up with the last part, which has no block.
    """

    parts: Int[Array, "n depth"]
    depth: Int[Array, " n"]  # parts of a request
    covered: Int[Array, " n"]  # blocks of these
    # whether the last part is the last block of the prompt, which is full: that part is this block
    # alone, and is computed anew, for its last token is needed
    ends: Int[Array, " n"]
    blocks: Int[Array, " p"]  # of each part
    block: Int[Array, ""]  # tokens

    @classmethod
    def of(
        cls, hashes: Sequence[Sequence[int]], prompt: ArrayLike, *, length: int, block: int
    ) -> "Prefixes":
        """The parts of prompts of ``prompt`` tokens, of which each ``length`` have a hash.

        A hash stands for these tokens and all before them. Only blocks of ``block`` tokens that are
        full count.

        >>> one = Prefixes.of([[1, 2], [1, 3], [4]], [20, 16, 8], length=8, block=4)
        >>> one.blocks[one.parts[:3]].tolist()  # two blocks are shared by the first two prompts
        [[2], [2], [0]]

        Raises:
            InputError: fewer rows of hashes than prompts.
        """
        tokens = np.asarray(prompt)
        if len(hashes) != len(tokens):
            sizes = f"{len(hashes)} rows of hashes, {len(tokens)} prompts"
            raise InputError("Prefixes", "hashes", sizes, "a row of hashes for each prompt")
        children: dict[tuple[int, int], int] = {}
        nodes: list[_Node] = []
        walks: list[tuple[list[tuple[_Node, int]], bool]] = []
        for row, count in zip(hashes, tokens.astype(int).tolist(), strict=True):
            at, end, full, walk = -1, 0, count // block, list[tuple[_Node, int]]()
            for i, name in enumerate(row, 1):
                begin, end = end, min(length * i // block, full)
                if end == begin:
                    continue
                at = children.setdefault((at, name), len(nodes))
                if at == len(nodes):
                    nodes.append(_Node(begin))
                nodes[at].ends[end] += 1
                walk.append((nodes[at], end))
            whole = 0 < end == full and count == full * block
            if whole:
                nodes[at].alone.add(end)
            walks.append((walk, whole))
        return _parts_of(walks, block)

    def padded(self, count: int) -> "Prefixes":
        """The same with rows for ``count`` requests: those behind share nothing."""
        more = count - len(self.parts)
        none = np.full((more, self.parts.shape[1]), len(self.blocks) - 1, np.int32)
        rest = {
            x: np.pad(np.asarray(getattr(self, x)), (0, more)) for x in ("depth", "covered", "ends")
        }
        return self._replace(parts=np.concatenate([self.parts, none]), **rest)


class _Node:
    """The tokens of one hash, with the blocks at which prompts end in it."""

    def __init__(self, begin: int) -> None:
        self.begin = begin  # its first block
        self.ends: Counter[int] = Counter()  # how many prompts go no further
        self.alone: set[int] = set()  # last blocks of prompts that they fill

    @cached_property
    def pieces(self) -> list[tuple[int, int, int]]:
        """First and last block of each piece between two ends, and how many requests have it."""
        cuts = sorted({*self.ends, *(x - 1 for x in self.alone if x - 1 > self.begin)})
        counts = [sum(n for end, n in self.ends.items() if end >= cut) for cut in cuts]
        return list(zip([self.begin, *cuts], cuts, counts, strict=False))


def _parts_of(walks: list[tuple[list[tuple[_Node, int]], bool]], block: int) -> Prefixes:
    """Pieces of nodes, joined where the same requests have them.

    ``walks``: of each prompt its nodes, to which end it is in each, and whether it fills its last
    block.
    """
    number: dict[tuple[_Node, int], int] = {}
    sizes: list[int] = []
    rows: list[list[int]] = []
    ends: list[bool] = []
    for walk, whole in walks:
        row: list[int] = []
        before, final = 0, False
        for node, end in walk:
            for low, high, count in node.pieces:
                if high > end or count == 1:
                    break
                key = (node, high)
                if key not in number:
                    joins = count == before and high not in node.alone and row
                    number[key] = row[-1] if joins else len(sizes)
                    if not joins:
                        sizes.append(0)
                    sizes[number[key]] += high - low
                if not row or row[-1] != number[key]:
                    row.append(number[key])
                before = count
                final = whole and high == walk[-1][1]
        rows.append(row)
        ends.append(final)
    return _arrays(rows, sizes, ends, block)


def _arrays(rows: list[list[int]], sizes: list[int], ends: list[bool], block: int) -> Prefixes:
    """Rows and parts filled up to powers of two, so that few programs are compiled."""
    depth, count = (power_of_two(x) for x in (max(map(len, rows), default=1), len(sizes) + 1))
    parts = np.full((len(rows), depth), count - 1, np.int32)
    for row, own in zip(parts, rows, strict=True):
        row[: len(own)] = own
    blocks = np.zeros(count, np.int32)
    blocks[: len(sizes)] = sizes
    depths = np.asarray([len(row) for row in rows], np.int32)
    covered = blocks[parts].sum(axis=1).astype(np.int32)
    last = np.asarray(ends, np.int32)
    return Prefixes._make((parts, depths, covered, last, blocks, np.asarray(block, np.int32)))


def power_of_two(value: float) -> int:
    """The power of two from ``value`` on, 1 at least."""
    return 2 ** int(np.ceil(np.log2(max(float(value), 1.0))))


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
        hits = np.zeros(times.shape) if cached is None else np.asarray(cached)
        prompts, outputs = np.asarray(prompt), np.asarray(output)
        shapes = times.shape, prompts.shape, outputs.shape, hits.shape
        if times.ndim != 1 or not len(times) or len(set(shapes)) > 1:
            raise InputError("Requests", "lengths", shapes, "three lists of one length, not empty")
        if not np.all(np.isfinite(times)) or times[0] < 0 or np.any(np.diff(times) < 0):
            raise InputError("Requests", "arrival", times, "seconds that never decrease, from 0")
        for name, x in (("prompt", prompts), ("output", outputs)):
            if not np.all((x >= 1) & (x < LONGEST) & (x == np.floor(x))):
                raise InputError("Requests", name, x, f"whole tokens from 1 to {LONGEST}")
        if not np.all((hits >= 0) & (hits < prompts) & (hits == np.floor(hits))):
            raise InputError("Requests", "cached", hits, "whole tokens, fewer than the prompt")
        count = len(times)
        size = 1 + power_of_two(count)

        def padded(values: np.ndarray, rest: float, kind: type) -> np.ndarray:
            return np.concatenate([values, np.full(size - count, rest)]).astype(kind)

        columns = (
            padded(times, FAR_FUTURE, float),
            padded(prompts, 1, np.int32),
            padded(outputs, 1, np.int32),
            np.asarray(count, np.int32),
            padded(hits, 0, np.int32),
        )
        more = None if drafts is None else drafts.padded(size)
        parts = None if prefixes is None else prefixes.padded(size)
        return cls._make((*columns, more, parts, None))


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
