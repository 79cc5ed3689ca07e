"""How elasticities move: second derivatives in logarithms, and which numbers act on each other.

By Hessian-vector products, the derivative of a gradient along one number: forward over reverse.
"""

import dataclasses
from collections.abc import Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from infer_jax.compiling import once
from infer_jax.design.sensitivity import Elasticity, Outputs, leaves_of, log_or_nothing
from infer_jax.typed_jax import trees

Tree = TypeVar("Tree")
LEADING = 8  # numbers of each output
Matrix = Float[np.ndarray, "numbers numbers"]


@dataclasses.dataclass(frozen=True)
class Curvature:
    """Of one output: the elasticities that count most, and how each moves with each number.

    ``matrix``: d^2 log(output) / (d log(number) d log(other)), so 1 % more of the other moves the
    elasticity by a hundredth of it. Numbers at a kink have no such derivative and are left out.
    """

    output: str
    paths: tuple[str, ...]
    slopes: tuple[float, ...]
    matrix: Matrix

    def strongest(self, path: str) -> tuple[str, float]:
        """The other number that moves an elasticity most, and by how much for all of it."""
        row = self.matrix[self.paths.index(path)].copy()
        row[self.paths.index(path)] = 0.0
        at = int(np.argmax(np.abs(row)))
        return self.paths[at], float(row[at])

    @property
    def extremes(self) -> list[tuple[str, str, float]]:
        """The pair with the most negative cross term and that with the most positive, if any."""
        first, second = np.triu_indices(len(self.paths), 1)
        terms = self.matrix[first, second]
        found: list[tuple[str, str, float]] = []
        for sign in (1.0, -1.0) if len(terms) else ():
            at = int(np.argmin(sign * terms))
            if sign * terms[at] < 0:
                found.append((self.paths[first[at]], self.paths[second[at]], float(terms[at])))
        return found


def curvatures(
    function: Outputs[Tree], tree: Tree, slopes: Sequence[Elasticity], leading: int = LEADING
) -> list[Curvature]:
    """The curvature of each output in its leading numbers, of which ``slopes`` has the first ones.

    ``slopes``: elasticities of the same function at the same point, the largest first.
    """
    own: dict[str, list[Elasticity]] = {}
    for e in slopes:
        known = own.setdefault(e.output, [])
        if not e.is_kinked and e.slope != 0 and len(known) < leading:
            known.append(e)
    names = tuple(output for output, known in own.items() if len(known) > 1)
    chosen = list(dict.fromkeys(e.path for name in names for e in own[name]))
    if not chosen:
        return []
    places = {leaf.path: leaf.places for leaf in leaves_of(tree)}
    fixed = (function, tuple(places[path] for path in chosen), names)
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda x: np.asarray(x, np.float64), tree)
        rows = once(_rows, wide, fixed=fixed)
    found: list[Curvature] = []
    for i, name in enumerate(names):
        at = [chosen.index(e.path) for e in own[name]]
        matrix = np.asarray(rows)[np.ix_(at, [i], at)][:, 0]
        paths = tuple(e.path for e in own[name])
        found.append(Curvature(name, paths, tuple(e.slope for e in own[name]), matrix))
    return found


def _rows(
    function: Outputs[Tree],
    places: tuple[tuple[int, ...], ...],
    names: tuple[str, ...],
    tree: Tree,
) -> Float[Array, "rows outputs numbers"]:
    """Hessian-vector products of the logarithm of each output, a row for each direction."""
    flat, structure = jax.tree.flatten(tree)

    def logs(moved: Array) -> Array:
        values = list(flat)
        for at, by in zip(places, jnp.exp(moved), strict=True):
            for i in at:
                values[i] = values[i] * by
        found = function(jax.tree.unflatten(structure, values))
        return jnp.stack([log_or_nothing(found[name]) for name in names])

    here, along = jnp.zeros(len(places)), jnp.eye(len(places))
    return trees.one_by_one(lambda way: jax.jvp(jax.jacrev(logs), (here,), (way,))[1], along)
