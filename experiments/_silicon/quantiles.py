"""How far measured times are from predicted ones, and which part rows of one group share."""

from collections.abc import Hashable, Sequence
from statistics import NormalDist

import numpy as np

from experiments import _report
from experiments._silicon.predictions import OUTPUTS

SHARES = (50, 80, 95)  # per cent of rows
_QUANTILE = np.vectorize(NormalDist().inv_cdf, otypes=[float])

Within = dict[str, dict[int, tuple[float, float]]]


def shown(left: np.ndarray) -> Within:
    """Factors between which shares of measured over predicted are; prints them.

    ``left``: log(measured / predicted), outputs x rows.
    """
    within: Within = {}
    for name, each in zip(OUTPUTS, left, strict=True):
        tails = {s: (0.5 - s / 200.0, 0.5 + s / 200.0) for s in SHARES}
        edges = {s: np.exp(np.quantile(each, tail)).tolist() for s, tail in tails.items()}
        within[name] = {s: (low, high) for s, (low, high) in edges.items()}
    lines = [
        (name, *(f"{low:.3f} to {high:.3f}" for low, high in cells.values()))
        for name, cells in within.items()
    ]
    columns = ("measured over predicted", *(f"{s} % of rows" for s in SHARES))
    _report.show(f"{left.shape[1]} rows left out of the fit", columns, lines)
    return within


def common(
    left: np.ndarray, kinds: Sequence[Hashable], groups: Sequence[Hashable]
) -> dict[str, float]:
    """Share of the variance of errors that rows of one group share, by output; prints it.

    Of normal scores among the rows of a kind; the variance between groups over the sum of it and
    the one within, by one-way analysis of variance (Searle, Casella and McCulloch 1992, 3.6).
    """
    found = {name: shared(each, kinds, groups) for name, each in zip(OUTPUTS, left, strict=True)}
    lines = [(name, f"{share:.2f}") for name, share in found.items()]
    _report.show("Variance of errors that rows of one group share", ("", "share"), lines)
    return found


def shared(each: np.ndarray, kinds: Sequence[Hashable], groups: Sequence[Hashable]) -> float:
    """The share of one output, in [0, 1]."""
    scores = np.empty(len(each))
    for kind in set(kinds):
        own = np.flatnonzero([k == kind for k in kinds])
        rank = each[own].argsort().argsort()
        scores[own] = _QUANTILE((rank + 0.5) / len(own))
    return _between(scores, groups)


def _between(scores: np.ndarray, groups: Sequence[Hashable]) -> float:
    """The intraclass correlation of scores."""
    members: dict[Hashable, list[int]] = {}
    for i, group in enumerate(groups):
        members.setdefault(group, []).append(i)
    each = [scores[rows] for rows in members.values()]
    sizes = np.array([len(x) for x in each], float)
    rows, kinds = sizes.sum(), len(each)
    within = sum(float(np.sum((x - x.mean()) ** 2)) for x in each) / (rows - kinds)
    means = np.array([x.mean() for x in each])
    between = float(np.sum(sizes * (means - scores.mean()) ** 2)) / (kinds - 1)
    size = (rows - np.sum(sizes**2) / rows) / (kinds - 1)
    shared = max((between - within) / size, 0.0)
    return float(shared / (shared + within))
