"""The answer of ``traffic``: a description of what arrives, and how alike a drawn trace is."""

import dataclasses
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from infer_jax.arrivals import LEVELS, Likeness, Sessions, Traffic, compare_traces, draw
from infer_jax.arrivals.description import describe, rate_errors, read_traffic
from infer_jax.arrivals.likeness import distance
from infer_jax.catalog.files import write_text
from infer_jax.catalog.traces import Trace, read_trace
from infer_jax.catalog.traffic_file import write_description
from infer_jax.plots.rendering import FigureResult
from infer_jax.plots.style import Figure
from infer_jax.plots.traffic import plot_traffic
from infer_jax.results import Column, Notes, Row, Rows, Section

HOURS = (
    Column("hour", "UTC", "hour"),
    Column("mean", "requests/s", "mean"),
    Column("least", "", "least"),
    Column("most", "", "most"),
)
LENGTHS = (
    Column("", "", "of"),
    *(Column(f"{100 * level:g} %", "", f"p{100 * level:g}") for level in (0.1, 0.5, 0.9, 0.99)),
    Column("", "", "unit"),
)
ALIKE = (
    Column("", "", "figure"),
    Column("trace", "", "real"),
    Column("drawn from it", "", "drawn"),
    Column("", "", "unit"),
)
SHOWN = (0.1, 0.5, 0.9, 0.99)  # probabilities of a table


