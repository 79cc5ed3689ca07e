"""Does the model choose well? The best layout and load under a limit on TPOT.

For every group of aiconfigurator-core's closed loops that differ in layout and load alone, and
three limits, the choice is the row of the highest predicted throughput per GPU among those
predicted within the limit. No choice is made where none is predicted to be.
"""

from collections.abc import Callable, Sequence
from itertools import chain
from statistics import NormalDist
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments import _report
from experiments._validation.estimates import aiconfigurator
from experiments._validation.split_scores import SHARES, Predicted
from infer_jax.calibration.pooled.likelihood import PACE, TTFT, PooledTimes
from infer_jax.calibration.pooled.rows import PooledRow
from infer_jax.calibration.uncertainty import rows_by_label
from infer_jax.estimators.serving import Deployment
from infer_jax.physics.chance import Spread, ratio

QUARTILES = (0.25, 0.5, 0.75)
MIN_ROWS = 4  # rows of a group
CONFIDENCES = (0.5, 0.8, 0.9, 0.95)
SLACK = 0.02  # of the limit that a choice may be predicted beyond

Chooser = Callable[[np.ndarray, float], int | None]


class Choices(NamedTuple):
    """Choices made, per cent that break their limit, per cent of throughput the rest forgoes.

    ``broken`` and ``regret`` are means, ``broken_at`` and ``regret_at`` by quartile of the limit.
    """

    made: int
    broken: float
    regret: float
    broken_at: tuple[float, ...]
    regret_at: tuple[float, ...]


class Loops(NamedTuple):
    """Closed loops: their group, load, GPUs, and times as measured (TPOT and TTFT x rows)."""

    group: Sequence[str]
    load: np.ndarray
    osl: np.ndarray
    gpus: np.ndarray
    measured: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[PooledRow]) -> "Loops":
        """Of rows with both times."""
        works = [row.workload for row in rows if row.workload is not None]
        plans = [row.plan for row in rows if isinstance(row.plan, Deployment)]
        return cls(
            [f"{row.group} {row.lengths}" for row in rows],
            np.asarray([float(work.batch) for work in works]),
            np.asarray([float(work.osl) for work in works]),
            np.asarray([float(plan.instance) for plan in plans]),
            np.asarray([[row.measured[name] for row in rows] for name in ("tpot", "ttft")]),
        )

    def throughput(self, times: np.ndarray) -> np.ndarray:
        """Output tokens/s per GPU in a closed loop: C O / (TTFT + (O - 1) TPOT) / GPUs."""
        tpot, ttft = times
        return self.load * self.osl / (ttft + (self.osl - 1.0) * tpot) / self.gpus


def by_times(loops: Loops, times: np.ndarray, bound: np.ndarray | None = None) -> Chooser:
    """Chooses the highest predicted throughput; ``bound``: TPOT held to the limit, as predicted."""
    worth, at_most = loops.throughput(times), times[0] if bound is None else bound

    def choose(group: np.ndarray, limit: float) -> int | None:
        within = group[at_most[group] <= limit]
        return int(within[np.argmax(worth[within])]) if len(within) else None

    return choose


def by_confidence(
    loops: Loops, times: np.ndarray, spreads: Sequence[Spread], confidence: float
) -> Chooser:
    """Chooses the highest predicted throughput whose limit holds with that probability.

    It does where the limit is above that quantile of TPOT.
    """
    score = NormalDist().inv_cdf(confidence)
    stacked = Spread(*(np.stack(x) for x in zip(*spreads, strict=True)))
    logs = np.asarray(jax.vmap(ratio, in_axes=(None, 0))(score, stacked))
    return by_times(loops, times, times[0] * np.exp(logs))


def whole_node(loops: Loops) -> Chooser:
    """Always the most GPUs, and of those rows the one of the most requests in flight."""

    def choose(group: np.ndarray, limit: float) -> int | None:
        widest = group[loops.gpus[group] == loops.gpus[group].max()]
        return int(widest[np.argmax(loops.load[widest])])

    return choose


