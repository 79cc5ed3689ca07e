"""How often the laws of batching are within 10 and 25 % of the replay, on random workloads.

Machines, engines, lengths and loads are those of the referee (``tests/referee/serving.py``), half
of them closed loops. The replay is that of whole lives, which equals the referee event for event.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from infer_jax.replays import GuaranteedNoEvict, Requests, serve
from tests.referee import serving
from tests.referee.serving import Case, Machine, step_time

NAMES = ("TTFT", "TPOT", "throughput", "p50 of TTFT", "p90 of TTFT", "p99 of TTFT")
ALLOWED = np.array([0.10, 0.10, 0.10, 0.25, 0.25, 0.25])
GOALS = {"TTFT": 0.95, "TPOT": 0.95, "p90 of TTFT": 0.95, "p99 of TTFT": 0.90}
# what must hold of 1,000 workloads, whether the goal is reached or not
BOUNDS = {"TTFT": 0.88, "TPOT": 0.94, "p90 of TTFT": 0.91, "p99 of TTFT": 0.83}
COUNTED_FROM, COUNTED_TO = 0.2, 0.97  # shares of the requests between which times are counted
LONGER = 5  # requests of an open loop over those of a closed one: its queue moves slowly


class Errors(NamedTuple):
    """Errors of the laws, a row a workload, and how far two runs of it are apart."""

    table: np.ndarray  # over the mean of the runs
    spread: np.ndarray  # standard deviation among the runs over their mean
    closed: np.ndarray  # whether the workload is a closed loop
    cases: list[Case]

    def shares(self, chosen: np.ndarray) -> dict[str, float]:
        """By name, the share of the chosen workloads within what is allowed."""
        close = np.abs(self.table[chosen]) <= ALLOWED
        return dict(zip(NAMES, np.mean(close, axis=0).tolist(), strict=True))


def errors(count: int, requests: int, runs: int, seed: int = 0) -> Errors:
    """Relative errors on ``count`` workloads, each replayed ``runs`` times.

    A run of a closed loop is of ``requests`` requests, of an open one of ``LONGER`` as many.
    """
    cases = serving.cases(count, seed)
    laws = np.empty((count, len(NAMES)))
    times = np.empty((count, runs, len(NAMES)))
    for i, case in enumerate(cases):
        law = serving.law(case)
        p50, p90, _, p99 = law.ttft_at
        laws[i] = [float(x) for x in (law.ttft, law.tpot, law.rate, p50, p90, p99)]
        many = requests if case.concurrency is not None else LONGER * requests
        for run in range(runs):
            times[i, run] = _replayed(case, float(law.rate), many, i + count * run)
    mean = times.mean(axis=1)
    spread = times.std(axis=1, ddof=1) / mean if runs > 1 else np.zeros_like(mean)
    closed = np.array([case.concurrency is not None for case in cases])
    return Errors(laws / mean - 1.0, spread, closed, cases)


def _replayed(case: Case, rate: float, count: int, seed: int) -> tuple[float, ...]:
    """What the replay says: mean TTFT and TPOT, requests a second, percentiles of TTFT."""
    rng = np.random.default_rng(seed)
    lengths = serving.lengths_of(case, rng, count)
    arrival, loop = np.zeros(count), case.concurrency
    if loop is None:
        arrival = np.cumsum(rng.gamma(1 / case.variability, case.variability / rate, count))
    e = case.engine
    rules = GuaranteedNoEvict.of(budget=e.budget, slots=e.slots, blocks=e.blocks, block=e.block)
    step = Partial(step_time, Machine(*map(jnp.asarray, case.machine)))
    log = serve(step, rules, Requests.of(arrival, *lengths), concurrency=loop)
    counted = slice(int(COUNTED_FROM * count), int(COUNTED_TO * count))
    ttft, last = log.ttft[counted], log.last[counted]
    tpot = np.asarray(log.tpot[counted])[lengths[1][counted] > 1]
    finished = (len(last) - 1) / float(np.ptp(last))
    percentiles = np.percentile(ttft, (50, 90, 99))
    return float(np.mean(ttft)), float(np.mean(tpot)), finished, *percentiles
