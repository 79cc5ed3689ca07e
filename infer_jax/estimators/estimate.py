"""The answers of an estimator: a phase (one forward pass) and an estimate (whole requests)."""

from functools import reduce
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from infer_jax.physics.cost import token_rate, usd_per_million_tokens
from infer_jax.specs import (
    Derived,
    ForwardPass,
    Hardware,
    Output,
    Plan,
    Spec,
    Workload,
    derive,
    number,
    part,
    spec,
)

Tree = TypeVar("Tree")


@spec
class Limit(Spec):
    """A need and a capacity it must not exceed; a configuration is feasible at equality."""

    need: Array = number("what the configuration needs", kind="size")
    capacity: Array = number("what there is", kind="capacity")

    @property
    def slack(self) -> Array:
        """Capacity less need, in the unit of the limit; negative where infeasible."""
        return self.capacity - self.need

    @property
    def shortfall(self) -> Array:
        """The share by which the need exceeds the capacity; 0 where it does not."""
        excess = jnp.maximum(self.need - self.capacity, 0.0)
        return excess / jnp.where(self.capacity > 0, self.capacity, 1.0)

    def fields(self, name: str) -> dict[str, object]:
        """The limit of that name for JSON: bytes where it is one of memory, else plain numbers."""
        unit = "_bytes" if name.endswith("memory") else ""
        return {
            f"need{unit}": self.need,
            f"capacity{unit}": self.capacity,
            f"slack{unit}": self.slack,
            "met": bool(self.need <= self.capacity),
        }


@spec
class Phase(Spec):
    """One forward pass. ``time`` is always the formula's finite value; limits stand beside it."""

    time: Array = number("time of the pass", unit="s", kind="time")
    terms: dict[str, Array] = part("seconds by term: what they are spent on")
    limits: dict[str, Limit] = part("limits by name, such as memory")
    mfu: Array = number("model FLOP utilisation of the data-sheet rate", kind="fraction")
    layout: dict[str, Array] = part("the layout evaluated, or found by a search")

    @property
    def feasible(self) -> Array:
        """True where every limit holds."""
        met = [limit.need <= limit.capacity for limit in self.limits.values()]
        return reduce(lambda a, b: a & b, met) if met else jnp.asarray(True)

    @property
    def shortfall(self) -> Array:
        """The largest relative excess over a limit; 0 where feasible."""
        worst = jnp.asarray(0.0)
        for limit in self.limits.values():
            worst = jnp.maximum(worst, limit.shortfall)
        return worst

    def fields(self, *, timed: bool = True) -> dict[str, object]:
        """The pass for JSON, times in ms; ``timed``: whether it has any."""
        terms = self.terms if timed else {}
        return {
            "time_ms": 1e3 * self.time if timed else None,
            "terms": {f"{name}_ms": 1e3 * x for name, x in terms.items()},
            "shares": {name: x / self.time for name, x in terms.items()},
            "mfu": self.mfu,
            "feasible": bool(self.feasible),
            "limits": {name: limit.fields(name) for name, limit in self.limits.items()},
            "layout": dict(self.layout),
        }


# the energy of estimates that have one
ENERGY = Output(
    "GPU energy of output tokens",
    short="J/Mtok",
    key="output_energy",
    per="Mtok",
    drawn=True,
    views=("estimate", "plan", "sensitivity"),
)

DECLARING: list[type["Estimate"]] = []  # subclasses, which declare more outputs


