"""Offline work on one layout: its lengths, its server, and what the job takes."""

import os
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
from infer_jax.servers.instance import ReplayedInstance, Sizes, pass_watts, server_of
from infer_jax.specs.lengths import lognormal
from infer_jax.verbs import inputs
from infer_jax.verbs.inputs import Setup
from infer_jax.verbs.texts import Tokens

# probabilities between which requests are of one length: ever finer towards the longest outputs
EDGES = np.r_[np.linspace(0.0, 0.98, 600), 1.0 - np.geomspace(0.02, 1e-9, 400)[1:], 1.0]
MOST_REPLICAS = 2.0**20
DEADLINES = 5  # plans for which replicas are counted, the cheapest by themselves


def job_lengths(
    isl: Tokens, osl: Tokens, trace: str | os.PathLike[str] | None, longest: float
) -> tuple[Lengths, float]:
    """Lengths of a trace, of a description of traffic (.toml), or log-normal with these spreads.

    Requests end at the ``longest`` context of the model; the second is the share that is cut.

    Raises:
        InputError: a file that is neither, or prompts that the model does not take.
    """
    weight, levels = np.diff(EDGES), (EDGES[1:] + EDGES[:-1]) / 2.0
    other = np.modf(0.5 + GOLDEN * np.arange(len(levels)))[0]
    if trace is None:
        ratios = [x.deviation / x for x in (isl, osl)]
        prompt, output = (
            x * lognormal(r)(at) / np.sqrt(1.0 + r**2)
            for x, r, at in zip((isl, osl), ratios, (other, levels), strict=True)
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
    order, squared = np.argsort(output, kind="stable"), jnp.asarray(float(weight @ prompt**2))
    columns = [x[order] for x in (weight, prompt, output)]
    if len(order) > len(levels):
        columns = _groups(*columns)
    return Lengths(*map(jnp.asarray, columns), squared=squared, own=jnp.asarray(1.0)), cut


def _groups(weight: np.ndarray, prompt: np.ndarray, output: np.ndarray) -> list[np.ndarray]:
    """Requests in order of output, those between two of ``EDGES`` together: means of each group."""
    ends = np.unique(np.round(EDGES * len(weight)).astype(int))
    first, counts = ends[:-1], np.diff(ends)
    means = [np.add.reduceat(x, first) / counts for x in (prompt, output)]
    return [np.add.reduceat(weight, first), *means]


class Job(NamedTuple):
    """What one replica does, cell by cell: seconds, requests, watts of a chip; and of it all."""

    seconds: Array
    ended: Array
    running: Array
    watts: Array
    tail: Array  # s after the last request was admitted
    wasted: Array  # s of it beyond those of a full batch
    stale: Array  # share of tokens of steps before

    @property
    def makespan(self) -> float:
        """Seconds until the last request has ended."""
        return float(np.sum(self.seconds))


class OfflinePlan(NamedTuple):
    """A layout on a system, its server, and the lengths of the job."""

    setup: Setup
    layout: Layout
    server: ReplayedInstance
    lengths: Lengths

    @property
    def label(self) -> str:
        """The layout and the system."""
        return f"{self.layout} {self.setup.system.name}"

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
        return once(_job, *given, fixed=fixed, points=SOME)

    def replicas_within(self, requests: float, seconds: float) -> float | None:
        """The fewest replicas that are done in some time; None where none are."""
        low, high = 0.0, 1.0
        while self.job(requests, high).makespan > seconds:
            low, high = high, 2.0 * high
            if high > min(MOST_REPLICAS, 2.0 * requests):
                return None
        while high - low > 1.0:
            middle = np.floor((low + high) / 2.0)
            fits = self.job(requests, middle).makespan <= seconds
            low, high = (low, middle) if fits else (middle, high)
        return high


def _job(
    stops: bool, law: PassLaw | RankedLaw, lengths: Lengths, limits: ServerLimits,
    requests: Array, replicas: Array, share: Array,
) -> Job:  # fmt: skip
    groups = replicas * law.context.plan.attention_dp
    stale, each = jnp.zeros_like(requests), requests / groups
    if stops:
        done, stale = rollouts(lengths, limits, each, share)
    else:
        done = course(lengths, limits, each)
    found = offline(done, Partial(_pass_seconds, law), lengths, limits, groups)
    pairs = lengths.squared / 2.0 / lengths.mean(lengths.prompt)
    ones = jnp.ones_like(found.fed)
    path = found.decoding, found.read, found.fed, found.fed * pairs, ones, 0.0 * ones
    if isinstance(law, RankedLaw):
        path = *path, found.seconds / jnp.maximum(done.weight * done.steps * found.some, 1e-9)
    drawn = law.context.hardware.power > 0.0
    watts = jnp.where(drawn, pass_watts(law, *path), 0.0)
    ended = done.weight * done.ended
    tail = jnp.sum(found.tail)
    running = found.decoding * law.context.plan.attention_dp
    return Job(found.seconds, ended, running, watts, tail, found.wasted, stale)


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
            server = server_of(model, arch, setup.hardware, degrees, sizes, mean)
            if server.tokens < np.max(tokens):
                room, longest = f"{server.tokens:,.0f}", f"{np.max(tokens):,.0f}"
                allowed = f"one whose cache of {room} tokens holds the longest request, {longest}"
                raise refuse("layout", str(one), allowed)
        except InputError:
            if layout:
                raise
            continue
        yield OfflinePlan(setup, one, server, lengths)


class PlannedJob(NamedTuple):
    """A job on one plan."""

    plan: OfflinePlan
    replicas: float
    job: Job

    @property
    def gpus(self) -> float:
        """GPUs of all replicas."""
        return self.replicas * self.plan.layout.chips

    @property
    def usd(self) -> float:
        """Rent of all replicas until the end."""
        return self.gpus * float(self.plan.setup.hardware.price) * self.job.makespan / HOUR


def planned_jobs(
    plans: Sequence[OfflinePlan], requests: float, replicas: float, hours: float | None
) -> list[PlannedJob]:
    """The job on every plan, the cheapest first; on as few replicas as are done in some hours.

    Raises:
        InputError: no plan holds the longest request, or none is done in time.
    """
    jobs = [PlannedJob(x, replicas, x.job(requests, replicas)) for x in plans]
    if not jobs:
        raise refuse("hardware", "of no system", "one that holds the longest request")
    jobs.sort(key=lambda x: x.usd)
    if hours is not None:
        first = [x.plan for x in jobs[:DEADLINES]]
        counts = [(x, x.replicas_within(requests, HOUR * hours)) for x in first]
        jobs = [PlannedJob(x, n, x.job(requests, n)) for x, n in counts if n is not None]
        if not jobs:
            raise refuse("within", hours, "more hours: the longest outputs alone take more")
        jobs.sort(key=lambda x: x.usd)
    return jobs
