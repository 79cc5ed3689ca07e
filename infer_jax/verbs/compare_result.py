"""The answers of ``compare``: two estimators side by side, or measured runs and predictions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from jax import Array

from infer_jax.catalog.measurements import Run
from infer_jax.estimators import Estimate, Phase, Trust
from infer_jax.estimators.known_errors import BORROWED
from infer_jax.estimators.serving import ServerEstimate
from infer_jax.plots.pictured import Pictured
from infer_jax.results import Column, Notes, Part, Table
from infer_jax.results.numbers import counted, digits, or_unknown
from infer_jax.results.terms import term
from infer_jax.specs import Output, Workload, outputs
from infer_jax.verbs import inputs, pictures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 8  # measured runs that are printed; JSON has all
OF_SERVERS = outputs(ServerEstimate, view="compare")  # of which runs measure some
Numbers = Mapping[str, Array | float | None]  # a name, and its number; None: not known
ABSENT = "-"
SAME = 1e-3  # share by which times differ without a word
PASSES = {"ttft": "prefill", "tpot": "decode"}  # an output, and the pass whose terms it has
OVERLAP = (
    "Terms of one name need not be the same work in two estimators; where memory and "
    "compute overlap, terms add up to more than the time."
)


class Prediction(NamedTuple):
    """An estimator's estimate of a system, and how far it is trusted."""

    trust: Trust
    estimate: Estimate
    asked: inputs.Given


@dataclass(frozen=True, repr=False)
class EstimatorsCompared(Pictured):
    """Answers of estimators on systems to one question: outputs, and every term of both passes.

    ``asked`` is of the first system.
    """

    asked: inputs.Given
    work: Workload
    layout: str
    answers: Sequence[Prediction]

    def fields(self) -> Mapping[str, object]:
        """The question, and each estimator's outputs and terms."""
        work = self.work
        systems = [one.names for one in self.systems]
        return {
            **(systems[0] if len(systems) == 1 else {"systems": systems}),
            "layout": self.layout,
            "isl_tokens": work.isl,
            "osl_tokens": work.osl,
            "batch": work.batch,
            "estimators": self._estimators(),
            "notes": self._notes(),
        }

    @property
    def systems(self) -> list[inputs.Given]:
        """What is asked of each system."""
        return [*{answer.asked.system.name: answer.asked for answer in self.answers}.values()]

    @property
    def labels(self) -> list[str]:
        """What tells the answers apart: the system, the estimator, or both."""
        several = len(self.systems) > 1
        named = self._by_several or not several
        parts = ((x.asked.system.name, x.trust.estimator) for x in self.answers)
        return [" ".join([system] * several + [name] * named) for system, name in parts]

    @property
    def _by_several(self) -> bool:
        """Whether several estimators answered."""
        return len({answer.trust.estimator for answer in self.answers}) > 1

    def _notes(self) -> list[str]:
        return list(dict.fromkeys(note for one in self.systems for note in one.notes))

    def rows(self) -> Sequence[Mapping[str, object]]:
        """One row an estimator of a system."""
        return self._estimators()

    def _estimators(self) -> list[dict[str, object]]:
        several = len(self.systems) > 1
        return [
            {
                **({"hardware": answer.asked.system.name} if several else {}),
                "name": answer.trust.estimator,
                "trust": answer.trust.fields(),
                **predicted(answer.estimate, answer.asked),
            }
            for answer in self.answers
        ]

    def parts(self) -> Iterator[Part]:
        """Outputs side by side, then the terms of both passes."""
        work = self.work
        named = list(zip(self.labels, self.answers, strict=True))
        heads = [_marked(label, answer.trust) for label, answer in named]
        systems = ", ".join(one.system.name for one in self.systems)
        ratio = [Column("second over first")] if len(self.answers) == 2 else []
        yield (
            f"{self.asked.model.name} on {systems}, {self.layout}: isl "
            f"{float(work.isl):g}, osl {float(work.osl):g}, batch {float(work.batch):g}"
        )
        yield from dict.fromkeys(answer.trust.says for answer in self.answers)
        yield ""
        columns = (Column("answer", left=True), Column("unit", left=True))
        yield Table((*columns, *map(Column, heads), *ratio), self._outputs())
        for name in ("prefill", "decode"):
            yield ""
            passes = [getattr(answer.estimate, name) for answer in self.answers]
            columns = (Column(f"{name}, spent on", left=True), *(Column(x, "ms") for x in heads))
            yield Table((*columns, *ratio), _terms(passes))
        for label, answer in named:
            if not answer.estimate.feasible:
                yield ""
                yield f"Not feasible by {label}: see infer-jax estimate."
        yield Notes([*([OVERLAP] if self._by_several else []), *self._notes()])

    def _outputs(self) -> list[list[str]]:
        """One row an output that any estimator has."""
        estimates = [answer.estimate for answer in self.answers]
        each = [of_estimate(x.estimate, x.asked) for x in self.answers]
        return [
            [x.title, x.printed_unit, *_each(each, x.json_key)]
            for x in outputs(*estimates, view="compare")
        ]

    def _figure(self) -> "Figure":
        """Both times by every estimator and system, as bars of their terms."""
        from infer_jax.plots.bars import OVERLAP, Panel, milliseconds, plot_bars
        from infer_jax.plots.style import words

        panels: list[Panel] = []
        for name, title in _times(self.answers[0].estimate).items():
            passes = (getattr(x.estimate, PASSES[name]) for x in self.answers)
            each = dict(zip(self.labels, passes, strict=True))
            bars, ends = milliseconds(each)
            panels.append(Panel(title, "ms", bars, ends=ends))
        names = " and ".join(dict.fromkeys(answer.trust.estimator for answer in self.answers))
        batch = f"{counted(self.work.batch, 'request')} in flight, {self.layout}."
        unlike = len({frozenset(x.estimate.decode.terms) for x in self.answers}) > 1
        more = "Each estimator divides a time into parts of its own." * unlike
        caption = pictures.caption(self.systems, self.work, names, batch, more)
        systems = self.systems
        where = (
            ", ".join(x.system.name for x in systems)
            if len(systems) > 1
            else (systems[0].system.title)
        )
        title = words(f"{self.asked.model.name} on {where}: where each estimator sees the time go")
        return plot_bars(panels, end=OVERLAP, title=title, caption=caption)


