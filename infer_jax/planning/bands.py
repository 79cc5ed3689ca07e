"""How far measured servers are from the times of a plan: bands, and the odds of limits.

The odds of one plan follow from its bands. Those of many plans, whose errors are partly shared, are
of every plan at every draw of the coefficients, in one program.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from infer_jax.catalog.measured_points import latency
from infer_jax.catalog.published import Within
from infer_jax.compiling import SOME, once
from infer_jax.estimators import Estimate
from infer_jax.estimators.disaggregated import Disaggregated
from infer_jax.estimators.estimate import decode_context
from infer_jax.estimators.known_errors import NAMES, measured_intervals
from infer_jax.estimators.serving import Serving
from infer_jax.physics.chance import FAR, Spread, chance, limit_score, score, shared_and_own
from infer_jax.planning.choice import USUAL_TTFT, Choice, PlanSpace, Requirements
from infer_jax.planning.instances import PlannedServer, planned_server
from infer_jax.planning.pool_pairs import Copies, PairDegrees, deployed_pools, joined_pools
from infer_jax.specs import Architecture, Arrivals, ForwardPass, Hardware
from infer_jax.specs.declared_outputs import class_outputs
from infer_jax.typed_jax import trees

# plans of one evaluation, so that one program serves any number of them; fewer, and fewer draws,
# under random arrivals, whose laws take a thousand times as long
ROWS, ARRIVING_ROWS, ARRIVING_DRAWS = 256, 16, 32
TIMED = {
    "TTFT", "p95 of TTFT", "p99 of TTFT", "TPOT", "arrivals", "prefill arrivals", "requests/s",
}  # fmt: skip


def intervals_of(estimate: Estimate, within: Within) -> Mapping[str, Sequence[float]]:
    """What 80 % of measured servers are in, ms, by name, of the times of an estimate."""
    times = {
        x.name: float(getattr(estimate, x.name))
        for x in class_outputs((type(estimate),))
        if x.banded
    }
    return measured_intervals(within, times)


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


def with_odds(choice: Choice, limits: Requirements, *, usual: bool) -> Choice:
    """A plan with the probability that its limits hold, and the factor that ranks its dollars.

    ``usual``: its TTFT is limited to the usual one. A plan of a kind that was never measured on the
    system is ranked by its dollars at the slow end of its band, which holds 80 % of measured runs.
    """
    within = choice.within
    ttft = min(limits.ttft, USUAL_TTFT) if usual else limits.ttft
    # of the percentiles that are limited, the one that is nearest to its limit
    tails = ((limits.p95_ttft, choice.p95_ttft), (limits.p99_ttft, choice.p99_ttft))
    tail = min(((x, y or choice.ttft) for x, y in tails), key=lambda pair: pair[0] / pair[1])
    seconds, times = (limits.tpot, ttft, tail[0]), (choice.tpot, choice.ttft, tail[1])
    spreads = tuple(Spread.of(within[name]) for name in ("tpot", "ttft"))
    holds = None
    if np.isfinite(seconds).any():
        numbers = seconds, times, choice.spare
        holds = float(once(probability, *numbers, spreads)) if not choice.excess else 0.0
    slow = max(within["tpot"][80][1], 1.0) if unmeasured_reason(choice) else 1.0
    return replace(choice, holds=holds, slow=slow)


def probability(
    limits: Sequence[Array], times: Sequence[Array], spare: Array, spreads: Sequence[Spread]
) -> Array:
    """Probability that measured times of a plan are within its limits: ``chance`` of the slack.

    Each error is spread as those of measured runs that no fit has seen.
    """
    return chance(slack_of(limits, times, spare, spreads))


def slack_of(
    limits: Sequence[Array], times: Sequence[Array], spare: Array, spreads: Sequence[Spread]
) -> Array:
    """Normal scores up to which the errors of TPOT and of TTFT may go.

    ``limits`` and ``times``: of TPOT, and then of TTFT and its percentiles, s; ``spare``: capacity
    over load. A server that is slower by a factor carries fewer requests by it, so that spare
    capacity is slack for error as a limit of TPOT is.
    """
    carried = score(jnp.log(spare), spreads[0])
    firsts = zip(limits[1:], times[1:], strict=True)
    return jnp.stack(
        [
            jnp.minimum(limit_score(limits[0], times[0], spreads[0]), carried),
            reduce(jnp.minimum, (limit_score(*pair, spreads[1]) for pair in firsts)),
        ]
    )


def unmeasured_reason(choice: Choice) -> str:
    """Why no measured run is of a plan's kind, in words; "" where some are."""
    if len(choice.pools) > 1:
        return "no two pools of this system were fitted"
    trust = choice.trusts[0]
    if trust.rows or trust.calibrated:
        return ""
    engine = NAMES[trust.engine] if trust.engine else trust.estimator
    return f"no run of {engine} on it was measured"


