"""Traffic of a trace: rates by period, dispersion by window, quantiles of lengths, sessions."""

import os
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from infer_jax.arrivals.traffic import LEVELS, Sessions, Traffic, surge_dispersion
from infer_jax.catalog.traces import Trace, read_trace
from infer_jax.catalog.traffic_file import Clients, read_clients, read_description
from infer_jax.errors import InputError

HOUR = 3600.0
FEWEST = 5.0  # requests that a window expects at least: of fewer, gaps cannot be told from surges
WINDOWS = 8  # of a period at least
LEAST = 0.05  # of a period: less of one at either end of a trace is too little for a rate
CALMEST, WILDEST = 0.01, 100.0  # variabilities of gaps
SOJOURNS = np.geomspace(2.0, 1800.0, 28)  # seconds that are tried


class Rates(NamedTuple):
    """Requests per second of each period, and the seconds of it that a trace covers."""

    rates: np.ndarray
    covered: np.ndarray
    offset: float  # s from the begin of the first period to the first request, which may be earlier


def rates_of(trace: Trace, period: float) -> Rates:
    """Rates of the periods that a trace has requests in; of dates, by the clock.

    Raises:
        InputError: a trace without times, or all requests at once.
    """
    if not len(trace.arrivals) or not trace.arrivals[-1] > 0.0:
        allowed = "requests at different times"
        raise InputError(trace.file, "arrival times", "none or all equal", allowed)
    offset = 0.0 if trace.start is None else trace.start % period
    if period - offset < min(LEAST * period, trace.arrivals[-1]):
        offset -= period
    times = trace.arrivals + offset
    counts = np.bincount((times[times >= 0.0] / period).astype(int))
    begins = np.arange(len(counts)) * period
    covered = np.minimum(begins + period, times[-1]) - np.maximum(begins, offset)
    if len(counts) > 1 and covered[-1] < LEAST * period:
        counts, covered = counts[:-1], covered[:-1]
    return Rates(counts / np.maximum(covered, 1e-9), covered, offset)


def describe(trace: Trace, period: float = HOUR) -> Traffic:
    """The traffic that a trace is of, with a rate for each ``period`` (s).

    Raises:
        InputError: as ``rates_of``.
    """
    known = rates_of(trace, period)
    gaps, surge, sojourn = fit_bursts(*dispersions(trace, known, period))
    return Traffic.of(
        rates=known.rates, period=period, start=0.0 if trace.start is None else
        trace.start - known.offset, variability=gaps, surge=surge, sojourn=sojourn,
        prompts=levels_of(trace.isl), outputs=levels_of(trace.osl),
        dependence=dependence(trace.isl, trace.osl), reuse=trace.hit_ratio(),
        sessions=sessions_of(trace),
    )  # fmt: skip


def levels_of(values: np.ndarray) -> np.ndarray:
    """Values at ``LEVELS``."""
    return np.quantile(values, LEVELS)


def dependence(prompt: np.ndarray, output: np.ndarray) -> float:
    """Correlation of the normal scores of two lengths: ranks in place of tokens."""
    from scipy.special import ndtri  # of jax's own requirements
    from scipy.stats import rankdata

    scores = [ndtri((rankdata(x) - 0.5) / len(x)) for x in (prompt, output)]
    if min(x.std() for x in scores) < 1e-9:
        return 0.0
    return float(np.clip(np.corrcoef(scores)[0, 1], -0.999, 0.999))


