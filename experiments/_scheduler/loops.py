"""Closed loops in closed form beside the replay of an engine's rules, passes priced alike.

TTFT and TPOT of closed loops with long prompts by both closed forms; and the estimator on random
servers: one model on one chip, other prompts, outputs, requests in flight and tokens of a pass.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

import infer_jax as ij
from infer_jax.estimators.serving import Deployment, ServerEstimate, Serving, ServingWorkload, shape
from infer_jax.estimators.serving.loads import group_of
from infer_jax.estimators.serving.price import PassLaw, pass_time
from infer_jax.estimators.serving.server_estimate import RequestTokens
from infer_jax.physics import scheduling
from infer_jax.replays import Log, Requests, serve, sglang, trtllm, vllm
from infer_jax.specs import lengths

MAX_DECODING = 128  # requests that decode in a pass at most
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


def loops(server: Server, loads: Sequence[int], drawn: bool) -> Iterator[Loop]:
    """Every load at which the cache holds all requests: replay and both closed forms.

    All use the passes of the serving model. ``drawn``: lengths are even between ``SHORTEST`` and
    all of the stated ones. Requests of the replay follow each other at once, and its passes are
    not put together ahead: the estimator has neither, too (``idle_host``).
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
        work = ServingWorkload.of(isl=isl, osl=osl, fixed=0.0 if drawn else 1.0)
        work = work.replace(batch=load, lengths=shares)
        one = model.estimate_shape(seen, hardware, work, plan)
        ctx = model.context(seen, hardware, plan)
        group = group_of(ctx, work, RequestTokens.of(ctx, work))
        load = load / ctx.plan.attention_dp
        rules = scheduling.closed_loop(group.step, group.kinds, group.server, load)
        return (rules.ttft, rules.tpot), (one.ttft, one.tpot), one.places

    law = jax.jit(lambda m: PassLaw.of_context(m.context(seen, hardware, plan)))(model)
    for load in loads:
        *both, places = closed(jnp.asarray(float(load)))
        if load <= float(places):
            replay = replayed(Partial(pass_time, law), server, load, drawn, CYCLES)
            yield Loop(server, drawn, load, replay, *(Times(*map(float, x)) for x in both))


def idle_host(engine: str = "vllm", ahead: float = 0.0) -> Serving:
    """An engine whose clients answer at once; ``ahead``: of passes put together ahead."""
    own = {"front": 0.0, "phase": 0.0, "ahead": ahead}
    return Serving.of(engine=engine).fitted({f"{engine}.{k}": x for k, x in own.items()})


RULES = {"vllm": (vllm, "blocks"), "sglang": (sglang, "tokens"), "trtllm": (trtllm, "blocks")}


