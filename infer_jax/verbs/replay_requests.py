"""The requests of a replay, of a trace or drawn as benchmarks draw them, and their drafts."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from infer_jax.catalog import Model
from infer_jax.catalog.traces import Trace, read_trace
from infer_jax.catalog.traces.blocks import BLOCK, cached_tokens
from infer_jax.replays import Drafts, Prefixes, Requests, Rules, drawn_drafts
from infer_jax.specs import Architecture
from infer_jax.verbs.drafts import Drafting, drafting
from infer_jax.verbs.option import either
from infer_jax.verbs.problems import ask, refuse
from infer_jax.verbs.speculation import DraftOptions

ISL, OSL = 1024.0, 128.0  # tokens where not given, as `vllm bench serve` draws them
PROMPTS = 1000  # requests of a run where not given, as there
HASHED = "with --prefix-len, or a --trace that hashes its prompts, as Mooncake's"
PREFIXES = 2  # of random numbers: lengths and arrivals are the same with shared prefixes
TURNS = 10  # requests of a run over those in flight, as InferenceX runs them
MAX_REQUESTS = 1e6  # requests of a run
LONGEST = 1e9  # seconds of a run, 32 years: a clock in 64 bits still tells passes apart


class Load(NamedTuple):
    """How requests come: by a clock, as many in flight at all times, or both.

    With a ``rate`` the ``concurrency`` is the most in flight: the client holds others back.
    """

    concurrency: float | None
    rate: float | None
    burstiness: float
    ramp_up: float | None

    @property
    def is_given(self) -> bool:
        """Whether options say how requests come, and not a trace."""
        return self.concurrency is not None or self.rate is not None

    def words(self, requests: int, trace: Trace | None) -> str:
        """This many requests, of a ``trace`` or drawn, and how they arrive, in words."""
        count = f"{requests} requests"
        if trace is not None:
            count += f" of {Path(trace.file).name}"
        if self.rate is None:
            return count if self.concurrency is None else f"{count}, {self.concurrency:g} in flight"
        most = "" if self.concurrency is None else f", at most {self.concurrency:g} in flight"
        ramp = "" if self.ramp_up is None else f"{self.ramp_up:g} to "
        bursts = "" if self.burstiness == 1.0 else f", burstiness {self.burstiness:g}"
        return f"{count} at {ramp}{self.rate:g} requests/s{bursts}{most}"


class SharedPrefix(NamedTuple):
    """Tokens that drawn prompts begin with, and how many such prefixes there are."""

    tokens: int
    count: int

    @property
    def words(self) -> str:
        """The prefix, in words."""
        if self.count == 1:
            return f"; before them {self.tokens:,} that all prompts share"
        return f"; before them one of {self.count:,} prefixes of {self.tokens:,} tokens"


class Lengths(NamedTuple):
    """Tokens of requests: of a trace, or drawn from ``ratio`` of the given ones up to these.

    ``caching``: whether prompts begin with what an earlier one left in the cache; ``shared``: what
    drawn prompts begin with, before their own tokens.
    """

    isl: float
    osl: float
    ratio: float
    trace: Trace | None = None
    caching: bool = False
    shared: SharedPrefix | None = None

    @property
    def prefix(self) -> int:
        """Tokens of a drawn prompt before its own."""
        return 0 if self.shared is None else self.shared.tokens

    @property
    def alike(self) -> bool:
        """Whether prompts are known to begin alike."""
        return self.shared is not None or (self.trace is not None and bool(self.trace.hashes))

    @property
    def words(self) -> str:
        """The lengths, in words."""
        if self.trace is not None:
            return f"{self.isl:,.0f} tokens in and {self.osl:,.0f} out on average, as recorded"
        said = []
        for length, usual in ((self.isl, ISL), (self.osl, OSL)):
            low = shortest(length, self.ratio)
            span = f"{length:,.0f}" if low == length else f"{low:,.0f} to {length:,.0f}"
            said.append(span + (" (default)" if length == usual and self.ratio == 1.0 else ""))
        drawn = "" if self.ratio == 1.0 else f", equally likely (range ratio {self.ratio:g})"
        before = "" if self.shared is None else self.shared.words
        return f"{said[0]} tokens in and {said[1]} out{drawn}{before}"

    @property
    def mean_tokens(self) -> float:
        """Tokens of a request at its end, in the mean."""
        return self.prefix + (self.isl + self.osl) * (1.0 + self.ratio) / 2.0


def loop_of_one(concurrency: float | None, copy: int, copies: int) -> int | None:
    """Requests that may be in flight in one of some copies, of those of all; None: any number."""
    if concurrency is None:
        return None
    return int(concurrency) // copies + (copy < int(concurrency) % copies)


class Arriving(NamedTuple):
    """Requests of one run in order of arrival; ``arrival`` (s) is not read in a closed loop.

    ``hashes``: one of each ``length`` tokens of each prompt, where prefixes are cached; else none.
    """

    arrival: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    hashes: Sequence[Sequence[int]] = ()
    drafts: Drafts | None = None
    length: int = BLOCK

    def of_one(self, copy: int, copies: int) -> "Arriving":
        """Those that a router deals to one of some copies in turn."""
        dealt = slice(copy, None, copies)
        times = (self.arrival[dealt], self.prompt[dealt], self.output[dealt])
        drafts = None if self.drafts is None else self.drafts.of(dealt)
        return Arriving(*times, self.hashes[dealt], drafts, self.length)

    def requests(self, rules: Rules) -> Requests:
        """The same for a server whose scheduler looks prompts up by its ``rules``."""
        given = self.arrival, self.prompt, self.output
        if not self.hashes:
            return Requests.of(*given, drafts=self.drafts)
        sizes = {"length": self.length, "block": int(float(rules.block))}
        return Requests.of(*given, prefixes=Prefixes.of(self.hashes, self.prompt, **sizes))

    def cached(self, tokens: float) -> np.ndarray:
        """Tokens of each prompt that are in a cache of ``tokens`` tokens, its last one never.

        So it is in two pools and with drafts, where no scheduler looks prompts up: by the order of
        arrival. An earlier prompt left them there; the block not used for longest goes first.
        """
        if not self.hashes:
            return np.zeros_like(self.prompt)
        sizes = {"block": self.length, "capacity": int(tokens // self.length)}
        return np.minimum(cached_tokens(self.hashes, self.prompt, **sizes), self.prompt - 1)


def lengths_of(
    trace: str | os.PathLike[str] | None,
    isl: float | None,
    osl: float | None,
    range_ratio: float | None,
    caching: bool | None,
    shared: SharedPrefix | None = None,
) -> Lengths:
    """The lengths that options ask for.

    ``caching``: whether prompts are looked up in the cache; None: if prompts begin alike,
    as engines do by themselves.

    Raises:
        InputError: lengths beside a trace, prompts of no token, a trace that cannot be read.
    """
    if trace is not None:
        prefix = None if shared is None else shared.tokens
        given = (("--isl", isl), ("--osl", osl), ("--range-ratio", range_ratio))
        for option, value in (*given, ("--prefix-len", prefix)):
            if value is not None:
                raise refuse(option, value, "--trace or lengths, not both")
        read = read_trace(trace)
        if caching and not read.hashes:
            raise refuse("--enable-prefix-caching", "yes", HASHED)
        looks = bool(read.hashes) if caching is None else caching
        return Lengths(read.isl.mean(), read.osl.mean(), 1.0, read, looks)
    if caching and shared is None:
        raise refuse("--enable-prefix-caching", "yes", HASHED)
    if isl == 0:
        raise refuse("--isl", isl, "at least 1 token")
    drawn = either(isl, ISL), either(osl, OSL), either(range_ratio, 1.0)
    looks = shared is not None if caching is None else caching
    return Lengths(*drawn, None, looks, shared)


def shared_prefix(tokens: float | None, count: float | None) -> SharedPrefix | None:
    """What drawn prompts begin with, if they share anything.

    Raises:
        InputError: a number of prefixes without their length.
    """
    if tokens is None and count is not None:
        raise refuse("--num-prefixes", count, "with --prefix-len")
    return None if not tokens else SharedPrefix(int(tokens), int(either(count, 1)))


def checked(load: Load, lengths: Lengths) -> Load:
    """The load, if it is one that can be replayed.

    Raises:
        InputError: neither a rate nor a concurrency, or what belongs to a rate alone.
    """
    timed = lengths.trace is not None and len(lengths.trace.arrivals)
    if load.concurrency is None and load.rate is None and not timed:
        ways = "--concurrency 64, or --request-rate 8, or --trace FILE with times"
        raise ask("--concurrency", "When do requests come?", ways)
    option, value = "--burstiness", load.burstiness
    if load.ramp_up is not None:
        option, value = "--ramp-up", load.ramp_up
    elif load.burstiness == 1.0:
        return load
    if load.rate is None:
        raise refuse(option, value, "with --request-rate")
    if timed:
        raise refuse(option, value, "without --trace: its requests come as they were recorded")
    return load


def randomly(load: Load, lengths: Lengths) -> bool:
    """Whether another seed gives other requests."""
    timed = lengths.trace is not None and len(lengths.trace.arrivals)
    drawn_times = load.rate is not None and not timed
    several = lengths.caching and lengths.shared is not None and lengths.shared.count > 1
    return drawn_times or several or (lengths.trace is None and lengths.ratio < 1.0)


def draw_requests(load: Load, lengths: Lengths, prompts: int, seed: Sequence[int]) -> Arriving:
    """The requests of one run: the first ``prompts`` of a trace, or drawn by a seed."""
    random, trace = np.random.default_rng(seed), lengths.trace
    if trace is None:
        isl, osl = (drawn_lengths(random, x, lengths.ratio, prompts) for x in lengths[:2])
    else:
        isl, osl = trace.isl[:prompts], trace.osl[:prompts]
    hashes = trace.hashes[:prompts] if trace is not None and lengths.caching else ()
    if lengths.shared is not None:
        isl = isl + lengths.prefix
        chosen = np.random.default_rng((*seed, PREFIXES)).permutation(prompts)
        hashes = [(int(x),) for x in chosen % lengths.shared.count] if lengths.caching else ()
    if load.rate is None and load.concurrency is not None:
        times = np.zeros(prompts)
    elif trace is not None and len(trace.arrivals):
        # at another rate: the same pattern, faster or slower
        scale = 1.0 if load.rate is None else trace.rate / load.rate
        times = trace.arrivals[:prompts] * scale
    else:
        assert load.rate is not None
        times = drawn_arrivals(random, prompts, load.rate, load.burstiness, load.ramp_up)
    return Arriving(times, isl, osl, hashes, length=lengths.prefix or BLOCK)


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

    >>> times = drawn_arrivals(np.random.default_rng(0), 1000, 8.0)
    >>> float(times[-1])
    125.0
    """
    first = rate if ramp_up is None else ramp_up
    rates = first + (rate - first) * np.arange(count) / max(count - 1, 1)
    with np.errstate(all="ignore"):
        times = np.cumsum(random.gamma(burstiness, 1.0 / (rates * burstiness)))
        times = times if ramp_up is not None else times * (count / rate / times[-1])
    if not times[-1] <= LONGEST:
        given = (
            ("--burstiness", burstiness) if count <= rate * LONGEST else ("--request-rate", rate)
        )
        option, value = given if ramp_up is None else ("--ramp-up", ramp_up)
        raise refuse(option, f"{value:g}", f"one whose {count} requests come within {LONGEST:g} s")
    return times


