"""How far a plan is to be trusted: its error bands, the odds of its limits, and warnings."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtr

from infer_jax.catalog.published import Within, facts, unseen
from infer_jax.compiling import once
from infer_jax.estimators.known_errors import NAMES
from infer_jax.physics.chance import Spread, room, score
from infer_jax.planning import USUAL_TTFT, Choice, Requirements

if TYPE_CHECKING:
    from infer_jax.verbs.plan_search import ConsideredSystem, Plans

EVEN = 0.5  # odds from which a plan rather keeps its limits than not


def error_bands(choice: Choice, pools: "Sequence[ConsideredSystem]") -> Within:
    """Factors on a plan's predicted TPOT and TTFT between which shares of measured runs are."""
    return pool_bands(pools) if choice.mode == "disaggregated" else server_bands(pools[0])


def server_bands(pool: "ConsideredSystem") -> Within:
    """The factors of servers of one kind, by share in per cent."""
    system, trusted = pool.given.system, pool.trusted
    if trusted.calibrated:
        return {name: {80: band} for name, band in system.bands().items()}
    return trusted.within() or unseen(facts(chip=True))


def pool_bands(pools: "Sequence[ConsideredSystem]") -> Within:
    """The factors of two pools, which no calibration is of; by the system less is known of."""
    known = [pool.trusted.facts or facts(chip=True) for pool in pools]
    most = {name: max(each[name] for each in known) for name in known[0]}
    return unseen(most | {"pools": 1.0})


def trusted(
    choice: Choice, pools: "Sequence[ConsideredSystem]", asked: Requirements, usual: bool
) -> Choice:
    """A plan with the probability that its limits hold, and the most it may well cost.

    ``usual``: its TTFT is limited to the usual one. A plan of a kind that was never measured on the
    system is ranked by its dollars at the slow end of its band, which holds 80 % of measured runs.
    """
    within = error_bands(choice, pools)
    ttft = min(asked.ttft, USUAL_TTFT) if usual else asked.ttft
    limits = asked.tpot, ttft, asked.p99_ttft
    times = choice.tpot, choice.ttft, choice.ttft if choice.p99_ttft is None else choice.p99_ttft
    spreads = tuple(Spread.of(within[name]) for name in ("tpot", "ttft"))
    holds = None
    if np.isfinite(limits).any():
        numbers = [np.float64(x) for x in (*limits, *times, choice.spare)]
        holds = float(once(probability, *numbers, spreads)) if not choice.excess else 0.0
    slow = 1.0 if not unmeasured(choice, pools) else max(within["tpot"][80][1], 1.0)
    return replace(choice, holds=holds, slow=slow)


def probability(
    tpot: Array, ttft: Array, p99: Array, own_tpot: Array, own_ttft: Array, own_p99: Array,
    spare: Array, spreads: tuple[Spread, Spread],
) -> Array:  # fmt: skip
    """Probability that measured times of a plan are within its limits.

    Phi(room of TPOT) Phi(room of TTFT), with room the normal score up to which the error may go: a
    server that is slower by a factor also carries fewer requests by it (``spare``: its capacity
    over its load). Errors of both times are taken as independent; each is spread as those of
    measured runs that no fit has seen.
    """
    paces = room(tpot, own_tpot, spreads[0]), score(jnp.log(spare), spreads[0])
    firsts = room(ttft, own_ttft, spreads[1]), room(p99, own_p99, spreads[1])
    return ndtr(jnp.minimum(*paces)) * ndtr(jnp.minimum(*firsts))


def unmeasured(choice: Choice, pools: "Sequence[ConsideredSystem]") -> str:
    """Why no measured run is of a plan's kind, in words; "" where some are."""
    if choice.mode == "disaggregated":
        return "no two pools of this system were fitted"
    pool = pools[0]
    if pool.trusted.rows or pool.trusted.calibrated:
        return ""
    return f"no run of {NAMES[pool.side.serving.engine_name]} on it was measured"


def preferences(plans: "Plans") -> list[str]:
    """Which plan dollars alone would put first, and what keeps it from there."""
    best = plans.best
    cheapest = min(
        (c for c in plans.met if not c.replay_excess),
        key=lambda c: (bool(c.obstacle), c.usd_per_mtok),
        default=None,
    )
    if best is None or cheapest is None or cheapest.usd_per_mtok >= best.usd_per_mtok:
        return []
    less = 100.0 * (1.0 - cheapest.usd_per_mtok / best.usd_per_mtok)
    why = unmeasured(cheapest, plans.pools_of(cheapest))
    if not why:  # it stands lower for another reason, which its row says
        return []
    return [
        f"{cheapest.layout} on {cheapest.system} is predicted to cost {less:.2g} % less, but "
        f"{why}: 80 % of runs like it stay below {cheapest.slow:.3g} times the predicted TPOT, "
        "and the choice rests on that. A run of it decides; --confidence weighs both."
    ]


def doubts(plans: "Plans") -> list[str]:
    """That the first plan rather breaks its limits than keeps them, and which does not."""
    best = plans.best
    if best is None or best.holds is None or best.holds >= EVEN:
        return []
    likelier = min(
        (c for c in plans.met if (c.holds or 0.0) >= EVEN and not (c.obstacle or c.replay_excess)),
        key=lambda c: c.usd_per_mtok,
        default=None,
    )
    said = f"{best.layout} keeps the limits with a probability of {100.0 * best.holds:.2g} %"
    if likelier is not None:
        more = 100.0 * (likelier.usd_per_mtok / best.usd_per_mtok - 1.0)
        said += (
            f"; {likelier.layout} on {likelier.system}, which costs {more:.2g} % more, with "
            f"{100.0 * (likelier.holds or 0.0):.2g} %"
        )
    return [f"{said}. --replay or a run of it decides; --confidence 0.8 asks for more."]


def warnings(pools: "Sequence[ConsideredSystem]") -> list[str]:
    """What speaks against the numbers of a system: formats that its chip does not multiply."""
    found: list[str] = []
    for pool in pools:
        products = set(re.findall(r"(\d+)-bit products", pool.given.model.quantisation))
        filled = dict(re.findall(r"flops_(\d+) missing: filled with flops_(\d+)",
                                 " ".join(pool.given.system.filled)))  # fmt: skip
        found += [
            f"{pool.side.name} has no {bits}-bit products: {filled[bits]}-bit ones are priced."
            for bits in sorted(products & set(filled))
        ]
    return found