def replayed(
    step: Partial, server: Server, load: int, drawn: bool, cycles: int, **rules: Any
) -> Times:
    """Times of a replay by an engine's rules, after the first quarter and before the last cycle."""
    count = max(cycles * load, MIN_REQUESTS)
    log = whole_run(step, server, load, drawn, count, **rules)
    steady = slice(count // 4, count - load)
    ttft, tpot = log.ttft[steady], log.tpot[steady]
    return Times(float(np.mean(ttft)), float(np.mean(tpot)), float(np.median(ttft)))


def whole_run(
    step: Partial, server: Server, load: int, drawn: bool, count: int,
    engine: str = "vllm", overlap: bool = False,
) -> Log:  # fmt: skip
    """The replay of ``count`` requests by an engine's rules, ``load`` of them in flight."""
    rng = np.random.default_rng(load)
    least = SHORTEST if drawn else 1.0
    isl, osl = (rng.integers(int(least * n), int(n) + 1, count) for n in (server.isl, server.osl))
    rules_of, cache = RULES[engine]
    more = {cache: AMPLE_CACHE, "budget": server.budget, "slots": MAX_DECODING}
    rules = rules_of(**more, overlap=overlap)
    return serve(step, rules, Requests.of(np.zeros(count), isl, osl), concurrency=load)


SERVER = ("llama-3.1-8b", "fp8", "h200_sxm", 1.0)
BUDGETS = (2048.0, 8192.0, 16384.0)
PROMPTS, OUTPUTS = (100.0, 16000.0), (32.0, 1024.0)  # tokens, even in logarithms
FEWER_CYCLES = 30
# one client that answers at once meets the pass that SGLang decodes once more; one that takes
# milliseconds does not
MIN_LOAD = 2
Waves = Callable[[np.random.Generator], float] | None
MAX_MEMORY_SHARE = 0.8  # of the requests that memory holds, so that none waits for memory


class RandomServer(NamedTuple):
    """A random server: its load and layout, its estimate, and the seconds of its passes."""

    server: Server
    load: int
    work: ServingWorkload
    estimate: ServerEstimate
    step: Partial


def random_servers(
    engine: str, seed: int, drawn: bool, waves: Waves = None
) -> Iterator[RandomServer]:
    """Servers whose memory holds all requests; clients answer at once, passes are scheduled ahead.

    ``drawn``: lengths are even between ``SHORTEST`` and all of the stated ones. ``waves``: requests
    of a run for each one in flight, drawn for each server.
    """
    model, quant, system, tp = SERVER
    arch, hardware = ij.load_model(model, quant=quant).architecture, ij.load_system(system).hardware
    seen = shape(arch)
    serving = idle_host(engine, 1.0)
    estimated = jax.jit(lambda work, plan: serving.estimate_shape(seen, hardware, work, plan))
    law = jax.jit(lambda plan: PassLaw.of_context(serving.context(seen, hardware, plan)))
    rng, mean = np.random.default_rng(seed), (1.0 + SHORTEST) / 2.0 if drawn else 1.0
    while True:
        isl, osl = (float(np.round(np.exp(rng.uniform(*np.log(x))))) for x in (PROMPTS, OUTPUTS))
        load = int(np.exp(rng.uniform(np.log(MIN_LOAD), np.log(MAX_DECODING + 1))))
        budget = float(rng.choice(BUDGETS))
        if engine == "trtllm":  # takes whole prompts by itself
            budget = max(budget, isl + load)
        plan = Deployment.of(tp=tp, chunk=budget)
        kind = {"fixed": 0.0 if drawn else 1.0} | ({} if waves is None else {"waves": waves(rng)})
        work = ServingWorkload.of(isl=isl * mean, osl=osl * mean, batch=float(load), **kind)
        estimate = estimated(work, plan)
        if load <= MAX_MEMORY_SHARE * float(estimate.places):
            step = Partial(pass_time, law(plan))
            server = Server(*SERVER, isl=isl, osl=osl, budget=budget)
            yield RandomServer(server, load, work, estimate, step)


def against_replay(engine: str, servers: int, seed: int = 0) -> np.ndarray:
    """TTFT and TPOT of the estimator over those of the replay less 1, a row a random server."""
    rows = []
    for one in islice(random_servers(engine, seed, True), servers):
        drawn = (one.step, one.server, one.load, True, FEWER_CYCLES)
        there, ours = replayed(*drawn, engine=engine, overlap=True), one.estimate
        rows.append((float(ours.ttft) / there.ttft - 1.0, float(ours.tpot) / there.tpot - 1.0))
    return np.array(rows)


def runs_against_replay(engine: str, servers: int, drawn: bool, seed: int = 0) -> np.ndarray:
    """Tokens a second of whole runs over the replay's less 1, a row a random server.

    Of runs of 1 to 4 waves: with their start and end, and of a server that runs on.
    """
    rows = []
    every = random_servers(engine, seed, drawn, lambda rng: float(rng.uniform(1.0, 4.0)))
    for one in islice(every, servers):
        count = round(float(one.work.waves) * one.load)
        log = whole_run(one.step, one.server, one.load, drawn, count, engine, True)
        there = float(np.sum(log.output[:count]) / np.max(log.last[:count]))
        on = one.load * float(one.work.osl) / float(one.estimate.latency)
        rows.append((float(one.estimate.throughput) / there - 1.0, on / there - 1.0))
    return np.array(rows)
