"""The answer of ``estimate``: outputs, where the time goes, limits, and what was assumed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jax import Array

from infer_jax.estimators import Estimate, Phase, Trust
from infer_jax.estimators.serving import ServerEstimate
from infer_jax.plots.pictured import Pictured
from infer_jax.results import Column, Notes, Part, Table
from infer_jax.results.numbers import digits, or_unknown, size
from infer_jax.results.terms import term
from infer_jax.specs import Output, outputs
from infer_jax.specs.plan import LAYOUTS
from infer_jax.verbs import inputs, limits, pictures
from infer_jax.verbs.problems import refuse
from infer_jax.verbs.requests import Requested

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKED = ("time", "rate", "price")  # kinds that are marked where coefficients are borrowed
NEAR = 0.8  # of the rate that is carried
CROWDED = (
    "Above {:g} % of the rate that it can carry, waits feed on themselves, and these means and a "
    "replay of the same server differ more than at lower rates: see infer-jax replay."
)
PILING = "The queue grows without end: no time has a mean. Throughput and prices are of those."
LEAST = 1e-9  # seconds; smaller terms, such as an empty queue, are rounding errors


@dataclass(frozen=True)
class EstimateLoad:
    """The requests of one of ``copies`` instances, how many run in it, and the drafts of a pass.

    ``rate``: requests a second in all; None where ``batch`` is kept in flight.
    """

    requests: Requested
    rate: float | None
    copies: float
    batch: float
    drafts: float | None
    draft_notes: Sequence[str]


@dataclass(frozen=True, repr=False)
class EstimateResult(Pictured):
    """The answer for one configuration: ``estimate`` has every output in SI units, and both passes.

    ``intervals``: the range of 80 % of measured runs in ms, by output; ``interval_source``: where
    they come from; ``limits``: limits in seconds, by output.
    """

    asked: inputs.Given
    estimator: str
    trust: Trust
    load: EstimateLoad
    estimate: Estimate
    intervals: Mapping[str, Sequence[float]]
    interval_source: str
    limits: Mapping[str, float]

    @property
    def overloaded(self) -> bool:
        """Whether more requests arrive than are completed, so that no time has a mean."""
        both = {**self.estimate.prefill.limits, **self.estimate.decode.limits}
        arrivals = [limit for name, limit in both.items() if name.endswith("arrivals")]
        return any(bool(limit.need > limit.capacity) for limit in arrivals)

    def fields(self) -> Mapping[str, object]:
        """Outputs, terms and limits in the units that their names end in."""
        estimate, load = self.estimate, self.load
        work = load.requests.work
        return {
            **self.asked.names,
            "estimator": self.estimator,
            "trust": self.trust.fields(),
            "isl_tokens": float(work.isl),
            "osl_tokens": float(work.osl),
            "prefix_tokens": float(work.prefix),
            "lengths": load.requests.lengths,
            "request_rate_per_s": load.rate,
            "drafts": load.drafts,
            "batch": None if self.overloaded else load.batch,
            "concurrency": None if self.overloaded else load.batch * load.copies,
            "gpus": estimate.chips,
            "copies": load.copies,
            "total_gpus": estimate.chips * load.copies,
            "feasible": bool(estimate.feasible),
            **self._outputs(),
            **self._of_server(),
            "limits": {
                name: {
                    "limit_ms": 1e3 * limit,
                    "value_ms": None if self.overloaded else 1e3 * value,
                    "met": not self.overloaded and value <= limit,
                }
                for name, limit in self.limits.items()
                for value in [float(getattr(estimate, name))]
            },
            "prefill": _phase(estimate.prefill, timed=not self.overloaded),
            "decode": _phase(estimate.decode, timed=not self.overloaded),
            "notes": self.notes(),
        }

    def _outputs(self) -> dict[str, object]:
        """Every output by its name in JSON, and the sums over all chips."""
        answers: dict[str, object] = {}
        for output in outputs(self.estimate):
            answers[output.json_key] = self._value(output)
            if output.whole:
                answers[output.whole_key] = self._whole(output)
        return answers

    def _value(self, output: Output) -> Array | None:
        timed = output.kind == "time" or output.name in ("speed", "in_flight")
        if self.overloaded and timed:
            return None
        return output.value(self.estimate, self.asked.hardware.power)

    def _whole(self, output: Output) -> Array | None:
        """An output per chip, times the chips of all copies."""
        value = self._value(output)
        return None if value is None else value * self.estimate.chips * self.load.copies

    def _of_server(self) -> dict[str, object]:
        """Fields of a loaded server's estimate beside its outputs."""
        estimate = self.estimate
        if not isinstance(estimate, ServerEstimate):
            return {}
        known = {} if self.overloaded else estimate.percentiles
        return {
            **({} if self.overloaded else self.intervals),
            "ttft_percentiles_ms": {name: 1e3 * x for name, x in known.items()},
            "memory": {f"{name}_bytes": x for name, x in estimate.memory.items()},
        }

    def notes(self) -> list[str]:
        """What times and rates include, and assumptions."""
        load = self.load
        work = load.requests.work
        own = [*load.requests.notes, *load.draft_notes]
        said = self._server_notes(own) if isinstance(self.estimate, ServerEstimate) else None
        if said is None:
            context = float(work.isl) + (float(work.osl) - 1) / 2
            fresh = float(work.isl) - float(work.prefix)
            said = [
                f"Prefill of {fresh:.12g} new tokens of one "
                f"request on an idle instance; decode of one token for a batch of {load.batch:.6g} "
                f"at {context:.12g} tokens of context, isl + (osl - 1) / 2.",
                "Memory and compute overlap, so that shares may add up to more than 100 %.",
                *own,
            ]
        return [*limits.long_times(self.limits), *said, *self.asked.notes]

    def _server_notes(self, own: Sequence[str]) -> list[str]:
        """What both times of a loaded server include, and their measured ranges."""
        estimate, load = self.estimate, self.load
        assert isinstance(estimate, ServerEstimate)
        many = f"keeps {load.batch:.6g} requests in flight"
        arriving = estimate.decode.limits.get("arrivals")
        if arriving is not None and load.rate is not None:
            if self.overloaded:
                return list(own)
            many = f"is sent {load.rate:.6g} requests/s, so that it {many}"
            if float(arriving.need / arriving.capacity) > NEAR:
                own = [CROWDED.format(100.0 * NEAR), *own]
        levels = [f"{name} {_of(1e3 * x)} ms" for name, x in estimate.percentiles.items()]
        banded = (x for x in outputs(estimate) if f"{x.name}_interval80_ms" in self.intervals)
        return [
            f"A server that {many}; both times are means and hold the prefills of other requests "
            "and all waits.",
            *([f"Percentiles of the time to first token: {', '.join(levels)}."] if levels else []),
            "Time per output token is (latency - time to first token) / (osl - 1); with the first "
            f"token, latency / osl, it is {_of(1e3 * estimate.tpot_with_first)} ms.",
            *(
                f"80 % of measured runs: {output.short} {_of(low)} to {_of(high)} ms, by "
                f"{self.interval_source}."
                for output in banded
                for low, high in [self.intervals[f"{output.name}_interval80_ms"]]
            ),
            *own,
        ]

    def parts(self) -> Iterator[Part]:
        """The configuration, its outputs, where the time goes, limits, notes."""
        estimate, copies = self.estimate, self.load.copies
        many = f" x {copies:g} copies" if copies > 1 else ""
        gpus = f"{float(estimate.chips):g} {self.asked.system.name}"
        yield f"{self.asked.model.name} on {gpus}{many}"
        yield self.trust.says
        yield ""
        yield from self._broken()
        heads = [Column(x, left=x != "value") for x in ("answer", "value", "unit", "limit")]
        yield Table(heads, list(self._answers()))
        if not self.overloaded:
            yield ""
            passes = [Column(t, u) for t in ("prefill", "decode") for u in ("ms", "%")]
            yield Table((Column("spent on", left=True), *passes), self._spent())
        yield ""
        heads = ("limit", "need", "capacity", "slack", "met")
        yield Table([Column(x, left=x in ("limit", "met")) for x in heads], self._limits())
        layouts = [f"Layout of {title}: {_layout(phase)}." for title, phase in self._phases()]
        yield Notes([*self.notes(), *layouts])

    def _broken(self) -> Iterator[str]:
        """A sentence for each limit that is exceeded; of a server, whose phases share them, one."""
        phases = self._phases()
        for title, phase in phases[1:] if isinstance(self.estimate, ServerEstimate) else phases:
            for name, limit in phase.limits.items():
                if limit.need > limit.capacity and name.endswith("arrivals"):
                    yield f"Not feasible: {limits.broken(name, limit)}. {PILING}"
                elif limit.need > limit.capacity:
                    yield f"Not feasible: {title}: {limits.broken(name, limit)}."

    def _phases(self) -> tuple[tuple[str, Phase], tuple[str, Phase]]:
        return ("prefill", self.estimate.prefill), ("decode", self.estimate.decode)

    def _answers(self) -> Iterator[list[str]]:
        """Rows of times, rates, money and energy."""
        for output in outputs(self.estimate, view="estimate"):
            mark = self.trust.mark if output.kind in MARKED and not output.drawn else ""
            unit, limit = output.printed_unit, self._met(output)
            value = self._value(output)
            shown = "-" if value is None and self.overloaded else or_unknown(value, 4)
            yield [output.title, mark + shown, unit, limit]
            if output.whole:
                yield [output.whole, mark + or_unknown(self._whole(output), 4), unit, ""]

    def _met(self, output: Output) -> str:
        limit = self.limits.get(output.name)
        if limit is None:
            return ""
        met = not self.overloaded and getattr(self.estimate, output.name) <= limit
        return f"{_of(1e3 * limit)} ms: {'met' if met else 'broken'}"

    def _spent(self) -> list[list[str]]:
        """Rows of terms, the largest share first; of a server without those that are nothing."""
        both = self.estimate.prefill, self.estimate.decode

        def largest(name: str) -> float:
            return max(float(p.terms[name] / p.time) for p in both if name in p.terms)

        names = sorted({**both[0].terms, **both[1].terms}, key=lambda name: -largest(name))
        if isinstance(self.estimate, ServerEstimate):
            names = [n for n in names if any(p.terms.get(n, 0.0) >= LEAST for p in both)]
        rows = [[term(name), *(cell for p in both for cell in _cells(p, name))] for name in names]
        times = (cell for x in (self.estimate.ttft, self.estimate.tpot) for cell in (_ms(x), "100"))
        shares = (cell for p in both for cell in ("", _of(100 * p.mfu)))
        mfu = "MFU, waits included" if isinstance(self.estimate, ServerEstimate) else "MFU"
        return [*rows, ["time", *times], [mfu, *shares]]

    def _limits(self) -> list[list[str]]:
        """Rows of both phases; of a server, whose phases share limits, once, with what fills it."""
        estimate = self.estimate
        if not isinstance(estimate, ServerEstimate):
            return [row for title, phase in self._phases() for row in _limits_of(title, phase)]
        asked = estimate.decode.limits.get("requests")
        requests = _of(estimate.running if asked is None else asked.need)
        titles = {
            "weights": "of it weights",
            "cache": f"of it KV cache of {requests} requests",
            "activations": "of it activations at their peak",
            "reserve": "of it the runtime's reserve",
        }
        rows = []
        for row in _limits_of("", estimate.decode):
            rows.append(row)
            if row[0] == "memory":
                parts = estimate.memory.items()
                rows += [[f"  {titles[name]}", size(x), "", "", ""] for name, x in parts]
        return rows

    def _figure(self) -> "Figure":
        """Both times as timelines of their terms, in ms.

        Raises:
            InputError: more requests arrive than are completed: there are no times.
        """
        if self.overloaded:
            capacity = float(self.estimate.decode.limits["arrivals"].capacity) * self.load.copies
            most = f"a rate below {digits(capacity)} for a picture of times"
            raise refuse("--request-rate", f"{self.load.rate:.6g}", most)
        from infer_jax.plots.style import words
        from infer_jax.plots.timeline import StackedTime, plot_timeline

        estimate, load = self.estimate, self.load
        passes: list[StackedTime] = []
        times = zip(outputs(estimate), (estimate.prefill, estimate.decode), strict=False)
        for time, phase in times:
            asked = self.limits.get(time.name)
            limits = {} if asked is None else {f"limit, {_of(1e3 * asked)} ms": 1e3 * asked}
            terms = {term(name): 1e3 * float(x) for name, x in phase.terms.items()}
            passes.append(StackedTime(time.title, 1e3 * float(phase.time), terms, limits))
        gpus = f"{float(estimate.chips):g} {self.asked.system.title}"
        title = words(f"{self.asked.model.name} on {gpus}: where the time goes")
        said = [f"{load.batch:.6g} requests in flight in an instance."]
        if not any(one.overlaps for one in passes):
            said.append("A part begins where the one before it ends, the longest first.")
        if any(one.overlaps for one in passes):
            said.append("Parts of a pass overlap: all begin at 0.")
        caption = pictures.caption(self.asked, load.requests.work, self.estimator, *said)
        return plot_timeline(passes, title=title, caption=caption)


