"""Which parameters the data determine, and which they do not, in words."""

import itertools
from typing import NamedTuple

import numpy as np

from infer_jax.calibration.fitting import Fit
from infer_jax.calibration.uncertainty import correlation

UNLEARNT = 0.8  # of the prior's deviation left: the data hardly moved a parameter
TOGETHER = 0.9  # correlation above which two parameters cannot be told apart
WIDE = 2.0  # log deviation (a factor of 7) above which a parameter without a prior is unknown


class Identified(NamedTuple):
    """One parameter: its deviation in the free coordinate, the share of the prior's, words.

    ``learnt`` is the deviation after over that before the fit, None without a prior.
    """

    name: str
    deviation: float
    learnt: float | None
    verdict: str


class Identifiability(NamedTuple):
    """Every parameter, the pairs that move together with their correlation, and sentences."""

    parameters: tuple[Identified, ...]
    pairs: tuple[tuple[str, str, float], ...]
    sentences: tuple[str, ...]


def identifiability(fit: Fit) -> Identifiability:
    """Which parameters the rows of a fit could identify, from its information.

    A pair is told apart by the rows where its posterior correlation stays below ``TOGETHER``;
    a parameter is learnt where the rows leave less than ``UNLEARNT`` of its prior's deviation.
    """
    names = fit.parameters.names
    covered = _inverse(fit.information)
    deviation = np.sqrt(np.diag(covered))
    before = 1.0 / np.sqrt(np.maximum(fit.precision, 1e-300))
    findings = [
        _identified(name, d, d / b if p > 0 else None)
        for name, d, b, p in zip(names, deviation, before, fit.precision, strict=True)
    ]
    # correlations by the rows alone, without the prior
    related = correlation(_inverse(fit.information - 0.99 * np.diag(fit.precision)))
    pairs = [
        (names[i], names[j], float(related[i, j]))
        for i, j in itertools.combinations(range(len(names)), 2)
        if abs(related[i, j]) >= TOGETHER
    ]
    pairs.sort(key=lambda pair: -abs(pair[2]))
    sentences = [f"{f.name}: {f.verdict}." for f in findings if f.verdict != "identified"]
    sentences += [_sentence(*pair) for pair in pairs]
    return Identifiability(tuple(findings), tuple(pairs), tuple(sentences))


def _identified(name: str, deviation: float, learnt: float | None) -> Identified:
    if learnt is not None and learnt > UNLEARNT:
        verdict = "these runs say nothing of it; the prior stands"
    elif learnt is None and deviation > WIDE:
        verdict = "these runs do not bound it"
    else:
        verdict = "identified"
    return Identified(name, float(deviation), None if learnt is None else float(learnt), verdict)


def _sentence(one: str, other: str, related: float) -> str:
    what = "their product" if related < 0 else "their ratio"
    return (
        f"{one} and {other} cannot be told apart by these runs (correlation {related:+.2f}): "
        f"about {what} is known."
    )


def _inverse(information: np.ndarray) -> np.ndarray:
    """Inverse of an information matrix; directions without information get a huge variance."""
    size = np.sqrt(np.maximum(np.diag(information), 1e-300))
    values, vectors = np.linalg.eigh(information / np.outer(size, size))
    values = np.maximum(values, 1e-12)
    return (vectors / values) @ vectors.T / np.outer(size, size)
