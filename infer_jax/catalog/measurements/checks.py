"""Plausibility checks of runs: impossible units, failed runs, contradicting entries.

Every refusal names file, line and field. The bounds are wide: they catch a wrong unit or a
broken run, not a slow server.
"""

from collections.abc import Iterable, Iterator

from infer_jax.catalog.measurements.run import Run
from infer_jax.errors import InputError

# s: no request waits three hours for a token, no chip makes one in a microsecond
BOUNDS = {"ttft": (1e-4, 10800.0), "tpot": (1e-6, 60.0), "itl": (0.0, 60.0)}
POSITIVE = ("isl", "osl", "concurrency", "request_rate", "chips", "tp", "dp", "pp", "ep")
POSITIVE += ("max_num_seqs", "max_num_batched_tokens")
MAX_FAILED = 0.01  # share of failed requests above which a run is refused
MIN_IN_FLIGHT, MAX_IN_FLIGHT = 0.05, 1.5  # requests in flight over the stated concurrency
MAX_RATIO = 1.5  # between two TPOTs of one configuration on one day


def believable(run: Run) -> Run:
    """The run, if nothing in it is impossible.

    Raises:
        InputError: a failed or rate-limited run, no time at all, an impossible time or
            length, or times that do not fit the throughput.
    """
    for field, value, allowed in _problems(run):
        raise InputError(run.place, field, value, allowed)
    return run


def _problems(run: Run) -> Iterator[tuple[str, object, str]]:
    """What is impossible: field, value, and what would be allowed."""
    if run.completed == 0.0:
        yield "completed", 0, "a run with completed requests"
    if run.rate_limited:
        allowed = "0: a rate-limited run measures the limit, not the server"
        yield "rate-limited requests", run.rate_limited, allowed
    if run.failed > MAX_FAILED * ((run.completed or 0.0) + run.failed):
        yield "failed", run.failed, f"at most {MAX_FAILED:.0%} of the requests"
    if run.ttft.typical is None and run.tpot.typical is None:
        yield "ttft and tpot", "missing", "a run with at least one of them"
    for name, (low, high) in BOUNDS.items():
        for value in getattr(run, name).values:
            no_pace = name == "tpot" and value == 0.0 and run.osl == 1.0
            if not low <= value <= high and not no_pace:
                yield f"{name} (s)", value, f"{low:g} to {high:g} s"
    for name in POSITIVE:
        if getattr(run, name) == 0.0:
            yield name, 0, "a number above 0"
    if run.prefix is not None and run.isl is not None and run.prefix > run.isl:
        yield "prefix", run.prefix, f"at most isl = {run.isl:g}"
    # Little's law: with times in the wrong unit it is off by a factor of a thousand
    rate, latency = _rate(run), _latency(run)
    if run.concurrency is not None and rate is not None and latency is not None:
        full = (run.completed or run.concurrency) >= run.concurrency
        low = MIN_IN_FLIGHT * run.concurrency if run.loop == "closed" and full else 0.0
        high = MAX_IN_FLIGHT * run.concurrency
        if not low <= rate * latency <= high:
            allowed = f"{low:g} to {high:g} at concurrency {run.concurrency:g}"
            field = "throughput x latency (requests in flight)"
            yield field, f"{rate * latency:.4g}", f"{allowed}: are the units right?"


def _rate(run: Run) -> float | None:
    """Requests per second."""
    if run.request_throughput is not None:
        return run.request_throughput
    if run.completed and run.duration:
        return run.completed / run.duration
    if run.output_throughput is not None and run.osl:
        return run.output_throughput / run.osl
    return None


def _latency(run: Run) -> float | None:
    """Time of a whole request (s): measured, else TTFT + (O - 1) TPOT."""
    ttft, tpot = run.ttft.typical, run.tpot.typical
    if run.e2el.typical is not None or ttft is None or tpot is None or run.osl is None:
        return run.e2el.typical
    return ttft + (run.osl - 1.0) * tpot


def distinct(runs: Iterable[Run]) -> tuple[Run, ...]:
    """The runs without second entries of a measurement.

    Raises:
        InputError: two entries of one configuration and day whose TPOTs contradict.
    """
    entries: set[tuple] = set()
    extremes: dict[tuple, dict[float, Run]] = {}  # of a configuration, by their TPOTs
    distinct_runs = []
    for run in runs:
        same = _configuration(run)
        entry = (same, (run.ttft, run.tpot, run.e2el, run.output_throughput))
        if entry in entries:
            continue
        entries.add(entry)
        distinct_runs.append(run)
        if a := run.tpot.typical:
            known = extremes.setdefault(same, {})
            for b, other in known.items():
                if max(a / b, b / a) > MAX_RATIO:
                    allowed = f"within a factor {MAX_RATIO} of {b:g} s in {other.place}, of the "
                    allowed += "same configuration; or say in what they differ"
                    raise InputError(run.place, "tpot (s)", a, allowed)
            known.setdefault(a, run)
            extremes[same] = {tpot: known[tpot] for tpot in (min(known), max(known))}
    return tuple(distinct_runs)


def _configuration(run: Run) -> tuple:
    """All fields in which two runs could differ legitimately."""
    deployment = (run.engine, run.version, run.model, run.system, run.precision, run.pools)
    layout = (run.chips, run.tp, run.pp, run.dp, run.ep)
    load = (run.isl, run.osl, run.prefix, run.concurrency, run.request_rate, run.burstiness)
    method = run.speculation.method if run.speculation else ""
    day = "".join(letter for letter in run.date or "" if letter.isdigit())[:8]
    return (*deployment, *layout, *load, method, day)
