"""How far may a chip's area, power and bill be off? Draws of the coefficients of its laws."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.compiling import once
from infer_jax.silicon.accelerator import Accelerator
from infer_jax.silicon.nodes import UNSEEN, deviations
from infer_jax.specs.fields import leaves

DRAWS = 256
# deviations of logarithms: half of what A100 and MI210, the two dies that were measured, differ by
MEASURED_TWICE = {
    "die.transistors.control": 0.374,
    "die.transistors.crossbar": 0.246,
}
# without a second source: as what no coefficient saw
ALONE = ("die.transistors.fp64", "die.transistors.int32", "idle", "energy.multiply",
         "energy.multiply_bit", "energy.add", "energy.sram")  # fmt: skip


def coefficient_deviations(
    chip: Accelerator, rows: Mapping[str, tuple[str, str]]
) -> dict[str, float]:
    """Standard deviations of the logarithms of a chip's coefficients, by dotted path.

    ``rows``: the row of the table that each of its parts was read from. Those that are 0 are
    numbers of the design, or fixed by a standard.
    """
    found = {**MEASURED_TWICE, **dict.fromkeys(ALONE, UNSEEN)}
    read = dict(rows)
    if "memory" in rows:  # a stack's end has the name of the stack
        read["memory.interface"] = ("interfaces", rows["memory"][1])
    for part, (kind, name) in read.items():
        found |= {f"{part}.{field}": x for field, x in deviations(kind, name).items()}
    known = {path for path, _, _ in leaves(chip)}
    return {path: x for path, x in found.items() if path in known and x > 0}


def draw_chips(
    chip: Accelerator, deviation: Mapping[str, float], key: Array, count: int = DRAWS
) -> Accelerator:
    """``count`` chips, stacked, of which each coefficient is drawn: x exp(sigma z)."""
    keys = jax.random.split(key, max(len(deviation), 1))
    values = {path: value for path, _, value in leaves(chip)}
    highest = {path: declared.get("high", np.inf) for path, declared, _ in leaves(chip)}
    changes = {
        path: jnp.minimum(
            jnp.asarray(values[path]) * jnp.exp(sigma * jax.random.normal(one, (count,))),
            highest[path],
        )
        for one, (path, sigma) in zip(keys, deviation.items(), strict=False)
    }
    stacked = jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x), (count,)), chip)
    return stacked.at(changes)


def _of_each(
    law: Callable[[Accelerator], dict[str, Array]], drawn: Accelerator
) -> dict[str, Array]:
    return jax.vmap(law)(drawn)


def interval(
    law: Callable[[Accelerator], dict[str, Array]], drawn: Accelerator, share: float = 0.8
) -> dict[str, tuple[float, float]]:
    """The ends between which ``share`` of the draws of each quantity lie."""
    found = once(_of_each, drawn, fixed=(law,))
    tail = (1.0 - share) / 2.0
    ends = {name: np.quantile(np.asarray(x), [tail, 1.0 - tail]) for name, x in found.items()}
    return {name: (float(low), float(high)) for name, (low, high) in ends.items()}
