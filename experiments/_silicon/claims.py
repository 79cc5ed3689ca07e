"""Claims of the studies: a figure above or below a number, in one world and over draws of it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jax import Array

Place = tuple[str, str]  # a chip and a case
Prices = dict[str, np.ndarray]  # by draw: usd, batch, chips, ttft, tpot, memory, die, bill ...


class World:
    """USD and the rest of every chip and case under one estimator, by draw."""

    def __init__(self, found: Mapping[Place, Prices], first: str) -> None:
        self.found, self.first = found, first

    def __call__(self, chip: str, case: str = "", of: str = "usd") -> np.ndarray:
        """A figure of a chip for a case, the first where none is named."""
        return self.found[chip, case or self.first][of]


class Claim:
    """A claim of a study's table: a figure, or one over another, above or below a number.

    ``of``, ``over``: chip, case (the first) and figure (usd); ``says`` and, where it is not so,
    ``no`` have the value as {x}.
    """

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.table, self.scale = table, table.get("scale", 1.0)

    def places(self, first: str) -> list[Place]:
        """Which chips in which cases it is about."""
        named = [self.table[k] for k in ("of", "over") if k in self.table]
        return [(chip, case[0] if case and case[0] else first) for chip, *case in named]

    def value(self, world: World) -> np.ndarray:
        """The figure, or the ratio; NaN of two chips that do not keep their limits."""
        of, over = (np.asarray(world(*self.table[k])) if k in self.table else np.ones(1)
                    for k in ("of", "over"))  # fmt: skip
        with np.errstate(invalid="ignore"):
            return of / over

    def margin(self, world: World) -> np.ndarray:
        """By how much it holds, in logarithms: above 0."""
        value = np.maximum(self.value(world), 1e-12)
        if "below" in self.table:
            return np.log(self.table["below"]) - np.log(value)
        return np.log(value) - np.log(self.table.get("above", 1.0))

    def says(self, world: World) -> str:
        """The sentence that is true there, with its figure."""
        sentence = self.table["says" if self.margin(world)[0] > 0 else "no"]
        return sentence.format(x=short(self.scale * self.value(world)))

    def ends(self, drawn: World) -> str:
        """Between which figures 80 % of draws lie."""
        low, high = map(short, most_of(self.scale * self.value(drawn)))
        return f"{low} to {high}" if low != high else low

    def agreement(self, world: World, drawn: World) -> tuple[int, int]:
        """In how many draws it is as it is in one world, of those in which limits are kept."""
        margin = self.margin(drawn)
        same = (margin > 0) == (self.margin(world)[0] > 0)
        return int(np.sum(same & ~np.isnan(margin))), int(np.sum(~np.isnan(margin)))


def most_of(drawn: np.ndarray) -> np.ndarray:
    """The ends of 80 % of draws, of those that have a figure."""
    return np.quantile(drawn[~np.isnan(drawn)], [0.1, 0.9], method="nearest")


def short(x: object) -> str:
    """A cell: a number with three digits, a text as it is."""
    if isinstance(x, float | np.floating | np.ndarray | Array):
        value = float(np.ravel(np.asarray(x))[0])
        value = value if abs(value) > 1e-9 else 0.0
        return (
            "-" if not np.isfinite(value) else f"{value:,.0f}" if value >= 1e3 else f"{value:.3g}"
        )
    return str(x)
