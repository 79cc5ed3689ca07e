"""Are the economics paper's tables ours to the printed digit? Tables 1, 2, 3, 4 and 6; 5 beside.

Printed figures: Erdil 2025 (arXiv 2506.04645), Tables 1 to 6.
"""

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import NamedTuple

import jax
import jax.numpy as jnp

from experiments._economics.fronts import COMPARISONS, Front, front
from experiments._report import show, verdict
from infer_jax.catalog.published import economics_model
from infer_jax.estimators import Economics
from infer_jax.physics import decoder
from infer_jax.physics.closed_form import Fastest, fastest_instance

BANDWIDTH = 3.3e12  # bytes/s of one H100 in Table 1, with no cap
REDUCES = 4.0  # all-reduces a layer, of every model of Table 1


class Column(NamedTuple):
    """A printed column: its name, its decimals and what stands before the number."""

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


SPEED, GPUS = Column("tokens/s"), Column("GPUs")
FASTEST = (SPEED, GPUS)
PREFERRED = (SPEED, Column("$/M tokens", 2, "$"), GPUS, Column("batch"))


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


def _table1() -> Printed:
    printed = (
        ("Llama 3 8B", "Llama_3_8B", ("966", "11")),
        ("Llama 3 70B", "Llama_3_70B", ("234", "26")),
        ("GPT-3", "GPT_3", ("148", "42")),
        ("PaLM-540B", "PaLM_540B", ("86", "79")),
        ("GPT-4", "GPT_4", ("56", "173")),
    )
    rows = []
    for label, name, theirs in printed:
        chips, time = fastest(name)
        rows.append(Row(label, theirs, (1 / float(time), float(chips))))
    title = "Table 1: most tokens/s and its instance, weights and all-reduce latency only"
    return Printed(title, FASTEST, tuple(rows))


def _maximum(at: Front) -> tuple[float, ...]:
    return at.fastest["speed"], at.fastest["chips"]


def _preferred(at: Front) -> tuple[float, ...]:
    return tuple(at.best.values())[: len(PREFERRED)]


def _from_fronts(
    comparison: str,
    cells: Callable[[Front], tuple[float, ...]],
    printed: tuple[tuple[str, str, tuple[str, ...]], ...],
) -> tuple[Row, ...]:
    settings = COMPARISONS[comparison]
    return tuple(
        Row(label, theirs, cells(front(settings[setting]))) for label, setting, theirs in printed
    )


ALL = "all_models_comparison_with_spec_dec"
MODELS = (  # as the paper names it, as the program names it, in Table 2, in Table 3
    (
        "Mixtral 8x22B (16-bit)",
        "Mixtral 8x22B 16-bit",
        ("199", "125"),
        ("128", "$0.54", "23", "197"),
    ),
    ("Llama 3 70B (8-bit)", "Llama 3 70B 8-bit", ("189", "24"), ("107", "$0.27", "7", "136")),
    ("Llama 3.1 405B (8-bit)", "Llama 3.1 405B 8-bit", ("122", "48"), ("61", "$1.31", "8", "58")),
    (
        "GPT-4 (16-bit, speculative)",
        "GPT-4 16-bit (speculative)",
        ("106", "460"),
        ("61", "$4.53", "100", "213"),
    ),
    ("DeepSeek-V3 (8-bit)", "DeepSeek-V3 8-bit", ("215", "14"), ("116", "$1.10", "54", "247")),
)
OLDER = (
    "Not compared: the paper printed figures of an older version of its model. The authors' "
    "released program gives, as level 4 does, the figures on the right."
)


def _table2() -> Printed:
    rows = _from_fronts(ALL, _maximum, tuple((a, b, most) for a, b, most, _ in MODELS))
    title = "Table 2: most tokens/s and its instance, level 4 with a draft of Llama 3 8B"
    return Printed(title, FASTEST, rows)


def _table3() -> Printed:
    rows = _from_fronts(ALL, _preferred, tuple((a, b, best) for a, b, _, best in MODELS))
    return Printed("Table 3: preferred points of the same", PREFERRED, rows)


def _table4() -> Printed:
    printed = (
        ("H100 SXM", "H100", ("152", "24")),
        ("A100 SXM", "A100", ("132", "32")),
        ("V100 SXM", "V100", ("105", "102")),
    )
    rows = _from_fronts("gpus_comparison", _maximum, printed)
    title = "Table 4: most tokens/s of Llama 3 70B (8-bit) by GPU, level 4"
    return Printed(title, FASTEST, rows)


def _table5() -> Printed:
    names = tuple(COMPARISONS["spec_dec_comparison"])
    printed = (
        ("Llama 3 70B", names[1], ("69", "$0.52", "8", "127")),
        ("Llama 3 70B (S)", names[0], ("95", "$0.51", "6", "73")),
        ("Llama 3.1 405B", names[3], ("35", "$6.54", "31", "80")),
        ("Llama 3.1 405B (S)", names[2], ("71", "$7.33", "23", "26")),
    )
    rows = _from_fronts("spec_dec_comparison", _preferred, printed)
    title = "Table 5: preferred points with (S) and without speculation"
    return Printed(title, PREFERRED, rows, OLDER)


def _table6() -> Printed:
    printed = (
        ("4-bit weights", "Llama 3 70B 4-bit", ("122", "$0.23", "4", "90")),
        ("8-bit weights", "Llama 3 70B 8-bit", ("99", "$0.37", "7", "109")),
        ("16-bit weights", "Llama 3 70B 16-bit", ("83", "$0.70", "13", "136")),
    )
    rows = _from_fronts("quantization_comparison", _preferred, printed)
    return Printed("Table 6: preferred points of Llama 3 70B by weight format", PREFERRED, rows)


TABLES: dict[int, Callable[[], Printed]] = {
    1: _table1, 2: _table2, 3: _table3, 4: _table4, 5: _table5, 6: _table6,
}  # fmt: skip


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
