"""How requests of a closed loop share passes, by the rules of a scheduler.

A closed loop: b requests run on a replica; each generates its tokens and is replaced at once.
From start to end a request shares passes with the prompt of each of the b - 1 others once. Which of
these come before its first token, and how long it waits for them, follows from the engine's order:
prompts in the passes that decode (``beside_decodes``), or in passes of their own before anyone
decodes on (``before_decodes``). Before that it waits for a pass that can feed it
(``admission_wait``), and a benchmark has a start and an end (``first_wave``, ``passes_beyond``).
Nothing here is fitted. Lengths are tokens; times are counted in passes.

Symbols: b requests that run, D passes that decode one of them, I tokens of a prompt, R those that a
pass has budget for, s = I / R passes of work, in c = ceil(s) passes.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

MIN_SCALE = 1e-6  # least share of a pass


class OtherPrompts(NamedTuple):
    """A prompt and those of others that are fed before or beside it."""

    chunks: Array  # c: passes that feed it
    prompt_tokens: Array  # R: of a pass
    waiting_passes: Array  # w: further passes until its first token
    prompts_met: Array  # m: prompts of others in all these passes
    decoding: Array  # share of running requests past their first token in a pass that decodes


def beside_decodes(
    running: Array, prompt: Array, passes: Array, budget: Array, fed: Array, equal: Array
) -> OtherPrompts:
    """Prompts of others that a request meets where every pass decodes, and feeds prompts, too.

        w = (b - 1) s^2 / (2 (D + c + w - (b - 1) s))

    passes that the prompts of b - 1 others queue for where lengths differ and they come in random
    passes: Kingman's wait (1961, Mathematical Proceedings 57) at the load (b - 1) s / (D + c + w),
    which depends on w: a quadratic. Prompts that share a pass wait less, load^(1/s) times. Where
    all are ``equal``, they go in lockstep: short ones together in one pass, longer ones one behind
    another (docs/theories/scheduler.md).

    vLLM V1 (v1/core/sched/scheduler.py) and TensorRT-LLM's in-flight batching. A pass decodes
    ``fed`` tokens of each request past its first token; what is left of its ``budget`` of tokens
    goes to prompts in order of arrival. D = ``passes``, after the first token.
    """
    # passes from a request's start to that of the next one in its place: its own at least, and
    # those that the tokens of all requests fill
    shortest = passes + jnp.ceil(prompt / budget)
    period = jnp.maximum(shortest, running * (prompt + fed * passes) / budget)
    prompt_budget = budget - running * fed * passes / period
    size = prompt / prompt_budget
    chunks = jnp.ceil(size)
    least, others, slack = passes + chunks, jnp.maximum(running - 1.0, 0.0), chunks - size

    # passes that the prompts of others fill, and those that are left. The root is of more than 0:
    # without others ``free`` is all of ``least``
    work = others * size
    free = least - work
    queue = 0.5 * (jnp.sqrt(free**2 + 2.0 * work * size) - free)
    load = jnp.clip(work / (least + queue), 1e-9, 1.0)
    # of the prompts in the same pass half are fed before one's own
    before = jnp.exp(jnp.log(load) / size) * queue + 0.5 * load
    # beyond the slack of one's own passes, an exponential tail
    scale = jnp.maximum(before, MIN_SCALE)
    waiting = jnp.minimum(jnp.exp(-slack / scale) / -jnp.expm1(-1.0 / scale), before + 1.0)
    met = jnp.minimum(before + 0.5 * load, waiting + slack)

    needed = running * size
    bound = jnp.maximum(needed - least, 0.0)
    missing = (jnp.ceil(needed) - needed) * jnp.maximum(1.0 - bound, 0.0)
    convoy = jnp.maximum(slack - missing / jnp.maximum(running, 1.0), 0.0)
    # a request's pass is no emptier than the mean pass
    beside = (running / (least + bound) - 1.0) * size
    beside = jnp.maximum(jnp.where(chunks > 1.0, convoy, 0.0), beside)

    waiting, met = jnp.where(equal, bound, waiting), jnp.where(equal, beside + bound, met)
    met = jnp.minimum(met / size, others)
    return OtherPrompts(chunks, prompt_budget, waiting, met, passes / (least + waiting))


def before_decodes(
    running: Array, prompt: Array, passes: Array, budget: Array, equal: Array
) -> OtherPrompts:
    """Prompts of others that a request meets where prompts go in passes of their own.

        m = (n + min(n, q)) / 2 - 1,   q = budget / I

    SGLang (managers/scheduler.py, get_next_batch_to_run): n prompts that come at the end of one
    decode pass follow each other, q to a pass of ``budget`` tokens, before anyone decodes on; the
    mean one has its first token when (n + min(n, q)) / 2 are through. n is all of them where
    lengths are ``equal``, for then all end together; 1 + (b - 1) / D where they differ.
    """
    others = jnp.maximum(running - 1.0, 0.0)
    size = prompt / budget
    together = jnp.where(equal, others, jnp.minimum(others / jnp.maximum(passes, 1.0), others))
    beside = jnp.minimum(together, jnp.maximum(1.0 / size - 1.0, 0.0))
    met = 0.5 * (together + beside)
    return OtherPrompts(jnp.ceil(size), budget, jnp.zeros_like(met), met, jnp.ones_like(met))


class AdmissionWait(NamedTuple):
    """The wait for the first pass that can feed an arrival."""

    seconds: Array
    in_prompts: Array  # seconds of these in which prompts of others are fed


def admission_wait(
    running: Array,
    prefilling: Array,
    decode_pass: Array,
    prompts: Array,
    phase: Array,
    queued: Array,
    equal: Array,
) -> AdmissionWait:
    """Seconds from an arrival to the first pass that can feed it.

        phase E[T^2] / E[T] + queued E[T]

    It waits for the rest of the running pass, then for the passes that the host has ``queued``
    before it looks for new requests. The rest is a share ``phase`` of the pass, a half on average:
    a longer pass is more likely to be the running one, E[T^2] / (2 E[T]). A pass takes T seconds:
    ``decode_pass``, and ``prompts`` more in a share ``prefilling`` of them, for prompts of others.
    Where all lengths are ``equal``, prompts arrive one after another, and the passes before a
    prompt's own hold those of others, as far as there are others. A single request waits for
    nothing.
    """
    others = jnp.maximum(running - 1.0, 0.0)
    passes = phase + queued
    mean = decode_pass + prefilling * prompts
    # phase E[T^2] / E[T] = phase decode_pass + this
    residual = phase * prefilling * prompts * (decode_pass + prompts) / mean
    unlike = residual + queued * prefilling * prompts
    in_prompts = jnp.where(equal, jnp.minimum(others, passes) * prompts, unlike)
    return AdmissionWait(jnp.minimum(others, 1.0) * passes * decode_pass + in_prompts, in_prompts)


def first_wave(running: Array, prefill: Array, waves: Array | float) -> Array:
    """Seconds that a benchmark's start adds to the mean TTFT: max(b - 1, 0) P / (2 w).

    b requests come at once, the mean one waits for the prompts of half of
    the others, and of w b requests in all one in w is of these. Benchmarks that keep a number in
    flight start so: vllm bench serve with --max-concurrency and an infinite --request-rate.
    """
    return jnp.maximum(running - 1.0, 0.0) * prefill / (2.0 * waves)


def median_of_wave(wave: Array, waves: Array | float) -> Array:
    """Seconds that a benchmark's start adds to the median TTFT: wave v (2 - v), v = min(w, 2).

    The waits of the first requests, one in w, are even from 0 to
    2 w wave, all others have none: half of all have none from w = 2 on. Never more than the mean.
    """
    few = jnp.minimum(waves, 2.0)
    return wave * few * (2.0 - few)


def passes_beyond(waves: Array, period: Array, feeding: Array, equal: Array) -> Array:
    """Decode passes that a run of ``waves`` takes beyond those of a server that runs on.

        ceil(w) p + f r - w p = f r + (1 - f) p,   f = w - ceil(w) + 1,   r at most p

    All requests come at once. The prompts of those that run together take ``feeding`` passes (r),
    and each request has ``period`` passes (p): at the start they come one by one, at the end they
    leave so. Of w waves the last, a share f of those that fit, starts f r passes after the one
    before it has ended. Where lengths differ, waves dissolve: beyond one, f is a half in the mean.
    """
    mixed = jnp.where(waves > 1.0, 0.5, 1.0)
    last = jnp.where(equal, waves - jnp.ceil(waves) + 1.0, mixed)
    return last * jnp.minimum(feeding, period) + (1.0 - last) * period