def most_load(loops: Loops) -> Chooser:
    """Always the most requests in flight per GPU."""
    return lambda group, limit: int(group[np.argmax((loops.load / loops.gpus)[group])])


def judge(loops: Loops, choose: Chooser, among: np.ndarray) -> Choices:
    """The choices for groups of the rows ``among`` (true), judged by what was measured."""
    tpot, worth = loops.measured[0], loops.throughput(loops.measured)
    scored = np.flatnonzero(among)
    groups = rows_by_label(loops.group[i] for i in scored.tolist())
    broken: list[list[bool]] = [[] for _ in QUARTILES]
    regret: list[list[float]] = [[] for _ in QUARTILES]
    for members in groups.values():
        group = scored[members]
        limits = np.quantile(tpot[group], QUARTILES) if len(group) >= MIN_ROWS else []
        for k, limit in enumerate(limits):
            choice = choose(group, float(limit))
            if choice is None:
                continue
            broken[k].append(bool(tpot[choice] > limit))
            if not broken[k][-1]:
                best = worth[group[tpot[group] <= limit]].max()
                regret[k].append(float(1.0 - worth[choice] / best))

    def percent(values: Sequence[list]) -> tuple[float, ...]:
        return tuple(100.0 * float(np.mean(v)) if v else float("nan") for v in values)

    (all_broken,), (all_regret,) = percent([list(chain(*broken))]), percent([list(chain(*regret))])
    made = sum(map(len, broken))
    return Choices(made, all_broken, all_regret, percent(broken), percent(regret))


def table(times: PooledTimes, found: Predicted) -> dict[str, Any]:
    """Print how well each way of choosing does on rows left out, and return it."""
    both: dict[int, dict[int, int]] = {}  # of a row its pace and its TTFT
    for j in map(int, np.flatnonzero(np.isfinite(found.offset))):
        row, kind = times.rows[times.row[j]], int(times.kind[j])
        if row.dataset.startswith("silicon") and row.mode == "loop" and kind in (PACE, TTFT):
            both.setdefault(int(times.row[j]), {})[kind] = j
    index = np.asarray([(x[PACE], x[TTFT]) for x in both.values() if len(x) == 2]).T
    rows = [times.rows[i] for i in times.row[index[0]]]
    loops, every = Loops.of(rows), np.ones(len(rows), bool)
    alone, offset = (times.seconds[index] * np.exp(-x[index]) for x in (found.plain, found.offset))
    ends = np.exp(found.bands[:, :, index[0]]).transpose(2, 0, 1).tolist()
    spreads = [Spread.of(dict(zip(SHARES, map(tuple, own), strict=True))) for own in ends]
    slack = offset[0] / (1.0 + SLACK)
    ways = {
        "coefficients": by_times(loops, alone),
        "with offsets of other runs": by_times(loops, offset),
        f"the same, {SLACK:.0%} over the limit allowed": by_times(loops, offset, slack),
        "always the whole node": whole_node(loops),
        "most load per GPU": most_load(loops),
    }
    for confidence in CONFIDENCES:
        chooser = by_confidence(loops, offset, spreads, confidence)
        ways[f"with offsets, at {confidence:.0%} confidence"] = chooser
    made = {name: judge(loops, choose, every) for name, choose in ways.items()}
    theirs = aiconfigurator(rows)
    if theirs:
        stored = np.stack([theirs["tpot"], theirs["ttft"]])
        answered = np.asarray(np.isfinite(stored).all(axis=0))
        made["aiconfigurator 0.12"] = judge(loops, by_times(loops, stored), answered)
    lines = []
    for name, c in made.items():
        broken, regret = (" / ".join(f"{x:.0f}" for x in x) for x in (c.broken_at, c.regret_at))
        lines.append((name, c.made, f"{c.broken:.1f}", broken, f"{c.regret:.1f}", regret))
    columns = ("chosen by", "choices", "broken %", "at 25/50/75 %", "regret %", "at 25/50/75 %")
    note = "limit: quartiles of the measured TPOT; regret: throughput forgone where it holds"
    _report.show("Choice of layout and load under a limit on TPOT", columns, lines, note)
    return {name: c._asdict() for name, c in made.items()}
