"""Does our model return a published program's numbers? One comparison for every model.

A file of points is CSV with a header: columns are matched by name in any order, and any subset
of the rows and of the optional columns will do. In an output column ``inf`` is an infeasible
configuration, which must be infeasible here, too; an empty cell is a value the program does not
give, and is skipped. Exit code 0: everything compared agrees; 1: something disagrees or nothing
was compared; 2: the file cannot be read.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from experiments._columns import Input, Output, Point, Points, Value, read_points
from experiments._report import show, verdict

MAX_PRINTED = 10  # disagreements printed
NO_ANSWER = "no answer"  # ours for a column that a row has no value of here


class Answer(NamedTuple):
    """Ours for one row. At a tie, ``sides`` has what is right on either side of it."""

    values: Mapping[str, Value]
    sides: Sequence[Mapping[str, Value]] = ()


@dataclass(frozen=True)
class Recipe:
    """What a file of points holds, and how it is evaluated.

    ``group`` says of a readable row (a dict of its inputs) which others it may be evaluated with,
    or in a string why it is skipped. ``evaluate`` takes that key and at most ``most`` rows of it,
    and gives an ``Answer`` for each.
    """

    source: str
    inputs: Mapping[str, Input]
    outputs: Mapping[str, Output]
    evaluate: Callable[[Any, list[dict[str, Any]]], Iterable[Answer]]
    group: Callable[[dict[str, Any]], Hashable] = lambda row: ()
    most: int = 2**30


class Miss(NamedTuple):
    """A cell on which ours and theirs differ by more than the tolerance."""

    line: int
    column: str
    theirs: Value
    ours: Value
    error: float


@dataclass
class Report:
    """What was read, what was compared, and how well it agrees."""

    read: Points
    compared: int = 0
    ties: int = 0
    turned: int = 0  # ties on which theirs is on the other side
    skipped: Counter[str] = field(init=False)
    cells: Counter[str] = field(default_factory=Counter)
    worst: dict[str, tuple[float, int]] = field(default_factory=dict)
    worst_tie: float = 0.0
    misses: list[Miss] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.skipped = Counter(self.read.skipped)

    @property
    def agrees(self) -> bool:
        """True where something was compared and no cell differs."""
        return self.compared > 0 and not self.misses

    def headline(self) -> dict[str, Any]:
        """The figures a script wants."""
        return {
            "rows": self.read.rows,
            "compared": self.compared,
            "skipped": dict(self.skipped),
            "ties": self.ties,
            "ties_on_the_other_side": self.turned,
            "worst_error": {name: error for name, (error, _) in self.worst.items()},
            "worst_error_at_ties": self.worst_tie,
            "disagreements": len(self.misses),
            "ignored_columns": self.read.ignored,
            "agrees": self.agrees,
        }


def compare(path: str | os.PathLike[str], recipe: Recipe) -> Report:
    """Read a file of points, evaluate its rows and compare them."""
    read = read_points(path, recipe.inputs, recipe.outputs)
    report, answers = Report(read), dict[int, Answer]()
    groups: dict[Hashable, list[Point]] = defaultdict(list)
    for point in read.points:
        groups[recipe.group(point.inputs)].append(point)
    for key, points in groups.items():
        if isinstance(key, str):
            report.skipped[key] += len(points)
            continue
        for start in range(0, len(points), recipe.most):
            own = points[start : start + recipe.most]
            found = recipe.evaluate(key, [point.inputs for point in own])
            answers |= {p.line: answer for p, answer in zip(own, found, strict=True)}
    for point in read.points:
        if point.line in answers:
            _judge(report, recipe, point, answers[point.line])
    return report


def _judge(report: Report, recipe: Recipe, point: Point, answer: Answer) -> None:
    """Enter one row into the report; a tie agrees if one side of it agrees in every column."""
    line, theirs = point.line, point.outputs
    report.compared += 1
    report.ties += bool(answer.sides)

    def errors(values: Mapping[str, Value]) -> dict[str, float]:
        return {
            name: recipe.outputs[name].error(value, values.get(name, NO_ANSWER))
            for name, value in theirs.items()
        }

    nearest = min((answer.values, *answer.sides), key=lambda v: max(errors(v).values()))
    report.turned += nearest is not answer.values
    for column, error in errors(nearest).items():
        report.cells[column] += 1
        if answer.sides:
            report.worst_tie = max(report.worst_tie, error)
        elif error >= report.worst.get(column, (0.0, 0))[0]:
            report.worst[column] = (error, line)
        if not error <= recipe.outputs[column].tolerance:
            ours = nearest.get(column, NO_ANSWER)
            report.misses.append(Miss(line, column, theirs[column], ours, error))


def check(path: str | os.PathLike[str], recipe: Recipe) -> dict[str, Any]:
    """Compare a file of points, print the comparison, and return its headline."""
    report = compare(path, recipe)
    print_report(path, recipe, report)
    return report.headline()


def print_report(path: object, recipe: Recipe, report: Report) -> None:
    """The comparison as a person reads it."""
    print(f"{path}: {recipe.source}")
    print(f"rows read {report.read.rows}, compared {report.compared}")
    for reason, count in report.skipped.items():
        print(f"  skipped {count}: {reason}")
    for name, value in report.read.assumed.items():
        print(f"  column {name} absent: {value} taken")
    if report.read.ignored:
        print(f"  columns ignored: {', '.join(report.read.ignored)}")
    missed = Counter(miss.column for miss in report.misses)
    rows = []
    for column in report.read.columns:
        error, line = report.worst.get(column, (0.0, 0))
        tolerance = recipe.outputs[column].tolerance
        state = verdict(not missed[column]) if report.cells[column] else "not compared"
        cells = report.cells[column]
        rows.append((column, cells, f"{error:.2e}", line or "-", f"{tolerance:.0e}", state))
    columns = ("column", "cells", "worst relative error", "on line", "allowed", "verdict")
    note = ""
    if report.ties:
        note = (
            f"{report.ties} rows are within 1e-12 of a feasibility tie and agree if one side of it "
            f"does; on {report.turned} theirs is on the other side; worst {report.worst_tie:.2e}"
        )
    show("", columns, rows, note)
    if not report.misses:
        return
    shown = sorted(report.misses, key=lambda m: -m.error)[:MAX_PRINTED]
    rows = [(m.line, m.column, m.theirs, m.ours, f"{m.error:.2e}") for m in shown]
    title = f"{len(report.misses)} cells disagree; the worst"
    show(title, ("line", "column", "theirs", "ours", "relative error"), rows)
