"""The answer of ``estimate``: outputs, where the time goes, limits, and what was assumed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from jax import Array

from infer_jax.estimators import Estimate, Limit, Phase
from infer_jax.estimators.known_errors import gap_share
from infer_jax.estimators.serving import ServerEstimate
from infer_jax.planning import bands
from infer_jax.plots.bars import plot_bars, time_panels
from infer_jax.plots.style import Figure
from infer_jax.results import Answers, Column, Fact, Notes, Rows, Section, number, option
from infer_jax.results.numbers import digits, quantity, size
from infer_jax.results.parts import ANSWERS
from infer_jax.results.problems import refuse
from infer_jax.specs import Experts, outputs
from infer_jax.specs.plan import LAYOUTS
from infer_jax.specs.words import term
from infer_jax.verbs import limits, pictures
from infer_jax.verbs.drafts import DraftedEstimate
from infer_jax.verbs.requests import RequestOptions

MARKED = ("time", "rate", "price")  # kinds that are marked where coefficients are borrowed
NEAR = 0.8  # of the rate that is carried
CROWDED = "Above {:g} % of the rate that it can carry, means are rough: see infer-jax replay."
PILING = "The queue grows without end: no time has a mean. Throughput and prices are of those."
BENCHMARK = "Of {:.6g} requests the first {:.6g} come all at once: mean TTFT holds their wait."
RUNNING_ON = "Mean and median of TTFT differ by the start of a benchmark alone: {} counts it."
RANKS = "expert ranks"  # a limit
OF_PROFILE = "the calibration of this profile"
OF_OTHERS = "rows left out of the fit with all others of their publisher"
ROUNDING = 1e-9  # seconds; smaller terms, such as an empty queue, are rounding errors
OUTPUTS = (*ANSWERS, Column("limit", "", "note"))


TIME = Column("", "ms", format=lambda x: "0" if x < ROUNDING else number(1e3 * x))
SPENT = (
    Column("spent on", "", "term"),
    TIME._replace(title="prefill", value="prefill"),
    Column("prefill", "%", "prefill %", left=False),
    TIME._replace(title="decode", value="decode"),
    Column("decode", "%", "decode %", left=False),
)
LIMITS = (Column("limit", "", "limit"),
          *(Column(k, "", k, left=False) for k in ("need", "capacity", "slack")),
          Column("met", "", "met", left=True))  # fmt: skip


@dataclass(frozen=True, repr=False)
class EstimateResult(pictures.EstimatorResult):
    """The answer for one configuration: ``estimate`` has every output in SI units, and both passes.

    ``limits``: limits in seconds, by output; ``requests``: those of one of ``copies`` instances;
    ``rate``: requests a second in all, None where so many are kept in flight in an instance;
    ``prompts``: requests of a benchmark, None of a server that runs on; ``layout``: in words.
    """

    drafted: DraftedEstimate
    limits: Mapping[str, float]
    requests: RequestOptions
    rate: float | None
    copies: float
    prompts: float | None = None
    layout: str = ""

    @cached_property
    def estimate(self) -> Estimate:
        """Every output and both passes; of a dense model without the limits of experts."""
        answer, blocks = self.drafted.estimate, self.setup.model.architecture.blocks
        if any(isinstance(block.feedforward, Experts) for block in blocks):
            return answer
        for stage, phase in answer.passes.items():
            own = {name: x for name, x in phase.limits.items() if name != RANKS}
            answer = answer.replace(**{stage: phase.replace(limits=own)})
        return answer

    @cached_property
    def batch(self) -> float:
        """Requests that run in an instance, by Little's law where they arrive at a rate."""
        if isinstance(self.estimate, ServerEstimate) and self.rate is not None:
            return float(self.rate / self.copies * self.estimate.latency)
        return float(self.requests.work.batch)

    @cached_property
    def intervals(self) -> Mapping[str, Sequence[float]]:
        """The range of 80 % of measured runs in ms, by output."""
        if not (isinstance(self.estimate, ServerEstimate) and self.trust.known):
            return {}
        gaps, work = gap_share(self.estimate.decode.terms), self.requests.work
        within = self.trust.within(self.batch, (float(work.isl), float(work.osl)), gaps=gaps)
        return bands.intervals_of(self.estimate, within)

    def sections(self) -> Iterator[Section]:
        """The configuration, its outputs, where the time goes, limits, notes."""
        estimate, copies = self.estimate, self.copies
        work, timed = self.requests.work, not self.estimate.overloaded
        times = f" x {copies:g} copies" if copies > 1 else ""
        gpus = f"{float(estimate.chips):g} {self.setup.system.name}"
        yield f"{self.setup.model.name} on {gpus}{times}"
        yield self.trust.says
        yield ""
        yield from self._broken()
        yield {
            **self.names,
            "isl_tokens": float(work.isl),
            "osl_tokens": float(work.osl),
            "prefix_tokens": float(work.prefix),
            "lengths": self.requests.lengths,
            "request_rate_per_s": self.rate,
            "prompts": self.prompts,
            "drafts": self.drafted.drafts,
            "batch": self.batch if timed else None,
            "concurrency": self.batch * copies if timed else None,
            "gpus": estimate.chips,
            "copies": copies,
            "total_gpus": estimate.chips * copies,
            "feasible": bool(estimate.feasible),
        }
        yield Answers(self._answers(), OUTPUTS)
        if isinstance(estimate, ServerEstimate):
            percentiles = estimate.percentiles if timed else {}
            yield {
                **(self.intervals if timed else {}),
                "ttft_percentiles_ms": {name: 1e3 * x for name, x in percentiles.items()},
                "memory": {f"{name}_bytes": x for name, x in estimate.memory.items()},
            }
        yield {
            "limits": {
                name: {
                    "limit_ms": 1e3 * limit,
                    "value_ms": 1e3 * float(getattr(estimate, name)) if timed else None,
                    "met": self._meets(name),
                }
                for name, limit in self.limits.items()
            },
            **{stage: phase.fields(timed=timed) for stage, phase in estimate.passes.items()},
        }
        if timed:
            yield Rows("", self._terms(), SPENT)
        yield Rows("", self._limits(), LIMITS)
        layouts = [f"Layout of {k}: {_layout(phase)}." for k, phase in estimate.passes.items()]
        yield Notes([*self.notes(), *layouts])

    def _answers(self) -> list[Fact]:
        """Every output and, of those per chip, the sum over all chips; a table prints some."""
        printed = outputs(type(self.estimate), view="estimate")
        absent = "-" if self.estimate.overloaded else None
        chips = self.estimate.chips * self.copies
        facts: list[Fact] = []
        for x in outputs(type(self.estimate)):
            mark = self.trust.mark if x.kind in MARKED and not x.drawn else ""
            known = self.estimate.knows(x)
            value = x.value(self.estimate, self.setup.hardware.power) if known else None

            def text(value: Array | None, mark: str = mark) -> str:
                return mark + number(absent if value is None else value)

            title, sums = (x.title, x.whole) if x in printed else ("", "")
            facts.append(Fact(x.json_key, value, title, x.printed_unit, text, self._note(x.name)))
            if x.whole:
                whole = None if value is None else value * chips
                facts.append(Fact(x.whole_key, whole, sums, x.printed_unit, text))
        return facts

    def _meets(self, name: str) -> bool:
        """Whether an output is within its limit."""
        return not self.estimate.overloaded and bool(
            getattr(self.estimate, name) <= self.limits[name]
        )

    def _note(self, name: str) -> str:
        """The limit of an output, if it has one, and whether it is met."""
        if name not in self.limits:
            return ""
        return f"{number(1e3 * self.limits[name])} ms: {'met' if self._meets(name) else 'broken'}"

    def notes(self) -> list[str]:
        """What times and rates include, and assumptions."""
        work, own = self.requests.work, [*self.requests.notes, *self.drafted.notes]
        if isinstance(self.estimate, ServerEstimate):
            own = self._server_notes(own)
        else:
            context = float(work.isl) + (float(work.osl) - 1) / 2
            fresh = float(work.isl) - float(work.prefix)
            own = [
                f"Prefill of {fresh:.12g} new tokens of one request; decode of a batch of "
                f"{self.batch:.6g} at {context:.12g} tokens of context, isl + (osl - 1) / 2.",
                "Memory and compute overlap, so that shares may add up to more than 100 %.",
                *own,
            ]
        return [*limits.unlikely_times(self.limits), *own, *self.setup.notes]

    def _server_notes(self, own: Sequence[str]) -> list[str]:
        """What both times of a loaded server include, and their measured ranges."""
        estimate = self.estimate
        assert isinstance(estimate, ServerEstimate)
        sent = f"keeps {quantity(self.batch, 'request')} in flight"
        arriving = estimate.decode.limits.get("arrivals")
        if arriving is not None and self.rate is not None:
            if self.estimate.overloaded:
                return list(own)
            sent = f"is sent {self.rate:.6g} requests/s, so that it {sent}"
            if float(arriving.need / arriving.capacity) > NEAR:
                own = [CROWDED.format(100.0 * NEAR), *own]
        levels = [f"{name} {number(1e3 * x)} ms" for name, x in estimate.percentiles.items()]
        banded = (x for x in outputs(type(estimate)) if f"{x.name}_interval80_ms" in self.intervals)
        waits = RUNNING_ON.format(option("prompts")) if arriving is None else ""
        if self.prompts is not None:
            waits = BENCHMARK.format(self.prompts, self.batch * self.copies)
        return [
            f"A server that {sent}; times are means and hold all waits. {waits}".rstrip(),
            *([f"Percentiles of the time to first token: {', '.join(levels)}."] if levels else []),
            f"Latency / osl, with the first token, is {number(1e3 * estimate.tpot_with_first)} ms.",
            *(
                f"80 % of measured runs: {output.short} {number(low)} to {number(high)} ms, by "
                f"{OF_PROFILE if self.trust.covers() else OF_OTHERS}."
                for output in banded
                for low, high in [self.intervals[f"{output.name}_interval80_ms"]]
            ),
            *own,
        ]

    def _broken(self) -> Iterator[str]:
        """A sentence for each limit that is exceeded; of a server, whose phases share them, one."""
        for title, name, limit in self._phase_limits():
            if limit.need > limit.capacity and name.endswith("arrivals"):
                yield f"Not feasible: {limits.broken(name, limit)}. {PILING}"
            elif limit.need > limit.capacity:
                yield f"Not feasible: {title}: {limits.broken(name, limit)}."

    def _phase_limits(self) -> Iterator[tuple[str, str, Limit]]:
        """Each limit with its phase and its name; of a server, whose phases share them, once."""
        for title, phase in self.estimate.passes.items():
            if title == "decode" or not isinstance(self.estimate, ServerEstimate):
                yield from ((title, name, limit) for name, limit in phase.limits.items())

    def _terms(self) -> list[dict[str, object]]:
        """Terms, the largest share first; of a server without those that are nothing."""
        phases, server = self.estimate.passes, isinstance(self.estimate, ServerEstimate)
        rows, largest = dict[str, dict[str, object]](), dict[str, float]()  # by term
        for stage, phase in phases.items():
            for name, spent in phase.terms.items():
                share = 100.0 * float(spent / phase.time) if spent >= ROUNDING else 0.0
                row = rows.setdefault(name, {"term": term(name)})
                row |= {stage: spent, f"{stage} %": share}
                largest[name] = max(largest.get(name, 0.0), share)
        names = sorted(largest, key=lambda name: -largest[name])
        times = {"prefill": self.estimate.ttft, "decode": self.estimate.tpot}
        mfu = "MFU, waits included" if server else "MFU"
        return [
            *(rows[name] for name in names if largest[name] or not server),
            {"term": "time", **times, "prefill %": "100", "decode %": "100"},
            {"term": mfu, **{f"{k} %": number(100 * p.mfu) for k, p in phases.items()}},
        ]

    def _limits(self) -> list[dict[str, object]]:
        """Limits of both phases; of a server, whose phases share them, with what fills it."""
        estimate = self.estimate
        rows: list[dict[str, object]] = []
        for title, name, limit in self._phase_limits():
            if limit.need == limit.capacity == 0:  # an absent tier that nothing needs
                continue
            text = size if name.endswith("memory") else number
            amounts = {k: text(getattr(limit, k)) for k in ("need", "capacity", "slack")}
            server = isinstance(estimate, ServerEstimate)
            row: dict[str, object] = {"limit": name if server else f"{name}, {title}"}
            rows.append({**row, **amounts, "met": bool(limit.need <= limit.capacity)})
            if not isinstance(estimate, ServerEstimate) or name != "memory":
                continue
            running = estimate.decode.limits.get("requests")
            requests = number(estimate.running if running is None else running.need)
            titles = {
                "weights": "weights",
                "cache": f"KV cache of {requests} request{'' if requests == '1' else 's'}",
                "activations": "activations at their peak",
                "reserve": "the runtime's reserve",
            }
            parts = estimate.memory.items()
            rows.extend({"limit": f"  of it {titles[k]}", "need": size(x)} for k, x in parts)
        return rows

    def _figure(self) -> Figure:
        """Both times as bars of their terms.

        Raises:
            InputError: more requests arrive than are completed: there are no times.
        """
        if self.estimate.overloaded:
            capacity = float(self.estimate.decode.limits["arrivals"].capacity) * self.copies
            allowed = f"a rate below {digits(capacity)} for a picture of times"
            raise refuse("request_rate", f"{self.rate:.6g}", allowed)
        running = f"{self.batch:.6g} requests in flight in an instance."
        caption = self.caption(self.requests.work, running)
        gpus = f"{float(self.estimate.chips):g} {self.setup.system.title}"
        title = f"{self.setup.model.name} on {gpus}: where the time goes"
        panels = time_panels({"": self.estimate}, limits=self.limits)
        return plot_bars(panels, title=title, caption=caption)


def _layout(phase: Phase) -> str:
    named = {name: digits(x) for name, x in phase.layout.items()}
    if "layout" in named and named["layout"] in "01":
        named["layout"] = LAYOUTS[int(named["layout"])]
    return ", ".join(f"{name} {x}" for name, x in named.items())
