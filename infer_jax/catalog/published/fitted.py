"""The fitted coefficients of the serving and power models, with intervals and errors.

Priors of kernels are of ``python -m infer_jax.calibration.pooled --operators --ship FILE``.
"""

from functools import cache
from typing import NamedTuple

from infer_jax.catalog.foreign import Parsed
from infer_jax.catalog.published.tables import tables

SHARES = (50, 80, 95)  # of rows, in per cent
Factors = dict[int, tuple[float, float]]  # by share, of a prediction: between them the share is


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
    within: dict[str, Factors]


class PowerErrors(NamedTuple):
    """Errors of the predicted power of a chip, of rows that were left out of the fit.

    ``rows``: measured ones; ``median``: of |predicted / measured - 1|, per cent; ``within``: by
    share (50, 80, 95 per cent) the factors of a prediction between which that share of rows is.
    """

    rows: int
    median: float
    within: Factors


class Measured(NamedTuple):
    """The measured rows of the fit: bundled ``models``, and the number of ``rows`` of each server.

    ``own``: the models of systems whose generation is fitted to their own rows alone (AMD's).
    ``weights``: rows by system, engine and bits of the weights of feedforward ("16", "8", "4").
    """

    models: tuple[str, ...]
    rows: dict[str, dict[str, int]]
    own: dict[str, tuple[str, ...]]
    weights: dict[str, dict[str, dict[str, int]]]

    def models_of(self, system: str) -> tuple[str, ...]:
        """The models whose rows a system's coefficients were fitted to."""
        return self.own.get(system, self.models)


@cache
def serving_coefficients() -> dict[str, Fitted]:
    """Every fitted coefficient by its dotted path in ``Serving``.

    >>> serving_coefficients()["eager_growth"].symbol
    'k_I'
    """
    return {name: Fitted(**row) for name, row in tables("serving")["coefficients"].items()}


@cache
def serving_errors() -> dict[tuple[str, str], Errors]:
    """Errors of the fit by system and engine, where there are rows enough.

    >>> serving_errors()["b200_sxm", "vllm"].median["tpot"] < 10
    True
    """
    return {
        (system, engine): _errors(row)
        for system, engines in tables("serving")["errors"].items()
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
    return {kind: _errors(row) for kind, row in tables("serving")["unseen"].items()}


def _errors(row: Parsed) -> Errors:
    cells = {name: row[name] for name in ("tpot", "ttft")}
    medians = {name: x["median_error"] for name, x in cells.items()}
    return Errors(row["rows"], medians, {name: factors(x) for name, x in cells.items()})


def factors(row: Parsed) -> Factors:
    """The two ends of each share of rows."""
    return {share: tuple(row[f"within_{share}"]) for share in SHARES}


@cache
def serving_measured() -> Measured:
    """The models, and the rows of each system and engine, that were fitted.

    >>> serving_measured().rows["gb200_nvl72"]
    {'sglang': 72, 'trtllm': 139}
    """
    table = tables("serving")["measured"]
    own = {system: tuple(models) for system, models in table["own"].items()}
    return Measured(tuple(table["models"]), table["rows"], own, table["weights"])


def power_shares(generation: str = "unseen") -> dict[str, float]:
    """Shares of board power (idle, active, memory, compute) of a generation of chips.

    They were fitted to servers whose power was measured. ``unseen``: of a chip of a make without
    measured rows, the mean of those that have some.

    >>> power_shares("hopper")["idle"] < power_shares("hopper")["active"] < 1
    True
    """
    return {name: row["value"] for name, row in tables("power")["shares"][generation].items()}


def power_errors(generation: str = "unseen") -> PowerErrors:
    """Errors of the power of a generation, of rows whose server was left out.

    Of ``unseen`` chips they are those of rows whose generation was left out; so they are of a
    generation without rows.
    """
    table = tables("power")["errors"]
    row = table.get(generation, table["unseen"])
    return PowerErrors(row["rows"], row["median_error"], factors(row))


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
