"""The estimator's closed loop beside the replay of each engine's rules, on random servers.

One model on one chip: what differs is prompts, outputs, requests in flight and the tokens of a
pass. Both sides price passes alike, so that what is left is how requests share them.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

import infer_jax as ij
from experiments._scheduler.loops import SHORTEST, Server, Times, replayed
from experiments._scheduler.pricing import MOST, priced, seconds
from infer_jax.estimators.serving import Deployment, Serving, ServingWorkload, shape

SERVER = ("llama-3.1-8b", "fp8", "h200_sxm", 1.0)
BUDGETS = (2048.0, 8192.0, 16384.0)
PROMPTS, OUTPUTS = (100.0, 16000.0), (32.0, 1024.0)  # tokens, even in logarithms
CYCLES = 30
# one client that answers at once meets the pass that SGLang decodes once more; one that takes
# milliseconds does not
FEWEST = 2
ROOMY = 0.8  # of the requests that memory holds, so that none waits for memory


def against_replay(engine: str, servers: int, seed: int = 0) -> np.ndarray:
    """TTFT and TPOT of the estimator over those of the replay less 1, a row a random server.

    Lengths are drawn from ``SHORTEST`` to all of the longest; clients answer at once, and passes
    are put together ahead, as each engine does by itself.
    """
    model, quant, system, tp = SERVER
    arch, hardware = ij.load_model(model, quant=quant).architecture, ij.load_system(system).hardware
    seen = shape(arch)
    serving = Serving.of(engine=engine).fitted(
        {f"{engine}.front": 0.0, f"{engine}.phase": 0.0, f"{engine}.ahead": 1.0}
    )

    @jax.jit
    def estimated(work: ServingWorkload, plan: Deployment):
        one = serving.serve(seen, hardware, work, plan)
        return one.ttft, one.tpot, one.places

    @jax.jit
    def price(plan: Deployment, context: jax.Array):
        return priced(serving.context(seen, hardware, plan), context)

    rng, mean, rows = np.random.default_rng(seed), (1.0 + SHORTEST) / 2.0, []
    while len(rows) < servers:
        isl, osl = (float(np.round(np.exp(rng.uniform(*np.log(x))))) for x in (PROMPTS, OUTPUTS))
        load = int(np.exp(rng.uniform(np.log(FEWEST), np.log(MOST + 1))))
        budget = float(rng.choice(BUDGETS))
        if engine == "trtllm":  # takes whole prompts by itself
            budget = max(budget, isl + load)
        plan = Deployment.of(tp=tp, chunk=budget)
        work = ServingWorkload.of(isl=isl * mean, osl=osl * mean, batch=float(load))
        ttft, tpot, places = map(float, estimated(work, plan))
        if load > ROOMY * places:
            continue
        step = Partial(seconds, price(plan, jnp.asarray((isl + osl / 2.0) * mean)))
        server = Server(*SERVER, isl=isl, osl=osl, budget=budget)
        there: Times = replayed(step, server, load, True, CYCLES, overlap=True, engine=engine)
        rows.append((ttft / there.ttft - 1.0, tpot / there.tpot - 1.0))
    return np.array(rows)
