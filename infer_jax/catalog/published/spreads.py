"""The law of errors on servers of a publisher that no fit has seen, and the part plans share.

From ``python -m infer_jax.calibration.pooled --publishers --ship FILE``.
"""

from collections.abc import Mapping
from functools import cache
from math import exp, log
from typing import NamedTuple

from infer_jax.catalog.published.fitted import Factors, factors
from infer_jax.catalog.published.tables import tables

Within = dict[str, Factors]  # by output
STEP = 64.0
USUAL = 32.0  # requests in flight of an instance where the law is not asked for a number of them


class ErrorLaw(NamedTuple):
    """How far measured is from predicted: quantiles in units of a scale that facts widen.

    ``scale``: of log(measured / predicted) at ``USUAL`` requests in flight, with no other fact;
    ``slopes``: by how much a fact adds to log scale; ``ends``: by share of runs in per cent, the
    lower and upper quantile over the scale; ``common``: the share of the variance that layouts and
    loads of a server have in common.
    """

    scale: float
    slopes: Mapping[str, float]
    ends: Mapping[int, tuple[float, float]]
    common: float = 0.0

    def within(self, facts: Mapping[str, float]) -> Factors:
        """Factors of a prediction between which shares of runs were measured.

        >>> law = ErrorLaw(0.2, {"pools": 1.0}, {80: (-1.0, 1.5)})
        >>> [round(end, 3) for end in law.within({"pools": 0.0})[80]]
        [0.819, 1.35]
        """
        wide = self.scale * exp(sum(self.slopes[name] * x for name, x in facts.items()))
        return {
            share: (exp(wide * low), exp(wide * high)) for share, (low, high) in self.ends.items()
        }


def facts(
    load: float = USUAL, *, pools: bool = False, narrow: bool = False, chip: bool = False,
    model: bool = False,
) -> dict[str, float]:  # fmt: skip
    """What is known of a question before anything is measured, as the laws read it.

    ``load``: requests in flight of an instance (of one that decodes), here the power of ``STEP``
    that they are over ``USUAL``; ``pools``: prefill and decode apart; ``narrow``: products of 4
    bits; ``chip``, ``model``: that no measured row is of it.
    """
    known = {"pools": pools, "narrow": narrow, "chip": chip, "model": model}
    return {name: float(x) for name, x in known.items()} | {
        "load": log(max(load, 1.0) / USUAL, STEP)
    }


@cache
def laws() -> dict[str, ErrorLaw]:
    """The laws of TPOT, of TTFT, and of TTFT where prefill and decode are apart.

    >>> sorted(laws())
    ['pools_ttft', 'tpot', 'ttft']
    """
    return {
        name: ErrorLaw(row["scale"], row["slopes"], factors(row), row["common"])
        for name, row in tables("spreads").items()
    }


def unseen(known: Mapping[str, float]) -> Within:
    """Factors of every output between which shares of runs of another publisher are.

    The law of TPOT is learned of throughput and of whole requests, too, where these are measured.

    >>> found = unseen(facts())
    >>> found["latency"] == found["tpot"], found["throughput"][80][0] * found["tpot"][80][1]
    (True, 1.0)
    """
    pace = laws()["tpot"].within(known)
    first = laws()["pools_ttft" if known["pools"] else "ttft"].within(known)
    rate = {share: (1.0 / high, 1.0 / low) for share, (low, high) in pace.items()}
    return {"tpot": pace, "ttft": first, "latency": pace, "throughput": rate}
