"""One plan as a row of JSON, and the GPUs it leaves idle."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from infer_jax.planning import Choice, Degrees, Requirements
from infer_jax.results import numbers
from infer_jax.specs import UNBOUNDED, Output
from infer_jax.verbs import inputs
from infer_jax.verbs.plan_search import Plans

ENERGIES = ("blended_energy", "input_energy", "energy")
COSTS = ("input_cost", "cost")
REPLAYED = ("ttft", "p99_ttft", "tpot", "p99_tpot")
PLACED = {"ttft", "tpot", "running", *COSTS, *ENERGIES}  # with a place of their own, or none


class PlanRow(NamedTuple):
    """A plan with known errors of its system.

    ``borrowed``: the generations whose coefficients are used for its chips, which have none of
    their own; ``intervals``: the range of 80 % of measured runs in ms, by name; ``replayed``: times
    of its replay in ms, or None, by name, where plans are replayed; ``values``: the outputs of the
    plan as printed, None where one needs an unknown power.
    """

    choice: Choice
    borrowed: str | None
    intervals: Mapping[str, Sequence[float]]
    values: Mapping[Output, float | None]
    replayed: Mapping[str, object] = MappingProxyType({})

    @property
    def others(self) -> Mapping[Output, float | None]:
        """The outputs without a column of their own in the tables."""
        return {output: x for output, x in self.values.items() if output.name not in PLACED}

    def value(self, name: str) -> float | None:
        """The output of that name as it is printed; None where it is not known."""
        return next(x for output, x in self.values.items() if output.name == name)

    def fields(self, currency: str, total: float | None) -> dict[str, object]:
        """The plan for JSON; rents in ``currency``, of ``total`` GPUs where that is given."""
        c, unit = self.choice, currency.lower()
        keys = {x.name: _key(x, unit) for x in self.values}

        def own(*names: str) -> dict[str, object]:
            return {keys[name]: self.value(name) for name in names}

        return {
            "mode": c.mode,
            "hardware": c.system,
            "borrowed_from": self.borrowed,
            "formats": c.formats,
            "layout": c.layout,
            "degrees": degrees(c.degrees),
            "gpus": c.chips,
            "concurrency_per_replica": c.batch,
            **own("ttft"),
            "p99_ttft_ms": None if c.p99_ttft is None else 1e3 * c.p99_ttft,
            **own("tpot"),
            "requests_per_s": c.requests_per_s,
            "throughput_per_gpu_tokens_per_s": c.throughput,
            f"blended_cost_per_mtok_{unit}": c.usd_per_mtok,
            **own(*COSTS),
            f"cost_per_hour_{unit}": c.usd_per_hour,
            **own(*ENERGIES, *(["running"] if "running" in keys else [])),
            **own(*(output.name for output in self.others)),
            "memory_need_bytes": c.memory[0],
            "memory_capacity_bytes": c.memory[1],
            "tier_need_bytes": {name: need for name, (need, _) in c.tiers.items()},
            "binds": c.binds,
            "broken": dict(c.excess),
            **({} if c.holds is None else {"limits_hold": c.holds}),
            **self.intervals,
            **self.replayed,
            "idle_gpus": idle(c, total),
        }


def degrees(of: Degrees) -> dict[str, object]:
    """Degrees for JSON; the chunk is null where every prompt is fed in one pass.

    >>> degrees({"tp": 2.0, "chunk": UNBOUNDED})
    {'tp': 2.0, 'chunk': None}
    """
    return {
        name: degrees(x) if isinstance(x, Mapping) else None if x == UNBOUNDED else x
        for name, x in of.items()
    }


def row(c: Choice, plans: Plans) -> PlanRow:
    """A plan with what is known of its system. Calibrations are of whole servers, not of pools."""
    names = c.system.split(" > ")
    whole = c.mode != "disaggregated"
    intervals = inputs.bands(plans.systems[c.system], c.ttft, c.tpot) if whole else {}
    power = min(float(plans.systems[name].hardware.power) for name in names)
    lenders = dict.fromkeys(plans.trusted[name].borrowed_from for name in names)
    borrowed = " and ".join(name for name in lenders if name) or None
    return PlanRow(c, borrowed, intervals, values(c, power), _replayed(c, plans))


def values(c: Choice, power: float) -> dict[Output, float | None]:
    """The outputs of a plan as they are printed; None where a chip's ``power`` is not known."""
    known = numbers.known(power)
    return {
        output: known(output.factor * x) if output.drawn else output.factor * x
        for output, x in c.outputs.items()
    }


def _replayed(c: Choice, plans: Plans) -> Mapping[str, object]:
    """Times of the replay of a plan, and why it was not replayed; nothing where none was."""
    if not plans.replayed:
        return {}
    own = next((x for x in plans.replayed if x.choice is c), None)
    times = None if own is None else own.times
    return {
        **{f"replay_{x}_ms": None if times is None else 1e3 * getattr(times, x) for x in REPLAYED},
        "replay_broken": dict(c.replay_excess),
        "not_replayed": None if own is None else own.why or None,
    }


def _key(output: Output, currency: str) -> str:
    """The name of an output in JSON; rents end in their currency."""
    key = output.json_key
    return f"{key.removesuffix('_usd')}_{currency}" if output.unit == "USD" else key


def idle(c: Choice, total: float | None) -> float | None:
    """GPUs that a plan leaves free; None where no total is given."""
    return None if total is None else max(total - c.chips, 0.0)


def free(c: Choice, asked: Requirements) -> list[str]:
    """What a plan leaves free of the GPUs there are, and how often it fits on them."""
    left = idle(c, asked.chips) if np.isfinite(asked.chips) else None
    if not left:
        return []
    copies = asked.chips // c.chips
    says = f"{c.layout} takes {c.chips:g} of {asked.chips:g} GPUs and leaves {left:g} free"
    if copies < 2 or asked.rate is not None or asked.concurrency is not None:
        return [f"{says}."]
    rest = asked.chips - copies * c.chips
    more = f" ({rest:g} left)" if rest else ""
    return [f"{says}; it can be run {copies:g} times, for {copies:g} times the requests{more}."]
