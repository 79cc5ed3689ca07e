"""How requests of a closed loop share passes, by the rules of a scheduler.

A closed loop: b requests run on a replica; each generates its tokens and is replaced at once.
From start to end a request shares passes with the prompt of each of the b - 1 others once. Which of
these come before its first token, and how long it waits for them, follows from the engine's order:
prompts in the passes that decode (``beside_decodes``), or in passes of their own before anyone
decodes on (``before_decodes``).
Nothing here is fitted. Lengths are tokens; times are counted in passes.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

MIN_SCALE = 1e-6  # least share of a pass


class OtherPrompts(NamedTuple):
    """A prompt and those of others that are fed before or beside it.

    ``chunks``: passes that feed it; ``prompt_tokens``: those of a pass; ``waiting_passes``: further
    passes until its first token; ``prompts_met``: prompts of others in all these passes;
    ``decoding``: share of running requests that are past their first token in a pass that decodes.
    """

    chunks: Array
    prompt_tokens: Array
    waiting_passes: Array
    prompts_met: Array
    decoding: Array


def beside_decodes(
    running: Array, prompt: Array, passes: Array, budget: Array, fed: Array, equal: Array
) -> OtherPrompts:
    """Prompts of others that a request meets where every pass decodes, and feeds prompts, too.

    vLLM V1 (v1/core/sched/scheduler.py) and TensorRT-LLM's in-flight batching. A pass decodes
    ``fed`` tokens of each request past its first token; what is left of its ``budget`` of tokens,
    the room, goes to prompts in order of arrival. A request needs D = ``passes`` passes after its
    first token; its prompt of I tokens is s = I / room passes of work, in c = ceil(s) passes.

    Where lengths differ, the prompts of b - 1 others come in random passes and queue for w passes,

        w = (b - 1) s^2 / (2 (D + c + w - (b - 1) s)),

    Kingman's wait (1961, Mathematical Proceedings 57) at the load (b - 1) s / (D + c + w), which
    depends on w: a quadratic. Prompts that share a pass wait less, load^(1/s) times. Where all are
    ``equal``, they go in lockstep: short ones together in one pass, longer ones one behind another
    (docs/theories/scheduler.md).
    """
    # passes from a request's start to that of the next one in its place: its own at least, and
    # those that the tokens of all requests fill
    shortest = passes + jnp.ceil(prompt / budget)
    period = jnp.maximum(shortest, running * (prompt + fed * passes) / budget)
    room = budget - running * fed * passes / period
    size = prompt / room
    chunks = jnp.ceil(size)
    least, others, slack = passes + chunks, jnp.maximum(running - 1.0, 0.0), chunks - size

    # work: passes that the prompts of others fill. The root is of more than 0: without others
    # ``free`` is all of ``least``
    work = others * size
    free = least - work
    queue = 0.5 * (jnp.sqrt(free**2 + 2.0 * work * size) - free)
    load = jnp.clip(work / (least + queue), 1e-9, 1.0)
    # of the prompts in the same pass half are fed before one's own
    before = jnp.exp(jnp.log(load) / size) * queue + 0.5 * load
    # beyond the slack of one's own passes, an exponential tail
    scale = jnp.maximum(before, MIN_SCALE)
    turns = jnp.minimum(jnp.exp(-slack / scale) / -jnp.expm1(-1.0 / scale), before + 1.0)
    met = jnp.minimum(before + 0.5 * load, turns + slack)

    needed = running * size
    bound = jnp.maximum(needed - least, 0.0)
    missing = (jnp.ceil(needed) - needed) * jnp.maximum(1.0 - bound, 0.0)
    convoy = jnp.maximum(slack - missing / jnp.maximum(running, 1.0), 0.0)
    # a request's pass is no emptier than the mean pass
    beside = (running / (least + bound) - 1.0) * size
    beside = jnp.maximum(jnp.where(chunks > 1.0, convoy, 0.0), beside)

    turns, met = jnp.where(equal, bound, turns), jnp.where(equal, beside + bound, met)
    met = jnp.minimum(met / size, others)
    return OtherPrompts(chunks, room, turns, met, passes / (least + turns))


def before_decodes(
    running: Array, prompt: Array, passes: Array, budget: Array, equal: Array
) -> OtherPrompts:
    """Prompts go in passes of their own, ``budget`` tokens each, before anyone decodes on.

    SGLang (managers/scheduler.py, get_next_batch_to_run): n prompts that come at the end of one
    decode pass follow each other, q = budget / I to a pass, so that the mean one has its first
    token when (n + min(n, q)) / 2 are through. n is all of them where lengths are ``equal``, for
    then all end together; 1 + (b - 1) / D where they differ.
    """
    others = jnp.maximum(running - 1.0, 0.0)
    size = prompt / budget
    together = jnp.where(equal, others, jnp.minimum(others / jnp.maximum(passes, 1.0), others))
    beside = jnp.minimum(together, jnp.maximum(1.0 / size - 1.0, 0.0))
    met = 0.5 * (together + beside)
    none, all_of_them = jnp.zeros_like(met), jnp.ones_like(met)
    return OtherPrompts(jnp.ceil(size), budget, none, met, all_of_them)


def admission_wait(
    running: Array,
    often: Array,
    plain: Array,
    more: Array,
    phase: Array,
    ahead: Array,
    equal: Array,
) -> tuple[Array, Array]:
    """Seconds from an arrival to the first pass that can feed it; of these, in others' prompts.

    It waits for the rest of the running pass, then for the passes that the host has queued
    ``ahead`` before it looks for new requests. The rest is a share ``phase`` of the pass, a half on
    average: a longer pass is more likely to be the running one, E[T^2] / (2 E[T]). A pass takes
    ``plain`` seconds, and a share ``often`` of them takes ``more`` for prompts of others. Where all
    lengths are ``equal``, prompts arrive one after another, and the passes before a prompt's own
    hold those of others, as far as there are others. A single request waits for nothing.
    """
    others = jnp.maximum(running - 1.0, 0.0)
    turns = phase + ahead
    mean = plain + often * more
    # phase E[T^2] / E[T] = phase plain + this
    middle = phase * often * more * (plain + more) / mean
    apart = middle + ahead * often * more
    behind = jnp.where(equal, jnp.minimum(others, turns) * more, apart)
    return jnp.minimum(others, 1.0) * turns * plain + behind, behind


def first_wave(running: Array, prefill: Array, waves: Array | float) -> Array:
    """Seconds that a benchmark's start adds to the mean time to first token.

    max(b - 1, 0) P / (2 w): b requests come at once, the mean one waits for the prompts of half of
    the others, and of w b requests in all one in w is of these. Benchmarks that keep a number in
    flight start so: vllm bench serve with --max-concurrency and an infinite --request-rate.
    """
    return jnp.maximum(running - 1.0, 0.0) * prefill / (2.0 * waves)


def median_of_wave(wave: Array, waves: Array | float) -> Array:
    """Seconds that a benchmark's start adds to the median time to first token, not the mean.

    wave v (2 - v), v = min(w, 2). The waits of the first requests, one in w, are even from 0 to
    2 w wave, all others have none: half of all have none from w = 2 on. Never more than the mean.
    """
    few = jnp.minimum(waves, 2.0)
    return wave * few * (2.0 - few)


def passes_beyond(waves: Array, period: Array, feeding: Array, equal: Array) -> Array:
    """Decode passes that a run of ``waves`` takes beyond those of a server that runs on.

    All requests come at once. The prompts of those that run together take ``feeding`` passes (r),
    and each request has ``period`` passes (p): at the start they come one by one, at the end they
    leave so. Of w waves the last, a share f of those that fit, starts f r passes after the one
    before it has ended:

        ceil(w) p + f r - w p = f r + (1 - f) p,  f = w - ceil(w) + 1,  r at most p.

    Where lengths differ, waves dissolve: beyond one, f is a half in the mean.
    """
    mixed = jnp.where(waves > 1.0, 0.5, 1.0)
    last = jnp.where(equal, waves - jnp.ceil(waves) + 1.0, mixed)
    return last * jnp.minimum(feeding, period) + (1.0 - last) * period
