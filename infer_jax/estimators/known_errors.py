"""Known errors of an estimator for a system, an engine and a model."""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple, SupportsFloat

from infer_jax import engines
from infer_jax.catalog import System
from infer_jax.catalog.measured_points import Calibration
from infer_jax.catalog.published import (
    Within,
    facts,
    serving_errors,
    serving_measured,
    unseen,
    unseen_errors,
    widen_bands,
)
from infer_jax.estimators.estimator import Estimator
from infer_jax.estimators.serving import fitted_engine

BORROWED = "~"  # marks numbers whose coefficients were fitted to other chips
GENERATION = {"hopper": "Hopper", "blackwell": "Blackwell", "cdna3": "CDNA 3", "cdna4": "CDNA 4"}
NAMES = {name: engine.title for name, engine in engines.ENGINES.items()}
FACTS = {"visible", "generation"}  # of a chip, in profiles that were fitted to no server
FEW = 30  # measured rows of a format from which they are not mentioned
MEASURED = ("NVIDIA", "AMD")  # makes of measured rows: first word of a title


class Trust(NamedTuple):
    """An estimator and what is known of its errors.

    ``rows``: measured rows of the system and engine; ``median``: the median error of TPOT and TTFT
    in per cent, over the rows that ``errors_of`` describes, empty where not known;
    ``known``: whether its errors are known, so that answers have bands;
    ``borrowed_from``: the generation whose coefficients are used for a chip
    without measured rows; ``own``: the bands of a profile that was calibrated to its own server,
    and ``layouts`` those of that server, none for what it is not of; ``foreign``: whether no
    measured row is of the chip's make; ``age_deviation``: of the logarithm of launch gaps and host
    times by the age of the software; ``says``: all of this in one sentence.
    """

    estimator: str
    system: str
    says: str
    engine: str | None = None
    rows: int = 0
    median: dict[str, float] = {}  # noqa: RUF012
    errors_of: str = ""
    borrowed_from: str | None = None
    known: bool = False
    own: Within = {}  # noqa: RUF012
    layouts: tuple[str, ...] = ()
    foreign: bool = False
    age_deviation: float = 0

    @property
    def calibrated(self) -> bool:
        """Whether the profile holds a calibration to its own server."""
        return bool(self.own)

    def covers(self, layout: object = None) -> bool:
        """Whether the profile's own server was measured in such a layout; None: in any at all."""
        return bool(self.layouts) if layout is None else str(layout) in self.layouts

    def within(
        self, load: float, lengths: tuple[float, float], *, pools: bool = False, gaps: float = 0,
        layout: object = None,
    ) -> Within:  # fmt: skip
        """Factors of a prediction between which shares of runs were measured, by output.

        The one law of bands. By share in per cent, of publishers of whom no fit has seen a row; of
        a profile's own server where it was calibrated to one, which is never of ``pools``. Of what
        that server was not (its model, formats or ``layout``), the outer ends of both: the factors
        that were fitted may be of this machine or of that model alone, which its runs cannot tell.
        ``load``: requests in flight of an instance, of one that decodes; ``lengths``: mean tokens
        of prompt and output; ``gaps``: the share of a token's time that grows with the age of the
        software (``gap_share``), for d log(time) / d log(gaps) is this share.
        """
        if self.own and not pools and self.covers(layout):
            return self.own
        found = unseen(facts(load, lengths), pools=pools)
        if self.age_deviation:
            found = widen_bands(found, gaps * self.age_deviation)
        found = _widest(found, unseen_errors()["make"].within) if self.foreign else found
        return _widest(found, self.own) if self.own and not pools else found

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
            "calibrated_to_layouts": list(self.layouts),
            "says": self.says,
        }


def trust(
    name: str,
    estimator: Estimator,
    system: System,
    model: str,
    changed: bool = False,
    formats: str = "",
    layout: str = "",
    bits: int = 0,
) -> Trust:
    """The known errors of an estimator on a system, for a model by its name.

    ``changed``: whether the user changed numbers of the system, so that no measured row is of it;
    ``formats``, ``layout``: of the model and of its one instance in words, where they are known;
    ``bits``: of its weights, 0 where they are not.

    >>> from infer_jax.catalog import load_system
    >>> from infer_jax.estimators import make
    >>> trust("serving", make("serving"), load_system("h20_sxm"), "qwen3-32b").borrowed_from
    'Hopper'
    """
    engine = estimator.engine_name
    if estimator.table != FITTED_TABLE:
        says = f"Estimator {name}: {estimator.checked_against}. {memory_note(estimator)}"
        return Trust(name, system.name, says.rstrip())
    head = f"Estimator {name} ({NAMES[engine]}): "
    if own := system.bands():
        says = f"{head}calibrated to the server of {system.name}"
        bands: Within = {output: {80: ends} for output, ends in own.items()}
        trusted = Trust(name, system.name, says, engine, known=True, own=bands)
        return _of_server(trusted, system.calibration, (model, formats, layout), changed)
    engines = {} if changed else serving_measured().rows.get(system.name, {})
    rows, errors = engines.get(engine, 0), serving_errors().get((system.name, engine))
    trusted = Trust(name, system.name, head, engine, rows, age_deviation=estimator.age_deviation)
    if not rows and (source := _unchecked_source(engine, system, bool(engines))):
        return trusted._replace(says=f"{head}{source}, whose errors are not known.")
    measured = serving_measured()
    new_model = model not in measured.own.get(system.name, measured.models)
    amd = estimator.generation_name.startswith("cdna")
    trusted = trusted._replace(known=estimator.has_bands and not changed)
    if not engines:
        generation = GENERATION[estimator.generation_name]
        known = f"no measured rows for {system.name}{' with changed numbers' * changed}: "
        known += f"coefficients borrowed from {generation}"
        trusted = trusted._replace(says=f"{BORROWED} {head}", borrowed_from=generation)
        unmeasured = not amd and not system.title.startswith(MEASURED)
        trusted = trusted._replace(foreign=unmeasured)
        return _unseen(trusted, known, "amd" if amd else "make" if unmeasured else "system")
    known = f"{rows or 'no'} measured row{'s' * (rows != 1)} on {system.name}"
    alike = serving_measured().weights.get(system.name, {}).get(engine, {}).get(str(bits), 0)
    if rows and bits and alike < FEW:
        known += f", {alike or 'none'} of them with weights of {bits} bits"
    if not estimator.has_bands:
        known += ", of the laws fitted to them; errors of those it adds are not known"
        return trusted._replace(says=f"{head}{known}.")
    if errors is None:
        return _unseen(trusted, known, "amd" if amd else "system")
    if new_model or (bits and not alike):
        return _unseen(trusted, known + f", none of {model}" * new_model, "amd" if amd else "model")
    return _with_errors(trusted, known, FITTED, errors.median)


