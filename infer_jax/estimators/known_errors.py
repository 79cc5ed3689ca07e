"""Known errors of an estimator for a system, an engine and a model."""

from typing import NamedTuple

from infer_jax.catalog import System
from infer_jax.catalog.published import (
    UNSEEN,
    UNSEEN_WITHIN,
    Within,
    serving_errors,
    serving_measured,
)
from infer_jax.estimators.estimator import Estimator
from infer_jax.estimators.serving import ENGINES, GENERATIONS, Serving

BORROWED = "~"  # marks numbers whose coefficients were fitted to other chips
GENERATION = {"hopper": "Hopper", "blackwell": "Blackwell", "cdna3": "CDNA 3", "cdna4": "CDNA 4"}
NAMES = {"trtllm": "TensorRT-LLM", "sglang": "SGLang", "vllm": "vLLM"}
FACTS = {"visible", "generation"}  # of a chip, in profiles that were fitted to no server
MEASURED = ("NVIDIA", "AMD")  # makes of measured rows: first word of a title


class Trust(NamedTuple):
    """An estimator and what is known of its errors.

    ``rows``: measured rows of the system and engine; ``median``: the median error of TPOT and TTFT
    in per cent, over the rows that ``errors_of`` describes, empty where not known;
    ``within``: by output and share of runs in per cent, the factors of a prediction between which
    these were measured; ``borrowed_from``: the generation whose coefficients are used for a chip
    without measured rows; ``calibrated``: whether the profile holds a calibration to its own
    server; ``says``: all of this in one sentence.
    """

    estimator: str
    system: str
    says: str
    engine: str | None = None
    rows: int = 0
    median: dict[str, float] = {}  # noqa: RUF012
    errors_of: str = ""
    borrowed_from: str | None = None
    calibrated: bool = False
    within: Within = {}  # noqa: RUF012

    @property
    def mark(self) -> str:
        """The mark beside a number in a table: ``~`` if coefficients are borrowed."""
        return BORROWED if self.borrowed_from else ""

    def fields(self) -> dict[str, object]:
        """The fields of JSON."""
        return {
            "hardware": self.system,
            "engine": self.engine,
            "rows": self.rows,
            "median_error_percent": self.median or None,
            "errors_of": self.errors_of or None,
            "borrowed_from": self.borrowed_from,
            "calibrated": self.calibrated,
            "says": self.says,
        }


def trust(
    name: str, estimator: Estimator, system: System, model: str, changed: bool = False
) -> Trust:
    """The known errors of an estimator on a system, for a model by its name.

    ``changed``: whether the user changed numbers of the system, so that no measured row is of it.

    >>> from infer_jax.catalog import load_system
    >>> from infer_jax.estimators import make
    >>> trust("serving", make("serving"), load_system("h20_sxm"), "qwen3-32b").borrowed_from
    'Hopper'
    """
    if not isinstance(estimator, Serving):
        says = f"Estimator {name}: {estimator.checked_against}. {memory_note(estimator)}"
        return Trust(name, system.name, says.rstrip())
    engine = ENGINES[int(estimator.engine)]
    head = f"Estimator {name} ({NAMES[engine]}): "
    if system.bands():
        says = f"{head}calibrated to the server of {system.name}."
        return Trust(name, system.name, says, engine, calibrated=True)
    engines = {} if changed else serving_measured().rows.get(system.name, {})
    rows, errors = engines.get(engine, 0), serving_errors().get((system.name, engine))
    trusted = Trust(name, system.name, head, engine, rows)
    if not engines and set(system.coefficients.get("serving", {})) - FACTS:
        says = f"{head}coefficients of the profile {system.name}, whose errors are not known."
        return trusted._replace(says=says)
    amd = GENERATIONS[int(estimator.generation)].startswith("cdna")
    if not engines:
        generation = GENERATION[GENERATIONS[int(estimator.generation)]]
        altered = " with changed numbers" if changed else ""
        known = (
            f"no measured rows for {system.name}{altered}: coefficients borrowed from {generation}"
        )
        trusted = trusted._replace(says=f"{BORROWED} {head}", borrowed_from=generation)
        unmeasured = not system.title.startswith(MEASURED)
        return _unseen(trusted, known, "amd" if amd else "make" if unmeasured else "system")
    known = f"{rows or 'no'} measured rows on {system.name}"
    if name == "serving.complete":
        known += ", of the laws fitted to them; errors of those it adds are not known"
        return trusted._replace(says=f"{head}{known}.")
    if errors is None:
        return _unseen(trusted, known, "amd" if amd else "system")
    if model not in serving_measured().models_of(system.name):
        return _unseen(trusted, f"{known}, none of {model}", "amd" if amd else "model")
    trusted = trusted._replace(within=errors.within)
    return _with_errors(trusted, known, "such rows left out of the fit", errors.median)


# the rows that were left out of a fit, by what is new in a question
LEFT_OUT = {
    "system": "NVIDIA systems left out of the fit",
    "model": "models left out of the fit",
    "amd": "AMD servers left out of the fit",
    "make": "AMD's chips left out of the fit",
}


def _unseen(trusted: Trust, known: str, kind: str) -> Trust:
    """``trusted`` with the errors of rows that were left out because they were of such a kind."""
    within = _widest() if kind == "amd" else UNSEEN_WITHIN[kind]
    return _with_errors(trusted._replace(within=within), known, LEFT_OUT[kind], UNSEEN[kind])


def _widest() -> Within:
    """The widest known factors of systems that were fitted separately (AMD's)."""
    own = serving_measured().own
    known = [x.within for (system, _), x in serving_errors().items() if system in own]
    return {
        name: {
            share: (
                min(x[name][share][0] for x in known),
                max(x[name][share][1] for x in known),
            )
            for share in shares
        }
        for name, shares in known[0].items()
    }


def memory_note(estimator: Estimator) -> str:
    """A sentence where memory is not counted as ``memory`` counts it; else empty."""
    account = estimator.memory_account
    return f"Memory is counted as {account}." if account else ""


def _with_errors(trusted: Trust, known: str, of: str, median: dict[str, float]) -> Trust:
    """``trusted`` with its errors on rows that were left out of the fit."""
    tpot, ttft = (f"{median[name]:.3g} %" for name in ("tpot", "ttft"))
    says = f"{trusted.says}{known}; median error of {of}: TPOT {tpot}, TTFT {ttft}."
    return trusted._replace(says=says, median=median, errors_of=of)


def pools() -> str:
    """One sentence on plans whose prefill and decode run on pools of their own."""
    rows, tpot, ttft = (UNSEEN["pools"][name] for name in ("rows", "tpot", "ttft"))
    known = f"{rows} measured rows, which no fit has seen"
    return f"Plans of two pools: {known}; median error: TPOT {tpot:.3g} %, TTFT {ttft:.3g} %."
