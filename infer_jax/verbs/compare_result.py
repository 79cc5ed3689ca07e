"""The answers of ``compare``: systems, layouts, estimators side by side, or runs beside them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
from jax import Array

from infer_jax.catalog.measurements import Run
from infer_jax.estimators import Estimate, Phase, Trust
from infer_jax.estimators.known_errors import BORROWED
from infer_jax.estimators.serving import ServerEstimate
from infer_jax.plots.bars import PASSES, plot_bars, time_panels
from infer_jax.plots.rendering import FigureResult
from infer_jax.plots.style import Figure
from infer_jax.results import Column, Notes, Rows, Section, Table, number, option
from infer_jax.results.numbers import digits, quantity
from infer_jax.results.problems import refuse
from infer_jax.specs import Output, Workload, outputs
from infer_jax.specs.words import term
from infer_jax.verbs import inputs, pictures
from infer_jax.verbs.estimate_result import EstimateResult

PRINTED = 8  # measured runs that are printed; JSON has all
OF_SERVERS = outputs(ServerEstimate, view="compare")  # of which runs measure some
Numbers = Mapping[str, Array | float | None]  # by name; None: not known
ANSWER = Column("answer", left=True), Column("unit", left=True)
ERRORS = (
    Column("errors of predictions", "", "title", left=True),
    Column("runs", "", "runs"),
    Column("median", "%", "median_error_percent"),
    Column("mean", "%", "mean_error_percent"),
    Column("median", "with sign, %", "median_signed_error_percent", "{:+.3g}".format),
)
ABSENT, RATIO = "-", "second over first"
SAME = 1e-3  # share of a time that is left without a word, or by which two differ so
ARRIVING = "Requests that arrive by themselves are priced as if so many were kept in flight."
OVERLAP = "Terms of one name need not be the same work; where they overlap, they exceed the time."


@dataclass(frozen=True, repr=False)
class EstimatorsCompared(FigureResult):
    """What ``estimate`` answers by system, layout and estimator: outputs, and terms of passes.

    ``concurrency``: requests in flight in all copies, None where ``work`` has those of an instance
    or ``rate`` arrive a second at all copies; ``assumed``: nothing was said of them.
    """

    work: Workload
    concurrency: float | None
    answers: Sequence[EstimateResult]
    rate: float | None = None
    assumed: bool = False
    rows_key = "estimators"

    @property
    def systems(self) -> list[inputs.Setup]:
        """The model on each system."""
        return [*{answer.setup.system.name: answer.setup for answer in self.answers}.values()]

    @property
    def estimators(self) -> list[str]:
        """The names of the estimators."""
        return [*dict.fromkeys(answer.trust.estimator for answer in self.answers)]

    @property
    def layouts(self) -> list[str]:
        """The layouts, in words."""
        return [*dict.fromkeys(answer.layout for answer in self.answers)]

    @property
    def labels(self) -> list[str]:
        """What tells the answers apart: the system, the layout, the estimator, or some of them."""
        several = len(self.systems) > 1, len(self.layouts) > 1, len(self.estimators) > 1
        tells = several if any(several) else (False, False, True)
        parts = ((x.setup.system.name, x.layout, x.trust.estimator) for x in self.answers)
        return [" ".join(compress(words, tells)) for words in parts]

    @property
    def load(self) -> str:
        """The requests in flight or their rate, in words."""
        if self.rate is not None:
            return f"{self.rate:g} requests/s at all copies"
        if self.concurrency is not None:
            return f"{quantity(self.concurrency, 'request')} in flight in all copies"
        return f"{quantity(self.work.batch, 'request')} in flight in an instance"

    def sections(self) -> Iterator[Section]:
        """Outputs side by side, then the terms of both passes."""
        work, systems = self.work, self.systems
        several, layouts = len(systems) > 1, ", ".join(self.layouts)
        plain = self.concurrency is None and self.rate is None
        batch = f"batch {float(work.batch):g}" if plain else self.load
        yield (
            f"{systems[0].model.name} on {', '.join(one.system.name for one in systems)}, "
            f"{layouts}: isl {float(work.isl):g}, osl {float(work.osl):g}, {batch}"
        )
        yield from dict.fromkeys(answer.trust.says for answer in self.answers)
        yield {
            **({"systems": [x.names for x in systems]} if several else systems[0].names),
            "layout": layouts,
            "isl_tokens": work.isl,
            "osl_tokens": work.osl,
            "batch": work.batch if plain else None,
            "concurrency": self.concurrency,
            "request_rate_per_s": self.rate,
        }
        rows = [
            {
                **({"hardware": answer.setup.system.name} if several else {}),
                "layout": answer.layout,
                "batch": answer.batch,
                "name": answer.trust.estimator,
                "trust": answer.trust.fields(),
                **_predicted(answer.estimate, answer.setup),
            }
            for answer in self.answers
        ]
        yield Rows("estimators", rows)
        labels = [*zip(self.labels, self.answers, strict=True)]
        heads = [_marked(label, answer.trust) for label, answer in labels]
        compared = outputs(*(type(answer.estimate) for answer in self.answers), view="compare")
        columns = [*ANSWER, *map(Column, heads)]
        both = [_answers(x.estimate, x.setup) for x in self.answers]
        texts = {x.json_key: [x.title, x.printed_unit] for x in compared}
        yield from ("", _side_by_side(both, columns, texts))
        timed = [{} if x.estimate.overloaded else x.estimate.passes for x in self.answers]
        for name in PASSES.values():
            passes = [_milliseconds(x[name], SAME) if x else {} for x in timed]
            largest = {n: max(x.get(n, 0.0) for x in passes) for terms in passes for n in terms}
            names = sorted((n for n in largest if largest[n]), key=lambda n: -largest[n])
            columns = [Column(f"{name}, spent on", left=True), *(Column(x, "ms") for x in heads)]
            if names:
                yield from ("", _side_by_side(passes, columns, {n: [term(n)] for n in names}))
        for label, answer in labels:
            if answer.estimate.overloaded:
                yield from ("", f"{label} is overloaded: more requests arrive than it completes.")
            elif not answer.estimate.feasible:
                yield from ("", f"Not feasible by {label}: see infer-jax estimate.")
        notes = [note for one in systems for note in one.notes]
        load = f"Load assumed: {self.load}; {option('batch')} or {option('concurrency')} says it."
        yield Notes([*[load] * self.assumed, *[OVERLAP] * (len(self.estimators) > 1), *notes])

    def _figure(self) -> Figure:
        """Both times by every estimator and system, as bars of their terms."""
        every = zip(self.labels, self.answers, strict=True)
        estimates = {label: x.estimate for label, x in every if not x.estimate.overloaded}
        if not estimates:
            raise refuse("request_rate", f"{self.rate:.6g}", "one that a system completes")
        unlike = len({frozenset(x.estimate.decode.terms) for x in self.answers}) > 1
        systems = self.systems
        names, load = " and ".join(self.estimators), f"{self.load}, {', '.join(self.layouts)}."
        parts = "Each estimator divides a time into parts of its own." * unlike
        caption = pictures.caption(systems, self.work, names, load, parts)
        names = ", ".join(x.system.name for x in systems)
        where = names if len(systems) > 1 else systems[0].system.title
        times = "each estimator sees the time go" if len(self.estimators) > 1 else "the time goes"
        title = f"{systems[0].model.name} on {where}: where {times}"
        return plot_bars(time_panels(estimates), title=title, caption=caption)


@dataclass(frozen=True, repr=False)
class RunsCompared(pictures.EstimatorResult):
    """Measured runs, and what an estimator predicts of the same load and layout.

    ``steady``: what it predicts of a server that runs on, as the verb ``estimate`` does; None of
    runs whose requests arrive by themselves.
    """

    runs: Sequence[Run]
    estimates: Sequence[Estimate]
    steady: Sequence[Estimate | None]
    rows_key = "runs"

    def sections(self) -> Iterator[Section]:
        """A table and the predicted terms of each run, the first ``PRINTED`` of them."""
        yield f"{self.setup.model.name} on {self.setup.system.name}: measured, and predicted"
        yield self.trust.says
        predictions = list(zip(self.runs, self.estimates, self.steady, strict=True))
        yield self.names
        rows = [
            {
                "run": run.place,
                "isl_tokens": run.isl,
                "osl_tokens": run.osl,
                "concurrency": run.concurrency,
                "request_rate_per_s": run.request_rate,
                "measured": {x.json_key: x.factor * value for x, value in _measured(run)},
                "predicted": _predicted(estimate, self.setup),
                "predicted_running_on": None if going is None else _answers(going, self.setup),
            }
            for run, estimate, going in predictions
        ]
        yield Rows("runs", rows)
        if len(rows) > 1:
            yield ""
        yield Rows("errors", self.errors(), ERRORS if len(rows) > 1 else ())
        for run, estimate, going in predictions[:PRINTED]:
            yield from self._run(run, estimate)
            if going is not None:
                yield from _running_on(run, estimate, going)
        more = len(self.runs) - PRINTED
        own = [f"{more} more runs: {option('json')} has all."] if more > 0 else []
        if any(run.request_rate is not None for run in self.runs):
            own.append(ARRIVING)
        yield Notes([*own, *self.setup.notes])

    def errors(self) -> list[dict[str, object]]:
        """Of each output that runs measured: how many, and errors of the predictions in percent.

        The median and the mean of their sizes, and the median with its sign.
        """
        signed = dict[Output, list[float]]()
        for run, estimate in zip(self.runs, self.estimates, strict=True):
            predicted = _answers(estimate, self.setup)
            for output, value in _measured(run):
                mine = predicted.get(output.json_key)
                if mine is not None and value > 0.0:
                    error = 100.0 * (float(mine) / (output.factor * value) - 1.0)
                    signed.setdefault(output, []).append(error)
        return [
            {
                "answer": x.json_key,
                "title": x.title,
                "runs": len(each),
                "median_error_percent": np.median(np.abs(each)),
                "mean_error_percent": np.mean(np.abs(each)),
                "median_signed_error_percent": np.median(each),
            }
            for x, each in signed.items()
        ]

    def _run(self, run: Run, estimate: Estimate) -> Iterator[Section]:
        """What was measured and predicted of a run, and the terms of the prediction."""
        rate = run.request_rate
        load = f"concurrency {run.concurrency:g}" if rate is None else f"{rate:g} requests/s"
        yield from ("", f"{run.place}: {load}, isl {run.isl:g}, osl {run.osl:g}")
        measured = dict(_measured(run))
        theirs = {x.json_key: x.factor * value for x, value in measured.items()}
        columns = [*ANSWER, Column("measured"), Column(_marked("predicted", self.trust))]
        both = [theirs, _answers(estimate, self.setup)]
        texts = {x.json_key: [x.title, x.printed_unit] for x in measured}
        yield from ("", _side_by_side(both, columns, texts, "predicted over measured"))
        titles = ("first token", "every other token")
        for phase, title in zip(estimate.passes.values(), titles, strict=True):
            terms = sorted(_milliseconds(phase, 1e-4).items(), key=lambda item: -item[1])
            texts = [f"{term(k)} {digits(x)} ms" for k, x in terms if x]
            yield f"Predicted {title}: {', '.join(texts)}."

    def _figure(self) -> Figure:
        """Predicted times of the first runs as bars of terms, with what was measured."""
        runs = list(zip(self.runs, self.estimates, strict=True))[:PRINTED]
        runs.sort(key=lambda pair: (pair[0].concurrency or 0.0, pair[0].request_rate or 0.0))
        labels = list[str]()
        for run, _ in runs:
            rate = run.request_rate
            load = f"{run.concurrency:g} in flight" if rate is None else f"{rate:g} requests/s"
            labels.append(f"{load}\n{run.isl:,.6g} in, {run.osl:,.6g} out")
        if len(set(labels)) < len(labels):  # alike: told apart by their number
            labels = [f"{i + 1}. {label}" for i, label in enumerate(labels)]
        labelled = dict(zip(labels, runs, strict=True))
        times = {label: {x.name: s for x, s in _measured(r)} for label, (r, _) in labelled.items()}
        marks = {x: {k: 1e3 * t[x] for k, t in times.items() if x in t} for x in PASSES}
        panels = time_panels({label: estimate for label, (_, estimate) in labelled.items()}, marks)
        more = f"The first {PRINTED} of {len(self.runs)} runs." * (len(self.runs) > PRINTED)
        bars = "Bars: the predicted time by its parts."
        caption = self.caption(None, bars, more)
        name = f"{self.setup.model.name} on {self.setup.system.title}"
        title = f"{name}: predicted times beside measured ones"
        return plot_bars(panels, title=title, caption=caption)


def _running_on(run: Run, estimate: Estimate, going: Estimate) -> Iterator[str]:
    """A sentence on what a server that runs on has, where a benchmark of it has other times."""
    both = [[float(getattr(x, name)) for name in PASSES] for x in (estimate, going)]
    if any(abs(a / b - 1.0) >= SAME for a, b in zip(*both, strict=True)):
        times = [f"{n.upper()} {digits(1e3 * x)} ms" for n, x in zip(PASSES, both[1], strict=True)]
        start = f"its first {run.concurrency:g} requests come all at once"
        yield f"A server that runs on has means {', '.join(times)}; of the run {start}."


def _answers(estimate: Estimate, setup: inputs.Setup) -> dict[str, Array | float | None]:
    """The outputs that are compared, by their names with units; no times when overloaded."""
    compared, power = outputs(type(estimate), view="compare"), setup.hardware.power
    return {x.json_key: x.value(estimate, power) for x in compared if estimate.knows(x)}


def _predicted(estimate: Estimate, setup: inputs.Setup) -> dict[str, object]:
    """An estimate for JSON: its outputs, and the terms of both passes in ms."""
    return {
        "feasible": bool(estimate.feasible),
        "answers": {
            **{x.json_key: None for x in outputs(type(estimate), view="compare")},
            **_answers(estimate, setup),
        },
        **{f"{stage}_ms": _milliseconds(phase) for stage, phase in estimate.passes.items()},
    }


def _measured(run: Run) -> Iterator[tuple[Output, float]]:
    """The outputs of a server that a run has measured, in the units of an estimate."""
    figures = run.figures
    return ((x, value) for x in OF_SERVERS if (value := figures.get(x.name)) is not None)


def _milliseconds(phase: Phase, least: float = 0.0) -> dict[str, float]:
    """The terms of a pass in ms; 0 for those below a share ``least`` of all."""
    terms = {name: 1e3 * float(term) for name, term in phase.terms.items()}
    small = least * sum(terms.values())
    return {name: x if x >= small else 0.0 for name, x in terms.items()}


def _marked(head: str, trust: Trust) -> str:
    """The head of an estimator's column, marked where coefficients are borrowed."""
    return f"{head} {BORROWED if trust.borrowed_from else ''}".rstrip()


def _side_by_side(
    answers: Sequence[Numbers],
    columns: Sequence[Column],
    rows: Mapping[str, Sequence[str]],
    ratio: str = RATIO,
) -> Table:
    """The numbers of every answer, and of two answers the second over the first.

    ``rows``: by name of the number the texts before the numbers.
    """
    cells: list[list[str]] = []
    for name, texts in rows.items():
        row = [*texts, *(number(x[name]) if name in x else ABSENT for x in answers)]
        if len(answers) == 2:
            first, second = (x.get(name) for x in answers)
            known = first is not None and second is not None and float(first)
            row.append(f"{float(second) / float(first):.3g}" if known else ABSENT)  # pyright: ignore
        cells.append(row)
    return Table([*columns, *[Column(ratio)] * (len(answers) == 2)], cells)
