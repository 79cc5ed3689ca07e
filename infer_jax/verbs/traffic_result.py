"""The answer of ``traffic``: a description of what arrives, and how alike a drawn trace is."""

import dataclasses
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import numpy as np

from infer_jax.arrivals import LEVELS, Likeness, Traffic, compare_traces, draw
from infer_jax.arrivals.description import (
    HOUR,
    LEAST,
    Rates,
    rate_errors,
    rates_of,
    read_source,
)
from infer_jax.catalog.files import write_text
from infer_jax.catalog.traces import Trace
from infer_jax.catalog.traffic_file import Clients, write_description
from infer_jax.plots.rendering import FigureResult
from infer_jax.plots.style import Figure
from infer_jax.plots.traffic import plot_traffic
from infer_jax.results import Column, Notes, Row, Rows, Section
from infer_jax.results.numbers import duration, percent, quantity, round_row
from infer_jax.results.problems import refuse
from infer_jax.verbs.options import Place

SHOWN = {f"{100 * x:g}": LEVELS.index(x) for x in (0.1, 0.5, 0.9, 0.99)}  # quantiles of a table
HOURS = (Column("mean", "requests/s", "mean"), *(Column(x, "", x) for x in ("least", "most")))
UNIT = Column("", "", "unit")
LENGTHS = (Column("", "", "of"), *(Column(f"{x} %", "", f"p{x}") for x in SHOWN), UNIT)
ALIKE = (
    Column("", "", "figure"),
    Column("trace", "", "real"),
    Column("drawn from it", "", "drawn"),
    UNIT,
)


