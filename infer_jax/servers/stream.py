"""The requests of a replay, of a trace or drawn as benchmarks draw them, and their drafts."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from infer_jax.catalog.traces import BLOCK, Trace, read_trace
from infer_jax.estimators.speculative import Drafting
from infer_jax.replays import drawn_drafts
from infer_jax.replays.requests import (
    ArrivingRequests,
    drawn_arrivals,
    drawn_lengths,
    shortest,
)
from infer_jax.results import option
from infer_jax.results.problems import ask, forbid, refuse

ISL, OSL = 1024.0, 128.0  # tokens where not given, as `vllm bench serve` draws them
PROMPTS = 1000  # requests of a run where not given, as there
TURNS = 10  # requests of a run over those in flight, as InferenceX runs them
MAX_REQUESTS = 1e6  # requests of a run
# streams of random numbers: requests are the same with drafts, and with prefixes, as without
DRAFTS, PREFIXES = 1, 2


@dataclass(frozen=True)
class RequestStream:
    """Requests of a trace or drawn, which come by a clock, as others end, or both.

    ``isl``, ``osl``: tokens, of a trace in the mean; drawn ones are from ``ratio`` of these up to
    these, after ``prefix`` tokens that one of ``prefixes`` groups shares. ``caching``: whether
    prompts are looked up in the cache. ``concurrency``: requests in flight, with a ``rate``
    (requests per second) at most.
    """

    isl: float
    osl: float
    ratio: float = 1.0
    trace: Trace | None = None
    caching: bool = False
    prefix: int = 0
    prefixes: int = 1
    concurrency: float | None = None
    rate: float | None = None
    burstiness: float = 1.0
    ramp_up: float | None = None

    @classmethod
    def of(
        cls,
        *,
        trace: str | os.PathLike[str] | None = None,
        isl: float | None = None,
        osl: float | None = None,
        range_ratio: float | None = None,
        caching: bool | None = None,
        prefix_len: float | None = None,
        num_prefixes: float | None = None,
        **arrivals: Any,
    ) -> Self:
        """The requests that options ask for; ``arrivals``: when they come, as the class has it.

        ``caching``: whether prompts are looked up in the cache; None: if they begin alike, as
        engines do by themselves.

        Raises:
            InputError: lengths beside a trace, prefixes without a length, a cache of prompts that
                share nothing, a trace that cannot be read, requests without a time to come, or what
                belongs to drawn arrivals without these.
        """
        if prefix_len is None and num_prefixes is not None:
            raise refuse("num_prefixes", num_prefixes, f"with {option('prefix_len')}")
        read = None
        if trace is not None:
            allowed = f"{option('trace')} or lengths, not both"
            forbid(allowed, isl=isl, osl=osl, range_ratio=range_ratio, prefix_len=prefix_len)
            read = read_trace(trace)
            isl, osl = read.isl.mean(), read.osl.mean()
        stream = cls(
            isl=ISL if isl is None else isl,
            osl=OSL if osl is None else osl,
            ratio=1.0 if range_ratio is None else range_ratio,
            trace=read,
            prefix=int(prefix_len or 0),
            prefixes=int(num_prefixes or 1),
            **arrivals,
        )
        alike = prefix_len is not None or stream.alike
        if caching and not alike:
            allowed = f"with {option('prefix_len')}, or a {option('trace')} that hashes its prompts"
            raise refuse("enable_prefix_caching", "yes", f"{allowed}, as Mooncake's")
        if stream.concurrency is None and stream.rate is None and not stream.timed:
            ways = f"{option('concurrency', 64)}, or {option('request_rate', 8)}, or "
            ways += f"{option('trace')} FILE with times"
            raise ask("concurrency", "When do requests come?", ways)
        if stream.rate is None or stream.timed:
            burstiness = None if stream.burstiness == 1.0 else stream.burstiness
            allowed = f"with {option('request_rate')}"
            allowed += f", without the times of {option('trace')}" * stream.timed
            forbid(allowed, ramp_up=stream.ramp_up, burstiness=burstiness)
        return replace(stream, caching=alike if caching is None else caching)

    def check_run(
        self, count: int, drafts: Drafting | None, *, warmup: float, dp: float, seeds: float
    ) -> None:
        """Check that a run of ``count`` requests is one, on ``dp`` copies.

        Raises:
            InputError: a warm-up of all requests, more copies than requests, several runs that are
                alike, or a prefix cache with drafts.
        """
        if warmup >= count:
            raise refuse("warmup", warmup, f"fewer than the requests of a run, {count}")
        if dp > min(count, count if self.concurrency is None else self.concurrency):
            raise refuse("dp", dp, "at most as many copies as requests")
        if seeds > 1 and not (self.random or drafts):
            raise refuse("seeds", seeds, "1: nothing is drawn, so that all runs are alike")
        if drafts and self.caching:
            raise refuse("enable_prefix_caching", "yes", f"without {option('drafts')}")

    @property
    def timed(self) -> bool:
        """Whether a trace says when its requests came."""
        return self.trace is not None and len(self.trace.arrivals) > 0

    @property
    def alike(self) -> bool:
        """Whether prompts are known to begin alike."""
        return self.prefix > 0 if self.trace is None else bool(self.trace.hashes)

    @property
    def random(self) -> bool:
        """Whether another seed gives other requests."""
        groups = self.caching and self.prefixes > 1
        times = self.rate is not None and not self.timed
        return times or groups or (self.trace is None and self.ratio < 1.0)

    @property
    def mean_tokens(self) -> float:
        """Tokens of a request at its end, in the mean."""
        return self.prefix + (self.isl + self.osl) * (1.0 + self.ratio) / 2.0

    def arrivals_in_words(self, requests: int) -> str:
        """This many requests and how they arrive, in words."""
        text = f"{requests} requests"
        if self.trace is not None:
            text += f" of {Path(self.trace.file).name}"
        flight = f"{self.concurrency or 0.0:g} in flight"
        if self.rate is None:
            return text if self.concurrency is None else f"{text}, {flight}"
        ramp = "" if self.ramp_up is None else f"{self.ramp_up:g} to "
        text += f" at {ramp}{self.rate:g} requests/s"
        text += "" if self.burstiness == 1.0 else f", burstiness {self.burstiness:g}"
        return text if self.concurrency is None else f"{text}, at most {flight}"

    @property
    def words(self) -> str:
        """The lengths, in words."""
        if self.trace is not None:
            return f"{self.isl:,.0f} tokens in and {self.osl:,.0f} out on average, as recorded"
        spans = []
        for length, usual in ((self.isl, ISL), (self.osl, OSL)):
            low = shortest(length, self.ratio)
            span = f"{length:,.0f}" if low == length else f"{low:,.0f} to {length:,.0f}"
            spans.append(span + (" (default)" if length == usual and self.ratio == 1.0 else ""))
        text = f"{spans[0]} tokens in and {spans[1]} out"
        text += "" if self.ratio == 1.0 else f", equally likely (range ratio {self.ratio:g})"
        if not self.prefix:
            return text
        if self.prefixes == 1:
            return f"{text}; before them {self.prefix:,} that all prompts share"
        return f"{text}; before them one of {self.prefixes:,} prefixes of {self.prefix:,} tokens"

    def count(self, prompts: float | None) -> int:
        """Requests of a run: ``prompts``, or all of a trace, or as many as benchmarks send.

        Raises:
            InputError: more than the trace has, or than a run may have.
        """
        flight = self.concurrency or 0.0
        turns = TURNS if prompts is None and self.rate is None and self.trace is None else 1
        if turns * flight > MAX_REQUESTS:
            each = f", or {option('prompts')}: a run has {TURNS} for each of them"
            allowed = f"at most {MAX_REQUESTS / turns:.12g}{each if turns > 1 else ''}"
            raise refuse("concurrency", flight, allowed)
        if self.trace is not None:
            if prompts is not None and prompts > len(self.trace):
                allowed = f"at most the {len(self.trace)} requests of the trace"
                raise refuse("prompts", prompts, allowed)
            return int(prompts or len(self.trace))
        return int(prompts or (TURNS * flight if self.rate is None else PROMPTS))

    def draw(self, prompts: int, seed: Sequence[int]) -> ArrivingRequests:
        """The requests of one run: the first ``prompts`` of a trace, or drawn by a seed."""
        random, trace = np.random.default_rng(seed), self.trace
        hashes: Sequence[Sequence[int]] = ()
        if trace is None:
            lengths = self.isl, self.osl
            isl, osl = (drawn_lengths(random, x, self.ratio, prompts) for x in lengths)
        else:
            isl, osl = trace.isl[:prompts], trace.osl[:prompts]
            hashes = trace.hashes[:prompts] if self.caching else ()
        if self.prefix:
            isl = isl + self.prefix
            group = np.random.default_rng((*seed, PREFIXES)).permutation(prompts) % self.prefixes
            hashes = [(int(x),) for x in group] if self.caching else ()
        if self.rate is None and self.concurrency is not None:
            times = np.zeros(prompts)
        elif trace is not None and self.timed:
            # at another rate: the same pattern, faster or slower
            scale = 1.0 if self.rate is None else trace.rate / self.rate
            times = trace.arrivals[:prompts] * scale
        else:
            assert self.rate is not None
            times = drawn_arrivals(random, prompts, self.rate, self.burstiness, self.ramp_up)
        length = self.prefix or (BLOCK if trace is None else trace.block)
        return ArrivingRequests(times, isl, osl, hashes, length=length)


def with_drafts(
    drafts: Drafting | None, requests: ArrivingRequests, seed: float, run: int
) -> ArrivingRequests:
    """Requests of a run with the passes that each takes, drawn, where tokens are drafted."""
    if drafts is None:
        return requests
    random = np.random.default_rng((int(seed), run, DRAFTS))
    passes = drawn_drafts(requests.output, drafts.acceptance, drafts.count, random)
    return requests._replace(drafts=passes)
