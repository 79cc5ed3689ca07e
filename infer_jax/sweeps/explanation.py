"""One point of a sweep in full: its axes, and every term of its estimate."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter

import jax

from infer_jax.errors import InputError
from infer_jax.estimators import Estimate
from infer_jax.results import Part, Result
from infer_jax.sweeps import refine
from infer_jax.sweeps.columns import axes_of
from infer_jax.sweeps.group import locate
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

    def fields(self) -> Mapping[str, object]:
        """The axes, and each term with its unit; the index as text (of any size)."""
        terms = {name: {"value": x, "unit": unit} for name, (x, unit) in self.terms.items()}
        return {"index": str(self.index), "axes": self.axes, "terms": terms}

    def parts(self) -> Iterator[Part]:
        """A line for each axis and each term."""
        lines = [f"point {self.index}", *(f"  {k} = {v}" for k, v in self.axes.items())]
        lines += [f"  {k:40} {v:.6g} {unit}" for k, (v, unit) in self.terms.items()]
        yield "\n".join([*lines, f"again: {self.command}"])


def explain(ready: Prepared, index: int, source: str = "") -> Explanation:
    """One point of a prepared sweep in full, by its global index.

    Raises:
        InputError: an index that the grid does not have.
    """
    if index < 0:
        raise InputError("space", "index", index, f"from 0 to {ready.size - 1}")
    group, digits = locate(ready.groups, index)
    at = next(i for i, g in enumerate(ready.groups) if g is group)
    rows = refine.estimates(ready.parts[at], digits[None], "all")[4]
    estimate, units = jax.tree.map(itemgetter(0), rows), ready.readings[at].declared.units
    terms = {name: (float(x), units.get(name, "1")) for name, x in numbers(estimate).items()}
    command = f"explain(prepare(estimator, space, keep), {index})"
    if source:
        command = f"infer-jax sweep {source} --at {index}"
    return Explanation(index, axes_of(ready, index), terms, estimate, command)
