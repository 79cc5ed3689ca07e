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
    """Errors of the fit on left-out rows: of a system and engine, or of what is new to it.

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
    return {
        (system, engine): _errors(row)
        for system, engines in _fit()["errors"].items()
        for engine, row in engines.items()
    }


@cache
def unseen_errors() -> dict[str, Errors]:
    """Errors of the fit on what is new to it, by what is new.

    ``system``, ``model``: all rows of one of NVIDIA's systems or of a model left out; ``amd``: of
    a server of AMD's; ``make``: all of AMD's; ``pools``: rows of two pools, not fitted in TTFT.

    >>> sorted(unseen_errors())
    ['amd', 'make', 'model', 'pools', 'system']
    """
    return {kind: _errors(row) for kind, row in _fit()["unseen"].items()}


def _errors(row: Any) -> Errors:
    both = {name: row[name] for name in ("tpot", "ttft")}
    return Errors(
        rows=row["rows"],
        median={name: cells["median_error"] for name, cells in both.items()},
        within={
            name: {share: tuple(cells[f"within_{share}"]) for share in (50, 80, 95)}
            for name, cells in both.items()
        },
    )


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


@cache
def _fit() -> dict[str, Any]:
    folder = files("infer_jax.catalog.published")
    return read_toml(str(folder.joinpath("serving.toml")))
