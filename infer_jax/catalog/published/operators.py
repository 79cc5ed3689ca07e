"""Priors of kernels, from tables of measured operators.

From ``python -m infer_jax.calibration.pooled --operators --ship FILE``.
"""

from functools import cache
from typing import NamedTuple

from infer_jax.catalog.published.tables import tables


class OperatorPrior(NamedTuple):
    """A coefficient of kernels in SI units, as tables of measured operators have it.

    ``spread``: standard deviation of its logarithm over ``tables`` of chips, engines and formats;
    ``error``: median relative error of the law on their rows.
    """

    value: float
    spread: float
    tables: int
    error: float


@cache
def operator_priors() -> dict[str, OperatorPrior]:
    """By dotted path in ``Serving``.

    >>> operator_priors()["hopper.gemm_16"].value < 1.0
    True
    """
    rows = tables("operators")["coefficients"].items()
    return {name: OperatorPrior(**row) for name, row in rows}
