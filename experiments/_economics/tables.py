"""Are the economics paper's tables ours to the printed digit? Tables 1, 2, 3, 4 and 6; 5 beside.

Printed figures: Erdil 2025 (arXiv 2506.04645), Tables 1 to 6, in
``tests/golden/economics_tables.csv``.
"""

from decimal import ROUND_HALF_UP, Decimal
from typing import NamedTuple

import jax
import jax.numpy as jnp

from experiments._columns import printed_rows
from experiments._economics.fronts import COMPARISONS, front
from experiments._report import show, verdict
from infer_jax.catalog.published import economics_model
from infer_jax.estimators import Economics
from infer_jax.physics import decoder
from infer_jax.physics.closed_form import Fastest, fastest_instance

TITLES = {
    1: "most tokens/s and its instance, weights and all-reduce latency only",
    2: "most tokens/s and its instance, level 4 with a draft of Llama 3 8B",
    3: "preferred points of the same",
    4: "most tokens/s of Llama 3 70B (8-bit) by GPU, level 4",
    5: "preferred points with (S) and without speculation",
    6: "preferred points of Llama 3 70B by weight format",
}
NOT_COMPARED = {
    5: "Not compared: the paper printed figures of an older version of its model. The authors' "
    "released program gives, as level 4 does, the figures on the right."
}
BANDWIDTH = 3.3e12  # bytes/s of one H100 in Table 1, with no cap
REDUCES = 4.0  # all-reduces a layer, of every model of Table 1


class Column(NamedTuple):
    """A printed column: its field and name, its decimals and what stands before the number."""

    field: str
    name: str
    decimals: int = 0
    prefix: str = ""

    def text(self, value: float) -> str:
        """A number as the paper prints it."""
        return f"{self.prefix}{value:.{self.decimals}f}"

    def twice(self, value: float) -> str:
        """The same, rounded to one digit more before: 246.496 is 246.5 and then 247."""
        once = Decimal(f"{value:.{self.decimals + 1}f}")
        return f"{self.prefix}{once.quantize(Decimal(1).scaleb(-self.decimals), ROUND_HALF_UP)}"


SPEED, GPUS = Column("speed", "tokens/s"), Column("chips", "GPUs")
FASTEST = (SPEED, GPUS)
PREFERRED = (SPEED, Column("cost", "$/M tokens", 2, "$"), GPUS, Column("batch", "batch"))


class Row(NamedTuple):
    """One printed row: its label, its cells as printed, and our numbers."""

    label: str
    theirs: tuple[str, ...]
    ours: tuple[float, ...]


class Printed(NamedTuple):
    """One table of the paper; ``why``: the reason for which it is not compared."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    why: str = ""

    def texts(self, row: Row) -> list[str]:
        """Our numbers of a row as the paper would print them."""
        return [c.text(value) for c, value in zip(self.columns, row.ours, strict=True)]

    def rounded_twice(self, row: Row) -> list[str]:
        """The columns of a row that agree only if a number is rounded twice."""
        cells = zip(self.columns, row.theirs, row.ours, strict=True)
        return [c.name for c, a, x in cells if c.text(x) != a and c.twice(x) == a]

    def agrees(self, row: Row) -> bool:
        """True where every cell of a row is ours to the printed digit."""
        cells = zip(self.columns, row.theirs, row.ours, strict=True)
        return all(a in (c.text(x), c.twice(x)) for c, a, x in cells)


def hops(model: str) -> float:
    """Seconds that all-reduces of the model take per root of chips: layers x 4 x 2 us."""
    root_hop = float(Economics.level2().root_hop)
    return float(decoder.layers(economics_model(model))) * REDUCES * root_hop


def reads(model: str) -> float:
    """Seconds in which one H100 reads all weights at 16 bits, uncapped."""
    counts = decoder.parameters(economics_model(model), Economics.level2().laws.projections)
    return 2.0 * sum(map(float, counts.values())) / BANDWIDTH


def fastest(model: str) -> Fastest:
    """Chips and seconds per token at minimum latency (Eqs. 13 and 14)."""
    with jax.enable_x64(True):
        chips, time = fastest_instance(jnp.asarray(hops(model)), jnp.asarray(reads(model)))
        return Fastest(chips, time)


def printed_table(number: int) -> Printed:
    """A table of the paper: the fastest points, or where it prints prices the preferred ones."""
    results = []
    columns = FASTEST
    for row in printed_rows("economics_tables.csv"):
        if row["table"] != str(number):
            continue
        columns = PREFERRED if row["cost"] else FASTEST
        if row["comparison"]:
            drawn = front(COMPARISONS[row["comparison"]][row["setting"]])
            ours = drawn.best if row["cost"] else drawn.fastest
        else:
            chips, time = fastest(row["setting"])
            ours = {"speed": 1 / float(time), "chips": float(chips)}
        theirs = tuple(row[c.field] for c in columns)
        results.append(Row(row["row"], theirs, tuple(ours[c.field] for c in columns)))
    title = f"Table {number}: {TITLES[number]}"
    return Printed(title, columns, tuple(results), NOT_COMPARED.get(number, ""))


def print_table(table: Printed) -> None:
    """A table as theirs | ours in every cell."""
    columns = ["", *(f"{c.name}, theirs | ours" for c in table.columns), "verdict"]
    rows, notes = [], [table.why] if table.why else []
    for row in table.rows:
        cells = [f"{a} | {b}" for a, b in zip(row.theirs, table.texts(row), strict=True)]
        state = "not compared" if table.why else verdict(table.agrees(row))
        rows.append((row.label, *cells, state))
        if not table.why and (names := table.rounded_twice(row)):
            values = dict(zip((c.name for c in table.columns), row.ours, strict=True))
            reports = ", ".join(f"{name} {values[name]:.3f}" for name in names)
            notes.append(f"{row.label}: {reports} prints as theirs only by way of one digit more.")
    show(table.title, columns, rows, "\n".join(notes))
