"""The requests of a verb: mean lengths, their distribution, and arrivals."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from infer_jax.errors import InputError
from infer_jax.estimators import Estimator
from infer_jax.estimators.serving.plan import deployment, requests as serving_requests
from infer_jax.results import option
from infer_jax.results.problems import forbid, refuse
from infer_jax.specs import Arrivals, Plan, Workload
from infer_jax.specs.lengths import fixed, independent, lognormal
from infer_jax.verbs import inputs
from infer_jax.verbs.option import either, without_none
from infer_jax.verbs.texts import Tokens, tokens

if TYPE_CHECKING:
    from infer_jax.catalog.traces import Trace


class RequestOptions(NamedTuple):
    """A workload, the kind of its length distribution in a word (for JSON), and notes.

    ``longest``: tokens of the longest request, prompt and output (isl + osl for equal lengths);
    ``within``: in words, which share of requests is no longer.
    """

    work: Workload
    lengths: str
    notes: list[str]
    longest: float
    within: str = ""
    trace: "Trace | None" = None


ISL, OSL = Tokens(4096.0), Tokens(512.0)  # where not given
TAIL = 0.0005  # share of prompts, and of outputs, beyond the longest request that is assumed


def read_requests(
    isl: float | str | None,
    osl: float | str | None,
    prefix: float,
    rate: float | None,
    trace: str | os.PathLike[str] | None,
) -> RequestOptions:
    """The requests of a verb's options, arriving at random where there is a ``rate``.

    Raises:
        InputError: a spread or a trace of a closed loop, lengths beside a trace, or a trace that
            cannot be read.
    """
    if trace is not None:
        allowed = f"{option('trace')} or lengths, not both"
        forbid(allowed, isl=isl, osl=osl, prefix=prefix or None)
        return _recorded(os.fspath(trace), rate)
    isl = ISL if isl is None else tokens(isl, 1)
    osl = OSL if osl is None else tokens(osl, 1)
    work = inputs.workload(isl, osl, prefix)
    if rate is None:
        for name, length in (("isl", isl), ("osl", osl)):
            if length.deviation:
                text = f"{length:.12g}±{length.deviation:.12g}"
                raise refuse(name, text, f"a mean alone, or with {option('request_rate')}")
        return RequestOptions(work, "equal", [], isl + osl)
    ratios = [length.deviation / length for length in (isl, osl)]
    if not any(ratios):
        ways = f"{option('isl', '2200±600')} or {option('trace')}"
        note = f"All requests are of equal lengths; {ways} says how they differ."
        work = work.replace(arrivals=Arrivals.of(rate=rate))
        return RequestOptions(work, "equal", [note], isl + osl)
    laws = [lognormal(ratio) if ratio else fixed() for ratio in ratios]
    note = _spread_lengths(isl, osl)
    work = work.replace(lengths=independent(*laws), arrivals=Arrivals.of(rate=rate))
    # over the law's mean: that of exp(sigma z) is exp(sigma^2 / 2) = sqrt(1 + ratio^2)
    ends = [float(lognormal(x)(np.array([1.0 - TAIL]))[0]) / np.sqrt(1.0 + x**2) for x in ratios]
    within = f"{100.0 * (1.0 - 2.0 * TAIL):.3g} % of requests or more"
    return RequestOptions(work, "lognormal", [note], isl * ends[0] + osl * ends[1], within)


def _spread_lengths(isl: Tokens, osl: Tokens) -> str:
    """The law of each length in words: log-normal, or fixed where it has no spread."""
    spread_in, spread_out = (f"{x:.12g}±{x.deviation:.12g} tokens" for x in (isl, osl))
    if not osl.deviation:
        return f"Prompts are log-normal, {spread_in}; every output has {osl:.12g} tokens."
    if not isl.deviation:
        return f"Every prompt has {isl:.12g} tokens; outputs are log-normal, {spread_out}."
    return (
        f"Lengths are log-normal, {spread_in} in and {spread_out} out, independent of each other."
    )


def at_instance(
    model: Estimator, work: Workload, copies: float, batch: float | None, concurrency: float | None
) -> Workload:
    """The requests of one of ``copies`` instances, of ``work`` that arrives at all of them.

    ``batch``: requests in flight in an instance, ``concurrency``: in all of them.

    Raises:
        InputError: arrivals at an estimator without a scheduler.
    """
    work = work.replace(batch=either(batch, 1.0) if concurrency is None else concurrency / copies)
    if work.arrivals is None:
        return work
    rate = work.arrivals.rate
    if not model.batches:
        raise refuse("request_rate", float(rate), f"with {option('estimator', 'serving')}")
    return work.replace(arrivals=work.arrivals.replace(rate=rate / copies))


def with_benchmark(
    model: Estimator,
    work: Workload,
    plan: Plan,
    prompts: float | None,
    turns: Mapping[str, float | None],
) -> tuple[Workload, Plan]:
    """Requests and plan of an instance with what is known of a server and its benchmark alone.

    ``prompts``: requests of a benchmark, of which ``work.batch`` come at its start; ``turns``:
    passes that prompts wait by the server's settings, as `Deployment` names them.

    Raises:
        InputError: an estimator without a scheduler, arrivals, fewer requests than are in flight.
    """
    if not model.batches:
        forbid(f"with {option('estimator', 'serving')}", prompts=prompts, **turns)
    if known := without_none(**turns):
        plan = deployment(plan).with_(**known)
    if prompts is None:
        return work, plan
    if work.arrivals is not None:
        raise refuse("prompts", prompts, f"without {option('request_rate')}: arrivals do not start")
    waves = prompts / float(work.batch)
    if waves < 1.0:
        raise refuse("prompts", prompts, f"at least the {float(work.batch):g} in flight")
    return serving_requests(work).with_(waves=waves), plan


def _recorded(trace: str, rate: float | None) -> RequestOptions:
    if rate is None:
        allowed = f"with {option('request_rate')}: a closed loop is of mean lengths"
        raise refuse("trace", trace, allowed)
    from infer_jax.catalog.traces import read_trace  # with the formats of measured runs

    read = read_trace(trace)
    try:
        work, bursts = read.workload(rate=rate), "bursty as they were"
    except InputError:  # a trace without times
        work, bursts = read.workload(batch=1.0), "arriving at random"
        work = work.replace(arrivals=Arrivals.of(rate=rate))
    note = f"{len(read)} requests of {read.file}, {float(work.isl):.6g} tokens in and "
    note += f"{float(work.osl):.6g} out in the mean, {float(work.prefix):.6g} cached, {bursts}."
    longest = float((read.isl + read.osl).max())
    return RequestOptions(work, "trace", [note], longest, "all requests of the trace", read)
