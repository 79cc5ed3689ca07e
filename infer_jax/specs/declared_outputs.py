"""Name, unit and format of every output of an estimate, declared once in its field.

A field of an estimate that is an output says so where it is declared:
``number(doc, unit=..., kind=..., output=Output(...))``. Tables, JSON, pictures, columns of sweeps
and comparisons read that declaration through ``outputs``; none of them lists outputs again.
"""

import dataclasses
from functools import cache
from typing import TYPE_CHECKING, SupportsFloat

from jax import Array

if TYPE_CHECKING:
    from _typeshed import DataclassInstance as Data

VIEWS = (
    "estimate",
    "compare",
    "plan",
    "report",
    "sensitivity",
)  # tables that show it
# how a unit is printed and how keys of JSON end: unit of the field -> (printed, ending, factor)
PRINTED = {
    "1": ("", "", 1.0),
    "s": ("ms", "ms", 1e3),
    "USD": ("$", "usd", 1.0),
    "J": ("J", "j", 1.0),
    "W": ("W", "w", 1.0),
    "tokens/s": ("tokens/s", "tokens_per_s", 1.0),
}
BETTER_MORE = ("rate", "fraction")  # kinds of which more is better, unless a field says otherwise


@dataclasses.dataclass(frozen=True)
class Output:
    """How views name and print an output of an estimate; also its field's name, unit, kind and doc.

    ``title``: the name of its row in a table (empty: the doc); ``short``: its column heading;
    ``key``: its name in JSON without the unit (empty: the field's name); ``per``: the denominator
    of a price or an energy, such as "Mtok"; ``whole``: title of the sum over all chips, if that is
    printed too; ``more``: whether more of it is better (None: decided by its kind); ``drawn``:
    whether it depends on the chip's power, and is unknown without one; ``banded``: whether an
    estimator's measured error bands are errors of this output; ``views``: the tables that show it.
    """

    title: str = ""
    short: str = ""
    key: str = ""
    per: str = ""
    whole: str = ""
    more: bool | None = None
    drawn: bool = False
    banded: bool = False
    views: tuple[str, ...] = VIEWS
    name: str = ""
    unit: str = "1"
    kind: str = ""
    doc: str = ""

    @property
    def printed_unit(self) -> str:
        """The unit in which it is printed: ms, $/Mtok."""
        printed = PRINTED[self.unit][0] if self.unit in PRINTED else self.unit
        return f"{printed}/{self.per}" if self.per else printed

    @property
    def full_unit(self) -> str:
        """The unit of the field with its denominator: s, USD/Mtok."""
        return f"{self.unit}/{self.per}" if self.per else self.unit

    @property
    def factor(self) -> float:
        """The printed number divided by the number in the field."""
        return PRINTED[self.unit][2] if self.unit in PRINTED else 1.0

    @property
    def json_key(self) -> str:
        """Its name in JSON, which ends in the unit: output_cost_per_mtok_usd."""
        return self._key(self.key or self.name)

    @property
    def whole_key(self) -> str:
        """The name in JSON of the sum over all chips, where ``whole`` says that there is one."""
        return self._key(self.name)

    @property
    def more_is_better(self) -> bool:
        """Whether more of it is better."""
        return self.kind in BETTER_MORE if self.more is None else self.more

    def value(self, estimate: "Data", power: SupportsFloat) -> Array | None:
        """The number to print, in its printed unit; None if it needs an unknown ``power``."""
        known = not self.drawn or float(power) > 0.0
        return self.factor * getattr(estimate, self.name) if known else None

    def _key(self, stem: str) -> str:
        ending = PRINTED[self.unit][1] if self.unit in PRINTED else _spelt(self.unit)
        per = f"per_{self.per.lower()}" if self.per else ""
        return "_".join(filter(None, (stem, per, ending)))


def _spelt(unit: str) -> str:
    return unit.lower().replace("/", "_per_")


def outputs(*estimates: "Data | type[Data]", view: str | None = None) -> tuple[Output, ...]:
    """The outputs that estimates, or classes of them, declare, times first; those of one table.

    >>> from infer_jax.estimators import Estimate
    >>> [x.json_key for x in outputs(Estimate)][:2]
    ['ttft_ms', 'tpot_ms']
    """
    return class_outputs(tuple(x if isinstance(x, type) else type(x) for x in estimates), view)


@cache
def class_outputs(classes: tuple["type[Data]", ...], view: str | None = None) -> tuple[Output, ...]:
    """The outputs that classes of estimates declare (``outputs``), put together once."""
    named: dict[str, Output] = {}
    for field in (field for estimate in classes for field in dataclasses.fields(estimate)):
        declared = field.metadata.get("output")
        if declared is not None and (view is None or view in declared.views):
            said = {key: field.metadata[key] for key in ("unit", "kind", "doc")}
            said["title"] = declared.title or said["doc"]
            said["short"] = declared.short or said["title"]
            named.setdefault(field.name, dataclasses.replace(declared, name=field.name, **said))
    return tuple(sorted(named.values(), key=lambda output: output.kind != "time"))


def output(estimate: "Data | type[Data]", name: str) -> Output:
    """The output of that name."""
    return next(x for x in outputs(estimate) if x.name == name)