def _unchecked_source(engine: str, system: System, measured: bool) -> str:
    """Whose coefficients are used, where no error of them is known; "" where some are."""
    if not measured and set(system.coefficients.get("serving", {})) - FACTS:
        return f"coefficients of the profile {system.name}"
    other = fitted_engine(engine)
    return "" if other == engine else f"no measured rows: coefficients of {NAMES[other]}"


FITTED_TABLE = "serving"  # the table of coefficients that were fitted to measured servers
# what errors are of: fitted servers at other lengths, or what is new in a question
FITTED = "fitted servers, at lengths left out of the fit"
OUTSIDE = (
    "is outside of what was measured: its band is no narrower than that of servers that no fit has "
    "seen."
)
LEFT_OUT = {
    "system": "NVIDIA systems left out of the fit whole",
    "model": "models left out of the fit whole",
    "amd": "AMD servers left out of the fit whole",
    "make": "AMD's chips left out of the fit whole",
}


def _of_server(
    trusted: Trust, server: Calibration | None, asked: tuple[str, str, str], changed: bool
) -> Trust:
    """``trusted`` of a question about the server that a profile was calibrated to, or another.

    ``asked``: the model, its formats and the layout, "" where not known.
    """
    if server is None:
        others = ["Its profile does not say which model and layouts that was: this question"]
        return trusted._replace(says=f"{trusted.says}. {others[0]} {OUTSIDE}")
    known = ((server.model,), (server.formats,), server.layouts)
    others = [x for x, names in zip(asked, known, strict=True) if x and x not in names]
    others += ["a changed number"] if changed else []
    says = f"{trusted.says}: {server.model} ({server.formats}), {' and '.join(server.layouts)}."
    if others:
        return trusted._replace(says=f"{says} Here, {', '.join(others)} {OUTSIDE}")
    other = "" if asked[-1] else f" Another layout {OUTSIDE}"
    return trusted._replace(says=f"{says}{other}", layouts=server.layouts)


def _unseen(trusted: Trust, known: str, kind: str) -> Trust:
    """``trusted`` with the errors of rows that were left out because they were of such a kind."""
    return _with_errors(trusted, known, LEFT_OUT[kind], unseen_errors()[kind].median)


def measured_within(
    trusts: Sequence[Trust], load: float, lengths: tuple[float, float], *,
    pools: bool = False, gaps: float = 0, layout: object = None,
) -> Within:  # fmt: skip
    """``Trust.within`` of plans on one system, or on two: of the one that less is known of."""
    found = [trust.within(load, lengths, pools=pools, gaps=gaps, layout=layout) for trust in trusts]
    return functools.reduce(_widest, found)


def measured_intervals(within: Within, times: Mapping[str, float]) -> dict[str, list[float]]:
    """What 80 % of measured servers are in, ms, by name; ``times``: predicted, by output, s."""
    return {
        f"{name}_interval80_ms": [1e3 * time * end for end in within[name][80]]
        for name, time in times.items()
        if name in within
    }


def gap_share(terms: Mapping[str, SupportsFloat]) -> float:
    """Share of launch gaps and host times in a token's time, by its terms, waits for prompts apart.

    >>> gap_share({"memory": 6.0, "launch": 1.0, "host": 1.0, "other prefills": 9.0})
    0.25
    """
    own = {name: float(x) for name, x in terms.items() if name != "other prefills"}
    total = sum(own.values())
    return (own.get("launch", 0) + own.get("host", 0)) / total if total else 0


def _widest(one: Within, other: Within) -> Within:
    """The outer ends of two bands of every output; an output of one alone has that one's."""

    def outer(name: str, share: int) -> tuple[float, float]:
        ends = [x[name][share] for x in (one, other) if share in x.get(name, {})]
        return min(low for low, _ in ends), max(high for _, high in ends)

    return {name: {share: outer(name, share) for share in shares} for name, shares in one.items()}


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
    errors = unseen_errors()["pools"]
    tpot, ttft = (f"{errors.median[name]:.3g} %" for name in ("tpot", "ttft"))
    known = f"{errors.rows} measured rows, whose TTFT was never fitted"
    return f"Plans of two pools: {known}; median error: TPOT {tpot}, TTFT {ttft}."
