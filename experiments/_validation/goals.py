"""What rows left out of a fit were to be predicted within, beside what they are."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from experiments import _report

BANDED, LEAST = (
    (75.0, 85.0),
    50,
)  # per cent in a band for 80; rows of a data set of which it is asked


class Goal(NamedTuple):
    """The largest error of a kind of times of a data set, per cent."""

    dataset: str
    line: str
    most: float
    figure: str = "median"


GOALS: dict[str, tuple[Goal, ...]] = {
    "groups": (
        Goal("inferencex amd", "pace", 9.0),
        Goal("inferencex amd", "throughput", 10.0),
        Goal("inferencex nvidia", "pace", 7.0),
        Goal("inferencex nvidia drafts", "pace", 12.0),
        Goal("trtllm max throughput", "pace", 9.0),
        Goal("mlperf offline nvidia", "pace", 11.0),
        Goal("rocm vllm latency", "pace", 6.0),
        Goal("silicon (fitted)", "pace", 7.3),
        Goal("silicon (fitted)", "pace", 11.6, "mean"),
        Goal("silicon (fitted)", "TTFT", 25.0),
        Goal("gpt-oss h200", "pace", 5.0),
        Goal("gpt-oss h200", "TTFT", 10.0),
    ),
    "make": (Goal("inferencex amd", "pace", 15.0),),
}
Figures = dict[str, dict[str, Any]]  # by data set, kind of times, name


def show(way: str, found: Figures) -> None:
    """Print the goals of a split beside what is reached, by coefficients alone and with offsets."""
    lines = [
        (
            f"{goal.dataset}, {goal.line}, {goal.figure}",
            f"{goal.most:g}",
            f"{one['alone']:.1f}" if goal.figure == "median" else "",
            f"{one[goal.figure]:.1f}",
            "yes" if one[goal.figure] <= goal.most else "no",
        )
        for goal in GOALS.get(way, ())
        for one in [found.get(goal.dataset, {}).get(goal.line)]
        if one is not None
    ]
    if lines:
        columns = ("error %", "goal", "alone", "with offsets", "reached")
        _report.show("Goals of rows left out", columns, lines)
    if way == "source":
        lines = list(_banded(found))
        columns = ("of each 100 rows, in a band for 80", "goal", "in it", "reached")
        _report.show("Goals of bands", columns, lines)


def _banded(found: Figures) -> Iterator[tuple[str, ...]]:
    low, high = BANDED
    for dataset, kinds in found.items():
        for line, one in kinds.items():
            if one["rows"] >= LEAST:
                inside = "yes" if low <= one["cover80"] <= high else "no"
                yield f"{dataset}, {line}", f"{low:g} to {high:g}", f"{one['cover80']:.0f}", inside
