"""What does a pair of pools answer, and what does each of its sides cost and draw?"""

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from infer_jax.estimators.disaggregated import Disaggregated, Pools
from infer_jax.estimators.estimate import Estimate
from infer_jax.estimators.serving import Deployment, Serving
from infer_jax.physics.energy import power
from infer_jax.planning.choose import Asked, Choice
from infer_jax.planning.layouts import Layout
from infer_jax.planning.served import QUICK
from infer_jax.specs import Hardware, Workload

EXACT = 1024  # combinations that are evaluated with the transfer between the pools


class Side(NamedTuple):
    """A pool's system, and the model of it."""

    name: str
    hardware: Hardware
    serving: Serving


class Rows(NamedTuple):
    """A pool's best rows, by instance: layout, sequences, chips, seconds of a pass, requests/s."""

    layout: list[Layout]
    sequences: np.ndarray
    chips: np.ndarray
    time: np.ndarray
    rate: np.ndarray
    price: float


def evaluated(
    wrapper: Disaggregated,
    arch: Any,
    hardware: Any,
    work: Workload,
    common: Deployment,
    pools: tuple[Rows, Rows],
    pairs: list[tuple[int, int, float, float]],
) -> Estimate:
    """Every pair of pools with its transfer; padded to one number of rows, for one program."""
    padded = pairs + [pairs[-1]] * (EXACT - len(pairs))
    sides = [
        dict(zip(Layout._fields, np.asarray([p.layout[k] for k in ks], np.float64).T, strict=True))
        for p, ks in zip(pools, list(zip(*padded, strict=True))[:2], strict=True)
    ]
    i, j = (np.array([pair[k] for pair in padded]) for k in (0, 1))
    numbers = np.array([pair[2:] for pair in padded])
    batches_ = pools[0].sequences[i], pools[1].sequences[j]
    return jax.device_get(_lives(wrapper, arch, hardware, work, common, sides, batches_, numbers.T))


@partial(jax.jit, compiler_options=QUICK)
def _lives(
    wrapper: Any, arch: Any, hardware: Any, work: Any, common: Any, sides: Any, each: Any, n: Any
) -> Estimate:
    def one(degrees: Any, sequences: Any, copies: Any) -> Estimate:
        pools = Pools(
            prefill=common.replace(**degrees[0]),
            decode=common.replace(**degrees[1]),
            prefill_copies=copies[0],
            decode_copies=copies[1],
            prefill_batch=sequences[0],
        )
        return wrapper.estimate(arch, hardware, work.replace(batch=sequences[1]), pools)

    return jax.vmap(one)(sides, each, tuple(n))


def choice(
    sides: tuple[Side, Side],
    pools: tuple[Rows, Rows],
    pair: tuple[int, int, float, float],
    row: int,
    lives: Estimate,
    work: Workload,
    asked: Asked,
) -> Choice:
    i, j, *copies = pair
    life: Any = jax.tree.map(lambda x: x[row], lives)
    first, second = pools[0].layout[i], pools[1].layout[j]
    chips = float(life.chips)
    rent = sum(n * p.chips[k] * p.price for n, p, k in zip(copies, pools, (i, j), strict=True))
    rate = float(life.throughput) * chips / float(work.osl)
    ends = life.prefill, life.decode
    passes = rate / pools[0].sequences[i], rate * (float(work.osl) - 1.0) / pools[1].sequences[j]
    into, out = (
        _watts(side, end, each / n, n * p.chips[k]) / rate
        for side, end, each, n, p, k in zip(sides, ends, passes, copies, pools, (i, j), strict=True)
    )
    tokens = float(work.isl - work.prefix), float(work.osl), float(work.isl + work.osl)
    if asked.rate is not None:
        rate = min(rate, asked.rate)
    excess = {
        "TTFT": float(life.ttft) / asked.ttft - 1.0,
        "TPOT": float(life.tpot) / asked.tpot - 1.0,
        "GPUs": chips / asked.chips - 1.0,
        **{name: float(limit.shortfall) for name, limit in life.decode.limits.items()},
        **{f"prefill {name}": float(x.shortfall) for name, x in life.prefill.limits.items()},
    }
    names = list(dict.fromkeys(side.name for side in sides))
    memory = life.decode.limits["memory"]
    return Choice(
        mode="disaggregated",
        system=" > ".join(names),
        layout=f"{copies[0]:g} x {first} > {copies[1]:g} x {second}",
        degrees={
            "prefill": {**first._asdict(), "instances": copies[0], "batch": pools[0].sequences[i]},
            "decode": {**second._asdict(), "instances": copies[1]},
        },
        batch=float(pools[1].sequences[j]),
        chips=chips,
        ttft=float(life.ttft),
        tpot=float(life.tpot),
        requests_per_s=rate,
        usd_per_hour=rent,
        isl=float(work.isl),
        osl=float(work.osl),
        binds=max(life.decode.terms, key=lambda k: float(life.decode.terms[k])),
        memory=(float(memory.need), float(memory.capacity)),
        input_usd=float(life.input_cost),
        output_usd=float(life.cost),
        joules=1e6 * (into + out) / tokens[2],
        input_joules=1e6 * into / max(tokens[0], 1.0),
        output_joules=1e6 * out / tokens[1],
        excess={k: v for k, v in excess.items() if v > 0.0},
    )


def _watts(side: Side, end: Any, busy: float, chips: float) -> float:
    """Watts of a pool's chips and their building; ``busy``: passes a second of an instance."""
    draw = side.serving.draw
    reading, computing = (np.minimum(x * busy, 1.0) for x in (end.reading, end.computing))
    return float(chips * power(side.hardware.power, reading, computing, draw) * draw.pue)
