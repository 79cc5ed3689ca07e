"""Kinds of requests that arrive, the server and its steps, and the answer: rates, percentiles."""

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from infer_jax.specs import Workload

LEVELS = (0.5, 0.9, 0.95, 0.99)


class Kinds(NamedTuple):
    """Kinds of requests, arrays of one length: shares (they sum to 1) and tokens of each."""

    weight: Array
    fresh: Array  # prompt tokens to compute, at least 1
    cached: Array  # prompt tokens found in the cache
    output: Array
    gain: Array | float = 1.0  # output tokens of a decode step; more than 1 with drafts

    @property
    def decode_steps(self) -> Array:
        """Decode steps of each kind, (O - 1) / gain, kept above 0 so that TPOT is defined."""
        return jnp.maximum(self.output - 1.0, 1e-3) / self.gain

    def mean(self, value: Array) -> Array:
        """The mean over requests of a value of each kind."""
        return jnp.sum(self.weight * value)

    def variance(self, value: Array) -> Array:
        """The variance over requests of a value of each kind, exactly 0 for one kind."""
        return self.mean((value - self.mean(value)) ** 2)

    def variation(self, value: Array) -> Array:
        """The squared coefficient of variation over requests of a value of each kind."""
        return self.variance(value) / self.mean(value) ** 2


class ServerLimits(NamedTuple):
    """The limits of a server: slots, cache and tokens per step."""

    budget: Array  # tokens fed in one step, by each stage of a pipeline
    slots: Array  # requests running at once
    cache: Array  # tokens of cache
    reserved: Array | float = 1.0  # share of the output whose cache is taken from the start
    block: Array | float = 0.0  # tokens of a block of cache
    prompts_first: Array | float = 0.0  # 1: steps with prompts decode nobody
    phase: Array | float = 0.5  # share of the step that runs at an arrival which is to come
    empty: Array | float = 0.0  # steps that a slot stays empty where passes overlap
    fed: Array | float = 1.0  # tokens that a decoding request feeds in a step, its drafts included
    stages: Array | float = 1.0  # of a pipeline: a prompt makes steps longer by its time in one


class MeanService(NamedTuple):
    """Means over requests, times in seconds; ``ttft_at`` the percentiles ``LEVELS``.

    ``tpot`` is a mean of ratios in an open loop, a ratio of means in a closed one.

    Two figures go by the name of TPOT: ``tpot`` leaves the first token out, as vLLM's and
    SGLang's benchmarks do; ``tpot_with_first`` divides the whole latency, as GuideLLM does.
    """

    rate: Array  # requests finished per second
    capacity: Array  # the most of them
    running: Array  # requests that have a slot
    decoding: Array  # those past their first token
    waiting: Array  # those without a slot
    limit: Array  # slots, or what the cache holds where that is less
    ttft: Array
    ttft_at: tuple[Array, ...]
    slot_wait: Array  # parts of ttft: for a slot,
    step_wait: Array  # for the running step (a closed loop counts it below),
    queue_wait: Array  # for prompts before one's own,
    own: Array  # and the steps of one's own prompt
    tpot: Array  # (latency - ttft) / (output - 1)
    tpot_with_first: Array  # latency / output, of the means
    following: Array  # mean time of the step after the one that an arrival finds running
    latency: Array

    @property
    def load(self) -> Array:
        """Requests finished, as a share of the most that can be."""
        return self.rate / self.capacity


def kinds_of(workload: Workload) -> Kinds:
    """The kinds of requests of a workload; one where all are of one length."""
    if not workload.lengths:
        ones = jnp.ones_like(jnp.reshape(jnp.asarray(workload.isl), (1,)))
        return Kinds(
            weight=ones,
            fresh=jnp.maximum(workload.isl - workload.prefix, 1.0) * ones,
            cached=workload.prefix * ones,
            output=workload.osl * ones,
        )
    weight, isl, osl, prefix = (
        jnp.stack([jnp.asarray(getattr(s, name)) for s in workload.lengths])
        for name in ("weight", "isl", "osl", "prefix")
    )
    cached = workload.prefix * prefix
    return Kinds(
        weight=weight / jnp.sum(weight),
        fresh=jnp.maximum(workload.isl * isl - cached, 1.0),
        cached=cached,
        output=jnp.maximum(workload.osl * osl, 1.0),
    )


def mean_context(kinds: Kinds) -> Array:
    """Mean tokens in the cache of a decoding request: longer outputs are there for longer.

    sum w (O - 1) (I + O / 2) / sum w (O - 1).
    """
    steps = kinds.weight * jnp.maximum(kinds.output - 1.0, 1e-6)
    prompt = kinds.cached + kinds.fresh
    return jnp.sum(steps * (prompt + kinds.output / 2.0)) / jnp.sum(steps)


class Step(Protocol):
    """The law of a server: what one step takes."""

    def __call__(self, decoding: Array, prompts: Array, new: Array, cached: Array, /) -> Array:
        """Seconds of a step in which ``decoding`` requests decode and ``prompts`` others are fed.

        Each prompt feeds ``new`` tokens that follow ``cached`` ones; all are real numbers.
        """
        ...


class Server(NamedTuple):
    """A server that batches continuously, with the requests that it gets: what all laws read."""

    step: Step
    kinds: Kinds
    limits: ServerLimits


class DecodeStep(NamedTuple):
    """A step that only decodes, and the budget that it leaves to prompts."""

    decoding: Array  # d: requests that decode in it
    time: Array  # t: seconds
    prompt_budget: Array  # R: prompt tokens that it could feed besides, in all stages
    chunks: Array  # c = ceil(I / R): steps that a prompt of each kind takes on its own


def prompt_room(server: ServerLimits, decoding: Array) -> Array:
    """Prompt tokens that all stages have room for beside ``decoding`` requests, at least one."""
    return jnp.maximum(server.stages * server.budget - decoding * server.fed, 1.0)


def decode_step(server: Server, decoding: Array) -> DecodeStep:
    """The step of a server in which ``decoding`` requests are past their first token."""
    zero, one = jnp.asarray(0.0), jnp.asarray(1.0)
    budget = prompt_room(server.limits, decoding)
    chunks = jnp.ceil(server.kinds.fresh * server.limits.stages / budget)
    return DecodeStep(decoding, server.step(decoding, zero, one, zero), budget, chunks)


def service_time(server: Server, decode: DecodeStep, others: Array) -> Array:
    """Seconds that a prompt of each kind adds to its steps, ``others`` tokens of prompts beside it.

        S = (step(d, f / i, i, h + (I - i) / 2) - t) I / f,   f = min(I + others, R),  i = min(I, f)

    The f prompt tokens of a step are taken to be of prompts like this one, of I tokens after h
    cached ones, that are half fed; each prompt is charged its share of them.
    """
    kinds = server.kinds
    fed = jnp.minimum(kinds.fresh + others, decode.prompt_budget)
    own = jnp.minimum(kinds.fresh, fed)
    before = kinds.cached + (kinds.fresh - own) / 2.0
    times = jax.vmap(server.step, (None, 0, 0, 0))(decode.decoding, fed / own, own, before)
    return jnp.maximum(times - decode.time, 0.0) * kinds.fresh / fed


def prefill_time(server: Server, decode: DecodeStep, service: Array) -> Array:
    """Seconds of the steps that feed one's own prompt: stages S + c t.

    It goes through every stage of a pipeline, one chunk after another; others wait for one stage.
    """
    return server.limits.stages * service + decode.chunks * decode.time
