"""What chips draw as shares of their board power, fitted to servers whose power was measured."""

from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from infer_jax.catalog.foreign import read_toml


class PowerErrors(NamedTuple):
    """Errors of the predicted power of a chip, of rows that were left out of the fit.

    ``rows``: measured ones; ``median``: of |predicted / measured - 1|, per cent; ``within``: by
    share (50, 80, 95 per cent) the factors of a prediction between which that share of rows is.
    """

    rows: int
    median: float
    within: dict[int, tuple[float, float]]


def power_shares(generation: str = "unseen") -> dict[str, float]:
    """Shares of board power (idle, active, memory, compute) of a generation of chips.

    ``unseen``: of a chip of a make without measured rows, the mean of those that have some.

    >>> power_shares("hopper")["idle"] < power_shares("hopper")["active"] < 1
    True
    """
    return {name: row["value"] for name, row in _fit()["shares"][generation].items()}


def power_errors(generation: str = "unseen") -> PowerErrors:
    """Errors of the power of a generation, of rows whose server was left out.

    Of ``unseen`` chips they are those of rows whose generation was left out; so they are of a
    generation without rows.
    """
    table = _fit()["errors"]
    row = table.get(generation, table["unseen"])
    within = {share: tuple(row[f"within_{share}"]) for share in (50, 80, 95)}
    return PowerErrors(row["rows"], row["median_error"], within)


@cache
def _fit() -> dict[str, Any]:
    folder = files("infer_jax.catalog.published")
    return read_toml(str(folder.joinpath("power.toml")))
