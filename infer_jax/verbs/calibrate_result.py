"""The result of ``calibrate``: errors, coefficients, the worst runs, what to measure next."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from infer_jax.calibration.profile import caveats
from infer_jax.calibration.runs import OUTPUTS
from infer_jax.calibration.server_fit import Calibrated, OutputErrors
from infer_jax.plots.points import Parity, plot_parity
from infer_jax.plots.rendering import FigureResult
from infer_jax.plots.style import Figure
from infer_jax.results import Column, Notes, Row, Rows, Section, option
from infer_jax.results.numbers import digits
from infer_jax.verbs import pictures
from infer_jax.verbs.inputs import Setup

WORST = 5  # runs named as the worst predicted
TIMES = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "latency_ms": "latency"}
KINDS = {  # of predictions: the head of a column, and the name of a row
    "sheet": ("data sheet", "data sheet alone"),
    "before": ("profile", "profile as it was"),
    "after": ("calibrated", "calibrated"),
    "held_out": ("left out", "calibrated, run left out"),
}
REPLAYED = "Requests were replayed one by one; intervals are of batches of successive ones."


def _digits(value: float, text: str = "") -> str:
    """A number, "-" where it is not known."""
    return "-" if np.isnan(value) else format(value, text) if text else digits(value)


def _unit(row: Row) -> tuple[str, float]:
    """The unit that a coefficient is printed in, and its share of the SI unit."""
    if row["unit"] == "s":
        return ("us", 1e6) if row["before"] < 1e-3 else ("ms", 1e3)
    return row["unit"].replace("1", ""), 1.0


def _in_unit(row: Row, *values: float) -> str:
    """Values of a coefficient, or the ends of its interval, in the unit that it is printed in."""
    return " to ".join(digits(_unit(row)[1] * x) for x in values)


PREDICTIONS = (
    Column("predicted by", "", "kind", lambda kind: KINDS[kind][1]),
    *(
        Column(f"{name.upper()} {title}", "%", f"{name}.{value}", _digits)
        for name in OUTPUTS
        for title, value in (("error", "median"), ("worst", "worst"))
    ),
)
PARAMETERS = (
    Column("parameter", "", "name"),
    Column("unit", "", lambda row: _unit(row)[0]),
    Column("before", "", lambda row: _in_unit(row, row["before"]), left=False),
    Column("fitted", "", lambda row: _in_unit(row, row["value"]), left=False),
    Column("80 % interval", "", lambda row: _in_unit(row, *row["interval80"]), left=False),
    Column("by these runs", "", "verdict", lambda x: x if x == "identified" else "not identified"),
)
WORST_PREDICTED = (
    Column("worst predicted", "", "run", lambda x: Path(x).name if len(x) > 40 else x),
    *(
        column
        for k, name in enumerate(OUTPUTS)
        for column in (
            Column(name.upper(), "ms", f"{name}_measured_ms", _digits),
            Column("off", "%", lambda r, k=k: r["error_percent"][k], lambda x: _digits(x, "+.1f")),
        )
    ),
)
NEXT = (
    Column("measure next", "", lambda row: f"concurrency {float(row['concurrency']):g}"),
    Column("isl", "tokens", "isl_tokens", "{:.4g}".format),
    Column("osl", "tokens", "osl_tokens", "{:.4g}".format),
    Column("tp", "", "tp", "{:.4g}".format),
    Column("dp", "", "dp", "{:.4g}".format),
    Column("narrows", "%", "narrows_percent", lambda x: digits(x, 2)),
)


@dataclass(frozen=True, repr=False)
class CalibrateResult(FigureResult):
    """The fit of one server: errors, coefficients with intervals, what to measure next.

    ``server.fit.values`` are the coefficients, ``intervals`` their 80 % intervals, in SI units;
    ``server.estimator`` is the fitted estimator. ``name``: what the estimator is called;
    ``why_not``: why the runs were not replayed, where the closed form was fitted; ``out``:
    the file of the profile.
    """

    rows_key = "parameters"

    setup: Setup
    name: str
    server: Calibrated
    why_not: str | None = None
    out: str = ""

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The 80 % interval of each coefficient by its name."""
        return self.server.interval(0.8)

    @property
    def errors(self) -> Mapping[str, Mapping[str, OutputErrors]]:
        """Errors of every prediction (``sheet``, ``before``, ``after``, ``held_out``) by output."""
        return self.server.times.errors

    def sections(self) -> Iterator[Section]:
        """Errors of the predictions, coefficients, the worst runs, what to measure next."""
        setup, server, requests = self.setup, self.server, self.server.requests
        engine, bands = server.start.engine_name, dict(zip(OUTPUTS, server.band(), strict=True))
        under = f" under {engine}" if engine else ""
        yield f"{setup.model.name}{under} on {setup.system.name}: {self.server.fitted_in_words}"
        yield {
            **({"out": self.out} if self.out else {}),
            **setup.names,
            **({"engine": engine} if engine else {}),
            "runs": len(server.runs),
            "measured_times": self.server.fitted_times,
            "errors": {
                kind: {
                    name: {f"{which}_percent": value for which, value in x._asdict().items()}
                    if np.isfinite(x.median)
                    else None
                    for name, x in errors.items()
                }
                for kind, errors in self.errors.items()
            },
            "band80": {name: list(ends) for name, ends in bands.items()},
            "cannot_be_told_apart": [
                {"pair": [a, b], "correlation": r} for a, b, r in server.identified.pairs
            ],
        }
        if requests is None:
            rows = [{"kind": kind, **errors} for kind, errors in self.errors.items()]
            yield Rows("", rows, PREDICTIONS)
        else:
            statistics = requests.statistics()
            yield {"requests": statistics}
            yield Rows("", *request_table(statistics))
        yield Rows("parameters", self.server.parameters(), PARAMETERS)
        several = requests is None or len(server.runs) > 1
        yield Rows("worst", self.server.worst_predicted(WORST), WORST_PREDICTED if several else ())
        next_runs = [
            {
                "concurrency": load.workload.batch,
                "isl_tokens": load.workload.isl,
                "osl_tokens": load.workload.osl,
                "tp": load.plan.tp,
                "dp": load.plan.attention_dp,
                "bits": bits,
                "narrows_percent": 100.0 * narrows,
            }
            for load, bits, narrows in server.proposals
        ]
        yield Rows("next", next_runs, NEXT if next_runs else ())
        ends = [f"{name.upper()} {low:.2f} to {high:.2f}" for name, (low, high) in bands.items()]
        yield from ("", f"80 % of new runs: measured over predicted is {', '.join(ends)}.")
        yield Notes(self.notes)

    def _figure(self) -> Figure:
        """Predicted against measured times, before and after, with the band of new runs."""
        server, times = self.server, self.server.times
        panels = {
            name.upper(): Parity(
                times.measured[k], times.predictions["before"][k], times.unseen[k], server.band()[k]
            )
            for k, name in enumerate(OUTPUTS)
            if np.isfinite(times.measured[k]).any()
        }
        title = f"{self.setup.model.name} on {self.setup.system.name}: predicted against measured "
        after = "fitted" if times.left_out is None else "calibrated, each run left out in turn"
        runs = f"{len(server.runs)} measured runs. Before: the profile as it was. After: {after}."
        line = "On the line predicted equals measured; in the band 80 % of new runs are expected."
        caption = pictures.caption(self.setup, None, self.name, runs, line)
        return plot_parity(panels, f"{title}times, before and after calibration", caption)

    @property
    def summary(self) -> str:
        """How good the fit is, for the profile."""
        if self.server.requests is not None:
            return f"replayed, {request_errors(self.server.requests.statistics())}"
        kind = "held_out" if "held_out" in self.errors else "after"
        both = self.errors[kind].items()
        errors = [f"{name.upper()} {x.median:.1f} %" for name, x in both if np.isfinite(x.median)]
        return f"median error {' and '.join(errors)} on {KINDS[kind][1]}"

    @cached_property
    def notes(self) -> list[str]:
        """Files written, coefficients that the runs do not determine, and assumptions."""
        use = f"{option('hardware', self.out)} {option('estimator', self.name)}"
        files = [f"Written to {self.out}. Use it: {use}."] if self.out else []
        how = REPLAYED
        if self.why_not is not None:
            how = f"Fitted by the closed form of means: {self.why_not}."
        return [*files, *self._no_better(), how, *caveats(self.server), *self.setup.notes]

    def _no_better(self) -> Iterator[str]:
        """A sentence where runs left out are predicted no better than before the fit."""
        before, after = self.errors["before"], self.errors.get("held_out", {})
        both = {n: (before[n].median, y.median) for n, y in after.items() if np.isfinite(y.median)}
        if both and all(old <= new for old, new in both.values()):
            words = [f"{n.upper()} {y:.1f} % (before: {x:.1f} %)" for n, (x, y) in both.items()]
            yield f"This fit is no better than what it started from: {' and '.join(words)}."


