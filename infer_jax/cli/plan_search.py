"""Which plans answer a question, over every system and format that it names?"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np

from infer_jax.catalog import Model, System
from infer_jax.estimators import Trust
from infer_jax.estimators.serving import Deployment
from infer_jax.planning import Asked, Choice, Side, front, machine, search
from infer_jax.planning.machines import rule
from infer_jax.planning.search import Searched, largest
from infer_jax.verbs import inputs
from infer_jax.verbs.drafts import Drafting
from infer_jax.verbs.progress import busy
from infer_jax.verbs.requests import Requested


class Money(NamedTuple):
    """Rent and power as the command line gives them."""

    price: float | None
    region: float
    pue: float | None


class Question(NamedTuple):
    """What is to be served, on what, and within which limits.

    ``decoding``: the system of the pool that decodes, where it is another; ``estimator``: its
    name; ``total``: GPUs in all, where they are given; ``pictured``: whether plans are drawn.
    """

    config: str
    systems: Sequence[str]
    decoding: str | None
    formats: Sequence[str | None]
    kv_dtype: str | None
    money: Money
    total: float | None
    requests: Requested
    asked: Asked
    estimator: str
    common: Deployment
    modes: Sequence[str]
    chunks: Sequence[float]
    drafts: Drafting | None
    count: int
    pictured: bool
    set: Sequence[str] | None = None


class Found(NamedTuple):
    """Plans within the limits, else the nearest misses, and what they were searched among.

    ``usual``: whether plans were kept within the usual TTFT, for want of a limit; ``systems``,
    ``trusted``: by name; ``formats``: the options by what they came to; ``series``: what is drawn.
    """

    met: list[Choice]
    missed: list[Choice]
    usual: bool
    configurations: int
    model: Model
    systems: Mapping[str, System]
    trusted: Mapping[str, Trust]
    formats: Mapping[str, str | None]
    series: Mapping[str, Sequence[Choice]]
    notes: list[str]

    @property
    def best(self) -> Choice | None:
        """The cheapest plan within the limits."""
        return min(self.met, key=lambda c: c.rank, default=None)


class _Pool(NamedTuple):
    """A system that is considered, and what was assumed."""

    given: inputs.Given
    side: Side
    notes: list[str]
    trusted: Trust


def plans(question: Question) -> Found:
    """The plans of every system and format.

    Raises:
        InputError: a name or file that cannot be read; no layout that an engine runs.
    """
    within: dict[bool, list[Choice]] = {True: [], False: []}
    missed: list[Choice] = []
    notes: list[str] = []
    systems: dict[str, System] = {}
    trusted: dict[str, Trust] = {}
    formats: dict[str, str | None] = {}
    series: dict[str, Sequence[Choice]] = {}
    configurations = 0
    for name, form in product(question.systems, question.formats):
        pools = [_pool(question, name, form)]
        if question.decoding is not None:
            pools.append(_pool(question, question.decoding, form))
        for pool in pools:
            notes += pool.notes + inputs.too_long(pool.given.model, question.requests.work)
            systems[pool.side.name] = pool.given.system
            trusted[pool.side.name] = pool.trusted
        first = pools[0]
        ask = partial(_search, question, pools)
        with busy(f"evaluating every layout on {first.side.name}"):
            found = ask(question.asked)
            if question.pictured:
                # drawn are also the plans that break the limit of TPOT, which is a line
                label = " > ".join(dict.fromkeys(pool.side.name for pool in pools))
                label += f", {form}" if len(question.formats) > 1 else ""
                series[label] = ask(replace(question.asked, frontier=True, tpot=np.inf)).met
        configurations += found.looked
        if not found.pooled:
            notes.append(f"No two pools of {first.side.name} fit what is asked.")
        stored = first.given.model.quantisation
        formats[stored] = form
        within[found.usual] += [replace(c, formats=stored) for c in found.met]
        missed += [replace(c, formats=stored) for c in found.missed]
    usual = bool(within[True])
    met = within[usual]
    met = front(met) if question.asked.frontier else sorted(met, key=lambda c: c.rank)
    missed = [] if met else sorted(missed, key=lambda c: c.rank)
    model = first.given.model
    known = (configurations, model, systems, trusted, formats, series, notes)
    return Found(met, missed, usual, *known)


def _search(question: Question, pools: Sequence[_Pool], asked: Asked) -> Searched:
    drafts = question.drafts
    return search(
        [pool.side for pool in pools],
        pools[0].given.model.architecture,
        question.requests.work,
        asked,
        question.common,
        modes=question.modes,
        chunks=question.chunks,
        drafts=drafts.counts if drafts else (0.0,),
        draft=drafts.draft if drafts else None,
        count=question.count,
    )


def _pool(question: Question, system: str, form: str | None) -> _Pool:
    price, region, pue = question.money
    name, total = question.estimator, question.total
    given = inputs.given(question.config, system, form, question.kv_dtype, price, question.set)
    serving, hardware = inputs.estimator(name, given), given.hardware
    trusted = inputs.trust(name, serving, given)
    if pue is not None:
        serving = serving.replace(draw=serving.draw.with_(pue=pue))
    if question.drafts is not None:
        serving = serving.with_(acceptance=question.drafts.acceptance)
    hardware = hardware.with_(price=float(hardware.price) * region)
    size, _ = machine(given.hardware, given.system.title)
    side = Side(given.system.name, hardware, serving, size)
    most = math.inf if total is None else largest(given.hardware, total)
    notes = given.notes
    if region != 1.0:
        notes.append(f"{side.name}: rents are {region:g} times those, by --region-factor.")
    if most > 2:
        notes.append(f"{side.name}: {rule(size)}.")
    if total is not None and most < total:
        notes.append(f"{side.name}: an instance has at most {most:g} GPUs.")
    return _Pool(given, side, notes, trusted)