def dispersions(trace: Trace, known: Rates, period: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Windows (s), variance over mean of the requests in one, and the rate of a request's period.

    Expected is what the rate of a period has. Windows expect ``FEWEST`` requests at least, and a
    period has ``WINDOWS`` of them at least.
    """
    rates, times = known.rates, trace.arrivals + known.offset
    mean = float((rates**2 @ known.covered) / (rates @ known.covered))
    longest = min(period, float(known.covered.max())) / WINDOWS
    found, window = list[tuple[float, float]](), FEWEST / mean
    while window <= longest:
        edges = np.arange(max(known.offset, 0.0), times[-1], window)
        which = np.minimum((edges / period).astype(int), len(rates) - 1)
        inside = np.diff(which) == 0
        expected = rates[which[:-1][inside]] * window
        count = np.histogram(times, edges)[0][inside]
        # the rate itself is of these requests: a share of window / period of their variance
        kept = np.sum(expected) * (1.0 - window / period)
        if len(expected) >= WINDOWS and kept > 0:
            found.append((window, float(np.sum((count - expected) ** 2)) / kept))
        window *= 2.0
    windows, spread = np.reshape(found, (-1, 2)).T
    return windows, spread, mean


def fit_bursts(windows: np.ndarray, found: np.ndarray, rate: float) -> tuple[float, float, float]:
    """Variability of gaps, surge and sojourn whose ``Traffic.dispersion`` is nearest.

    By least squares of relative errors; Poisson where no window has enough requests.
    """
    from scipy.optimize import lsq_linear  # of jax's own requirements

    ones, found = np.ones(len(windows)), np.maximum(found, CALMEST)
    if not len(windows):
        return 1.0, 0.0, 60.0
    tried = list[tuple[float, float, float, float]]()
    for sojourn in SOJOURNS:
        added = surge_dispersion(rate, jnp.asarray(windows), sojourn)
        columns = np.stack([ones, np.asarray(added)], axis=1) / found[:, None]
        fit = lsq_linear(columns, ones, ([CALMEST, 0.0], [WILDEST, 1.0]), method="bvls")
        tried.append((float(fit.cost), float(fit.x[0]), float(fit.x[1] ** 0.5), float(sojourn)))
    return min(tried)[1:]


def sessions_of(trace: Trace) -> Sessions | None:
    """Turns, gaps and new tokens of the conversations of a trace; None where it has none."""
    if not len(trace.sessions):
        return None
    order = np.argsort(trace.sessions, kind="stable")
    same = np.diff(trace.sessions[order]) == 0
    if not same.any():
        return None
    before, after = order[:-1][same], order[1:][same]
    grown = trace.isl[after] - trace.isl[before]
    # where a prompt grows by less than the answer, as without its reasoning, none of that is in it
    news = np.where(grown > trace.osl[before], grown - trace.osl[before], grown)
    counts = np.unique(trace.sessions, return_counts=True)[1]
    return Sessions.of(
        turns=len(trace) / len(counts),
        depth=float(counts @ (counts - 1.0)) / 2.0 / len(trace),
        gaps=levels_of(np.maximum(trace.arrivals[after] - trace.arrivals[before], 1e-3)),
        news=levels_of(np.maximum(news, 1.0)),
    )


def traffic_of_clients(clients: Clients, period: float = HOUR) -> Traffic:
    """The traffic of many clients together, with a rate for each ``period`` (s) of whole windows.

    Rates add. Of many renewal processes side by side the variance over mean in a long window is

        c^2 = sum r c^2 / sum r,

    the asymptotic method of Whitt 1982, Operations Research 30; in windows shorter than a client's
    gaps they look like Poisson. Lengths are those of a client's distributions, whose dependence
    nobody publishes: 0.
    """
    together = max(round(period / clients.window), 1)
    periods = np.split(clients.rates, range(together, len(clients.rates), together))
    levels = np.maximum(np.array(LEVELS) - 1e-12, 0.0)  # sums of weights are rounded
    prompts, outputs = (
        np.quantile(np.maximum([*x], 1.0), levels, method="inverted_cdf", weights=[*x.values()])
        for x in (clients.prompts, clients.outputs)
    )
    return Traffic.of(
        rates=[x.mean() for x in periods],
        period=together * clients.window,
        variability=clients.varied.sum() / clients.rates.sum(),
        prompts=prompts,
        outputs=outputs,
    )


def read_source(
    path: str | os.PathLike[str], period: float = HOUR
) -> tuple[Traffic, Trace | Clients | None]:
    """The traffic of a file or folder, and what it describes; None of a description.

    Raises:
        InputError: as ``read_traffic``.
    """
    if Path(path).is_dir():
        clients = read_clients(path)
        return traffic_of_clients(clients, period), clients
    if Path(path).suffix == ".toml":
        fields, sessions = read_description(path)
        try:
            own = Sessions.of(**sessions) if sessions else None
            return Traffic.of(**fields, sessions=own), None
        except InputError as error:
            raise InputError(str(path), error.field, error.value, error.allowed) from None
    trace = read_trace(path, skip_damaged=True)
    return describe(trace, period), trace


def read_traffic(path: str | os.PathLike[str], period: float = HOUR) -> Traffic:
    """The traffic of a file: a description (.toml), or a trace, which is described; of a folder.

    Raises:
        InputError: as ``read_trace`` and ``read_clients``; a description with an unknown key or a
            wrong number.
    """
    return read_source(path, period)[0]


def rate_errors(traffic: Traffic, covered: np.ndarray | None = None) -> np.ndarray:
    """Standard error of each period's rate, requests/s: of counts that scatter as bursts do.

    sqrt(D r / T) of D the dispersion in the T seconds that are ``covered``, else all of a period.
    """
    rates = np.asarray(traffic.rates)
    seconds = np.full(len(rates), float(traffic.period)) if covered is None else covered
    spread = np.asarray(traffic.dispersion(jnp.asarray(rates), jnp.asarray(seconds)))
    return np.sqrt(spread * rates / seconds)
