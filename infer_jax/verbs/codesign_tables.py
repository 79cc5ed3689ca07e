"""Tables of ``codesign``: the path to a design, and designs along a limit."""

from collections.abc import Iterator, Sequence

from infer_jax.design.change_steps import ChangePath
from infer_jax.design.design import Design
from infer_jax.design.frontier import Flip
from infer_jax.plots.style import name_of
from infer_jax.results import Column, Section, table
from infer_jax.results.numbers import digits


def _number(value: object) -> str:
    return value if isinstance(value, str) else digits(float(str(value)), 5)


def _factor(value: float) -> str:
    return f"{value:.3f}"


PATH = (
    Column("one change at a time", "", "path", name_of, left=True),
    Column("from", "", "before", _number, left=False),
    Column("to", "", "after", _number, left=False),
    Column("alone", "factor", "alone", _factor),
    Column("in turn", "factor", "gain", _factor),
    Column("with", "", lambda step: ", ".join(map(name_of, step.others)), left=True),
)


def path_sections(path: ChangePath, by: str) -> Iterator[Section]:
    """The steps to a design with the factors by which its objective gets better."""
    if not path.steps:
        return
    columns = PATH if any(step.others for step in path.steps) else PATH[:-1]
    yield from ("", table(path.steps, columns), "")
    yield (
        f"Each is moved as far as the limits allow. Together {by} is better by a factor of "
        f"{path.total:.3f}: {path.interaction:.3f} times the product of each alone."
    )


def frontier_sections(
    name: str, values: Sequence[float], designs: Sequence[Design], flips: Sequence[Flip]
) -> Iterator[Section]:
    """Designs along a limit, the numbers that differ among them, and where they jump."""
    varied = [
        path
        for path in designs[0].values
        if "vectors" not in path and len({str(x.values.get(path)) for x in designs}) > 1
    ]
    rows = [
        {"name": designs[0].by, **dict(enumerate(x.objective for x in designs))},
        *({"name": name_of(path), **_by_design(path, designs)} for path in varied),
    ]
    columns = [
        Column(_number(value), "", lambda row, i=i: row[i], _number, left=False)
        for i, value in enumerate(values)
    ]
    yield table(rows, (Column(f"limit of {name_of(name)}", "", "name", left=True), *columns))
    yield ""
    for flip in flips:
        jumps = [
            f"{name_of(path)} from {_number(before)} to {_number(after)}"
            for path, (before, after) in flip.jumps.items()
        ]
        ends = f"{_number(flip.low)} to {_number(flip.high)}"
        yield f"From {ends} the design flips: {', '.join(jumps)}."
    if not flips:
        yield "Between neighbouring limits no number jumps."


def _by_design(path: str, designs: Sequence[Design]) -> dict[int, object]:
    """A number of each design."""
    return {i: one.values[path] for i, one in enumerate(designs)}
