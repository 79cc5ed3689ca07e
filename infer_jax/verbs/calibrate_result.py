"""The result of ``calibrate``: errors, parameters, the worst runs, what to measure next."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from infer_jax.calibration.proposals import Proposal
from infer_jax.calibration.runs import OUTPUTS
from infer_jax.calibration.server import Calibrated
from infer_jax.calibration.uncertainty import Identified
from infer_jax.estimators import Estimator
from infer_jax.plots.pictured import Pictured
from infer_jax.results import Column, Notes, Part, Table
from infer_jax.results.numbers import digits
from infer_jax.specs import leaves
from infer_jax.verbs import inputs, pictures
from infer_jax.verbs.calibrate_notes import caveats, how
from infer_jax.verbs.calibrate_statistics import in_json, in_words, table_of
from infer_jax.verbs.inputs import Given

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORST = 5  # runs named as the worst predicted
SHARES = (0.5, 0.8, 0.95)  # of the intervals
TITLES = {
    "sheet": "data sheet alone",
    "before": "profile as it was",
    "after": "calibrated",
    "held_out": "calibrated, run left out",
}


class OutputErrors(NamedTuple):
    """Median and worst |predicted / measured - 1| of one output, in percent."""

    median: float
    worst: float


class Written(NamedTuple):
    """The files of a calibration: its profile, and its pictures."""

    out: str = ""
    pictures: Sequence[str] = ()


NOTHING = Written()


@dataclass(frozen=True, repr=False)
class CalibrateResult(Pictured):
    """The fit of one server: errors, coefficients with intervals, what to measure next.

    ``server.fit.values`` are the coefficients, ``intervals`` their 80 % intervals, in SI units;
    ``why_not``: why the runs were not replayed, where the closed form was fitted.
    """

    asked: Given
    server: Calibrated
    written: Written = NOTHING
    why_not: str | None = None

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The 80 % interval of each coefficient by its name."""
        return self.server.interval(0.8)

    @cached_property
    def errors(self) -> dict[str, dict[str, OutputErrors | None]]:
        """Errors of every prediction (``sheet``, ``before``, ``after``, ``held_out``) by output."""
        server = self.server
        measured = server.times.measured
        return {name: _errors(x, measured) for name, x in server.times.predictions.items()}

    def fields(self) -> Mapping[str, object]:
        """A calibration for JSON, in SI units but for keys that say others."""
        server, (out, drawn) = self.server, self.written
        requests = server.requests
        return {
            **({"out": out} if out else {}),
            **self.asked.names,
            **({"engine": server.start.engine_name} if server.start.engine_name else {}),
            "runs": len(server.runs),
            "measured_times": self._times,
            "errors": {
                kind: {
                    name: None
                    if one is None
                    else {"median_percent": one.median, "worst_percent": one.worst}
                    for name, one in by_output.items()
                }
                for kind, by_output in self.errors.items()
            },
            **({} if requests is None else {"requests": in_json(requests)}),
            "band80": {name: list(ends) for name, ends in self._bands()},
            "parameters": self.rows(),
            "cannot_be_told_apart": [
                {"pair": [a, b], "correlation": r} for a, b, r in server.identified.pairs
            ],
            "worst": [self._run(i) for i in self._worst()],
            "next": [_proposal(one) for one in server.proposals],
            **({"picture": ", ".join(drawn)} if drawn else {}),
            "notes": self.notes,
        }

    def rows(self) -> Sequence[Mapping[str, object]]:
        """The coefficients with their intervals, in SI units."""
        server, before = self.server, _values(self.server.start)
        ends = {share: server.interval(share) for share in SHARES}
        return [
            {
                "name": one.name,
                "unit": before[one.name][1],
                "before": before[one.name][0],
                "value": server.fit.values[one.name],
                **{f"interval{100 * s:.0f}": list(e[one.name]) for s, e in ends.items()},
                "learnt": one.learnt,
                "verdict": one.verdict,
            }
            for one in server.identified.parameters
        ]

    def parts(self) -> Iterator[Part]:
        """Errors of the predictions, coefficients, the worst runs, what to measure next."""
        asked, requests = self.asked, self.server.requests
        yield (
            f"{asked.model.name}{self.server.start.engine_name and ' under '}"
            f"{self.server.start.engine_name} on {asked.system.name}: {self.counted}"
        )
        tables = [self._predictions() if requests is None else table_of(requests)]
        tables.append(self._parameters())
        if requests is None or len(self.server.runs) > 1:
            tables.append(self._worst_predicted())
        for table in tables:
            yield ""
            yield table
        if self.server.proposals:
            yield ""
            yield _next(self.server.proposals)
        bands = [f"{n.upper()} {low:.2f} to {high:.2f}" for n, (low, high) in self._bands()]
        yield Notes(
            [f"80 % of new runs: measured over predicted is {', '.join(bands)}.", *self.notes]
        )

    def _figure(self) -> "Figure":
        """Predicted against measured times, before and after, with the band of new runs."""
        from infer_jax.plots.parity import Parity, plot_parity
        from infer_jax.plots.style import words

        server, times = self.server, self.server.times
        label = (
            "fitted" if server.times.left_out is None else "calibrated, each run left out in turn"
        )
        panels = {
            name.upper(): Parity(
                *(x[k] for x in (times.measured, times.before, times.unseen, server.band()))
            )
            for k, name in enumerate(OUTPUTS)
            if np.isfinite(times.measured[k]).any()
        }
        name = f"{self.asked.model.name} on {self.asked.system.name}"
        title = f"{name}: predicted against measured times, before and after calibration"
        fitted = f"{len(server.runs)} measured runs."
        caption = pictures.caption(self.asked, None, inputs.BEST, fitted)
        return plot_parity(panels, title=words(title), label=label, caption=caption)

    @property
    def summary(self) -> str:
        """How good the fit is, for the profile."""
        requests = self.server.requests
        if requests is not None:
            return f"replayed, {in_words(requests)}"
        kind = "held_out" if "held_out" in self.errors else "after"
        errors = [
            f"{name.upper()} {one.median:.1f} %"
            for name, one in self.errors[kind].items()
            if one is not None
        ]
        return f"median error {' and '.join(errors)} on {TITLES[kind]}"

    @cached_property
    def notes(self) -> list[str]:
        """Files written, coefficients that the runs do not determine, and assumptions."""
        out, drawn = self.written
        files = [f"Written to {out}. Use it: --hardware {out} --estimator serving."] if out else []
        if drawn:
            files.append(f"Picture: {', '.join(drawn)}.")
        return [*files, *how(self.why_not), *caveats(self.server), *self.asked.notes]

    @property
    def counted(self) -> str:
        """The numbers of fitted times and runs, in words."""
        runs, requests = len(self.server.runs), self.server.requests
        each = "" if requests is None else f"{int(requests.fitted.sum()):,} requests of "
        return f"{self._times:,} times of {each}{runs} run{'s' if runs > 1 else ''}"

    @property
    def _times(self) -> int:
        """Measured times that were fitted."""
        requests = self.server.requests
        if requests is None:
            return int(np.isfinite(self.server.times.measured).sum())
        return int(np.isfinite(requests.measured[:, requests.fitted]).sum())

    def _bands(self) -> list[tuple[str, np.ndarray]]:
        return list(zip(OUTPUTS, self.server.band(), strict=True))

    def _worst(self) -> list[int]:
        """The runs that the fit on the others (or on all, if there is one) predicts worst."""
        wrong = np.abs(np.log(self.server.times.unseen / self.server.times.measured))
        return list(map(int, np.argsort(-np.nan_to_num(wrong).max(axis=0))[:WORST]))

    def _run(self, i: int) -> dict[str, object]:
        """One run: its load, both times as measured and predicted, the errors in percent."""
        run, measured, predicted = (
            self.server.runs[i],
            self.server.times.measured,
            self.server.times.unseen,
        )
        return {
            "run": run.place,
            "concurrency": run.concurrency,
            "isl_tokens": run.isl,
            "osl_tokens": run.osl,
            **{
                f"{name}_{kind}_ms": 1e3 * times[k, i]
                for k, name in enumerate(OUTPUTS)
                for kind, times in (("measured", measured), ("predicted", predicted))
            },
            "error_percent": [100.0 * x for x in predicted[:, i] / measured[:, i] - 1.0],
        }

    def _predictions(self) -> Table:
        heads = [Column(f"{n.upper()} {s}", "%") for n in OUTPUTS for s in ("error", "worst")]
        rows = [
            [TITLES[kind], *(cell for name in OUTPUTS for cell in _cells(errors[name]))]
            for kind, errors in self.errors.items()
        ]
        return Table((Column("predicted by", left=True), *heads), rows)

    def _parameters(self) -> Table:
        columns = (
            Column("parameter", left=True),
            Column("unit", left=True),
            Column("before"),
            Column("fitted"),
            Column("80 % interval"),
            Column("by these runs", left=True),
        )
        return Table(columns, [self._parameter(p) for p in self.server.identified.parameters])

    def _parameter(self, one: Identified) -> list[str]:
        before, unit = _values(self.server.start)[one.name]
        unit, factor = unit.replace("1", ""), 1.0
        if unit == "s":
            unit, factor = ("us", 1e6) if before < 1e-3 else ("ms", 1e3)
        low, high = (digits(factor * x) for x in self.intervals[one.name])
        return [
            one.name,
            unit,
            digits(factor * before),
            digits(factor * self.server.fit.values[one.name]),
            f"{low} to {high}",
            "identified" if one.verdict == "identified" else "not identified",
        ]

    def _worst_predicted(self) -> Table:
        columns = (
            Column("worst predicted", left=True),
            Column("TPOT", "ms"),
            Column("off", "%"),
            Column("TTFT", "ms"),
            Column("off", "%"),
        )
        measured = 1e3 * self.server.times.measured
        wrong = 100.0 * (self.server.times.unseen / self.server.times.measured - 1.0)
        rows = [
            [
                _short(self.server.runs[i].place),
                *(
                    cell
                    for k in range(len(OUTPUTS))
                    for cell in (_time(measured[k, i]), _signed(wrong[k, i]))
                ),
            ]
            for i in self._worst()
        ]
        return Table(columns, rows)


