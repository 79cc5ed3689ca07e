"""What do pairs of pools answer, and what does each of their sides cost and draw?"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from infer_jax.estimators.disaggregated import Disaggregated, Pools
from infer_jax.estimators.estimate import Estimate
from infer_jax.estimators.serving import Deployment, Pass, Serving
from infer_jax.physics.energy import power
from infer_jax.planning.aggregated import by_rows
from infer_jax.planning.choose import MILLION, Asked, Choice, answered, exceeded, undominated
from infer_jax.planning.layouts import Layout
from infer_jax.specs import Hardware, Workload

EXACT = 1024  # combinations that are evaluated with the transfer between the pools


class Side(NamedTuple):
    """A pool's system, the model of it, and the chips of one machine: 1 where that is not known."""

    name: str
    hardware: Hardware
    serving: Serving
    machine: int = 1


class Rows(NamedTuple):
    """A pool's best rows, by instance: layout, sequences, chips, its pass, requests/s."""

    layout: list[Layout]
    sequences: np.ndarray
    chips: np.ndarray
    phase: Pass
    rate: np.ndarray
    price: float


Pair = tuple[int, int, float, float]  # rows of both pools, and instances of each


class Lives(NamedTuple):
    """What pairs of pools answer; watts of each pool, building included."""

    life: Estimate
    watts: tuple[np.ndarray, np.ndarray]


def evaluated(
    wrapper: Disaggregated,
    arch: Any,
    sides: tuple[Side, Side],
    work: Workload,
    common: Deployment,
    pools: tuple[Rows, Rows],
    pairs: list[Pair],
) -> Lives:
    """Every pair of pools with its transfer."""
    columns = [np.array(column) for column in zip(*pairs, strict=True)]
    ends = [_end(*each) for each in zip(pools, columns[:2], columns[2:], strict=True)]
    boards = [(side.hardware.power, side.serving.draw) for side in sides]
    world = (wrapper, arch, sides[0].hardware, work, common, boards)
    return by_rows(_lives, world, *ends)


def _end(pool: Rows, row: np.ndarray, copies: np.ndarray) -> tuple[Any, ...]:
    """One pool of each pair: degrees, instances, sequences in one, its pass."""
    degrees = np.asarray(pool.layout, np.float64)[row].T
    phase = jax.tree.map(lambda x: x[row], pool.phase)
    return dict(zip(Layout._fields, degrees, strict=True)), copies, pool.sequences[row], phase


def _lives(
    wrapper: Any,
    arch: Any,
    hardware: Any,
    work: Any,
    common: Any,
    boards: Any,
    *ends: Any,
) -> Lives:
    def one(*pair: Any) -> Lives:
        plans, copies, sequences, phases = zip(*pair, strict=True)
        pools = Pools(
            prefill=common.replace(**plans[0]),
            decode=common.replace(**plans[1]),
            prefill_copies=copies[0],
            decode_copies=copies[1],
            prefill_batch=sequences[0],
        )
        asked = work.replace(batch=sequences[1])
        life = wrapper.joined(arch, hardware, asked, pools, phases)
        rate = life.throughput * life.chips / work.osl
        passes = rate, rate * (work.osl - 1.0)
        chips = copies[0] * pools.prefill.instance, copies[1] * pools.decode.instance
        watts = []
        for each, n, b, phase, on, (board, draw) in zip(
            passes, copies, sequences, phases, chips, boards, strict=True
        ):
            busy = each / b / n  # passes a second of an instance
            read, computed = (jnp.minimum(x * busy, 1.0) for x in (phase.reading, phase.computing))
            watts.append(on * power(board, read, computed, draw) * draw.pue)
        return Lives(life, (watts[0], watts[1]))

    return jax.vmap(one)(*ends)


def choices(
    sides: tuple[Side, Side],
    pools: tuple[Rows, Rows],
    pairs: list[Pair],
    lives: Lives,
    work: Workload,
    asked: Asked,
    count: int,
) -> tuple[list[Choice], list[Choice]]:
    """The cheapest pairs within the limits, one a layout, and the nearest misses otherwise.

    Or all pairs within the limits that no other beats in both TPOT and dollars.
    """
    life, isl, osl = lives.life, float(work.isl), float(work.osl)
    i, j, x, y = (np.array(column) for column in zip(*pairs, strict=True))
    rent = x * pools[0].chips[i] * pools[0].price + y * pools[1].chips[j] * pools[1].price
    served = np.asarray(life.throughput) * np.asarray(life.chips) / osl
    joules = [MILLION * np.asarray(watts) / served for watts in lives.watts]
    rate = served if asked.rate is None else np.minimum(served, asked.rate)
    limits = {**life.decode.limits, **{f"prefill {k}": v for k, v in life.prefill.limits.items()}}
    excess = {
        "TTFT": np.asarray(life.ttft) / asked.ttft - 1.0,
        "TPOT": np.asarray(life.tpot) / asked.tpot - 1.0,
        "GPUs": np.asarray(life.chips) / asked.chips - 1.0,
        **{name: exceeded(limit) for name, limit in limits.items()},
    }
    worst = np.max([np.maximum(v, 0.0) for v in excess.values()], axis=0)
    names = list(dict.fromkeys(side.name for side in sides))

    def named(k: int) -> str:
        return f"{x[k]:g} x {pools[0].layout[i[k]]} > {y[k]:g} x {pools[1].layout[j[k]]}"

    def choice(k: int) -> Choice:
        into, out = (float(v[k]) for v in joules)
        first, second = pools[0].layout[i[k]].degrees, pools[1].layout[j[k]].degrees
        batch = float(pools[0].sequences[i[k]])
        return Choice(
            mode="disaggregated",
            system=" > ".join(names),
            layout=named(k),
            degrees={
                "prefill": {**first, "instances": float(x[k]), "batch": batch},
                "decode": {**second, "instances": float(y[k])},
            },
            batch=float(pools[1].sequences[j[k]]),
            chips=float(life.chips[k]),
            requests_per_s=float(rate[k]),
            usd_per_hour=float(rent[k]),
            isl=isl,
            osl=osl,
            joules=(into + out) / (isl + osl),
            input_joules=into / max(isl - float(work.prefix), 1.0),
            output_joules=out / osl,
            **answered(life, excess, k),
        )

    fits = np.flatnonzero(worst <= 0.0)
    if asked.frontier and len(fits):
        rows = fits[undominated(np.asarray(life.tpot)[fits], (rent / rate)[fits])]
        return [choice(int(k)) for k in rows], []
    # what is broken, then dollars, then latencies
    answers = [np.asarray(v, np.float32) for v in (life.ttft, life.tpot, rent / rate, worst)]
    made: dict[str, Choice] = {}
    seen: set[tuple[Any, ...]] = set()
    for k in (int(k) for k in np.lexsort(answers)):
        if len(made) == count or worst[k] > 0.0 >= worst.min():
            break
        # of pairs that differ by less than the errors of the estimator one is shown
        alike = (float(life.chips[k]), f"{life.ttft[k]:.3g}", *(float(v[k]) for v in answers[1:]))
        if named(k) not in made and alike not in seen:
            made[named(k)] = choice(k)
        seen.add(alike)
    found = list(made.values())
    return (found, []) if worst.min() <= 0.0 else ([], found)
