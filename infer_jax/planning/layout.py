"""Every layout of a model on a number of chips that an engine runs."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from infer_jax import legal
from infer_jax.physics.divisions import divisions
from infer_jax.planning.machines import fills_machines
from infer_jax.specs import UNBOUNDED, Architecture

MAX_STAGES = 16  # pipeline stages that are tried
Column = Float[np.ndarray, " rows"]


class Layout(NamedTuple):
    """Degrees of one instance, its chunk and drafts; see ``estimators.serving.Deployment``."""

    tp: float
    attention_dp: float
    ep: float
    pp: float
    chunk: float = UNBOUNDED
    drafts: float = 0.0

    @property
    def chips(self) -> float:
        """Chips of the instance."""
        return self.tp * self.attention_dp * self.pp

    @property
    def plain(self) -> "Layout":
        """The degrees alone."""
        return self._replace(**self._field_defaults)

    @property
    def unusual(self) -> int:
        """Rank among layouts with equal results, 0 for the one that engines run by default.

        vLLM slices every expert over all GPUs of a stage, or with --enable-expert-parallel places
        whole ones on them (docs.vllm.ai, expert parallel deployment, v0.19); it has nothing
        in between. Whole experts are usual with several attention groups, sliced ones with one.
        """
        placed, sliced = self.ep == self.tp * self.attention_dp, self.ep == 1
        first, second = (placed, sliced) if self.attention_dp > 1 else (sliced, placed)
        return 0 if first else 1 if second else 2

    def __str__(self) -> str:
        sizes = (("TP", self.tp), ("DP", self.attention_dp), ("EP", self.ep), ("PP", self.pp))
        words = [f"{name}{x:g}" for name, x in sizes if x > 1] or ["TP1"]
        more = (f"{n} {x:g}" for n, x in self.degrees.items() if n in self._field_defaults)
        return " ".join([*words, *more])

    @property
    def degrees(self) -> dict[str, float]:
        """The degrees, and what else is not at its default."""
        usual = self._field_defaults
        return {n: x for n, x in self._asdict().items() if x != usual.get(n)}


class DegreeColumns(NamedTuple):
    """Parallel degrees of many layouts, as columns."""

    tp: Column
    attention_dp: Column
    ep: Column
    pp: Column


def layouts(
    arch: Architecture, chips: int, most_groups: float = np.inf, size: int = 1
) -> list[Layout]:
    """Every layout of one instance on at most ``chips`` chips that an engine runs.

    ``infer_jax.legal`` decides which. Left out are pipeline stages that divide the layers unevenly,
    more than 16 stages or ``most_groups`` attention groups, and instances that neither divide a
    machine of ``size`` chips nor consist of whole machines (1: none are left out).
    """
    divided = divisions(arch)
    mixture = any(layer.mixture for layer in divided)
    queries = np.gcd.reduce([int(query) for query, _ in legal.heads(divided)] or [1])
    layers = int(sum(float(layer.count) for layer in divided))
    candidates: list[tuple[int, int, int, int]] = []
    for tp in _divisors(int(queries), chips):
        for groups in range(1, int(min(chips // tp, most_groups)) + 1) if mixture else (1,):
            ranks = tp * groups
            longest = min(chips // ranks, layers, MAX_STAGES)
            stages = [pp for pp in range(1, longest + 1) if _is_even(layers, pp)]
            for ep in _divisors(ranks, ranks) if mixture else (1,):
                candidates += [(tp, groups, ep, pp) for pp in stages]
    x = DegreeColumns(*np.asarray(candidates, np.float64).reshape(-1, 4).T)
    fits = legal.holds(arch, x) & fills_machines(x.tp * x.attention_dp * x.pp, size)
    runs = np.broadcast_to(fits, len(candidates))
    return [Layout(*row) for row, fit in zip(candidates, runs, strict=True) if fit]


def _divisors(number: int, limit: int) -> list[int]:
    return [d for d in range(1, min(number, limit) + 1) if number % d == 0]


def _is_even(layers: int, stages: int) -> bool:
    """Whether the longest stage has at most a tenth more layers than the mean one."""
    return -(-layers // stages) * stages <= 1.1 * layers
