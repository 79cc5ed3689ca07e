"""The estimator's closed loop beside the replay of each engine's rules, on random servers.

One model on one chip: what differs is prompts, outputs, requests in flight and the tokens of a
pass. Both sides price passes alike, so that what is left is how requests share them.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

import jax
import numpy as np
from jax.tree_util import Partial

import infer_jax as ij
from experiments._scheduler.loops import MAX_DECODING, SHORTEST, Server, replayed, whole_run
from infer_jax.estimators.serving import Deployment, ServerEstimate, Serving, ServingWorkload, shape
from infer_jax.estimators.serving.price import PassLaw, pass_time

SERVER = ("llama-3.1-8b", "fp8", "h200_sxm", 1.0)
BUDGETS = (2048.0, 8192.0, 16384.0)
PROMPTS, OUTPUTS = (100.0, 16000.0), (32.0, 1024.0)  # tokens, even in logarithms
CYCLES = 30
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
    plan: Deployment
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
    serving = Serving.of(engine=engine).fitted(
        {f"{engine}.front": 0.0, f"{engine}.phase": 0.0, f"{engine}.ahead": 1.0}
    )

    @jax.jit
    def estimated(work: ServingWorkload, plan: Deployment):
        return serving.estimate_shape(seen, hardware, work, plan)

    @jax.jit
    def law(plan: Deployment):
        return PassLaw.of_context(serving.context(seen, hardware, plan))

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
            yield RandomServer(server, load, work, plan, estimate, step)


def against_replay(engine: str, servers: int, seed: int = 0) -> np.ndarray:
    """TTFT and TPOT of the estimator over those of the replay less 1, a row a random server."""
    rows = []
    for one in islice(random_servers(engine, seed, True), servers):
        there = replayed(one.step, one.server, one.load, True, CYCLES, overlap=True, engine=engine)
        ttft, tpot = float(one.estimate.ttft), float(one.estimate.tpot)
        rows.append((ttft / there.ttft - 1.0, tpot / there.tpot - 1.0))
    return np.array(rows)


def runs_against_replay(engine: str, servers: int, drawn: bool, seed: int = 0) -> np.ndarray:
    """Tokens a second of whole runs over the replay's less 1, a row a random server.

    Of runs of 1 to 4 waves: with their start and end, and of a server that runs on.
    """
    rows = []
    every = random_servers(engine, seed, drawn, lambda rng: float(rng.uniform(1.0, 4.0)))
    for one in islice(every, servers):
        count = round(float(one.work.waves) * one.load)
        log = whole_run(one.step, one.server, one.load, drawn, count, engine)
        there = float(np.sum(log.output[:count]) / np.max(log.last[:count]))
        on = one.load * float(one.work.osl) / float(one.estimate.latency)
        rows.append((float(one.estimate.throughput) / there - 1.0, on / there - 1.0))
    return np.array(rows)