@dataclass(frozen=True, repr=False)
class TrafficResult(FigureResult):
    """What arrives; and, of a trace, how alike one is that was drawn from its description."""

    rows_key = "periods"
    file: str
    traffic: Traffic
    trace: Trace | None
    drawn: Trace
    likeness: tuple[Likeness, ...] = ()

    @classmethod
    def of(cls, path: str | os.PathLike[str], period: float, seed: int) -> "TrafficResult":
        """A trace that is described, or a description, and a trace drawn from it."""
        if Path(path).suffix == ".toml":
            traffic = read_traffic(path)
            return cls(str(path), traffic, None, draw(traffic, seed))
        trace = read_trace(path, skip_damaged=True)
        traffic = describe(trace, period)
        drawn = draw(traffic, seed)
        alike = tuple(compare_traces(trace, drawn, period))
        alike += tuple(
            Likeness(f"{name}s, largest difference of shares", "%", 0.0, 100 * distance(*pair))
            for name, pair in (
                ("prompt", (trace.isl, drawn.isl)),
                ("output", (trace.osl, drawn.osl)),
            )
        )
        return cls(str(path), traffic, trace, drawn, alike)

    def replayed(
        self,
        model: str | os.PathLike[str],
        hardware: str | os.PathLike[str],
        tp: float | None,
        prompts: int,
    ) -> "TrafficResult":
        """With TTFT of a replay of the first requests of either trace."""
        import infer_jax as ij

        found = list[dict[str, float]]()
        with tempfile.TemporaryDirectory() as folder:
            for trace in (self.trace, self.drawn):
                if trace is None:
                    continue
                place = Path(folder) / "trace.csv"
                write_csv(place, trace)
                run = ij.replay(
                    os.fspath(model), os.fspath(hardware), tp=tp, trace=place,
                    prompts=min(prompts, len(trace)),
                )  # fmt: skip
                times = run.to_dict()["ttft_ms"]
                assert isinstance(times, dict)
                found.append(times)
        if len(found) < 2:
            return self
        rows = (
            Likeness(f"TTFT of a replay, {name}", "ms", found[0][name], found[1][name])
            for name in ("mean", "p50", "p99")
        )
        return dataclasses.replace(self, likeness=(*self.likeness, *rows))

    @property
    def hours(self) -> list[Row]:
        """Rates by hour of the day, where periods are no longer and there are some of a day."""
        traffic = self.traffic
        rates, period = np.atleast_1d(np.asarray(traffic.rates)), float(traffic.period)
        if period > 3600.0 or len(rates) * period < 2 * 3600.0:
            return []
        begins = float(traffic.start) + np.arange(len(rates)) * period
        hour = (begins // 3600.0 % 24).astype(int)
        return [
            {
                "hour": f"{h:02d}",
                "mean": _round(rates[hour == h].mean()),
                "least": _round(rates[hour == h].min()),
                "most": _round(rates[hour == h].max()),
            }
            for h in dict.fromkeys(hour.tolist())
        ]

    def sections(self) -> Iterator[Section]:
        """Rates, bursts, lengths, sessions; then the drawn trace beside the real one."""
        traffic, trace = self.traffic, self.trace
        rates = np.atleast_1d(np.asarray(traffic.rates))
        count = "" if trace is None else f"{len(trace):,} requests, "
        mean, peak = float(rates.mean()), float(rates.max())
        yield (
            f"{Path(self.file).name}: {count}{_span(traffic)}; {mean:.4g} requests/s in the mean, "
            f"{peak:.4g} in the busiest {float(traffic.period):g} s."
        )
        yield {"requests": None if trace is None else len(trace)}
        if trace is not None:
            yield {"damaged_rows": trace.damaged, "unanswered": trace.dropped}
        yield {
            "period_s": float(traffic.period),
            "mean_rate_per_s": mean,
            "peak_rate_per_s": peak,
            "variability": float(traffic.variability),
            "surge": float(traffic.surge),
            "sojourn_s": float(traffic.sojourn),
            "dependence": float(traffic.dependence),
            "reuse": float(traffic.reuse),
        }
        yield self._bursts()
        errors = rate_errors(traffic)
        start, period = float(traffic.start), float(traffic.period)
        periods = [
            {"begins_s": start + i * period, "rate_per_s": float(rate), "error_per_s": float(error)}
            for i, (rate, error) in enumerate(zip(rates, errors, strict=True))
        ]
        yield Rows("periods", periods)
        if self.hours:
            yield Rows("hours", self.hours, HOURS)
        yield Rows("lengths", self._lengths(), LENGTHS)
        if self.likeness:
            alike = [
                {"figure": x.name, "unit": x.unit, "real": _round(x.real), "drawn": _round(x.drawn)}
                for x in self.likeness
            ]
            yield Rows("likeness", alike, ALIKE)
        yield Notes(self._notes())

    def _bursts(self) -> str:
        """How requests cluster, in words."""
        traffic = self.traffic
        gaps, surge = float(traffic.variability), float(traffic.surge)
        text = f"Arrivals within a period: gaps of variability {gaps:.3g} (1 is Poisson)"
        if surge > 0.05:
            text += f", at a rate that goes up and down by {100 * surge:.0f} % for "
            text += f"{float(traffic.sojourn):.3g} s each"
        return text + "."

    def _lengths(self) -> list[Row]:
        """Quantiles of lengths, and of sessions."""
        kinds = [
            ("prompt", "tokens", self.traffic.prompts),
            ("output", "tokens", self.traffic.outputs),
        ]
        sessions = self.traffic.sessions
        if sessions is not None:
            kinds += [
                ("a turn adds", "tokens", sessions.news),
                ("to the next turn", "s", sessions.gaps),
            ]
        return [
            {
                "of": name,
                "unit": unit,
                **{f"p{100 * x:g}": _round(np.asarray(values)[LEVELS.index(x)]) for x in SHOWN},
            }
            for name, unit, values in kinds
        ]

    def _notes(self) -> list[str]:
        """What was left out, and what a drawn trace does not have."""
        notes, trace, sessions = list[str](), self.trace, self.traffic.sessions
        if trace is not None and trace.damaged:
            notes.append(f"{trace.damaged:,} damaged rows were left out.")
        if trace is not None and trace.dropped:
            notes.append(f"{trace.dropped:,} requests without an answer were left out.")
        if sessions is not None:
            notes.append(f"A session has {float(sessions.turns):.3g} turns in the mean.")
        elif float(self.traffic.reuse) > 0.0:
            notes.append(
                "The trace numbers no sessions: prompts of a drawn trace share one beginning, as "
                "long as makes the share of tokens seen before the same."
            )
        return notes

    def write(self, out: str | os.PathLike[str]) -> None:
        """Write a picture, or the description (.toml).

        Raises:
            InputError: a file that cannot be written, matplotlib is not installed.
        """
        if Path(out).suffix.lower() != ".toml":
            self.draw(out)
            return
        fields = {f.name: getattr(self.traffic, f.name) for f in dataclasses.fields(Traffic)}
        if isinstance(fields["sessions"], Sessions):
            fields["sessions"] = vars(fields["sessions"])
        write_description(out, fields, LEVELS)

    def write_trace(self, out: str | os.PathLike[str]) -> None:
        """Write the drawn trace as a CSV.

        Raises:
            InputError: a file that cannot be written.
        """
        write_csv(out, self.drawn)

    def _figure(self) -> Figure:
        """Rates over time; how lengths are spread, of the trace and of the drawn one."""
        traces = [self.drawn] if self.trace is None else [self.trace, self.drawn]
        traffic = self.traffic
        caption = f"{Path(self.file).name}: {_span(traffic)}. {self._bursts()}"
        return plot_traffic(
            np.atleast_1d(np.asarray(traffic.rates)),
            rate_errors(traffic),
            float(traffic.period),
            float(traffic.start),
            traces,
            title="What arrives",
            caption=caption,
        )


def write_csv(out: str | os.PathLike[str], trace: Trace) -> None:
    """A trace as plain columns."""
    columns = [trace.arrivals, trace.isl, trace.osl]
    names, form = "arrival_s,prompt_tokens,output_tokens", ["%.6f", "%d", "%d"]
    if len(trace.sessions):
        columns, names, form = [*columns, trace.sessions], f"{names},session", [*form, "%d"]
    text = ",".join(form)
    rows = (text % row for row in zip(*(x.tolist() for x in columns), strict=True))
    write_text(out, "\n".join([names, *rows]) + "\n")


def _span(traffic: Traffic) -> str:
    """How long, and from when, in words."""
    seconds = traffic.seconds
    names = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
    unit, name = next(x for x in names if seconds >= 2 * x[0] or x[0] == 1.0)
    text = f"{seconds / unit:.3g} {name}"
    start = float(traffic.start)
    if start:
        text += f" from {datetime.fromtimestamp(start, UTC):%Y-%m-%d %H:%M} UTC"
    return text


def _round(value: float) -> float:
    return float(f"{value:.4g}")
