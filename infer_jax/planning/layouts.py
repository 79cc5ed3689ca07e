"""In which ways can a model be dealt out over so many chips?"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from infer_jax.specs import (
    UNBOUNDED,
    Architecture,
    Attention,
    Experts,
    GroupedQuery,
    Latent,
    Linear,
    Sparse,
)

MOST_STAGES = 16  # pipeline stages that are tried


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

    def __str__(self) -> str:
        named = (("TP", self.tp), ("DP", self.attention_dp), ("EP", self.ep), ("PP", self.pp))
        named = [*(f"{n}{x:g}" for n, x in named if x > 1)] or ["TP1"]
        more = (f"{n} {x:g}" for n, x in self.told.items() if n in self._field_defaults)
        return " ".join([*named, *more])

    @property
    def told(self) -> dict[str, float]:
        """The degrees, and what else is not at its default."""
        usual = self._field_defaults
        return {n: x for n, x in self._asdict().items() if x != usual.get(n)}


def layouts(arch: Architecture, chips: int) -> list[Layout]:
    """Every legal layout of one instance on at most ``chips`` chips.

    tp divides the query heads, and of it and the KV heads one divides the other (vLLM and SGLang
    copy KV heads over ranks); attention groups and expert parallelism are for mixtures, where ep
    divides the experts, and tp x attention_dp / ep the width of one; stages divide the layers
    about evenly, at most 16 of them.
    """
    queries, caches = heads(arch)
    experts = [b.feedforward for b in arch.blocks if isinstance(b.feedforward, Experts)]
    counts = int(np.gcd.reduce([int(f.experts) for f in experts])) if experts else 1
    widths = int(np.gcd.reduce([int(f.width) for f in experts])) if experts else 1
    layers = int(sum(float(b.count) for b in arch.blocks))
    made = []
    for tp in _divisors(int(np.gcd.reduce(queries)), chips):
        if any(tp % kv and kv % tp for kv in caches):
            continue
        for groups in range(1, chips // tp + 1) if experts else (1,):
            ranks = tp * groups
            for ep in _divisors(np.gcd(counts, ranks), ranks):
                if experts and widths % (ranks // ep):
                    continue
                most = min(chips // ranks, layers, MOST_STAGES)
                stages = (pp for pp in range(1, most + 1) if _even(layers, pp))
                made += [Layout(tp, groups, ep, pp) for pp in stages]
    return made


def heads(arch: Architecture) -> tuple[list[int], list[int]]:
    """Heads that tensor parallelism deals out, and KV heads that it deals out or copies."""
    queries, caches = [], []
    for attention in (b.attention for b in arch.blocks if b.attention is not None):
        for query, cache in _heads(attention):
            queries.append(int(query))
            caches.append(int(cache))
    return queries or [1], caches or [1]


def _heads(attention: Attention) -> Iterator[tuple[float, float]]:
    match attention:
        case Sparse():
            yield from _heads(attention.base)
        case Latent():
            yield float(attention.query_heads), 1.0
        case GroupedQuery():
            yield float(attention.query_heads), float(attention.kv_heads)
        case Linear():
            yield float(attention.value_heads), float(attention.key_heads)


def _divisors(number: int, most: int) -> list[int]:
    return [d for d in range(1, min(number, most) + 1) if number % d == 0]


def _even(layers: int, stages: int) -> bool:
    """Whether the longest stage has at most a tenth more layers than the mean one."""
    return -(-layers // stages) * stages <= 1.1 * layers
