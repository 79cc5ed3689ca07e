"""One point of a sweep in full: its axes, and every term of its estimate."""

from collections.abc import Iterator
from dataclasses import dataclass
from operator import itemgetter

import jax

from infer_jax.errors import InputError
from infer_jax.estimators import Estimate
from infer_jax.results import Result, Section
from infer_jax.sweeps import refine
from infer_jax.sweeps.columns import axes_of
from infer_jax.sweeps.group import spread
from infer_jax.sweeps.paths import numbers
from infer_jax.sweeps.preparing import Prepared


@dataclass(frozen=True, repr=False)
class Explanation(Result):
    """One point in full: its axes, every term of its estimate, and the command that computes it."""

    index: int
    axes: dict[str, object]
    terms: dict[str, tuple[float, str]]
    estimate: Estimate
    command: str

    def sections(self) -> Iterator[Section]:
        """A line for each axis and each term with its unit; the index as text (of any size)."""
        terms = {name: {"value": x, "unit": unit} for name, (x, unit) in self.terms.items()}
        yield {"index": str(self.index), "axes": self.axes, "terms": terms}
        lines = [f"point {self.index}", *(f"  {k} = {v}" for k, v in self.axes.items())]
        lines += [f"  {k:40} {v:.6g} {unit}" for k, (v, unit) in self.terms.items()]
        yield "\n".join([*lines, f"again: {self.command}"])


def explain(ready: Prepared, index: int, source: str = "") -> Explanation:
    """One point of a prepared sweep in full, by its global index.

    Raises:
        InputError: an index that the grid does not have.
    """
    if not 0 <= index < ready.size:
        raise InputError("space", "index", index, f"from 0 to {ready.size - 1}")
    [(number, _, digits)] = spread(ready.groups, [index])
    part = ready.parts[number]
    rows = refine.estimates(part, digits, "all")[4]
    estimate, units = jax.tree.map(itemgetter(0), rows), part.reading.declared.units
    terms = {name: (float(x), units.get(name, "1")) for name, x in numbers(estimate).items()}
    command = f"explain(prepare(estimator, space, keep), {index})"
    if source:
        command = f"infer-jax sweep {source} --at {index}"
    return Explanation(index, axes_of(ready, index), terms, estimate, command)