@dataclass(frozen=True, repr=False)
class RunsCompared(Pictured):
    """Measured runs, and what an estimator says of the same load and layout.

    ``steady``: what it says of a server that runs on, as the verb ``estimate`` does; None of runs
    whose requests arrive by themselves.
    """

    asked: inputs.Given
    estimator: str
    trust: Trust
    runs: Sequence[Run]
    estimates: Sequence[Estimate]
    steady: Sequence[Estimate | None]

    def fields(self) -> Mapping[str, object]:
        """Each run's own figures, and what is predicted of it."""
        return {
            **self.asked.names,
            "estimator": self.estimator,
            "trust": self.trust.fields(),
            "runs": self.rows(),
            "notes": self.asked.notes,
        }

    def rows(self) -> Sequence[Mapping[str, object]]:
        """One row a run."""
        return [
            {
                "run": run.place,
                "isl_tokens": run.isl,
                "osl_tokens": run.osl,
                "concurrency": run.concurrency,
                "request_rate_per_s": run.request_rate,
                "measured": {x.json_key: x.factor * number for x, number in measured(run)},
                "predicted": predicted(estimate, self.asked),
                "predicted_running_on": None if going is None else of_estimate(going, self.asked),
            }
            for run, estimate, going in self._each
        ]

    @property
    def _each(self) -> list[tuple[Run, Estimate, Estimate | None]]:
        return list(zip(self.runs, self.estimates, self.steady, strict=True))

    def parts(self) -> Iterator[Part]:
        """A table and the predicted terms of each run, the first ``SHOWN`` of them."""
        name = f"{self.asked.model.name} on {self.asked.system.name}"
        yield f"{name}: measured, and predicted"
        yield self.trust.says
        for run, estimate, going in self._each[:SHOWN]:
            yield from self._run(run, estimate)
            if going is not None:
                yield from _running_on(run, estimate, going)
        more = len(self.runs) - SHOWN
        said = [f"{more} more runs: --json has all."] if more > 0 else []
        if any(run.request_rate is not None for run in self.runs):
            said.append(
                "Requests that arrive by themselves are priced as if as many were kept in flight "
                "as were on average; their time to first token waits by another law."
            )
        yield Notes([*said, *self.asked.notes])

    def _run(self, run: Run, estimate: Estimate) -> Iterator[Part]:
        load = (
            f"concurrency {run.concurrency:g}"
            if run.request_rate is None
            else f"{run.request_rate:g} requests/s"
        )
        yield ""
        yield f"{run.place}: {load}, isl {run.isl:g}, osl {run.osl:g}"
        yield ""
        heads = (Column("measured"), Column(_marked("predicted", self.trust)))
        columns = (Column("answer", left=True), Column("unit", left=True), *heads)
        ours = of_estimate(estimate, self.asked)
        theirs = {x.json_key: x.factor * number for x, number in measured(run)}
        rows = [
            [x.title, x.printed_unit, *_each([theirs, ours], x.json_key)] for x, _ in measured(run)
        ]
        yield Table((*columns, Column("predicted over measured")), rows)
        for phase, title in (
            (estimate.prefill, "first token"),
            (estimate.decode, "every other token"),
        ):
            terms = sorted(_milliseconds(phase).items(), key=lambda item: -item[1])
            least = 1e-4 * sum(x for _, x in terms)
            said = [f"{term(k)} {digits(x)} ms" for k, x in terms if x > least]
            yield f"Predicted {title}: {', '.join(said)}."

    def _figure(self) -> "Figure":
        """Predicted times of the first runs as bars of terms, with what was measured."""
        from infer_jax.plots.bars import OVERLAP, Panel, milliseconds, plot_bars
        from infer_jax.plots.style import words

        shown = list(zip(self.runs, self.estimates, strict=True))[:SHOWN]
        shown.sort(key=lambda pair: (pair[0].concurrency or 0.0, pair[0].request_rate or 0.0))
        labels = [_load(run) for run, _ in shown]
        if len(set(labels)) < len(labels):  # alike: told apart by their number
            labels = [f"{i + 1}. {label}" for i, label in enumerate(labels)]
        panels: list[Panel] = []
        for name, title in _times(self.estimates[0]).items():
            each = {x: getattr(y, PASSES[name]) for x, (_, y) in zip(labels, shown, strict=True)}
            seen = {x: dict(_by_name(run)).get(name)
                    for x, (run, _) in zip(labels, shown, strict=True)}  # fmt: skip
            marks = {label: 1e3 * x for label, x in seen.items() if x is not None}
            bars, ends = milliseconds(each)
            panels.append(Panel(title, "ms", bars, marks, ends))
        more = f"The first {SHOWN} of {len(self.runs)} runs." if len(self.runs) > SHOWN else ""
        caption = pictures.caption(
            self.asked, None, self.estimator, "Bars: the predicted time by its parts.", more
        )
        name = f"{self.asked.model.name} on {self.asked.system.title}"
        title = words(f"{name}: predicted times beside measured ones")
        return plot_bars(panels, mark="measured", end=OVERLAP, title=title, caption=caption)


