"""Trees alike, such as the states of several servers, as the rows of a few arrays."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, Self, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

Tree = TypeVar("Tree")
Form = tuple[jax.tree_util.PyTreeDef, tuple[tuple[str | None, int], ...], tuple[str, ...]]


@partial(jax.tree_util.register_dataclass, data_fields=("columns",), meta_fields=("form",))
@dataclass(frozen=True)
class Rows(Generic[Tree]):
    """A row for each of several trees alike: their numbers of one type are one array.

    A loop that changes a row writes a few places of memory, and not one of each number's array.

    >>> rows = Rows.of({"a": jnp.arange(3), "b": jnp.zeros((3, 2))})
    >>> rows.put(jnp.asarray(1), {"a": jnp.asarray(7), "b": jnp.ones(2)}).trees["a"].tolist()
    [0, 7, 2]
    """

    columns: tuple[Array, ...]
    form: Form  # the structure, and the column of each leaf: with its place there, if a number

    @classmethod
    def of(cls, trees: Tree, lead: int = 1) -> Self:
        """The rows of trees whose arrays have ``lead`` leading axes."""
        leaves, structure = jax.tree.flatten(trees)
        numbers: dict[str, list[Array]] = {}
        columns: list[Array] = []
        places: list[tuple[str | None, int]] = []
        for x in leaves:
            if x.ndim > lead:
                places.append((None, len(columns)))
                columns.append(x)
            else:
                same = numbers.setdefault(str(x.dtype), [])
                places.append((str(x.dtype), len(same)))
                same.append(x)
        columns += [jnp.stack(same, axis=-1) for same in numbers.values()]
        return cls(tuple(columns), (structure, tuple(places), tuple(numbers)))

    @property
    def trees(self) -> Tree:
        """The trees, with the axes that the columns lead with."""
        structure, places, kinds = self.form
        first = len(self.columns) - len(kinds)
        leaves = [
            self.columns[i] if kind is None else self.columns[first + kinds.index(kind)][..., i]
            for kind, i in places
        ]
        return jax.tree.unflatten(structure, leaves)

    def at(self, k: Array) -> Tree:
        """One tree."""
        row = (lax.dynamic_index_in_dim(x, k, keepdims=False) for x in self.columns)
        return replace(self, columns=tuple(row)).trees

    def put(self, k: Array, tree: Tree) -> Self:
        """The rows with one tree changed."""
        entry = Rows.of(tree, 0).columns
        pairs = zip(self.columns, entry, strict=True)
        return replace(
            self, columns=tuple(lax.dynamic_update_index_in_dim(x, y, k, 0) for x, y in pairs)
        )
