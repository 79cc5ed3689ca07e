"""What do the closed form and level 4 say a per cent is worth, and what are three changes worth?"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments import _report
from infer_jax.catalog import load_model, load_system
from infer_jax.design.sensitivity import elasticities, what_if
from infer_jax.estimators import make
from infer_jax.physics import decoder
from infer_jax.physics.closed_form import fastest_instance
from infer_jax.specs import Plan, Workload
from infer_jax.sweeps.paths import Point

HOP, REDUCES = 2e-6, 4.0  # Erdil 2025 (arXiv 2506.04645), Section 2.2 and Table 1
BANDWIDTH = 3.3e12  # bytes/s, as the paper's Table 1 has the H100
GRID = np.geomspace(1.0, 512.0, 200)  # GPUs among which level 4 is fastest
MODEL, SYSTEM = "llama-3.1-70b", "h100_sxm"


def closed_form(tree: dict[str, Array]) -> dict[str, Array]:
    """Time of a token of the fastest instance, seconds: Section 2.2.3, Eq. 14."""
    hops = tree["layers"] * REDUCES * tree["hop"]
    return {"tpot": fastest_instance(hops, tree["bytes"] / tree["bandwidth"]).time}


def closed_point() -> dict[str, Any]:
    """Llama 3 70B in 16 bits on the paper's H100."""
    arch = load_model(MODEL).architecture
    size = decoder.total(decoder.parameters(arch).values())
    numbers = {"layers": 80.0, "hop": HOP, "bytes": 2.0 * float(size), "bandwidth": BANDWIDTH}
    return {k: np.asarray(v) for k, v in numbers.items()}


def analytic(hops: float, read: float) -> tuple[float, float]:
    """(-X / (3X - a), (2X - a) / (3X - a)): of bandwidth and of latency, a = hops, m = read.

    X = (a/2)^(2/3) m^(1/3). Source: Erdil 2025 (arXiv 2506.04645), Eq. 14, differentiated.
    """
    x = (hops / 2.0) ** (2.0 / 3.0) * read ** (1.0 / 3.0)
    return -x / (3.0 * x - hops), (2.0 * x - hops) / (3.0 * x - hops)


def tpot(point: Point) -> dict[str, Array]:
    """TPOT as planned, seconds."""
    one = point.estimator.estimate(point.arch, point.hardware, point.workload, point.plan)
    return {"tpot": one.tpot}


def _times(point: Point) -> Array:
    def at(chips: Array) -> Array:
        return tpot(point._replace(plan=point.plan.replace(tp=chips)))["tpot"]

    return jax.vmap(at)(jnp.asarray(GRID))


def fastest(point: Point) -> dict[str, Array]:
    """TPOT at the fastest number of GPUs, seconds: everything is laid out anew."""
    return {"tpot": jnp.min(_times(point))}


def level4() -> Point:
    """Level 4 with one request and no context, at the GPUs at which it is fastest."""
    system, arch = load_system(SYSTEM), load_model(MODEL).architecture
    economics = make("economics.level4", system.coefficients)
    point = Point(economics, arch, system.hardware, Workload.of(), Plan.of())
    with jax.enable_x64(True):
        times = np.asarray(jax.jit(_times)(point))
    return point._replace(plan=Plan.of(tp=GRID[int(np.argmin(times))]))


def tables() -> dict[str, Any]:
    """Print and return: closed form against its formula, level 4 beside, three changes."""
    point, at = closed_point(), level4()
    slopes = {e.path: e.slope for e in elasticities(closed_form, point)}
    ours = slopes["bandwidth"], slopes["hop"]
    hops = float(point["layers"]) * REDUCES * HOP
    theirs = analytic(hops, float(point["bytes"] / point["bandwidth"]))
    reports = elasticities(tpot, at)
    four = {e.path: e.slope for e in reports}
    latencies = [e for e in reports if e.path.startswith("estimator.protocols.*") and e.unit == "s"]
    level = four["hardware.chip.memory_bandwidth"], sum(e.slope for e in latencies)
    names = ("memory bandwidth", "latency of an all-reduce")
    rows = [
        (name, f"{a:.6f}", f"{b:.6f}", f"{c:.3f}")
        for name, a, b, c in zip(names, theirs, ours, level, strict=True)
    ]
    rows.append(("kernel launch", "", "", f"{four['estimator.launch']:.3f}"))
    columns = ("elasticity of TPOT", "formula", "closed form", "level 4, fastest")
    note = (
        f"Llama 3 70B, 16 bits, one request. As latency goes to 0 they go to -1/3 and 2/3. Level 4 "
        f"is fastest at {float(at.plan.tp):.0f} GPUs; its latency row scales all latencies of "
        "NCCL's protocols."
    )
    _report.show("Elasticities", columns, rows, note)
    half = dict.fromkeys(
        ("arch.blocks.*.*.weights.bytes", "arch.embedding.bytes", "arch.head.bytes"),
        lambda x: 0.5 * x,
    )
    changes = {
        "half the bytes of every weight": half,
        "NVLink domain 8 to 72": {"hardware.network.domain": 72.0},
        "kernel launch 4 to 2 microseconds": {"estimator.launch": 2e-6},
    }
    held, anew = (
        {name: x["tpot"] for name, x in what_if(law, at, changes).items()}
        for law in (tpot, fastest)
    )
    shown = [
        (name, *(f"{100 * (1 / (1 + found[name]) - 1):+.1f}" for found in (held, anew)))
        for name in changes
    ]
    _report.show(
        "What it is worth in tokens per second, level 4, %",
        ("change", "same GPUs", "fastest anew"),
        shown,
        "The paper's rule of thumb for half the weight bytes: 2^(1/3), +26 %.",
    )
    worst = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    keys = ("bandwidth", "latency")
    return {
        "closed_form": dict(zip(keys, ours, strict=True)),
        "formula": dict(zip(keys, theirs, strict=True)),
        "worst_difference": worst,
        "level4": {**dict(zip(keys, level, strict=True)), "gpus": float(at.plan.tp)},
        "what_if_same_gpus": held,
        "what_if_fastest_anew": anew,
        "agrees": worst < 1e-9,
    }
