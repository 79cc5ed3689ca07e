"""Errors on rows of a publisher that a fit has not seen, and the law of errors learned from them.

Each publisher is left out in turn and the fit solved again: the errors of its rows are the sample
of which the law is learned.

Errors of the fit on what is new to it: systems, models, AMD's servers and make, pools.

Each NVIDIA system, each model and each server of AMD's is left out of the fit in turn, which is
solved again from what is shipped; the time of the left-out rows is then by coefficients alone.
AMD's chips by the fit to NVIDIA's rows have Hopper's coefficients. Two pools are rows of
aiconfigurator-core, of which no TTFT was ever fitted.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from jax.typing import ArrayLike

from infer_jax.calibration.cross_validation import cross_validate, label_masks
from infer_jax.calibration.pooled.answers import answers, shipped_fit
from infer_jax.calibration.pooled.likelihood import (
    MEDIAN,
    PACE,
    SCALES,
    STEPS,
    TTFT,
    PooledProblem,
    PooledTimes,
    problem,
    weights,
)
from infer_jax.calibration.pooled.rows import AMD, PooledRow
from infer_jax.calibration.statistics import counts, learn_error_law
from infer_jax.calibration.uncertainty import Fit, rows_by_label
from infer_jax.catalog.published import ErrorLaw, facts, law_of
from infer_jax.estimators.serving import Deployment, Serving

SCALE_OF_PUBLISHERS = 3.0  # times the scale of the loss, expected of another publisher's errors
GAIN = 0.01  # share of the score on publishers left out from which on a fact is in a law
# outputs whose errors are learned, by kind of time; throughput and whole requests err as paces
LAW_OF_KIND = {PACE: "tpot", TTFT: "ttft", MEDIAN: "ttft_median"}


class UnseenErrors(NamedTuple):
    """log(measured / predicted) of each time by a fit without its publisher, and its facts.

    ``laws``: the name of the law that each time errs by.
    """

    times: PooledTimes
    errors: np.ndarray
    laws: np.ndarray
    facts: dict[str, np.ndarray]

    @classmethod
    def of(cls, times: PooledTimes, errors: np.ndarray) -> "UnseenErrors":
        """The errors of times, with what is known of their rows."""
        table = [_facts(row) for row in times.rows]
        columns = {n: np.asarray([x[n] for x in table])[times.row] for n in table[0]}
        pools = [times.rows[i].mode == "pools" for i in times.row]
        outputs = (LAW_OF_KIND.get(kind, "tpot") for kind in times.kind.tolist())
        laws = [law_of(name, pools=apart) for name, apart in zip(outputs, pools, strict=True)]
        return cls(times, errors, np.asarray(laws), columns)

    def sample(self, law: str, among: np.ndarray) -> np.ndarray:
        """The times of which a law is learned."""
        return among & np.isin(self.times.kind, list(LAW_OF_KIND)) & (self.laws == law)

    def scales(self, law: ErrorLaw, own: np.ndarray) -> np.ndarray:
        """The scale of each of some times by a law."""
        logs = sum((x * self.facts[n][own] for n, x in law.slopes.items()), np.zeros(own.sum()))
        return law.scale * np.exp(logs)

    def law(self, own: np.ndarray) -> ErrorLaw:
        """The law of some times, by the facts that lower its score on publishers left out.

        Facts are added one at a time, the best first, while the score falls by ``GAIN`` or more.
        """
        names, best = [], self.score(own, ())
        while left := [name for name in self.facts if name not in names]:
            scores = {name: self.score(own, (*names, name)) for name in left}
            name = min(left, key=lambda name: scores[name])
            if not scores[name] < (1.0 - GAIN) * best:
                break
            names, best = [*names, name], scores[name]
        return self.law_by(own, names)

    def law_by(self, own: np.ndarray, names: Sequence[str]) -> ErrorLaw:
        """The law of some times by these facts; a data set is a cluster."""
        scale = SCALE_OF_PUBLISHERS * float(np.median(np.asarray(SCALES)[self.times.kind[own]]))
        clusters = self.times.labels(lambda row: row.dataset)[own].tolist()
        own_facts = {n: self.facts[n][own] for n in names}
        return learn_error_law(self.errors[own], own_facts, clusters, scale)

    def score(self, own: np.ndarray, names: Sequence[str]) -> float:
        """Mean interval score of 80 % bands of some times, by the law of the other publishers'.

        A data set counts as a dozen rows at most. Infinite where one publisher is all there is.
        """
        publishers = self.times.labels(lambda row: row.publisher)
        weight = np.zeros(len(own))
        weight[own] = counts(self.times.labels(lambda row: row.dataset)[own].tolist())
        total = 0.0
        for inside in label_masks(publishers, own).values():
            rest, scored = own & ~inside, own & inside
            if not rest.any():
                return np.inf
            law = self.law_by(rest, names)
            low, high = (end * self.scales(law, scored) for end in law.ends[80])
            errors = self.errors[scored]
            outside = np.maximum(low - errors, 0.0) + np.maximum(errors - high, 0.0)
            total += float(weight[scored] @ (high - low + 10.0 * outside))
        return total / float(np.sum(weight))

    def every_law(self) -> dict[str, ErrorLaw]:
        """The law of each output that the program prints, from all rows."""
        servers = self.times.labels(lambda row: (row.dataset, row.group))
        laws = {}
        for name in dict.fromkeys(self.laws.tolist()):
            own = self.sample(name, np.ones(len(servers), bool))
            law = self.law(own)
            scores = self.errors[own] / self.scales(law, own)
            laws[name] = law._replace(common=shared_variance(scores, servers[own].tolist()))
        return laws


def _facts(row: PooledRow) -> dict[str, float]:
    """What the laws read of a row."""
    if row.workload is None:
        return facts(1.0, (1.0, 1.0))
    return facts(float(row.workload.batch), row.lengths)


def shared_variance(errors: np.ndarray, groups: Sequence[Hashable]) -> float:
    """Share of the variance of errors that rows of one group have in common, in [0, 1].

    Of normal scores; the variance between groups over the sum of it and the one within, by
    one-way analysis of variance (Searle, Casella and McCulloch 1992, 3.6).
    """
    quantile = NormalDist().inv_cdf
    ranks = errors.argsort().argsort()
    scores = np.asarray([quantile((rank + 0.5) / len(errors)) for rank in ranks])
    parts = [scores[rows] for rows in rows_by_label(groups).values()]
    sizes = np.array([len(x) for x in parts], float)
    rows, kinds = sizes.sum(), len(parts)
    if kinds < 2 or rows == kinds:
        return 0.0  # one group, or one row of each, tells nothing
    within = sum(float(np.sum((x - x.mean()) ** 2)) for x in parts) / (rows - kinds)
    means = np.array([x.mean() for x in parts])
    between = float(np.sum(sizes * (means - scores.mean()) ** 2)) / (kinds - 1)
    size = (rows - np.sum(sizes**2) / rows) / (kinds - 1)
    common = max((between - within) / size, 0.0)
    return float(common / (common + within))


def left_out_errors(
    times: PooledTimes, made: PooledProblem, folds: Mapping[str, np.ndarray], start: ArrayLike,
    counted: np.ndarray, scored: np.ndarray, say: Callable[[str], object] = lambda _: None,
) -> np.ndarray:  # fmt: skip
    """log(measured / predicted) of the ``scored`` times in a fold, each by a fit without it.

    ``start``: where fits start; ``counted``: weights of times; ``say``: of progress. NaN of others.
    """
    errors = np.full(len(times.seconds), np.nan)
    for fold in cross_validate(made, folds, weights=counted, starts=start, steps=STEPS):
        own = fold.inside & scored
        errors[own] = (np.log(times.seconds) - np.asarray(made.logs(fold.free)))[own]
        say(f"without {fold.name}")
    return errors


def without_publishers(
    times: PooledTimes, made: PooledProblem, start: np.ndarray, seen: np.ndarray | None = None
) -> np.ndarray:
    """log(measured / predicted) of ``seen`` times (or all), by fits without each one's publisher.

    ``start``: where fits start; NaN where a publisher is the only one, and of times not seen.
    """
    seen = np.ones(len(times.seconds), bool) if seen is None else seen
    folds = label_masks(times.labels(lambda row: row.publisher), seen)
    folds = {name: inside for name, inside in folds.items() if (seen & ~inside).any()}
    return left_out_errors(times, made, folds, start, weights(times, seen), seen)


def law_of_publishers(times: PooledTimes) -> dict[str, ErrorLaw]:
    """The laws of errors on servers of a new publisher, from a fit without each of them."""
    made = problem(times)
    errors = without_publishers(times, made, np.asarray(made.starts()))
    return UnseenErrors.of(times, errors).every_law()


OUTPUTS = ("tpot", "ttft")
# what is left out one at a time, and whether of AMD's rows
KINDS: dict[str, tuple[Callable[[PooledRow], str], bool]] = {
    "system": (lambda row: row.system, False),
    "model": (lambda row: row.model, False),
    "amd": (lambda row: row.group, True),
}


class NewErrors(NamedTuple):
    """Measured over predicted by output, and how many kinds were left out one at a time."""

    kinds: int
    tpot: np.ndarray
    ttft: np.ndarray

    def medians(self) -> dict[str, float]:
        """The median error of each output, per cent."""
        ratios = (self.tpot, self.ttft)
        errors = (100.0 * float(np.median(np.abs(1.0 / x - 1.0))) for x in ratios)
        return dict(zip(OUTPUTS, errors, strict=True))


def new_errors(
    rows: Sequence[PooledRow], fit: Fit | None = None, say: Callable[[str], object] = print
) -> dict[str, NewErrors]:
    """The errors by what is new. ``fit``: another than the shipped one; ``say``: of progress."""
    model, times = shipped_fit() if fit is None else fit.tree, PooledTimes.of(rows)
    errors = refit_errors(times, None if fit is None else fit.free, say)
    amd = [row for row in rows if _is_plain_loop(row) and row.system in AMD]
    pools = [row for row in rows if row.dataset == "silicon pools"]
    hopper = model.replace(cdna3=model.hopper, cdna4=model.hopper)
    return errors | {"make": _errors(amd, hopper), "pools": _errors(pools, model)}


def refit_errors(
    times: PooledTimes, free: np.ndarray | None, say: Callable[[str], object]
) -> dict[str, NewErrors]:
    """The errors of systems, models and AMD's servers, each by a fit without it.

    ``free``: where the fits start; None: at what is shipped.
    """
    made = problem(times)
    start = made.starts() if free is None else free
    loops, first = offered_loops(times), np.isin(times.kind, (TTFT, MEDIAN))
    amd = np.asarray([row.system in AMD for row in times.rows])[times.row]
    errors = {}
    for name, (label, of_amd) in KINDS.items():
        scored, labels = loops & (amd == of_amd), times.labels(label)
        folds = label_masks(labels, scored)
        logs = left_out_errors(times, made, folds, start, weights(times), scored, say)
        ratios, left = np.exp(logs), np.isfinite(logs)
        paces, firsts = ratios[left & (times.kind == PACE)], ratios[left & first]
        errors[name] = NewErrors(len(set(labels[left])), paces, firsts)
    return errors


def offered_loops(times: PooledTimes) -> np.ndarray:
    """Closed loops of one pool of an engine that is offered, which ATOM is not."""
    loops = [row.mode == "loop" and row.framework != "atom" for row in times.rows]
    return np.asarray(loops)[times.row]


def _is_plain_loop(row: PooledRow) -> bool:
    """Closed loops of one pool with a TTFT, without drafts."""
    loop = row.mode == "loop" and "ttft" in row.measured
    return loop and isinstance(row.plan, Deployment) and float(row.plan.drafts) == 0.0


def _errors(rows: Sequence[PooledRow], model: Serving) -> NewErrors:
    columns = answers(rows, model)
    ratios = (np.asarray([r.measured[n] for r in rows]) / columns[n] for n in OUTPUTS)
    return NewErrors(0, *ratios)
