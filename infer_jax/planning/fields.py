"""Plans as JSON has them."""

from collections.abc import Mapping, Sequence

from infer_jax.planning.choice import Choice, Degrees
from infer_jax.planning.pricing import BreakEven
from infer_jax.specs import UNBOUNDED, Output

ENERGIES = ("blended_energy", "input_energy", "energy")
COSTS = ("input_cost", "cost")
REPLAYED = ("ttft", "p95_ttft", "p99_ttft", "tpot", "p99_tpot")
PLACED = {"running", *COSTS, *ENERGIES}  # with a field of their own, or none


def other_outputs(c: Choice) -> list[Output]:
    """The outputs without a column of their own in the tables."""
    return [output for output in c.outputs if output.name not in PLACED]


def plan_fields(
    c: Choice, currency: str = "USD", total: float | None = None, *, replayed: bool = False
) -> dict[str, object]:
    """A plan for JSON, with rents in a currency; ``total``: GPUs, where they are given.

    ``replayed``: whether plans are replayed, and this one has times or none.
    """
    unit = currency.lower()
    keys = {x.name: x.json_key for x in c.outputs}
    rents = {x.name for x in c.outputs if x.unit == "USD"}  # whose keys end in their currency
    keys |= {name: f"{keys[name].removesuffix('_usd')}_{unit}" for name in rents}

    def own(*names: str) -> dict[str, object]:
        return {keys[name]: c.printed(name) for name in names if name in keys}

    times = c.replay.times if c.replay else None
    replay: dict[str, object] = {
        **{f"replay_{x}_ms": None if times is None else 1e3 * getattr(times, x) for x in REPLAYED},
        "replay_within_limits": None if times is None else times.within,
        "replay_broken": dict(c.replay.excess) if c.replay else {},
        "not_replayed": (c.replay.why or None) if c.replay else None,
    }
    return {
        "mode": c.mode,
        "hardware": c.system,
        "borrowed_from": c.borrowed_from,
        "formats": c.formats,
        "layout": c.layout,
        "degrees": degrees_fields(c.degrees),
        "gpus": c.chips,
        "concurrency_per_replica": c.batch,
        "ttft_ms": 1e3 * c.ttft,
        "p95_ttft_ms": None if c.p95_ttft is None else 1e3 * c.p95_ttft,
        "p99_ttft_ms": None if c.p99_ttft is None else 1e3 * c.p99_ttft,
        "tpot_ms": 1e3 * c.tpot,
        "requests_per_s": c.requests_per_s,
        "throughput_per_gpu_tokens_per_s": c.throughput,
        f"blended_cost_per_mtok_{unit}": c.usd_per_mtok,
        **own(*COSTS),
        f"cost_per_hour_{unit}": c.usd_per_hour,
        **own(*ENERGIES, "running"),
        **own(*(output.name for output in other_outputs(c))),
        "memory_need_bytes": c.memory[0],
        "memory_capacity_bytes": c.memory[1],
        "tier_need_bytes": {name: need for name, (need, _) in c.tiers.items()},
        "binds": c.binds,
        "broken": dict(c.excess),
        **({} if c.holds is None else {"limits_hold": c.holds}),
        **c.intervals,
        **(replay if replayed else {}),
        "idle_gpus": None if total is None else max(total - c.chips, 0.0),
    }


def degrees_fields(degrees: Degrees) -> dict[str, object]:
    """Degrees for JSON; the chunk is null where every prompt is fed in one pass.

    >>> degrees_fields({"tp": 2.0, "chunk": UNBOUNDED})
    {'tp': 2.0, 'chunk': None}
    """
    return {
        name: degrees_fields(x) if isinstance(x, Mapping) else None if x == UNBOUNDED else x
        for name, x in degrees.items()
    }


def break_even_fields(rivals: Sequence[BreakEven], currency: str) -> list[dict[str, object]]:
    """The rents at which other systems would come first for JSON, in a currency."""
    unit = f"per_hour_{currency.lower()}"
    return [
        {
            "hardware": x.choice.system,
            "layout": x.choice.layout,
            f"rent_{unit}": x.rent,
            f"wins_below_{unit}": x.below,
            f"costs_the_same_at_{unit}": x.equal,
            f"first_stays_up_to_{unit}": x.above,
        }
        for x in rivals
    ]