class ErrorModel(NamedTuple):
    """The distribution of errors of TPOT or TTFT, and the part of its variance that plans share.

    ``calibrated``: to the plans' own server, so that plans share nothing but the uncertainty of its
    coefficients.
    """

    spread: Spread
    common: float
    calibrated: float = 0.0


Models = tuple[ErrorModel, ErrorModel]  # of TPOT and TTFT
JoinedPools = tuple[Disaggregated, Architecture, Hardware]


class Posterior(NamedTuple):
    """The uncertainty of plans on one or two systems.

    ``servings``: the estimator of each system, every leaf a row of its value and then of each draw;
    ``errors``: of TPOT and TTFT, by mode, at a number of requests in flight of an instance, and a
    share of a token's time that grows with the age of the software, 0 where not given, in a layout;
    ``offsets``: normal scores of the draws of TPOT's and TTFT's offset, by mode.
    """

    servings: Sequence[Serving]
    errors: Mapping[str, Callable[..., Models]]
    offsets: Mapping[str, Float[np.ndarray, "2 draws"]]


class Chances(NamedTuple):
    """Of each plan (first axis): the probability that its limits hold, and the parts it is from.

    ``slack``: normal scores of TPOT's and TTFT's error up to which limits hold; ``shared``: the
    part of these scores that plans share, by draw; ``own``: standard deviation of the rest.
    """

    holds: Array
    slack: Array
    shared: Array
    own: Array


class LimitErrors(NamedTuple):
    """Limits in seconds of TPOT, TTFT, its 95 % and 99 %, and the draws of the times' offsets."""

    limits: Sequence[Array]
    offsets: Array


def chances(plans: Sequence[Choice], space: PlanSpace, posterior: Posterior) -> Chances:
    """The probability of each plan of one mode that all its limits hold.

    A plan that exceeds a limit which is certain (memory, GPUs) holds with probability 0.
    """
    mode, limits, work, sides = plans[0].mode, space.requirements, space.work, space.sides
    pooled, rate = mode == "disaggregated", limits.rate
    if rate is not None:
        work = work.replace(arrivals=work.arrivals or Arrivals.of(rate=rate))
    elif not pooled:
        work = work.replace(arrivals=None)
    if pooled or rate is None:
        work = work.replace(lengths=())
    times = [np.float64(x) for x in (limits.tpot, limits.ttft, *limits.tails.values())]
    errors = LimitErrors(times, posterior.offsets[mode])  # pyright: ignore[reportArgumentType]
    served = planned_server(space, sides[0], work)
    servings = tuple(posterior.servings)
    parts: list[Chances] = []
    size = ROWS if rate is None or pooled else ARRIVING_ROWS
    for start in range(0, len(plans), size):
        rows = plans[start : start + size]
        padded = [*rows, *[rows[-1]] * (size - len(rows))]
        every = (
            (posterior.errors[mode](c.batch, c.gaps, c.pools[0].layout), *_columns(c, rate))
            for c in padded
        )
        columns = jax.tree.map(lambda *x: np.array(x), *every)
        if pooled:
            ends = joined_pools(sides), space.arch, sides[-1].hardware
            part = once(pair_chances, servings, served, ends, errors, *columns)
        else:
            points = 1 if rate is None else SOME
            part = once(instance_chances, servings, served, errors, *columns, points=points)
        parts.append(trees.take(part, slice(len(rows))))
    answer = jax.tree.map(lambda *x: np.concatenate(x), *parts)
    certain = np.array([not set(c.excess) - TIMED for c in plans])
    return answer._replace(holds=np.where(certain, answer.holds, 0.0))


