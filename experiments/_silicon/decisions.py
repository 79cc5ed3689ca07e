"""Does the model choose well? The best layout and load under a limit on TPOT.

For every group of rows that differ in layout and load alone, and three limits, the choice is the
row of the highest predicted throughput per GPU among those predicted within the limit. No choice
is made where none is predicted to be.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from experiments import _report
from experiments._silicon.rows import Row

QUARTILES = (0.25, 0.5, 0.75)
LEAST = 4  # rows of a group

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


def throughput(rows: Sequence[Row], tpot: np.ndarray, ttft: np.ndarray) -> np.ndarray:
    """Output tokens/s per GPU in a closed loop: C O / (TTFT + (O - 1) TPOT) / GPUs."""
    load = np.asarray([r.concurrency for r in rows], float)
    osl = np.asarray([r.osl for r in rows], float)
    gpus = np.asarray([r.layout.gpus for r in rows if r.layout], float)
    return load * osl / (ttft + (osl - 1.0) * tpot) / gpus


def by_model(
    rows: Sequence[Row], tpot: np.ndarray, ttft: np.ndarray, slack: float = 0.0
) -> Chooser:
    """Chooses by predicted times; a share of ``slack`` over the limit is within it.

    Slack forgoes less throughput and breaks more limits.
    """
    worth = throughput(rows, tpot, ttft)

    def choose(group: np.ndarray, limit: float) -> int | None:
        within = group[tpot[group] <= (1.0 + slack) * limit]
        return int(within[np.argmax(worth[within])]) if len(within) else None

    return choose


def whole_node(rows: Sequence[Row]) -> Chooser:
    """Always the most GPUs, and of those rows the one of the most requests in flight."""
    gpus = np.asarray([r.layout.gpus for r in rows if r.layout], float)
    load = np.asarray([r.concurrency for r in rows], float)

    def choose(group: np.ndarray, limit: float) -> int | None:
        widest = group[gpus[group] == gpus[group].max()]
        return int(widest[np.argmax(load[widest])])

    return choose


def most_load(rows: Sequence[Row]) -> Chooser:
    """Always the most requests in flight per GPU."""
    gpus = np.asarray([r.layout.gpus for r in rows if r.layout], float)
    load = np.asarray([r.concurrency for r in rows], float) / gpus

    def choose(group: np.ndarray, limit: float) -> int | None:
        return int(group[np.argmax(load[group])])

    return choose


def show(title: str, made: Mapping[str, Choices]) -> None:
    """Print how well each way of choosing does."""
    shown = [
        (
            name,
            c.made,
            f"{c.broken:.1f}",
            " / ".join(f"{x:.0f}" for x in c.broken_at),
            f"{c.regret:.1f}",
            " / ".join(f"{x:.0f}" for x in c.regret_at),
        )
        for name, c in made.items()
    ]
    columns = ("chosen by", "choices", "broken %", "at 25/50/75 %", "regret %", "at 25/50/75 %")
    note = "limit: quartiles of the measured TPOT; regret: throughput forgone where it is kept"
    _report.show(title, columns, shown, note)


def judge(rows: Sequence[Row], choose: Chooser, among: np.ndarray) -> Choices:
    """The choices for groups of the rows ``among`` (true), judged by what was measured."""
    tpot = np.asarray([r.tpot for r in rows])
    worth = throughput(rows, tpot, np.asarray([r.ttft for r in rows]))
    groups: dict[tuple, list[int]] = {}
    for i in np.flatnonzero(among):
        groups.setdefault(rows[int(i)].group, []).append(int(i))
    broken: list[list[bool]] = [[] for _ in QUARTILES]
    regret: list[list[float]] = [[] for _ in QUARTILES]
    for members in groups.values():
        if len(members) < LEAST:
            continue
        group = np.asarray(members)
        for k, limit in enumerate(np.quantile(tpot[group], QUARTILES)):
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
