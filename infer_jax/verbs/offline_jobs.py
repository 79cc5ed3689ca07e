"""Offline work on one layout: its lengths, its server, and what the job takes."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from infer_jax.arrivals import read_traffic
from infer_jax.arrivals.traffic import GOLDEN, correlated
from infer_jax.catalog.traces import read_trace
from infer_jax.compiling import SOME, once
from infer_jax.errors import InputError
from infer_jax.estimators.serving.price import PassLaw, RankedLaw, experts_time, own_time, pass_time
from infer_jax.fleets.fluid import HOUR
from infer_jax.physics.scheduling.kinds import ServerLimits
from infer_jax.physics.scheduling.offline import Lengths, course, offline, rollouts
from infer_jax.planning import Layout, layouts
from infer_jax.planning.layout import machine
from infer_jax.results.problems import refuse
from infer_jax.servers.instance import ReplayedInstance, Sizes, pass_watts, replayed_instance
from infer_jax.specs.lengths import lognormal
from infer_jax.verbs import inputs
from infer_jax.verbs.inputs import Setup
from infer_jax.verbs.options import Place
from infer_jax.verbs.texts import Tokens

# probabilities between which requests are of one length: ever finer towards the longest outputs
EDGES = np.r_[np.linspace(0.0, 0.98, 600), 1.0 - np.geomspace(0.02, 1e-9, 400)[1:], 1.0]
MOST_REPLICAS = 2.0**20
DEADLINES = 5  # plans for which replicas are counted, the cheapest by themselves


def job_lengths(
    isl: Tokens, osl: Tokens, trace: Place | None, longest: float, group: float = 1.0
) -> tuple[Lengths, float]:
    """Lengths of a trace, of a description of traffic (.toml), or log-normal with these spreads.

    Requests end at the ``longest`` context of the model; the second is the share that is cut.
    ``group``: requests that share a prompt.

    Raises:
        InputError: a file that is neither, or prompts that the model does not take.
    """
    weight, levels = np.diff(EDGES), (EDGES[1:] + EDGES[:-1]) / 2.0
    other = np.modf(0.5 + GOLDEN * np.arange(len(levels)))[0]
    if trace is None:
        prompt, output = (
            x * lognormal(x.deviation / x)(at) / np.hypot(1.0, x.deviation / x)
            for x, at in ((isl, other), (osl, levels))
        )
    elif Path(trace).suffix == ".toml":
        traffic = read_traffic(trace)
        pair = correlated(levels, other, float(traffic.dependence))
        prompt, output = traffic.lengths_at(pair[::-1])
    else:
        read = read_trace(trace, skip_damaged=True)
        prompt, output = read.isl, read.osl
        weight = np.full(len(prompt), 1.0 / len(prompt))
    if np.min(prompt) >= longest:
        raise refuse("isl", float(np.min(prompt)), f"less than {longest:.12g}, the longest context")
    cut = float(weight @ (prompt + output > longest))
    prompt, output = np.clip(prompt, 1.0, longest - 1.0), np.maximum(output, 1.0)
    output = np.minimum(output, longest - prompt)
    squared = jnp.asarray(float(weight @ prompt**2))
    columns = np.stack([weight, prompt, output])[:, np.argsort(output, kind="stable")]
    if len(output) > len(levels):  # of a trace: those between two of EDGES together
        begins = np.unique(np.round(EDGES * len(output)).astype(int))[:-1]
        columns = np.add.reduceat(columns, begins, axis=1)
        columns[1:] /= len(output) * columns[0]
    return Lengths(*map(jnp.asarray, columns), squared=squared, own=jnp.asarray(1.0 / group)), cut


class Job(NamedTuple):
    """What replicas of a plan do; of one, cell by cell, its seconds and requests."""

    plan: "OfflinePlan"
    requests: float
    replicas: float
    seconds: Array
    ended: Array
    running: Array
    makespan: float  # s until the last request has ended
    joules: float  # of a chip
    tail: float  # s after the last request was admitted
    wasted: float  # s of it beyond those of a full batch
    stale: float  # share of tokens of steps before

    @property
    def output_tokens(self) -> float:
        """Output tokens of all requests."""
        return self.requests * self.plan.mean("output")

    @property
    def gpus(self) -> float:
        """GPUs of all replicas."""
        return self.replicas * self.plan.layout.chips

    @property
    def usd(self) -> float:
        """Rent of all replicas until the end."""
        return self.gpus * float(self.plan.setup.hardware.price) * self.makespan / HOUR


class OfflinePlan(NamedTuple):
    """A layout on a system, its server, and the lengths of the job."""

    setup: Setup
    layout: Layout
    server: ReplayedInstance
    lengths: Lengths

    def mean(self, column: str) -> float:
        """Tokens of a request in the mean: those of its prompt, or its output."""
        return float(np.average(getattr(self.lengths, column), weights=self.lengths.weight))

    def job(self, requests: float, replicas: float = 1.0, stop_at: float | None = None) -> Job:
        """So many requests on some replicas; or a step that ends when they have."""
        rules = self.server.rules
        limits = ServerLimits(
            budget=jnp.asarray(rules.budget),
            slots=jnp.asarray(rules.slots),
            cache=jnp.asarray(self.server.tokens),
            reserved=jnp.asarray(float(rules.mixed and not rules.preempts)),
            block=jnp.asarray(rules.block),
            prompts_first=jnp.asarray(float(not rules.mixed)),
            empty=jnp.asarray(float(rules.overlap)),
        )
        numbers = (jnp.asarray(x) for x in (requests, replicas, stop_at or 1.0))
        given, fixed = (self.server.pass_, self.lengths, limits, *numbers), (stop_at is not None,)
        cells, totals = once(_job, *given, fixed=fixed, points=SOME)
        return Job(self, requests, replicas, *cells, *map(float, totals))

    def job_within(self, requests: float, seconds: float) -> Job | None:
        """The job on the fewest replicas that are done in some time; None where none are."""
        low, job = 0.0, self.job(requests)
        while job.makespan > seconds:
            low = job.replicas
            if 2.0 * low > min(MOST_REPLICAS, 2.0 * requests):
                return None
            job = self.job(requests, 2.0 * low)
        while job.replicas - low > 1.0:
            middle = self.job(requests, np.floor((low + job.replicas) / 2.0))
            low, job = (low, middle) if middle.makespan <= seconds else (middle.replicas, job)
        return job


def _job(
    stops: bool, law: PassLaw | RankedLaw, lengths: Lengths, limits: ServerLimits,
    requests: Array, replicas: Array, share: Array,
) -> tuple[tuple[Array, Array, Array], tuple[Array, ...]]:  # fmt: skip
    """Arrays and totals of a ``Job``; ``stops``: of a step that ends with a ``share`` of them."""
    ranks = law.context.plan.attention_dp
    each, stale = requests / (replicas * ranks), jnp.zeros_like(requests)
    if stops:
        done, stale = rollouts(lengths, limits, each, share)
    else:
        done, _ = course(lengths, limits, each)
    found = offline(done, Partial(_pass_seconds, law), lengths, limits, replicas * ranks)
    pairs = lengths.squared / 2.0 / lengths.mean(lengths.prompt)
    ones = jnp.ones_like(done.fed)
    path = found.decoding, found.read, done.fed, done.fed * pairs, ones, 0.0 * ones
    if isinstance(law, RankedLaw):
        path = *path, found.seconds / jnp.maximum(done.weight * done.steps * found.some, 1e-9)
    watts = jnp.where(law.context.hardware.power > 0.0, pass_watts(law, *path), 0.0)
    cells = found.seconds, done.weight * done.ended, found.decoding * ranks
    totals = jnp.sum(found.seconds), jnp.sum(found.seconds * watts), found.tail, found.wasted
    return cells, (*totals, stale)


def _pass_seconds(
    law: PassLaw | RankedLaw, decoding: Array, context: Array, new: Array, pairs: Array
) -> Array:
    """Seconds of a pass; of attention groups that share experts one where all feed as much."""
    if isinstance(law, PassLaw):
        return pass_time(law, decoding, context, new, pairs)
    ranks = law.context.plan.attention_dp
    shared = jnp.vectorize(lambda tokens: experts_time(law, tokens * ranks))
    return own_time(law, decoding, context, new, pairs) + shared(decoding + new)


def offline_plans(
    setup: Setup, name: str, layout: Layout | None, sizes: Sizes, lengths: Lengths
) -> Iterator[OfflinePlan]:
    """The layout that is asked for, or every one of a machine, that holds the longest request.

    Raises:
        InputError: the one that is asked for holds none.
    """
    model = inputs.serving(name, setup)
    arch, size = setup.model.architecture, machine(setup.hardware, setup.system.title)[0]
    tokens = np.asarray(lengths.own * lengths.prompt + lengths.output)
    mean = float(np.asarray(lengths.weight) @ tokens)
    asked = [layout] if layout else [x for x in layouts(arch, min(size, 8), size=size) if x.pp == 1]
    for one in asked:
        degrees = {"tp": one.tp, "ep": one.ep, "attention_dp": one.attention_dp}
        try:
            server = replayed_instance(model, arch, setup.hardware, degrees, sizes, mean)
            if server.tokens < np.max(tokens):
                room, longest = f"{server.tokens:,.0f}", f"{np.max(tokens):,.0f}"
                allowed = f"one whose cache of {room} tokens holds the longest request, {longest}"
                raise refuse("layout", str(one), allowed)
        except InputError:
            if layout:
                raise
        else:
            yield OfflinePlan(setup, one, server, lengths)


def cheapest_jobs(
    plans: Sequence[OfflinePlan], requests: float, replicas: float, hours: float | None
) -> list[Job]:
    """The job on every plan, the cheapest first; on as few replicas as are done in some hours.

    Raises:
        InputError: no plan holds the longest request, or none is done in time.
    """
    jobs = sorted((x.job(requests, replicas) for x in plans), key=lambda x: x.usd)
    if not jobs:
        raise refuse("hardware", "of no system", "one that holds the longest request")
    if hours is None:
        return jobs
    found = (x.plan.job_within(requests, HOUR * hours) for x in jobs[:DEADLINES])
    jobs = sorted((x for x in found if x is not None), key=lambda x: x.usd)
    if not jobs:
        raise refuse("within", hours, "more hours: the longest outputs alone take more")
    return jobs