def _columns(c: Choice, rate: float | None) -> tuple[object, ...]:
    """Parallel degrees and load of an instance, or of each pool."""
    layouts = [{k: float(x) for k, x in pool.layout._asdict().items()} for pool in c.pools]
    first = c.pools[0]
    if len(layouts) == 1:
        return layouts[0], first.batch if rate is None else rate / first.copies
    return (layouts[0], layouts[1]), (first.copies, c.pools[1].copies), first.batch, c.batch


def instance_chances(
    servings: tuple[Serving, ...], served: PlannedServer, errors: LimitErrors, *plans: object
) -> Chances:
    """Chances of instances of one kind, each with its requests in flight or per second."""

    def plan_chances(models: Models, degrees: dict[str, Array], load: Array) -> Chances:
        def times(serving: Serving) -> Array:
            return _times(served._replace(serving=serving).estimate(degrees, load))

        return _chances(jax.vmap(times)(servings[0]), errors, models)

    return jax.vmap(plan_chances)(*plans)  # pyright: ignore[reportArgumentType]


def pair_chances(
    servings: tuple[Serving, ...], served: PlannedServer, joined: JoinedPools, errors: LimitErrors,
    *plans: object,
) -> Chances:  # fmt: skip
    """Chances of pairs of pools, with the transfer between them.

    ``joined``: their estimator, the model, and the hardware of the pool that decodes (``served``
    has that of the one that prefills). ``plans``: models of errors, degrees and instances of both
    pools, prompts of a pass and requests in flight of a decode instance.
    """
    wrapper, arch, hardware = joined
    second, work = served._replace(hardware=hardware), served.work
    fresh, ones = jnp.maximum(work.isl - work.prefix, 1.0), jnp.ones_like(work.isl)

    def pair(
        models: Models, layouts: PairDegrees, copies: Copies, prompts: Array, load: Array
    ) -> Chances:
        pools = deployed_pools(served.common, layouts, copies, prompts)
        prompt = ForwardPass(sequences=prompts, new_tokens=fresh, cached_tokens=work.prefix)
        token = ForwardPass(sequences=load, new_tokens=ones, cached_tokens=decode_context(work))

        def times(serving: Serving, decoder: Serving) -> Array:
            passes = (
                served._replace(serving=serving).token(layouts[0], prompt),
                second._replace(serving=decoder).token(layouts[1], token),
            )
            theory = wrapper.replace(target=serving)
            if wrapper.decoder is not None:
                theory = theory.replace(decoder=decoder)
            requests = work.replace(batch=load)
            return _times(theory.joined(arch, served.hardware, requests, pools, passes))

        return _chances(jax.vmap(times)(servings[0], servings[-1]), errors, models)

    return jax.vmap(pair)(*plans)  # pyright: ignore[reportArgumentType]


def _times(estimate: Estimate) -> Array:
    """What limits are on: TPOT, TTFT, its 95 % and 99 %, s, and capacity over arrival rate."""
    percentiles = getattr(estimate, "percentiles", {})
    tails = [percentiles.get(name, estimate.ttft) for name in ("p95", "p99")]
    arrivals = {**estimate.prefill.limits, **estimate.decode.limits}.get("arrivals")
    unlimited = jnp.full_like(estimate.tpot, np.exp(FAR))
    spare = unlimited if arrivals is None else arrivals.capacity / arrivals.need
    return jnp.stack([estimate.tpot, estimate.ttft, *tails, spare])


def _chances(times: Float[Array, "draws 5"], errors: LimitErrors, models: Models) -> Chances:
    """The chances of one plan from its times, predicted and then at each draw."""
    spreads = [model.spread for model in models]
    *predicted, spare = times[0]
    slack = slack_of(errors.limits, predicted, spare, spreads)
    moved = jnp.stack(
        [
            (jnp.log(times[1:, k]) - jnp.log(times[0, k])) / spread.width
            for k, spread in enumerate(spreads)
        ]
    )
    common = jnp.stack([jnp.asarray(model.common) for model in models])
    calibrated = jnp.stack([jnp.asarray(model.calibrated) for model in models])
    common = jnp.where(calibrated > 0.5, jnp.minimum(common, jnp.var(moved, axis=1)), common)
    shared, own = shared_and_own(moved, common, errors.offsets)
    return Chances(chance(slack), slack, shared, own)