@dataclass(frozen=True, repr=False)
class TrafficResult(FigureResult):
    """What arrives; and, of a trace, how alike one is that was drawn from its description."""

    rows_key = "periods"
    file: str
    traffic: Traffic
    trace: Trace | None
    drawn: Trace
    likeness: Sequence[Likeness] = ()
    known: Rates | None = None  # of the trace, and the seconds of each period that it covers
    clients: Clients | None = None

    @classmethod
    def of(cls, path: Place, period: float, seed: int) -> Self:
        """A trace that is described, or a description, and a trace drawn from it."""
        traffic, source = read_source(path, period)
        name, drawn = Path(path).name, draw(traffic, seed)
        if isinstance(source, Trace):
            alike = compare_traces(source, drawn, period)
            return cls(name, traffic, source, drawn, alike, rates_of(source, period))
        return cls(name, traffic, None, drawn, clients=source)

    def replayed(self, model: Place, hardware: Place, tp: float | None, prompts: int) -> Self:
        """With TTFT of a replay of the first requests of either trace.

        Raises:
            InputError: a description, which has no requests, or what ``replay`` refuses.
        """
        import infer_jax as ij

        if self.trace is None:
            raise refuse("model", str(model), "with a trace: a description has no requests")
        times = list[dict[str, float]]()
        for trace in (self.trace, self.drawn):
            count = min(prompts, len(trace))
            with tempfile.TemporaryDirectory() as folder:
                place = Path(folder) / "trace.csv"
                write_csv(place, trace)
                run = ij.replay(model, hardware, tp=tp, trace=place, prompts=count)
            times.append(run.to_dict()["ttft_ms"])  # pyright: ignore
        rows = [
            Likeness(f"TTFT of a replay, {x}", "ms", *(time[x] for time in times))
            for x in ("mean", "p50", "p99")
        ]
        return dataclasses.replace(self, likeness=(*self.likeness, *rows))

    def sections(self) -> Iterator[Section]:
        """Rates, bursts, lengths, sessions; then the drawn trace beside the real one."""
        traffic, trace, clients, rates = self.traffic, self.trace, self.clients, self.traffic.rates
        mean, period, start = float(rates.mean()), float(traffic.period), float(traffic.start)
        count, source = "", dict[str, object](requests=None)
        if trace is not None:
            count, mean = f"{len(trace):,} requests, ", len(trace) / float(trace.arrivals[-1])
            source = {"requests": len(trace), "damaged_rows": trace.damaged}
            source["unanswered"] = trace.dropped
        elif clients is not None:
            count = f"{clients.count:,} clients, "
            source |= {"clients": clients.count, "damaged_rows": clients.damaged}
        yield (
            f"{self.file}: {count}{self._span()}; {mean:.4g} requests/s in the mean, "
            f"{rates.max():.4g} in the busiest {period:g} s."
        )
        yield source
        yield {"period_s": period, "mean_rate_per_s": mean, "peak_rate_per_s": rates.max()}
        names = ("variability", "surge", "sojourn", "dependence", "reuse")
        yield {x + "_s" * (x == "sojourn"): getattr(traffic, x) for x in names}
        yield self._bursts()
        yield Rows("periods", [
            {"begins_s": start + i * period, "rate_per_s": float(rate), "error_per_s": float(error)}
            for i, (rate, error) in enumerate(zip(rates, self._errors, strict=True))
        ])  # fmt: skip
        if period <= HOUR and traffic.seconds >= 2.0 * HOUR:
            of = "UTC" if start else "of 24"  # since the first request of a trace without dates
            yield Rows("hours", [*self._hours()], (Column("hour", of, "hour"), *HOURS))
        yield Rows("lengths", [*self._lengths()], LENGTHS)
        if self.likeness:
            yield Rows("likeness", [round_row(x._asdict()) for x in self.likeness], ALIKE)
        yield Notes([*self._notes()])

    @property
    def _errors(self) -> np.ndarray:
        return rate_errors(self.traffic, self.known and self.known.covered)

    def _span(self) -> str:
        """How long a trace is, or the periods of a description are; since when."""
        trace, start, seconds = self.trace, float(self.traffic.start), self.traffic.seconds
        if trace is not None:
            start, seconds = trace.start or 0.0, float(trace.arrivals[-1])
        since = f" from {datetime.fromtimestamp(start, UTC):%Y-%m-%d %H:%M} UTC" if start else ""
        return duration(seconds) + since

    def _bursts(self) -> str:
        gaps, surge = float(self.traffic.variability), float(self.traffic.surge)
        text = f"Arrivals within a period: gaps of variability {gaps:.3g} (1 is Poisson)"
        if surge > 0.05:
            text += f", at a rate that goes up and down by {100 * surge:.0f} % for "
            text += f"{float(self.traffic.sojourn):.3g} s each"
        return text + "."

    def _hours(self) -> Iterator[Row]:
        """Rates by hour of the day."""
        rates, hours = self.traffic.rates, self.traffic.hours
        for hour in dict.fromkeys(hours.tolist()):
            x = rates[hours == hour]
            row = {"hour": f"{hour:02d}", "mean": x.mean(), "least": x.min(), "most": x.max()}
            yield round_row(row)

    def _lengths(self) -> Iterator[Row]:
        traffic, sessions = self.traffic, self.traffic.sessions
        kinds = [("prompt", "tokens", traffic.prompts), ("output", "tokens", traffic.outputs)]
        if sessions is not None:
            kinds += [("a turn adds", "tokens", sessions.news),
                      ("to the next turn", "s", sessions.gaps)]  # fmt: skip
        for name, unit, values in kinds:
            levels = {f"p{x}": values[i] for x, i in SHOWN.items()}
            yield round_row({"of": name, "unit": unit, **levels})

    def _notes(self) -> Iterator[str]:
        """Which periods a trace covers in part, what is in none, and what was left out."""
        trace, source, period = self.trace, self.trace or self.clients, float(self.traffic.period)
        if trace is not None and self.known is not None:
            _, covered, offset = self.known
            names = ("first", "last") if len(covered) > 1 else ("only",)
            part = [
                f"{percent(x / period)} % of the {name}"
                for name, x in zip(names, covered[[0, -1]], strict=False)
                if x < (1.0 - LEAST) * period
            ]
            if part:
                yield (
                    f"The trace covers {' and '.join(part)} period; a drawn one goes on at the "
                    "rate of this part."
                )
            times = trace.arrivals + offset
            left = int(np.sum((times < 0.0) | (times >= len(covered) * period)))
            if left:
                yield (
                    f"{quantity(left, 'request')} of less than {percent(LEAST)} % of a period at "
                    "either end count for no rate."
                )
        if source is not None and source.damaged:
            windows = " and windows" if self.clients else ""
            yield f"{source.damaged:,} damaged rows{windows} were left out."
        if trace is not None and trace.dropped:
            yield f"{trace.dropped:,} requests without an answer were left out."
        if self.traffic.sessions is not None:
            yield f"A session has {float(self.traffic.sessions.turns):.3g} turns in the mean."
        elif float(self.traffic.reuse) > 0.0:
            yield (
                "The trace numbers no sessions: prompts of a drawn trace share one beginning, as "
                "long as makes the share of tokens seen before the same."
            )

    def write(self, out: Place) -> None:
        """Write a picture, or the description (.toml).

        Raises:
            InputError: a file that cannot be written, matplotlib is not installed.
        """
        if Path(out).suffix.lower() == ".toml":
            write_description(out, vars(self.traffic), LEVELS)
        else:
            self.draw(out)

    def _figure(self) -> Figure:
        traces = [x for x in (self.trace, self.drawn) if x is not None]
        caption = f"{self.file}: {self._span()}. {self._bursts()}"
        return plot_traffic(
            self.traffic, self._errors, traces, title="What arrives", caption=caption
        )


def write_csv(out: Place, trace: Trace) -> None:
    """Write a trace as plain columns.

    Raises:
        InputError: a file that cannot be written.
    """
    columns = {"arrival_s": trace.arrivals, "prompt_tokens": trace.isl, "output_tokens": trace.osl}
    columns |= {"session": trace.sessions} if len(trace.sessions) else {}
    form = ",".join(["%.6f", *["%d"] * (len(columns) - 1)])
    rows = (form % row for row in zip(*(x.tolist() for x in columns.values()), strict=True))
    write_text(out, "\n".join([",".join(columns), *rows]) + "\n")