def _running_on(run: Run, estimate: Estimate, going: Estimate) -> Iterator[str]:
    """A sentence on what a server that runs on has, where a benchmark of it has other times."""
    both = [[float(getattr(x, name)) for name in PASSES] for x in (estimate, going)]
    if all(abs(a / b - 1.0) < SAME for a, b in zip(*both, strict=True)):
        return
    times = [f"{n.upper()} {digits(1e3 * x)} ms" for n, x in zip(PASSES, both[1], strict=True)]
    yield (
        f"A server that runs on, as `estimate` has it: {', '.join(times)}. Predicted of the run: "
        f"its first {run.concurrency:g} requests come all at once, lengths vary as its own do."
    )


def _times(estimate: Estimate) -> dict[str, str]:
    """The outputs that are a time of a pass, and their titles."""
    return {x.name: x.title for x in outputs(estimate) if x.name in PASSES}


def _load(run: Run) -> str:
    """A run in a few words: its load and lengths."""
    rate = run.request_rate
    load = f"{run.concurrency:g} in flight" if rate is None else f"{rate:g} requests/s"
    return f"{load}\n{run.isl:,.6g} in, {run.osl:,.6g} out"


def _by_name(run: Run) -> Iterator[tuple[str, float]]:
    return ((output.name, number) for output, number in measured(run))


def of_estimate(estimate: Estimate, asked: inputs.Given) -> dict[str, Array | float | None]:
    """The outputs that are compared, by their names with units."""
    compared = outputs(estimate, view="compare")
    return {x.json_key: x.value(estimate, asked.hardware.power) for x in compared}


def predicted(estimate: Estimate, asked: inputs.Given) -> dict[str, object]:
    """An estimate for JSON: its outputs, and the terms of both passes in ms."""
    return {
        "feasible": bool(estimate.feasible),
        "answers": of_estimate(estimate, asked),
        "prefill_ms": _milliseconds(estimate.prefill),
        "decode_ms": _milliseconds(estimate.decode),
    }


def measured(run: Run) -> Iterator[tuple[Output, float]]:
    """The outputs of a server that a run has measured, in the units of an estimate."""
    speed = run.output_throughput
    figures = {
        "ttft": run.ttft.typical,
        "tpot": run.tpot.typical,
        "latency": run.e2el.typical,
        "throughput": speed / run.chips if speed and run.chips else None,
        "power": run.power,
    }
    for output in OF_SERVERS:
        value = figures.get(output.name)
        if value is not None:
            yield output, value


def _terms(passes: Sequence[Phase]) -> list[list[str]]:
    """One row a term that is not nothing in all passes, the longest first."""
    each = [_milliseconds(x) for x in passes]
    most = {name: max(x.get(name, 0.0) for x in each) for one in each for name in one}
    names = sorted(most, key=lambda name: -most[name])
    return [[term(name), *_each(each, name)] for name in names if most[name]]


def _milliseconds(phase: Phase) -> dict[str, float]:
    return {name: 1e3 * float(term) for name, term in phase.terms.items()}


def _marked(head: str, trust: Trust) -> str:
    """The head of an estimator's column, marked where coefficients are borrowed."""
    return f"{head} {BORROWED if trust.borrowed_from else ''}".rstrip()


def _each(every: Sequence[Numbers], name: str) -> list[str]:
    """A number of every estimator as text, and of two the second over the first if both have it."""
    cells = [or_unknown(x[name], 4) if name in x else ABSENT for x in every]
    if len(every) != 2:
        return cells
    first, second = (x.get(name) for x in every)
    if first is None or second is None or not float(first):
        return [*cells, ABSENT]
    return [*cells, f"{float(second) / float(first):.3g}"]
