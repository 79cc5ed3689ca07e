"""The coefficients of the serving estimator, each with its interval."""

from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from infer_jax.catalog.foreign import read_toml


class Fitted(NamedTuple):
    """A fitted coefficient in SI units.

    ``symbol``: its letter in the docs; ``low``, ``high``: 80 % bounds by the jackknife over groups
    of model, system and engine; ``prior``: the value assumed before the fit; ``learnt``: deviation
    after over deviation before the fit.
    """

    symbol: str
    value: float
    low: float
    high: float
    prior: float
    learnt: float


class Errors(NamedTuple):
    """Errors of the fit on left-out rows of a system and engine.

    ``rows``: measured ones; by output (``tpot``, ``ttft``) the median error in per cent, and by
    share (50, 80, 95 per cent) the factors of a prediction between which that share of rows is.
    """

    rows: int
    median: dict[str, float]
    within: dict[str, dict[int, tuple[float, float]]]


@cache
def serving_coefficients() -> dict[str, Fitted]:
    """Every fitted coefficient by its dotted path in ``Serving``.

    >>> serving_coefficients()["eager_growth"].symbol
    'k_I'
    """
    return {name: Fitted(**row) for name, row in _fit()["coefficients"].items()}


@cache
def serving_errors() -> dict[tuple[str, str], Errors]:
    """Errors of the fit by system and engine, where there are rows enough.

    >>> serving_errors()["b200_sxm", "vllm"].median["tpot"] < 10
    True
    """
    errors = {}
    for system, engines in _fit()["errors"].items():
        for engine, row in engines.items():
            both = {name: row[name] for name in ("tpot", "ttft")}
            errors[system, engine] = Errors(
                rows=row["rows"],
                median={name: cells["median_error"] for name, cells in both.items()},
                within={
                    name: {share: tuple(cells[f"within_{share}"]) for share in (50, 80, 95)}
                    for name, cells in both.items()
                },
            )
    return errors


class Measured(NamedTuple):
    """The measured rows of the fit: bundled ``models``, and the number of ``rows`` of each server.

    ``own``: the models of systems whose generation is fitted to their own rows alone (AMD's).
    """

    models: tuple[str, ...]
    rows: dict[str, dict[str, int]]
    own: dict[str, tuple[str, ...]]

    def models_of(self, system: str) -> tuple[str, ...]:
        """The models whose rows a system's coefficients were fitted to."""
        return self.own.get(system, self.models)


@cache
def serving_measured() -> Measured:
    """The models, and the rows of each system and engine, that were fitted.

    >>> serving_measured().rows["gb200_nvl72"]
    {'sglang': 66, 'trtllm': 122}
    """
    said = _fit()["measured"]
    own = {system: tuple(models) for system, models in said["own"].items()}
    return Measured(tuple(said["models"]), said["rows"], own)


# median errors in per cent of rows whose system or model was left out of the fit entirely, and of
# rows of pools that prefill and decode, none of which was ever fitted: `python
# experiments/silicon.py --cv system` (`model`; `--mode disagg`), docs/calibration.md. AMD's servers
# are those left out of the fit of all rows one at a time (docs/validation.md, AMD's chips). For
# makes without any row: AMD's chips with Hopper's coefficients (`python experiments/makes.py`)
UNSEEN: dict[str, dict[str, float]] = {
    "system": {"tpot": 11.9, "ttft": 29.6},
    "model": {"tpot": 10.6, "ttft": 24.2},
    "amd": {"tpot": 14.8, "ttft": 53.6},
    "make": {"tpot": 22.2, "ttft": 46.2},
    "pools": {"rows": 610, "tpot": 13.2, "ttft": 63.3},
}


@cache
def _fit() -> dict[str, Any]:
    folder = files("infer_jax.catalog.published")
    return read_toml(str(folder.joinpath("serving.toml")))
