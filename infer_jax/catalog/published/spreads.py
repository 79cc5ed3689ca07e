"""The law of errors on servers of a publisher that no fit has seen, and the part plans share.

From ``python -m infer_jax.calibration.pooled --publishers --ship FILE``.
"""

from collections.abc import Mapping
from functools import cache
from math import copysign, exp, hypot, log
from statistics import NormalDist
from typing import NamedTuple

from infer_jax.catalog.published.fitted import Factors, factors
from infer_jax.catalog.published.tables import tables

Within = dict[str, Factors]  # by output
STEP, USUAL = 64.0, 32.0  # the load that is 1 as a fact is STEP times the one that is 0
RATIO = 16.0  # prompts over outputs that are 1 as a fact
OUTPUTS = ("tpot", "latency", "ttft", "ttft_median")  # that are told; throughput is as TPOT


class ErrorLaw(NamedTuple):
    """How far measured is from predicted: quantiles in units of a scale that facts widen.

    ``scale``: of log(measured / predicted) where every fact is 0;
    ``slopes``: by how much a fact adds to log scale, of those that lower the interval score of
    publishers left out; ``ends``: by share of runs in per cent, the
    lower and upper quantile over the scale; ``common``: the share of the variance that layouts and
    loads of a server have in common.
    """

    scale: float
    slopes: Mapping[str, float]
    ends: Mapping[int, tuple[float, float]]
    common: float = 0.0

    def within(self, facts: Mapping[str, float]) -> Factors:
        """Factors of a prediction between which shares of runs were measured.

        >>> law = ErrorLaw(0.2, {"load": 1.0}, {80: (-1.0, 1.5)})
        >>> [round(end, 3) for end in law.within({"load": 0.0})[80]]
        [0.819, 1.35]
        """
        wide = self.scale * exp(sum(slope * facts[name] for name, slope in self.slopes.items()))
        return {
            share: (exp(wide * low), exp(wide * high)) for share, (low, high) in self.ends.items()
        }


def facts(load: float, lengths: tuple[float, float]) -> dict[str, float]:
    """What is known of a question before anything is measured, as the laws read it.

    ``load``: requests in flight of an instance (of one that decodes), here the power of ``STEP``
    that they are over ``USUAL``; ``lengths``: mean tokens of prompt and output, here the power of
    ``RATIO`` that prompts are over outputs (``prompts``).

    >>> facts(64 * 32, (16 * 500, 500))
    {'load': 1.0, 'prompts': 1.0}
    """
    isl, osl = lengths
    return {
        "load": log(max(load, 1.0) / USUAL, STEP),
        "prompts": log(max(isl, 1.0) / max(osl, 1.0), RATIO),
    }


def widen_bands(within: Within, deviation: float) -> Within:
    """Bands of outputs whose logarithms have one more deviation s, independent of their own.

    An end at log distance h goes to the root of h^2 + (z s)^2, z the normal score of its share.
    """

    def outer(end: float, share: int) -> float:
        score, half = NormalDist().inv_cdf(0.5 + abs(share) / 200.0), abs(log(end))
        return end * exp(copysign(hypot(half, score * deviation) - half, share))

    return {
        name: {k: (outer(low, -k), outer(high, k)) for k, (low, high) in ends.items()}
        for name, ends in within.items()
    }


@cache
def laws() -> dict[str, ErrorLaw]:
    """The laws of TPOT, of the mean and of the median of TTFT, and of both TTFTs of two pools.

    >>> sorted(laws())
    ['pools_ttft', 'tpot', 'ttft', 'ttft_median']
    """
    return {
        name: ErrorLaw(row["scale"], row["slopes"], factors(row), row["common"])
        for name, row in tables("spreads").items()
    }


def law_of(output: str, *, pools: bool) -> str:
    """The law that an output errs by: paces by that of TPOT, TTFT of two pools by its own.

    >>> law_of("latency", pools=True), law_of("ttft", pools=True), law_of("ttft", pools=False)
    ('tpot', 'pools_ttft', 'ttft')
    """
    if not output.startswith("ttft"):
        return "tpot"
    return "pools_ttft" if pools else output


def unseen(known: Mapping[str, float], *, pools: bool = False) -> Within:
    """Factors of every output between which shares of runs of another publisher are.

    ``pools``: of prefill and decode apart. The law of TPOT is learned of throughput and of whole
    requests, too, where these are measured.

    >>> found = unseen(facts(32.0, (1000.0, 1000.0)))
    >>> found["latency"] == found["tpot"], found["throughput"][80][0] * found["tpot"][80][1]
    (True, 1.0)
    """
    found = {name: laws()[law_of(name, pools=pools)].within(known) for name in OUTPUTS}
    pace = found["tpot"].items()
    return found | {"throughput": {k: (1.0 / high, 1.0 / low) for k, (low, high) in pace}}
