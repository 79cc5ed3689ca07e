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
from infer_jax.results import Column, Notes, Rows, Section, Table, number, option
from infer_jax.results.numbers import digits, quantity
from infer_jax.results.terms import term
from infer_jax.specs import Output, Workload, outputs
from infer_jax.verbs import inputs, pictures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PRINTED = 8  # measured runs that are printed; JSON has all
OF_SERVERS = outputs(ServerEstimate, view="compare")  # of which runs measure some
Numbers = Mapping[str, Array | float | None]  # a name, and its number; None: not known
ABSENT, RATIO = "-", "second over first"
ARRIVING = (
    "Requests that arrive by themselves are priced as if as many were kept in flight "
    "as were on average; their time to first token waits by another law."
)
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
    rows_key = "estimators"

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

    def sections(self) -> Iterator[Section]:
        """Outputs side by side, then the terms of both passes."""
        work, systems = self.work, self.systems
        yield (
            f"{self.asked.model.name} on {', '.join(one.system.name for one in systems)}, "
            f"{self.layout}: isl {float(work.isl):g}, osl {float(work.osl):g}, "
            f"batch {float(work.batch):g}"
        )
        yield from dict.fromkeys(answer.trust.says for answer in self.answers)
        yield {
            **(systems[0].names if len(systems) == 1 else {"systems": [x.names for x in systems]}),
            "layout": self.layout,
            "isl_tokens": work.isl,
            "osl_tokens": work.osl,
            "batch": work.batch,
        }
        yield Rows("estimators", self._estimators())
        labels = zip(self.labels, self.answers, strict=True)
        heads = [_marked(label, answer.trust) for label, answer in labels]
        compared = outputs(*(answer.estimate for answer in self.answers), view="compare")
        numbers = [of_estimate(x.estimate, x.asked) for x in self.answers]
        yield ""
        yield _outputs_table(numbers, heads, compared, RATIO)
        for name in PASSES.values():
            passes = [_milliseconds(getattr(answer.estimate, name)) for answer in self.answers]
            largest = {n: max(x.get(n, 0.0) for x in passes) for terms in passes for n in terms}
            names = sorted((n for n in largest if largest[n]), key=lambda n: -largest[n])
            columns = [Column(f"{name}, spent on", left=True), *(Column(x, "ms") for x in heads)]
            ratio = [Column(RATIO)] if len(passes) == 2 else []
            yield ""
            yield Table((*columns, *ratio), [[term(n), *_cells(passes, n)] for n in names])
        for label, answer in zip(self.labels, self.answers, strict=True):
            if not answer.estimate.feasible:
                yield ""
                yield f"Not feasible by {label}: see infer-jax estimate."
        notes = [note for one in systems for note in one.notes]
        yield Notes([*[OVERLAP] * self._by_several, *notes])

    def _figure(self) -> "Figure":
        """Both times by every estimator and system, as bars of their terms."""
        from infer_jax.plots.bars import OVERLAP as HIDDEN, Panel, milliseconds, plot_bars

        panels: list[Panel] = []
        for name, title in _times(self.answers[0].estimate).items():
            passes = (getattr(x.estimate, PASSES[name]) for x in self.answers)
            bars, ends = milliseconds(dict(zip(self.labels, passes, strict=True)))
            panels.append(Panel(title, "ms", bars, ends=ends))
        unlike = len({frozenset(x.estimate.decode.terms) for x in self.answers}) > 1
        systems = self.systems
        caption = pictures.caption(
            systems,
            self.work,
            " and ".join(dict.fromkeys(answer.trust.estimator for answer in self.answers)),
            f"{quantity(self.work.batch, 'request')} in flight, {self.layout}.",
            "Each estimator divides a time into parts of its own." * unlike,
        )
        names = [x.system.name for x in systems]
        where = ", ".join(names) if len(systems) > 1 else systems[0].system.title
        title = f"{self.asked.model.name} on {where}: where each estimator sees the time go"
        return plot_bars(panels, end=HIDDEN, title=title, caption=caption)


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

    def rows(self) -> Sequence[Mapping[str, object]]:
        """One row a run."""
        return [
            {
                "run": run.place,
                "isl_tokens": run.isl,
                "osl_tokens": run.osl,
                "concurrency": run.concurrency,
                "request_rate_per_s": run.request_rate,
                "measured": {x.json_key: x.factor * value for x, value in measured(run)},
                "predicted": predicted(estimate, self.asked),
                "predicted_running_on": None if going is None else of_estimate(going, self.asked),
            }
            for run, estimate, going in self._predictions
        ]

    @property
    def _predictions(self) -> list[tuple[Run, Estimate, Estimate | None]]:
        return list(zip(self.runs, self.estimates, self.steady, strict=True))

    def sections(self) -> Iterator[Section]:
        """A table and the predicted terms of each run, the first ``PRINTED`` of them."""
        yield f"{self.asked.model.name} on {self.asked.system.name}: measured, and predicted"
        yield self.trust.says
        yield {
            **self.asked.names,
            "estimator": self.estimator,
            "trust": self.trust.fields(),
            "runs": self.rows(),
        }
        for run, estimate, going in self._predictions[:PRINTED]:
            yield from self._run(run, estimate)
            if going is not None:
                yield from _running_on(run, estimate, going)
        more = len(self.runs) - PRINTED
        own = [f"{more} more runs: {option('json')} has all."] if more > 0 else []
        if any(run.request_rate is not None for run in self.runs):
            own.append(ARRIVING)
        yield Notes([*own, *self.asked.notes])

    def _run(self, run: Run, estimate: Estimate) -> Iterator[Section]:
        load = (
            f"concurrency {run.concurrency:g}"
            if run.request_rate is None
            else f"{run.request_rate:g} requests/s"
        )
        yield ""
        yield f"{run.place}: {load}, isl {run.isl:g}, osl {run.osl:g}"
        theirs = {x.json_key: x.factor * value for x, value in measured(run)}
        heads = ["measured", _marked("predicted", self.trust)]
        both = [theirs, of_estimate(estimate, self.asked)]
        compared = [x for x, _ in measured(run)]
        yield ""
        yield _outputs_table(both, heads, compared, "predicted over measured")
        for phase, title in (
            (estimate.prefill, "first token"),
            (estimate.decode, "every other token"),
        ):
            terms = sorted(_milliseconds(phase).items(), key=lambda item: -item[1])
            small = 1e-4 * sum(x for _, x in terms)
            texts = [f"{term(k)} {digits(x)} ms" for k, x in terms if x > small]
            yield f"Predicted {title}: {', '.join(texts)}."

    def _figure(self) -> "Figure":
        """Predicted times of the first runs as bars of terms, with what was measured."""
        from infer_jax.plots.bars import OVERLAP as HIDDEN, Panel, milliseconds, plot_bars

        drawn = list(zip(self.runs, self.estimates, strict=True))[:PRINTED]
        drawn.sort(key=lambda pair: (pair[0].concurrency or 0.0, pair[0].request_rate or 0.0))
        labels = [_load(run) for run, _ in drawn]
        if len(set(labels)) < len(labels):  # alike: told apart by their number
            labels = [f"{i + 1}. {label}" for i, label in enumerate(labels)]
        panels: list[Panel] = []
        for name, title in _times(self.estimates[0]).items():
            passes, marks = dict[str, Phase](), dict[str, float]()
            for label, (run, estimate) in zip(labels, drawn, strict=True):
                passes[label] = getattr(estimate, PASSES[name])
                seconds = {output.name: x for output, x in measured(run)}.get(name)
                if seconds is not None:
                    marks[label] = 1e3 * seconds
            bars, ends = milliseconds(passes)
            panels.append(Panel(title, "ms", bars, marks, ends))
        more = f"The first {PRINTED} of {len(self.runs)} runs." * (len(self.runs) > PRINTED)
        bars = "Bars: the predicted time by its parts."
        caption = pictures.caption(self.asked, None, self.estimator, bars, more)
        name = f"{self.asked.model.name} on {self.asked.system.title}"
        title = f"{name}: predicted times beside measured ones"
        return plot_bars(panels, mark="measured", end=HIDDEN, title=title, caption=caption)


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


