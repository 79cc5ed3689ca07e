"""Does latency alone explain speed? Section 2: the toy model, its minimum and its laws."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments._claims import Ours
from experiments._economics.fronts import Front, draw, front_of
from experiments._economics.tables import BANDWIDTH, hops, reads
from infer_jax.catalog.published import economics_hardware, economics_model
from infer_jax.estimators import Economics
from infer_jax.physics.closed_form import fastest_instance
from infer_jax.specs import ForwardPass, Plan

MODELS = ("Llama_3_8B", "Llama_3_70B", "GPT_3", "PaLM_540B", "GPT_4")
BASIS = "Llama_3_70B"


def elasticity(function: Callable[[Array], Array], at: float) -> float:
    """d log function / d log x at x = ``at``."""
    with jax.enable_x64(True):
        value, slope = jax.value_and_grad(function)(jnp.asarray(at))
        return float(slope * at / value)


def toy_time(hop: Array | float, read: Array | float) -> Array:
    """Seconds per token at the fastest instance, without base latency."""
    return fastest_instance(jnp.asarray(hop), jnp.asarray(read)).time


def with_base(bandwidth: float) -> float:
    """Least seconds per token of Llama 3 70B at level 2 with its base latency of 6 us."""
    hardware, _ = economics_hardware("H100")
    chip = hardware.chip.with_(memory_bandwidth=bandwidth, memory=1e15)
    model = Economics.level2().with_(memory_cap=1.0, flop_cap=1.0)
    arch = economics_model(BASIS)

    def time(n: Array) -> Array:
        forward = ForwardPass.of(sequences=1.0)
        plan = Plan.of().replace(tp=n)
        return model.step(arch, hardware.replace(chip=chip), forward, plan).time

    with jax.enable_x64(True):
        return float(jax.jit(jax.vmap(time))(np.geomspace(1.0, 1e4, 4001)).min())


def claims() -> Ours:
    """The claims of Section 2 and of Section 5.1 on latency."""
    return _minimum() | _scaling() | _bandwidth() | _steinhardt()


def _minimum() -> Ours:
    ratios, errors = [], []
    for name in MODELS:
        a, m = hops(name), reads(name)
        with jax.enable_x64(True):
            chips, time = map(float, fastest_instance(jnp.asarray(a), jnp.asarray(m)))
        ratios.append(chips * time / m)
        errors.append(abs(ratios[-1] - (3 - 2 ** (2 / 3) * (a / m) ** (1 / 3))))
    layer = 2 * 70e9 / 80
    return {
        "cost_ratio": (min(ratios), max(ratios)),
        "closed_ratio": max(errors),
        "layer": layer / 1e9,
        "cached_chips": layer / 50e6,
    }


def _scaling() -> Ours:
    a, m = hops(BASIS), reads(BASIS)
    exact = elasticity(lambda k: toy_time(a * k, m * k), 1.0)
    width = elasticity(lambda k: toy_time(a, m * k**2), 1.0)
    sizes, times = np.log([8, 62, 540]), np.log([4, 13, 32])
    slope = float(np.polyfit(sizes, times, 1)[0])
    depth = elasticity(lambda k: toy_time(1e-9 * a * k, m * k), 1.0)
    far = elasticity(lambda k: toy_time(1e-9 * a, m * k**2), 1.0)
    layers = np.polyfit(np.log([8, 62, 540]), np.log([32, 64, 118]), 1)[0]
    return {
        "depth_width": (depth, far, exact, width),
        "speed_by_size": tuple(400 * math.sqrt(8 / size) for size in (70, 405)),
        "depth_by_size": float(layers),
        "palm": slope,
    }


def _bandwidth() -> Ours:
    a, m = hops(BASIS), reads(BASIS)
    memory = -elasticity(lambda x: toy_time(a, x), m)
    latency = elasticity(lambda x: toy_time(x, m), a)
    more = [1 - float(toy_time(a, m / 2) / toy_time(a, m)), 1 - 2 ** (-1 / 3)]
    lpu = float(economics_hardware("Groq_LPU")[0].chip.memory_bandwidth)
    limit, based = (lpu / BANDWIDTH) ** (1 / 3), with_base(BANDWIDTH) / with_base(lpu)
    bare = float(toy_time(a, m) / toy_time(a, m * BANDWIDTH / lpu))
    chips = np.geomspace(1.0, 1e4, 100001)
    slow, fast = (float(np.min(a * (np.sqrt(chips) - 1) + x / chips)) for x in (m, m / 2))
    return {
        "bandwidth_or_latency": (memory, latency, latency - abs(memory)),
        "twice_bandwidth": (*more, more[0] - (1 - fast / slow)),
        "half_bytes": 2 ** (1 / 3) - 1,
        "groq": (limit, based, bare),
    }


def _steinhardt() -> Ours:
    """Speed per doubled cost at level 4, without any latency and with all of it."""
    hardware, coefficients = economics_hardware("H100")
    real = Economics.level4().fitted(coefficients)
    none = tuple(p.with_(base=0.0, intra=0.0, inter=0.0) for p in real.protocols)
    ideal = real.with_(launch=0.0).replace(protocols=none)
    arch = economics_model(BASIS)
    free, held = (front_of(draw(arch, hardware, model, 0.0)) for model in (ideal, real))

    def gain(front: Front, times: float) -> float:
        least = float(front.points.cost.min()) * times
        return front.at_cost(2 * least) / front.at_cost(least)

    slow, fast = gain(held, 2.0), gain(held, 16.0)
    return {"no_latency": gain(free, 2), "with_latency": (slow, fast, slow - fast)}
