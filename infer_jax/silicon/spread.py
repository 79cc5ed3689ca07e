"""How far may a chip's area, power and bill be off? Draws of the coefficients of its laws."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.catalog.published.tables import tables
from infer_jax.compiling import once
from infer_jax.silicon.accelerator import Accelerator
from infer_jax.silicon.nodes import SOURCE, UNSEEN, deviations
from infer_jax.specs.fields import leaves

DRAWS = 256
RATIO = "unlisted."  # a field of ``Unlisted``, by dotted path


class Ratio(NamedTuple):
    """What is published over what a law says: centre, deviation of logarithms, chips of the fit."""

    centre: float
    deviation: float
    chips: int


def ratios() -> dict[str, Ratio]:
    """The ratios of area, power and bill, fitted to chips by ``experiments/chips.py fit``."""
    return {name: Ratio(**row) for name, row in tables(SOURCE)["unlisted"].items()}


def coefficient_deviations(
    chip: Accelerator, rows: Mapping[str, tuple[str, str]]
) -> dict[str, float]:
    """Standard deviations of the logarithms of a chip's coefficients, by dotted path.

    ``rows``: the row of the table that each of its parts was read from. Those that are 0 are
    numbers of the design, or fixed by a standard. What the laws leave out is the last of them.
    """
    own = tables(SOURCE)["deviations"]
    found = {**own["twice"], **dict.fromkeys(own["alone"], UNSEEN)}
    read = dict(rows)
    if "memory" in rows:  # a stack's end has the name of the stack
        read["memory.interface"] = ("interfaces", rows["memory"][1])
    for part, (kind, name) in read.items():
        found |= {f"{part}.{field}": x for field, x in deviations(kind, name).items()}
    found |= {RATIO + name: ratio.deviation for name, ratio in ratios().items()}
    known = {path for path, _, _ in leaves(chip)}
    return {path: x for path, x in found.items() if path in known and x > 0}


def draw_chips(
    chip: Accelerator,
    deviation: Mapping[str, float],
    key: Array,
    count: int = DRAWS,
    fitted: Mapping[str, Ratio] | None = None,
) -> Accelerator:
    """``count`` chips, stacked, of which each coefficient is drawn: x exp(sigma z).

    What the laws leave out is drawn about its centre, with Student's t of the chips that it was
    ``fitted`` to, less one, in the place of z.
    """
    fits = ratios() if fitted is None else fitted
    keys = jax.random.split(key, max(len(deviation), 1))
    values = {path: value for path, _, value in leaves(chip)}
    highest = {path: declared.get("high", np.inf) for path, declared, _ in leaves(chip)}
    changes: dict[str, Array] = {}
    for one, (path, sigma) in zip(keys, deviation.items(), strict=False):
        centre = jnp.asarray(values[path])
        if path.startswith(RATIO):
            fit = fits[path.removeprefix(RATIO)]
            centre = centre * fit.centre
            wide = jax.random.t(one, float(max(fit.chips - 1, 1)), (count,))
        else:
            wide = jax.random.normal(one, (count,))
        changes[path] = jnp.minimum(centre * jnp.exp(sigma * wide), highest[path])
    stacked = jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x), (count,)), chip)
    return stacked.at(changes)


def _of_each(
    law: Callable[[Accelerator], dict[str, Array]], drawn: Accelerator
) -> dict[str, Array]:
    return jax.vmap(law)(drawn)


def sample(
    law: Callable[[Accelerator], dict[str, Array]], drawn: Accelerator
) -> dict[str, np.ndarray]:
    """Every quantity of every draw."""
    return {name: np.asarray(x) for name, x in once(_of_each, drawn, fixed=(law,)).items()}
