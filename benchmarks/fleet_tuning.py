"""Does a gradient tune an autoscaler's parameters better than trying them one by one?

    python benchmarks/fleet_tuning.py [--starts 8] [--steps 25]

Of the example week: several parameters of each autoscaler at once, by Adam through the law of real
replicas (``smoothing`` 1), from the published ones and from random starts; then, beside every end,
the first parameter in lanes of the exact law, in which alone a fleet costs what is printed. Set
against it are lanes of the first parameter alone, as ``infer-jax fleet`` tries them, and as many
exact lanes around the starts, without a gradient.
"""

import argparse
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

import infer_jax as ij
from infer_jax.fleets import (
    Autoscaler,
    Conditions,
    EventDriven,
    Horizontal,
    Predictive,
    daily_cost,
    goodput,
    lanes,
    service_of,
    share_good,
    simulate,
)

TRAFFIC = "examples/traffic.toml"
STEPS, DEPTH, DAYS = 240, 64, 2  # of an hour; looked back; that the gradient sees
LANES, FIRST, WIDTH = 24, 96, 0.35  # beside an end; of one parameter; share of its bounds
LACK = 200.0  # USD a day for all requests of one hour that break the limits
STEP = 0.05  # of Adam, as a share of the logarithm of the bounds
GENTLE = {"stabilization": (300.0, 15.0, 900.0), "tolerance": (0.1, 0.01, 0.4),
          "percent": (1.0, 0.1, 2.0)}  # fmt: skip


class Kind(NamedTuple):
    """An autoscaler, and its parameters: as they are published or usual, at least and at most."""

    make: type[Autoscaler]
    parameters: dict[str, tuple[float, float, float]]

    def policies(self, free: Array, smoothing: Array | None, most: float) -> Autoscaler:
        """Those of parameters that are shares of their bounds, in logarithms: [parameters, ...]."""
        low, high = (jnp.log(jnp.array([x[i] for x in self.parameters.values()])) for i in (1, 2))
        values = jnp.exp(low + (high - low) * jnp.clip(free.T, 0.0, 1.0)).T
        fields = dict(zip(self.parameters, values, strict=True))
        policy = self.make.of(maximum=most).replace(smoothing=smoothing, **fields)
        return jax.tree.map(lambda x: jnp.broadcast_to(x, values.shape[1:]), policy)

    @property
    def usual(self) -> np.ndarray:
        """The usual parameters, as shares."""
        usual, low, high = np.log(np.array([*self.parameters.values()])).T
        return (usual - low) / (high - low)


KINDS = {
    "Kubernetes HPA": Kind(Horizontal, {"target": (40.0, 5.0, 100.0), **GENTLE}),
    "KEDA": Kind(EventDriven, {"target": (0.25, 1e-3, 10.0), **GENTLE}),
    "Dynamo planner": Kind(Predictive, {"headroom": (1.5, 1.0, 2.5), "trend": (0.01, 0.01, 2.0)}),
}


def smooth_cost(kind: Kind, most: float, given: Conditions, free: Array) -> Array:
    """USD a day of real replicas, and ``LACK`` for every hour's share that is missing."""
    policy = kind.policies(free, jnp.asarray(1.0), most)
    replica, life, limits, rates, seconds, first, pue, grid, *_ = given
    course = simulate(policy, replica, life, limits, rates, seconds, first, DEPTH)
    share = share_good(service_of(course, replica), limits, course.waits, jnp.asarray(0.02))
    hours = jax.vmap(goodput)(
        *(x.reshape(len(rates) // STEPS, -1) for x in (course.arriving, share))
    )
    usd = daily_cost(course, replica, seconds, pue, grid).usd
    return usd + LACK * jnp.sum(jnp.maximum(limits.goodput - hours, 0.0))


def descend(kind: Kind, most: float, given: Conditions, starts: np.ndarray, steps: int) -> Array:
    """The ends of Adam from every start, as shares of bounds: [starts, parameters]."""
    given = given._replace(rates=given.rates[: DAYS * 24 * STEPS])
    slopes = jax.jit(jax.vmap(jax.jacfwd(partial(smooth_cost, kind, most, given))))
    free, rule = jnp.asarray(starts), optax.chain(optax.zero_nans(), optax.adam(STEP))
    state = rule.init(free)
    for _ in range(steps):
        updates, state = rule.update(slopes(free), state)
        free = jnp.clip(free + jnp.asarray(updates), 0.0, 1.0)
    return free


def cheapest(kind: Kind, most: float, given: Conditions, free: np.ndarray) -> float:
    """USD a day of the cheapest that keeps the limits in every hour, by the exact law."""
    policies = kind.policies(jnp.asarray(free).T, None, most)
    usd, share, _ = jax.jit(partial(lanes, DEPTH, STEPS))(policies, given)
    return float(np.min(np.where(share >= given.limits.goodput, usd, np.inf)))


def around(ends: np.ndarray) -> np.ndarray:
    """Lanes of the first parameter beside each end."""
    first = np.clip(ends[:, :1] + np.linspace(-WIDTH, WIDTH, LANES), 0.0, 1.0)
    others = np.repeat(ends[:, None, 1:], LANES, axis=1)
    return np.concatenate([first[..., None], others], axis=-1).reshape(-1, ends.shape[1])


def main() -> None:
    """Tune every autoscaler in each way, and print what they cost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=8)
    parser.add_argument("--steps", type=int, default=25)
    asked = parser.parse_args()
    fleet = ij.fleet("llama-3.1-8b", "h100_sxm", traffic=TRAFFIC, tpot="50ms", tp=1).fleet
    print(f"{'USD a day':16}{'one by one':>12}{'around starts':>15}{'by gradient':>13}")
    with jax.enable_x64(True):
        given = jax.tree.map(jnp.asarray, fleet.scaling.given)
        for name, kind in KINDS.items():
            search = partial(cheapest, kind, fleet.scaling.most, given)
            drawn = np.random.default_rng(0).random((asked.starts - 1, len(kind.parameters)))
            starts = np.concatenate([kind.usual[None], drawn])
            alone = np.tile(kind.usual, (FIRST, 1))
            alone[:, 0] = np.linspace(0.0, 1.0, FIRST)
            ends = np.asarray(descend(kind, fleet.scaling.most, given, starts, asked.steps))
            usd = search(alone), search(around(starts)), search(around(ends))
            print(f"{name:16}{usd[0]:12.1f}{usd[1]:15.1f}{usd[2]:13.1f}", flush=True)


if __name__ == "__main__":
    main()
