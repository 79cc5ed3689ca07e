"""TTFT and TPOT of closed loops with long prompts: both closed forms and the replay.

A replay asks for the seconds of a server's passes: those of the serving model, tabulated.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial
from jaxtyping import Float

import infer_jax as ij
from infer_jax.estimators.serving import Deployment, Serving, ServingWorkload, pass_terms, shape
from infer_jax.estimators.serving.context import Context
from infer_jax.estimators.serving.launches import eager_launch
from infer_jax.estimators.serving.open_loop import group_of
from infer_jax.estimators.serving.passes import step_law
from infer_jax.estimators.serving.server_estimate import RequestTokens
from infer_jax.physics import scheduling
from infer_jax.replays import Log, Requests, Rules, serve, sglang, trtllm, vllm
from infer_jax.specs import lengths

MAX_DECODING = 128  # requests that decode in a pass at most
FINE = 8  # points to a doubling of the rows of a pass
ROWS = 2.0 ** (np.arange(16 * FINE + 1) / FINE)


class Priced(NamedTuple):
    """The parts of ``step_law``, tabulated: seconds by requests that decode and by rows, slopes."""

    decode: Float[Array, " requests"]
    layers: Float[Array, " rows"]  # logarithms
    pair: Array  # a new token that attends to one other
    cached: Array  # a cached token that a prompt's pass reads
    launch: Array  # of a pass with prompts
    token: Array  # more of it for each of their tokens
    head: Array  # of a prompt, where nobody decodes beside it
    beside: Array  # of these launches, those that requests which decode wait for


def priced(c: Context, context: Array) -> Priced:
    """The passes of one attention group whose requests decode at ``context`` tokens."""
    law = step_law(c, context)
    none, one, many = jnp.asarray(0.0), jnp.asarray(1.0), jnp.asarray(1000.0)

    def attending(new: Array, cached: Array) -> Array:
        return pass_terms.prefill_attention(c, one, new, cached).time / c.plan.pp

    pair = attending(many, none) / (many**2 / 2.0)
    launch = eager_launch(c, none)
    return Priced(
        decode=jax.vmap(lambda d: law(d, none, one, none))(jnp.arange(MAX_DECODING + 1.0)),
        layers=jnp.log(jax.vmap(lambda n: pass_terms.through_layers(c, n).time)(jnp.asarray(ROWS))),
        pair=pair,
        cached=(attending(many, many) - pair * 1.5 * many**2) / many,
        launch=launch,
        token=(eager_launch(c, many) - launch) / many,
        head=pass_terms.head(c, one, 1.0).time * c.coefficients.laws.prompt_logits,
        beside=jnp.asarray(c.coefficients.eager_beside_decode),
    )


def seconds(p: Priced, decoding: Array, context: Array, new: Array, pairs: Array) -> Array:
    """Seconds of a pass, by the arguments of a replay; ``context`` counts by its mean alone."""
    fed = jnp.maximum(new, 1.0)

    def through(rows: Array) -> Array:
        known = np.log(ROWS)
        return jnp.exp(jnp.interp(jnp.log(jnp.maximum(rows, 1.0)), known, p.layers))

    attending = p.pair * pairs + p.cached * jnp.maximum(pairs / fed - fed / 2.0, 0.0)
    launches = p.launch + p.token * fed
    alone = through(fed) + attending + launches + p.head
    more = through(decoding + fed) - through(decoding) + attending + p.beside * launches
    decode = p.decode[jnp.clip(decoding, 0, MAX_DECODING).astype(jnp.int32)]
    beside = decode + jnp.where(new > 0, more, 0.0)
    return jnp.where(decoding > 0, beside, jnp.where(new > 0, alone, 0.0))


CYCLES = 40  # requests of a replay, for each one in flight; a quarter of them is left out
MIN_REQUESTS = 512
AMPLE_CACHE = 2.0**24  # blocks, or SGLang's tokens, of a cache that is never short
SHORTEST = 0.8  # of the stated lengths, where they are drawn


class Server(NamedTuple):
    """A model on a system, and the lengths of its requests."""

    model: str
    quant: str
    system: str
    tp: float
    isl: float = 10240.0
    osl: float = 128.0
    budget: float = 8192.0


class Times(NamedTuple):
    """Seconds: TTFT and TPOT, means, and the median of TTFT where it is asked for."""

    ttft: float
    tpot: float
    ttft_median: float = math.nan


class Loop(NamedTuple):
    """One load: times of the replay, by the laws of batching, and of the serving estimator."""

    server: Server
    drawn: bool
    load: int
    replay: Times
    rules: Times
    estimate: Times

    def factors(self) -> tuple[float, ...]:
        """TTFT and TPOT over the replay, of the laws and of the estimator."""
        both = ((side.ttft, side.tpot) for side in (self.rules, self.estimate))
        return tuple(x / y for side in both for x, y in zip(side, self.replay, strict=False))


def loops(server: Server, loads: Sequence[int], drawn: bool, cycles: int = CYCLES) -> list[Loop]:
    """Every load at which the cache holds all requests: replay and both closed forms.

    All use one step time, the passes of the serving model at the mean context of a request that
    decodes. ``drawn``: lengths are even between ``SHORTEST`` and all of the stated ones. Requests
    of the replay follow each other at once, and its passes are not put together ahead: the
    estimator has neither, too (``idle_host``).
    """
    arch = ij.load_model(server.model, quant=server.quant).architecture
    hardware = ij.load_system(server.system).hardware
    model, plan = idle_host(), Deployment.of(tp=server.tp, chunk=server.budget)
    mean = (1.0 + SHORTEST) / 2.0 if drawn else 1.0
    even = lengths.uniform(SHORTEST / mean, 1.0 / mean)
    shares = lengths.independent(even, even) if drawn else ()
    isl, osl = server.isl * mean, server.osl * mean
    seen = shape(arch)

    @jax.jit
    def closed(load: jax.Array):
        work = ServingWorkload.of(isl=isl, osl=osl, fixed=0.0 if drawn else 1.0).replace(
            batch=load, lengths=shares
        )
        one = model.estimate_shape(seen, hardware, work, plan)
        ctx = model.context(seen, hardware, plan)
        group = group_of(ctx, work, RequestTokens.of(ctx, work))
        load = load / ctx.plan.attention_dp
        rules = scheduling.closed_loop(group.step, group.kinds, group.server, load)
        return (rules.ttft, rules.tpot), (one.ttft, one.tpot), one.places

    price = jax.jit(lambda m: priced(m.context(seen, hardware, plan), jnp.asarray(isl + osl / 2)))
    step = Partial(seconds, price(model))
    answers = []
    for load in loads:
        rules, found, places = closed(jnp.asarray(float(load)))
        if load <= float(places):
            replay = replayed(step, server, load, drawn, cycles)
            answers.append(
                Loop(server, drawn, load, replay, *(Times(*map(float, x)) for x in (rules, found)))
            )
    return answers


def idle_host() -> Serving:
    """vLLM whose clients answer at once, and which puts no pass together while another runs."""
    return Serving.of(engine="vllm").fitted(
        dict.fromkeys(("vllm.front", "vllm.phase", "vllm.ahead"), 0.0)
    )


def rules_of(engine: str, budget: float, overlap: bool) -> Rules:
    """An engine's rules with a cache that is never short."""
    if engine == "sglang":
        return sglang(tokens=AMPLE_CACHE, budget=budget, slots=MAX_DECODING, overlap=overlap)
    if engine == "trtllm":
        return trtllm(blocks=AMPLE_CACHE, budget=budget, slots=MAX_DECODING, overlap=overlap)
    return vllm(blocks=AMPLE_CACHE, budget=budget, slots=MAX_DECODING, overlap=overlap)


def replayed(
    step: Partial,
    server: Server,
    load: int,
    drawn: bool,
    cycles: int,
    overlap: bool = False,
    engine: str = "vllm",
) -> Times:
    """Times of a replay by an engine's rules, after the first quarter and before the last cycle."""
    count = max(cycles * load, MIN_REQUESTS)
    log = whole_run(step, server, load, drawn, count, engine, overlap)
    steady = slice(count // 4, count - load)
    ttft, tpot = log.ttft[steady], log.tpot[steady]
    return Times(float(np.mean(ttft)), float(np.mean(tpot)), float(np.median(ttft)))


def whole_run(
    step: Partial,
    server: Server,
    load: int,
    drawn: bool,
    count: int,
    engine: str,
    overlap: bool = True,
) -> Log:
    """The replay of ``count`` requests by an engine's rules, ``load`` of them in flight."""
    rng = np.random.default_rng(load)
    least = SHORTEST if drawn else 1.0
    inside, out = (
        rng.integers(int(least * n), int(n) + 1, count) for n in (server.isl, server.osl)
    )
    rules = rules_of(engine, server.budget, overlap)
    return serve(step, rules, Requests.of(np.zeros(count), inside, out), concurrency=load)
