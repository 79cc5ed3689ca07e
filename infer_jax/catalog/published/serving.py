"""How large are the coefficients of the serving theory, and how sure is that?"""

from functools import cache
from importlib.resources import files
from typing import NamedTuple

from infer_jax.catalog.files import read_toml


class Fitted(NamedTuple):
    """A fitted coefficient in SI units.

    ``symbol``: its letter in the docs; ``low``, ``high``: bootstrap 10 and 90 %; ``prior``: the
    value believed beforehand; ``learnt``: deviation after over deviation before the fit.
    """

    symbol: str
    value: float
    low: float
    high: float
    prior: float
    learnt: float


@cache
def serving_coefficients() -> dict[str, Fitted]:
    """Every fitted coefficient by its dotted path in ``Serving``.

    >>> serving_coefficients()["weight_read"].symbol
    'eta_m'
    """
    path = str(files("infer_jax.catalog.published").joinpath("serving.toml"))
    return {name: Fitted(**row) for name, row in read_toml(path)["coefficients"].items()}