def _milliseconds(phase: Phase) -> dict[str, float]:
    return {name: 1e3 * float(term) for name, term in phase.terms.items()}


def _marked(head: str, trust: Trust) -> str:
    """The head of an estimator's column, marked where coefficients are borrowed."""
    return f"{head} {BORROWED if trust.borrowed_from else ''}".rstrip()


def _outputs_table(
    answers: Sequence[Numbers], heads: Sequence[str], compared: Sequence[Output], ratio: str
) -> Table:
    """Outputs side by side; of two answers with the ratio of the second and the first."""
    columns = [Column("answer", left=True), Column("unit", left=True), *map(Column, heads)]
    columns += [Column(ratio)] if len(answers) == 2 else []
    rows = [[x.title, x.printed_unit, *_cells(answers, x.json_key)] for x in compared]
    return Table(columns, rows)


def _cells(answers: Sequence[Numbers], name: str) -> list[str]:
    """A number of every answer as text, and of two the second over the first if both have it."""
    cells = [number(x[name]) if name in x else ABSENT for x in answers]
    if len(answers) != 2:
        return cells
    first, second = (x.get(name) for x in answers)
    if first is None or second is None or not float(first):
        return [*cells, ABSENT]
    return [*cells, f"{float(second) / float(first):.3g}"]
