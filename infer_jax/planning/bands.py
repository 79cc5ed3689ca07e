"""How far measured servers are from the times of a plan: bands, and the odds of limits."""

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array

from infer_jax.catalog.measured_points import latency
from infer_jax.compiling import once
from infer_jax.estimators import Estimate, Trust, measured_within
from infer_jax.estimators.known_errors import NAMES
from infer_jax.physics.chance import Spread, chance, limit_score, score
from infer_jax.planning.choice import USUAL_TTFT, Choice, Requirements
from infer_jax.specs import Workload, outputs


def intervals(
    trusts: Sequence[Trust],
    times: Mapping[str, float],
    load: float,
    lengths: tuple[float, float],
    *,
    pools: bool = False,
    gaps: float = 0.0,
    layout: object = None,
) -> Mapping[str, Sequence[float]]:
    """What 80 % of measured servers are in, ms, by name; ``times``: by output, s.

    ``load``: requests in flight of an instance; ``lengths``: tokens of prompt and output;
    ``gaps``: share of a token's time that grows with the age of the software; ``layout``: of an
    instance, None where ``trusts`` are of it. None where errors are not known: of estimators of
    ideal servers, and where numbers were changed.
    """
    if not all(trust.known for trust in trusts):
        return {}
    within = measured_within(trusts, load, lengths, pools=pools, gaps=gaps, layout=layout)
    return {
        f"{name}_interval80_ms": [1e3 * time * end for end in within[name][80]]
        for name, time in times.items()
        if name in within
    }


def intervals_of(
    estimate: Estimate,
    trust: Trust,
    load: float,
    work: Workload,
    *,
    gaps: float,
    pools: bool = False,
    layout: object = None,
) -> Mapping[str, Sequence[float]]:
    """``intervals`` of the times of an estimate of a server."""
    times = {x.name: float(getattr(estimate, x.name)) for x in outputs(estimate) if x.banded}
    lengths = float(work.isl), float(work.osl)
    return intervals([trust], times, load, lengths, pools=pools, gaps=gaps, layout=layout)


def band_ends(choice: Choice, *, arriving: bool = False) -> dict[str, tuple[float, float]]:
    """The numbers of a plan at the fast and at the slow end of its band, where errors are known.

    ``arriving``: whether requests arrive at a rate, which a slow server answers too. Otherwise its
    requests in flight are the same, so that throughput and dollars go by latency. Latency errs as
    TPOT does (its law holds of throughput, too); that of requests that mostly wait for their first
    token as if both times were at the same end.
    """
    if len(choice.intervals) < 2:
        return {}
    ttft, tpot = (choice.intervals[f"{name}_interval80_ms"] for name in ("ttft", "tpot"))
    total = latency(choice.ttft, choice.tpot, choice.osl)
    if total > 2.0 * choice.ttft:
        ends = [total * end / (1e3 * choice.tpot) for end in tpot]
    else:
        ends = [latency(a / 1e3, b / 1e3, choice.osl) for a, b in zip(ttft, tpot, strict=True)]
    fast, slow = (1.0 if arriving else end / total for end in ends)
    usd, rate = choice.usd_per_mtok, choice.throughput
    return {
        "speed": (1e3 / tpot[0], 1e3 / tpot[1]),
        "tpot": (tpot[0], tpot[1]),
        "ttft": (ttft[0], ttft[1]),
        "latency": (ends[0], ends[1]),
        "usd": (usd * fast, usd * slow),
        "rate": (rate / fast, rate / slow),
    }


def odds(choice: Choice, limits: Requirements, *, usual: bool) -> tuple[float | None, float]:
    """The probability that a plan's limits hold, and the factor on its dollars it is ranked by.

    ``usual``: its TTFT is limited to the usual one. A plan of a kind that was never measured on the
    system is ranked by its dollars at the slow end of its band, which holds 80 % of measured runs.
    """
    lengths, pools = (choice.isl, choice.osl), len(choice.pools) > 1
    layout = choice.pools[0].layout
    within = measured_within(
        choice.trusts, choice.batch, lengths, pools=pools, gaps=choice.gaps, layout=layout
    )
    ttft = min(limits.ttft, USUAL_TTFT) if usual else limits.ttft
    # of the percentiles that are limited, the one that is nearest to its limit
    tails = ((limits.p95_ttft, choice.p95_ttft), (limits.p99_ttft, choice.p99_ttft))
    tail = min(((x, y or choice.ttft) for x, y in tails), key=lambda pair: pair[0] / pair[1])
    seconds, times = (limits.tpot, ttft, tail[0]), (choice.tpot, choice.ttft, tail[1])
    spreads = tuple(Spread.of(within[name]) for name in ("tpot", "ttft"))
    holds = None
    if np.isfinite(seconds).any():
        numbers = [np.float64(x) for x in (*seconds, *times, choice.spare)]
        holds = float(once(probability, *numbers, spreads)) if not choice.excess else 0.0
    slow = max(within["tpot"][80][1], 1.0) if unmeasured_reason(choice) else 1.0
    return holds, slow


def probability(
    tpot: Array, ttft: Array, tail: Array, own_tpot: Array, own_ttft: Array, own_tail: Array,
    spare: Array, spreads: tuple[Spread, Spread],
) -> Array:  # fmt: skip
    """Probability that measured times of a plan are within its limits.

    ``chance`` of the slack of TPOT and of TTFT, the normal scores up to which the errors may go: a
    server that is slower by a factor also carries fewer requests by it (``spare``: its capacity
    over its load). Each error is spread as those of measured runs that no fit has seen.
    """
    paces = limit_score(tpot, own_tpot, spreads[0]), score(jnp.log(spare), spreads[0])
    firsts = limit_score(ttft, own_ttft, spreads[1]), limit_score(tail, own_tail, spreads[1])
    return chance(jnp.stack([jnp.minimum(*paces), jnp.minimum(*firsts)]))


def unmeasured_reason(choice: Choice) -> str:
    """Why no measured run is of a plan's kind, in words; "" where some are."""
    if choice.mode == "disaggregated":
        return "no two pools of this system were fitted"
    trust = choice.trusts[0]
    if trust.rows or trust.calibrated:
        return ""
    engine = NAMES[trust.engine] if trust.engine else trust.estimator
    return f"no run of {engine} on it was measured"