@spec
class Estimate(Spec):
    """Requests on one instance: times, throughput and cost.

    An output whose default is ``Derived`` is computed from the others by the law it names, for
    every estimator alike.
    """

    ttft: Array = number(
        "time to first token", unit="s", kind="time", output=Output(short="TTFT", banded=True)
    )
    tpot: Array = number(
        "time per output token after the first",
        unit="s",
        kind="time",
        output=Output("time per output token", short="TPOT", banded=True),
    )
    speed: Array = number(
        "output tokens per second of one request",
        unit="tokens/s",
        kind="rate",
        default=Derived(token_rate, ("tpot",)),
        output=Output("speed of a request", short="speed", views=("estimate", "report")),
    )
    throughput: Array = number(
        "output tokens per second and chip",
        unit="tokens/s",
        kind="rate",
        output=Output(
            "throughput per GPU",
            key="throughput_per_gpu",
            whole="throughput",
            views=("estimate", "compare", "report"),
        ),
    )
    cost: Array = number(
        "USD per million output tokens",
        unit="USD",
        kind="price",
        output=Output("output tokens", short="$/Mtok", key="output_cost", per="Mtok"),
    )
    input_cost: Array = number(
        "USD per million input tokens",
        unit="USD",
        kind="price",
        output=Output("input tokens", per="Mtok", views=("estimate", "compare", "plan", "report")),
    )
    chips: Array = number(
        "chips of the instance", kind="count", output=Output(key="gpus", views=())
    )
    prefill: Phase = part("the pass over the prompt of one request")
    decode: Phase = part("one token for each running request, half way through the output")

    def __init_subclass__(cls) -> None:
        DECLARING.append(cls)

    def __post_init__(self) -> None:
        derive(self)

    @property
    def feasible(self) -> Array:
        """True where every limit of both phases holds."""
        return self.prefill.feasible & self.decode.feasible

    @property
    def passes(self) -> dict[str, Phase]:
        """Both passes, by what they are called."""
        return {"prefill": self.prefill, "decode": self.decode}

    @property
    def overloaded(self) -> bool:
        """Whether more requests arrive than are completed, so that no time has a mean."""
        limits = [*self.prefill.limits.items(), *self.decode.limits.items()]
        return any(bool(x.need > x.capacity) for name, x in limits if name.endswith("arrivals"))

    def knows(self, output: Output) -> bool:
        """Whether an output has a value: no time, speed or number in flight when overloaded."""
        timed = output.kind == "time" or output.name in ("speed", "in_flight")
        return not (timed and self.overloaded)


def decode_context(workload: Workload) -> Array:
    """Tokens in the cache half way through the output: isl + (osl - 1) / 2."""
    return workload.isl + (workload.osl - 1.0) / 2.0


def passes_of(workload: Workload) -> tuple[ForwardPass, ForwardPass]:
    """The prefill of one request, and one token of each of ``batch`` requests at mean context."""
    one = jnp.ones_like(workload.batch)
    return (
        ForwardPass(
            sequences=one, new_tokens=fresh_tokens(workload), cached_tokens=workload.prefix
        ),
        ForwardPass(
            sequences=workload.batch, new_tokens=one, cached_tokens=decode_context(workload)
        ),
    )


def fresh_tokens(workload: Workload) -> Array:
    """Prompt tokens that are computed: at least one, however much of the prompt is cached."""
    return jnp.maximum(workload.isl - workload.prefix, 1.0)


def estimate_of_passes(
    hardware: Hardware,
    workload: Workload,
    plan: Plan,
    first: Phase,
    decode: Phase,
    prompted: Array | None = None,
) -> Estimate:
    """The estimate of a request from its two passes (``passes_of``): prefill, then decode.

    TTFT is the prefill of one request on an idle instance, TPOT one decode pass at the mean
    context; cost per output token is chips x TPOT / batch, cost per input token chips x TTFT
    over the new prompt tokens of the first pass, ``prompted`` (None: those of one request). No
    waiting, no interference between the two.
    """
    chips = plan.instance
    rate = workload.batch / decode.time
    fresh = fresh_tokens(workload) if prompted is None else prompted
    return Estimate(
        ttft=first.time,
        tpot=decode.time,
        chips=chips,
        throughput=rate / chips,
        cost=usd_per_million_tokens(chips, hardware.price, decode.time, workload.batch),
        input_cost=usd_per_million_tokens(chips, hardware.price, first.time, fresh),
        prefill=first,
        decode=decode,
    )


def stop_gradients(tree: Tree) -> Tree:
    """The same pytree with no gradient flowing through it."""
    return jax.tree.map(jax.lax.stop_gradient, tree)