STREAM = 1  # of random numbers: requests are the same with drafts and without


class ReplayDrafts(NamedTuple):
    """``count`` tokens drafted for each request in a pass, and ``acceptance`` by position."""

    count: int
    acceptance: np.ndarray | float
    model: Architecture | None  # None: the model's own heads
    notes: list[str]

    @property
    def words(self) -> str:
        """What a pass does, in words."""
        count = "1 draft" if self.count == 1 else f"{self.count} drafts"
        return f"a pass verifies {count} and one token more of each request that decodes"


def of_plan(drafting: Drafting | None, count: float) -> ReplayDrafts | None:
    """Those of a plan, which drafts ``count`` tokens for each request in a pass."""
    if drafting is None or not count:
        return None
    return ReplayDrafts(int(count), drafting.acceptance, drafting.draft, drafting.notes)


def with_drafts(drafts: ReplayDrafts | None, requests: Arriving, seed: float, run: int) -> Arriving:
    """Requests of a run with the passes that each takes, drawn, where tokens are drafted."""
    if drafts is None:
        return requests
    random = np.random.default_rng((int(seed), run, STREAM))
    passes = drawn_drafts(requests.output, drafts.acceptance, drafts.count, random)
    return requests._replace(drafts=passes)


def drafts_of(model: Model, count: float | None, wanted: DraftOptions) -> ReplayDrafts | None:
    """The drafts that options ask for; None where they ask for none.

    Raises:
        InputError: drafts without an acceptance or the other way round, more than the curve of
            acceptance has.
    """
    text = None if wanted.acceptance is None else str(wanted.acceptance)
    if count is not None and text is None:
        raise ask("--acceptance", "How many drafts are accepted?", "--acceptance 0.7, or a file")
    drafts = drafting(model, wanted.draft, text, heads=wanted.heads)
    if drafts is None:
        return None
    if count is None:
        raise ask("--drafts", "How many tokens does a pass draft for each request?", "--drafts 3")
    known = np.atleast_1d(drafts.acceptance).shape[0]
    if np.ndim(drafts.acceptance) and count > known:
        allowed = f"at most {known}: of later positions no acceptance is known"
        raise refuse("--drafts", count, allowed)
    return ReplayDrafts(int(count), drafts.acceptance, drafts.draft, drafts.notes)
