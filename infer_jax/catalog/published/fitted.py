"""The fitted coefficients of the serving and power models, with intervals and errors.

Priors of kernels are of ``python -m infer_jax.calibration.pooled --operators --ship FILE``.

The law of errors on servers of a publisher that no fit has seen, and the part plans share.

From ``python -m infer_jax.calibration.pooled --publishers --ship FILE``.
"""

from collections.abc import Mapping
from functools import cache
from math import copysign, exp, hypot, log
from statistics import NormalDist
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
