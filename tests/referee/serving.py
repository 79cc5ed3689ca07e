"""Random servers and workloads for the referee, and both sides' answers to one of them."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from infer_jax.physics import scheduling
from infer_jax.physics.scheduling.admission import SATURATING
from infer_jax.specs import lengths

from .events import Engine, Log, Requests, serve

# these programs run for microseconds: compiling them is what the time goes to
SHORT = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
KINDS = 63  # shares of a workload, filled up with empty ones: one program for all


class Machine(NamedTuple):
    """Coefficients of the step time: seconds, per sequence, token read, token fed, pair."""

    host: Any
    weights: Any
    read: Any
    fed: Any
    pair: Any


def step_time(m: Machine, decoding: Any, context: Any, new: Any, pairs: Any) -> Any:
    """Host time, and the 3-norm of what is read and what is computed."""
    memory = m.weights + m.read * context
    compute = m.fed * (decoding + new) + m.pair * pairs
    return m.host + (memory**3 + compute**3) ** (1.0 / 3.0)


class Case(NamedTuple):
    """A machine, an engine, lengths (quantile functions), and a load."""

    machine: Machine
    engine: Engine
    prompt: float
    output: float
    shapes: tuple[Any, Any]
    concurrency: int | None  # closed loop
    load: float  # open loop: share of the capacity
    variability: float


SHAPES = {
    "fixed": lengths.fixed(),
    "even": lengths.uniform(0.8, 1.0),
    "wide": lengths.uniform(0.1, 1.9),
    "lognormal": lengths.lognormal(1.0),
    "exponential": lengths.exponential(),
    "mixture": lambda p: np.where(p < 0.8, 0.5, 3.0),
}


def cases(count: int, seed: int = 0) -> list[Case]:
    """Random cases, loads up to 85 %, half of them closed loops."""
    rng = np.random.default_rng(seed)

    def between(low, high):
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    result = []
    for i in range(count):
        machine = Machine(
            host=between(1e-4, 2e-3), weights=between(2e-3, 2e-2), read=between(3e-9, 1e-7),
            fed=between(1.5e-5, 2e-4), pair=between(1e-10, 1e-8),
        )  # fmt: skip
        slots = int(between(4, 256))
        prompt, output = between(50, 8000), between(20, 800)
        names = rng.choice(list(SHAPES), 2)
        engine = Engine(
            budget=int(rng.choice([512, 2048, 8192])),
            slots=slots,
            blocks=int(max(between(0.3, 4) * slots, 20.0) * (prompt + output) / 16),
        )
        closed = i % 2 == 0
        result.append(
            Case(
                machine=machine,
                engine=engine,
                prompt=prompt,
                output=output,
                shapes=(str(names[0]), str(names[1])),
                concurrency=max(1, int(rng.uniform(0.05, 0.85) * slots)) if closed else None,
                load=float(rng.uniform(0.05, 0.85)),
                variability=float(rng.choice([1.0, 1.0, 2.0, 4.0])),
            )
        )
    return result


def kinds(case: Case) -> scheduling.Kinds:
    """The law's requests: the shares of both shapes, scaled."""
    shares = lengths.independent(*(SHAPES[s] for s in case.shapes))
    table = np.zeros((4, KINDS))
    table[1:] = 1.0
    for i, s in enumerate(shares):
        table[:, i] = (s.weight, max(s.isl * case.prompt, 1.0), 0.0, max(s.osl * case.output, 1.0))
    table[2] = 0.0
    return scheduling.Kinds(*map(jnp.asarray, table))


def server(case: Case) -> scheduling.ServerLimits:
    e = case.engine
    sizes = (e.budget, e.slots, e.blocks * e.block, 1.0, e.block)
    return scheduling.ServerLimits(*(jnp.asarray(1.0 * x) for x in sizes))


def law_step(m: Machine, context: Any):
    return lambda b, p, n, c: step_time(m, b, b * context, p * n, p * n * (c + n / 2.0))


@partial(jax.jit, compiler_options=SHORT)
def closed(m: Machine, k: scheduling.Kinds, s: scheduling.ServerLimits, concurrency: Any):
    return scheduling.closed_loop(law_step(m, scheduling.mean_context(k)), k, s, concurrency)


@partial(jax.jit, compiler_options=SHORT)
def opened(
    m: Machine, k: scheduling.Kinds, s: scheduling.ServerLimits, load: Any, variability: Any
):
    step = law_step(m, scheduling.mean_context(k))
    rate = load * scheduling.closed_loop(step, k, s, jnp.asarray(SATURATING)).rate
    return scheduling.open_loop(step, k, s, rate, variability)


def law(case: Case) -> scheduling.MeanService:
    m = Machine(*map(jnp.asarray, case.machine))
    if case.concurrency is not None:
        return closed(m, kinds(case), server(case), jnp.asarray(1.0 * case.concurrency))
    return opened(m, kinds(case), server(case), *map(jnp.asarray, (case.load, case.variability)))


def lengths_of(case: Case, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Prompts and outputs of ``count`` requests, tokens."""
    result = []
    for shape, mean in zip(case.shapes, (case.prompt, case.output), strict=True):
        whole = SHAPES[shape]((np.arange(4000) + 0.5) / 4000).mean()
        values = SHAPES[shape](rng.uniform(1e-4, 1 - 1e-4, count)) * mean / whole
        result.append(np.maximum(np.round(values), 1))
    prompt, output = result
    return prompt, output


def events(case: Case, rate: float, count: int, seed: int = 0) -> Log:
    """What happens to ``count`` requests drawn from the case."""
    rng = np.random.default_rng(seed)
    drawn, arrival = lengths_of(case, rng, count), np.zeros(count)
    if case.concurrency is None:
        arrival = np.cumsum(rng.gamma(1 / case.variability, case.variability / rate, count))

    def step(b, context, n, pairs):
        return step_time(case.machine, b, context, n, pairs)

    return serve(step, case.engine, Requests(arrival, *drawn), case.concurrency).settled()
