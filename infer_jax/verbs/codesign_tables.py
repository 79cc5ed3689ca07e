"""Tables of ``codesign``: the path to a design, and designs along a limit."""

from collections.abc import Iterator, Mapping, Sequence
from typing import SupportsFloat

from infer_jax.design.design import Design
from infer_jax.design.expected import CLEAR, ExpectedDesign, Information
from infer_jax.design.frontier import ChangePath, Flip
from infer_jax.results import Column, Rows, Section, table
from infer_jax.results.numbers import digits, is_truth
from infer_jax.specs.words import name_of


def numeric(value: object) -> float | None:
    """The number that a cell holds; None of a word or a truth."""
    return float(value) if isinstance(value, SupportsFloat) and not is_truth(value) else None


def cell(value: object) -> str:
    """A number with five digits, anything else as it is."""
    number = numeric(value)
    return str(value) if number is None else digits(number, 5)


PATH = (
    Column("one change at a time", "", "path", name_of, left=True),
    Column("from", "", "before", cell, left=False),
    Column("to", "", "after", cell, left=False),
    Column("alone", "factor", "alone", "{:.3f}".format),
    Column("in turn", "factor", "gain", "{:.3f}".format),
    Column("with", "", lambda step: ", ".join(map(name_of, step.others)), left=True),
)


def path_sections(path: ChangePath, by: str) -> Iterator[Section]:
    """The steps to a design with the factors by which its objective gets better."""
    if not path.steps:
        return
    columns = PATH if any(step.others for step in path.steps) else PATH[:-1]
    yield from ("", table(path.steps, columns), "")
    factors = f"{path.total:.3f}: {path.interaction:.3f} times the product of each alone"
    yield f"Together {by} is better by a factor of {factors}."


def frontier_sections(
    name: str, values: Sequence[float], designs: Sequence[Design], flips: Sequence[Flip]
) -> Iterator[Section]:
    """Designs along a limit, the numbers that differ among them, and where they jump."""
    varied = [
        path
        for path in designs[0].values
        if "vectors" not in path and len({str(x.values.get(path)) for x in designs}) > 1
    ]
    rows = {designs[0].by: [x.objective for x in designs]}
    rows |= {name_of(path): [x.values[path] for x in designs] for path in varied}
    columns = [
        Column(cell(value), "", lambda row, i=i: row[1][i], cell, left=False)
        for i, value in enumerate(values)
    ]
    title = Column(f"limit of {name_of(name)}", "", lambda row: row[0], left=True)
    yield table([*rows.items()], (title, *columns))
    yield ""
    for flip in flips:
        jumps = [
            f"{name_of(path)} from {cell(before)} to {cell(after)}"
            for path, (before, after) in flip.jumps.items()
        ]
        ends = f"{cell(flip.low)} to {cell(flip.high)}"
        yield f"From {ends} the design flips: {', '.join(jumps)}."
    if not flips:
        yield "Between neighbouring limits no number jumps."


def _numbers_of(values: Mapping[str, object]) -> str:
    """Values by the last word of their paths."""
    return ", ".join(f"{k.rpartition('.')[2]} {cell(x)}" for k, x in values.items())


CANDIDATES = (
    Column("design", "", "name", left=True),
    Column("expected", "", "expected", cell, left=False),
    Column("80 %", "", lambda x: f"{digits(x.low, 3)} to {digits(x.high, 3)}", left=False),
    Column("limits hold", "%", lambda x: f"{100 * x.holds:.0f}", left=False),
    Column("regret", "", "regret", digits, left=False),
    Column("of the chip", "", "values", _numbers_of, left=True),
)
WORTHS = 8  # values of information that are printed


def _worth(one: Information) -> str:
    """A value with its error; an upper end where it cannot be told from 0."""
    error = digits(one.error, 1)
    if one.clear:
        return f"{digits(one.value, 2)} +- {error}"
    return f"0 to {digits(max(one.value, 0.0) + CLEAR * one.error, 1)}"


WORTH = (Column("to know", "", "name", left=True), Column("is worth", "", _worth, left=False))


def expected_sections(found: ExpectedDesign, by: str) -> Iterator[Section]:
    """Candidates over draws and what it is worth to know, before the chip is chosen."""
    yield ""
    yield (
        f"{by} over {found.draws} draws of what is not known, batch and layout chosen after each; "
        f"where none keeps the limits, tokens are served at {found.elsewhere:.4g} in the mean. "
        f"{found.designs} chips, {found.evaluations:,} evaluations."
    )
    if found.candidates[0].expected >= found.candidates[-1].expected:
        yield "No chip that was tried is expected to be cheaper than the start."
    yield Rows("", found.candidates, CANDIDATES)
    yield ""
    single = sorted(found.singles[:WORTHS], key=lambda x: -x.value)
    yield Rows("", (found.perfect, *found.groups, *single), WORTH)