def _phase(phase: Phase, *, timed: bool = True) -> dict[str, object]:
    terms = phase.terms if timed else {}
    return {
        "time_ms": 1e3 * phase.time if timed else None,
        "terms": {f"{name}_ms": 1e3 * term for name, term in terms.items()},
        "shares": {name: term / phase.time for name, term in terms.items()},
        "mfu": phase.mfu,
        "feasible": bool(phase.feasible),
        "limits": {name: limits.limit_of(name, limit) for name, limit in phase.limits.items()},
        "layout": dict(phase.layout),
    }


def _layout(phase: Phase) -> str:
    named = {name: digits(x) for name, x in phase.layout.items()}
    if "layout" in named and named["layout"] in "01":
        named["layout"] = LAYOUTS[int(named["layout"])]
    return ", ".join(f"{name} {x}" for name, x in named.items())


def _limits_of(title: str, phase: Phase) -> list[list[str]]:
    rows = []
    for name, limit in phase.limits.items():
        if limit.need == limit.capacity == 0:  # an absent tier that nothing needs
            continue
        said = size if name.endswith("memory") else _of
        met = "yes" if limit.need <= limit.capacity else "no"
        values = (limit.need, limit.capacity, limit.slack)
        rows.append([f"{name}, {title}" if title else name, *(said(x) for x in values), met])
    return rows


def _cells(phase: Phase, name: str) -> tuple[str, str]:
    """Milliseconds and per cent of a pass that a term takes."""
    if name not in phase.terms:
        return "", ""
    term = phase.terms[name]
    if term < LEAST:
        return "0", "0"
    return _ms(term), digits(100 * term / phase.time)


def _ms(seconds: Array) -> str:
    return _of(1e3 * seconds)


def _of(value: Array | float) -> str:
    return digits(value, 4)