def request_table(statistics: Row) -> tuple[list[Row], list[Column]]:
    """Each statistic as measured, with the error of every prediction in per cent."""
    rows: list[Row] = []
    for key, title in TIMES.items():
        (_, measured), *predictions = statistics[key].items()
        for name, x in measured.items():
            wrong = {kind: 100.0 * (values[name] / x - 1.0) for kind, values in predictions}
            rows.append({"title": f"{title} {name}", "measured": x, **wrong})
    count = f"{statistics['count']:,} requests" + ("" if statistics["fitted"] else " left out")
    kinds = [kind for kind in statistics["ttft_ms"] if kind in KINDS]
    return rows, [
        Column(count, "", "title"),
        Column("measured", "ms", "measured"),
        *(Column(KINDS[kind][0], "%", kind, "{:+.1f}".format) for kind in kinds),
    ]


def request_errors(statistics: Row) -> str:
    """Errors of the means by the last prediction, in words."""
    rows, columns = request_table(statistics)
    means = {row["title"]: row[str(columns[-1].value)] for row in rows}
    errors = [f"{time} {means[f'{time} mean']:+.1f} %" for time in ("TTFT", "TPOT")]
    which = "each batch of requests" if statistics["fitted"] else "requests"
    return f"error of means of {which} left out {' and '.join(errors)}"