def _values(estimator: Estimator) -> dict[str, tuple[float, str]]:
    """Every coefficient in SI by its dotted path, with its unit."""
    return {path: (float(x), meta["unit"]) for path, meta, x in leaves(estimator)}


def _errors(times: np.ndarray, measured: np.ndarray) -> dict[str, OutputErrors | None]:
    """Errors by output; None where nothing was measured."""
    wrong = 100.0 * np.abs(times / measured - 1.0)
    return {
        name: None
        if np.isnan(row).all()
        else OutputErrors(float(np.nanmedian(row)), np.nanmax(row))
        for name, row in zip(OUTPUTS, wrong, strict=True)
    }


def _proposal(one: Proposal) -> dict[str, object]:
    work, plan = one.load
    return {
        "concurrency": work.batch,
        "isl_tokens": work.isl,
        "osl_tokens": work.osl,
        "tp": plan.tp,
        "dp": plan.attention_dp,
        "bits": one.bits,
        "narrows_percent": 100.0 * one.narrows,
    }


def _next(proposals: Sequence[Proposal]) -> Table:
    columns = (
        Column("measure next", left=True),
        Column("isl", "tokens"),
        Column("osl", "tokens"),
        Column("tp"),
        Column("dp"),
        Column("narrows", "%"),
    )
    rows = []
    for one in proposals:
        work, plan = one.load
        sizes = (work.isl, work.osl, plan.tp, plan.attention_dp)
        load = f"concurrency {float(work.batch):g}"
        rows.append([load, *(f"{float(x):.4g}" for x in sizes), digits(100.0 * one.narrows, 2)])
    return Table(columns, rows)


def _cells(errors: OutputErrors | None) -> tuple[str, str]:
    return ("-", "-") if errors is None else (digits(errors.median), digits(errors.worst))


def _time(value: float) -> str:
    return "-" if np.isnan(value) else digits(value)


def _signed(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:+.1f}"


def _short(place: str) -> str:
    return Path(place).name if len(place) > 40 else place
