"""The probability that the limits of plans hold: every plan at every draw, in one program."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from infer_jax.compiling import SOME, once
from infer_jax.estimators.disaggregated import Disaggregated, Pools
from infer_jax.estimators.estimate import Estimate, decode_context
from infer_jax.estimators.serving import Deployment, Serving, Shape
from infer_jax.physics.chance import FAR, Spread, chance, room, score, shared_and_own
from infer_jax.planning.aggregated import models
from infer_jax.planning.choose import Choice, Requirements, pools_of
from infer_jax.planning.legal_layouts import Layout
from infer_jax.planning.pool_pairs import Side
from infer_jax.specs import Architecture, Arrivals, ForwardPass, Hardware, Workload
from infer_jax.typed_jax import trees

# plans of one evaluation, so that one program serves any number of them; fewer, and fewer draws,
# under random arrivals, whose laws take a thousand times as long
ROWS, ARRIVING_ROWS, ARRIVING_DRAWS = 256, 16, 32
TIMED = {"TTFT", "TPOT", "p99 of TTFT", "arrivals", "prefill arrivals", "requests/s"}


class Doubt(NamedTuple):
    """The distribution of errors of TPOT or TTFT, and the part of its variance that plans share.

    ``settled``: by a calibration to the plans' own server, so that plans share nothing but the
    uncertainty of its coefficients.
    """

    spread: Spread
    common: float
    settled: float = 0.0


class Belief(NamedTuple):
    """The uncertainty of plans on one or two systems.

    ``servings``: the estimator of each system, every leaf a row of its value and then of each draw;
    ``doubts``: of TPOT and TTFT, by mode; ``offsets``: normal scores of the draws of TPOT's and
    TTFT's offset, by mode.
    """

    servings: Sequence[Serving]
    doubts: Mapping[str, tuple[Doubt, Doubt]]
    offsets: Mapping[str, Float[np.ndarray, "2 draws"]]


class PlanSpace(NamedTuple):
    """Systems, model, requests and limits of a search, and the settings common to its plans."""

    sides: Sequence[Side]
    arch: Architecture
    work: Workload
    asked: Requirements
    common: Deployment
    draft: Architecture | None = None


class Chances(NamedTuple):
    """Of each plan (first axis): the probability that its limits hold, and the parts it is from.

    ``room``: normal scores of TPOT's and TTFT's error up to which limits hold; ``shared``: the part
    of these scores that plans share, by draw; ``own``: standard deviation of the rest.
    """

    holds: Array
    room: Array
    shared: Array
    own: Array


class _Times(NamedTuple):
    """Seconds of a plan's limited times, and its capacity over the arrival rate, if any."""

    tpot: Array
    ttft: Array
    p99: Array
    spare: Array


def chances(plans: Sequence[Choice], space: PlanSpace, belief: Belief) -> Chances:
    """The probability of each plan of one mode that all its limits hold.

    A plan that exceeds a limit which is certain (memory, GPUs) holds with probability 0.
    """
    mode = plans[0].mode
    asked = space.asked
    limits = [np.float64(x) for x in (asked.tpot, asked.ttft, asked.p99_ttft)]
    doubts, offsets = belief.doubts[mode], belief.offsets[mode]
    known = (tuple(belief.servings), models(space.arch, space.draft), space.common)
    parts: list[Chances] = []
    size = ROWS if asked.rate is None or mode == "disaggregated" else ARRIVING_ROWS
    for start in range(0, len(plans), size):
        rows = plans[start : start + size]
        filled = [*rows, *[rows[-1]] * (size - len(rows))]
        columns = jax.tree.map(lambda *x: np.array(x), *(_columns(c, asked) for c in filled))
        if mode == "disaggregated":
            fixed = (*known, _wrapper(space), space.arch, _hardware(space), _mean(space))
            part = once(_of_pairs, *fixed, limits, doubts, offsets, *columns)
        else:
            fixed = (*known, space.sides[0].hardware, _loaded(space))
            points = 1 if asked.rate is None else SOME
            part = once(_of_instances, *fixed, limits, doubts, offsets, *columns, points=points)
        parts.append(trees.take(part, slice(len(rows))))
    every = jax.tree.map(lambda *x: np.concatenate(x), *parts)
    certain = np.array([not set(c.excess) - TIMED for c in plans])
    return every._replace(holds=np.where(certain, every.holds, 0.0))


def _columns(c: Choice, asked: Requirements) -> tuple[object, ...]:
    """Parallel degrees and load of an instance, or of each pool."""

    def layout(given: Mapping[str, float]) -> dict[str, float]:
        usual = Layout(1.0, 1.0, 1.0, 1.0)._asdict()
        return {name: float(given.get(name, x)) for name, x in usual.items()}

    first, *second = pools_of(c.degrees)
    if second:
        counts = first["instances"], second[0]["instances"]
        return layout(first), layout(second[0]), counts, first["batch"], c.batch
    rate = None if asked.rate is None else asked.rate / first["replicas"]
    return layout(first), c.batch if rate is None else rate


def _loaded(space: PlanSpace) -> Workload:
    """Requests of an instance: kept in flight, or arriving."""
    work, rate = space.work, space.asked.rate
    if rate is None:
        return work.replace(arrivals=None, lengths=())
    return work.replace(arrivals=work.arrivals or Arrivals.of(rate=rate))


def _mean(space: PlanSpace) -> Workload:
    """Requests of two pools, all of the mean lengths."""
    work, rate = space.work.replace(lengths=()), space.asked.rate
    if rate is None:
        return work
    return work.replace(arrivals=work.arrivals or Arrivals.of(rate=rate))


def _wrapper(space: PlanSpace) -> Disaggregated:
    first, last = space.sides[0], space.sides[-1]
    wrapper = Disaggregated.of(target=first.serving)
    if last is first:
        return wrapper
    return wrapper.replace(decoder=last.serving, decode_hardware=last.hardware)


def _hardware(space: PlanSpace) -> tuple[Hardware, Hardware]:
    return space.sides[0].hardware, space.sides[-1].hardware


def _of_instances(
    servings: tuple[Serving, ...],
    models: tuple[Shape, Shape | None],
    common: Deployment,
    hardware: Hardware,
    work: Workload,
    limits: Sequence[Array],
    doubts: tuple[Doubt, Doubt],
    offsets: Array,
    layout: dict[str, Array],
    load: Array,
) -> Chances:
    """Chances of instances of one kind, each with its requests in flight or per second."""
    arch, draft = models

    def at(serving: Serving, degrees: dict[str, Array], each: Array) -> _Times:
        asked = work.replace(batch=each)
        if work.arrivals is not None:
            asked = work.replace(arrivals=work.arrivals.replace(rate=each))
        return _times(serving.serve(arch, hardware, asked, common.replace(**degrees), draft))

    def one(degrees: dict[str, Array], each: Array) -> Chances:
        times = jax.vmap(at, in_axes=(0, None, None))(servings[0], degrees, each)
        return _from_times(times, limits, doubts, offsets)

    return jax.vmap(one)(layout, load)


def _of_pairs(
    servings: tuple[Serving, ...],
    models: tuple[Shape, Shape | None],
    common: Deployment,
    wrapper: Disaggregated,
    arch: Architecture,
    hardware: tuple[Hardware, Hardware],
    work: Workload,
    limits: Sequence[Array],
    doubts: tuple[Doubt, Doubt],
    offsets: Array,
    first: dict[str, Array],
    second: dict[str, Array],
    copies: tuple[Array, Array],
    prompts: Array,
    batch: Array,
) -> Chances:
    """Chances of pairs of pools, with the transfer between them."""
    shape, draft = models
    fresh, ones = jnp.maximum(work.isl - work.prefix, 1.0), jnp.ones_like(work.isl)

    def at(serving: Serving, decoder: Serving, pools: Pools, load: Array) -> _Times:
        prompt = ForwardPass(
            sequences=pools.prefill_batch, new_tokens=fresh, cached_tokens=work.prefix
        )
        token = ForwardPass(sequences=load, new_tokens=ones, cached_tokens=decode_context(work))
        passes = (
            serving.token(shape, hardware[0], prompt, pools.prefill, draft),
            decoder.token(shape, hardware[1], token, pools.decode, draft),
        )
        own = wrapper.replace(target=serving)
        if wrapper.decoder is not None:
            own = own.replace(decoder=decoder)
        return _times(own.joined(arch, hardware[0], work.replace(batch=load), pools, passes))

    def one(
        first: dict[str, Array],
        second: dict[str, Array],
        copies: tuple[Array, Array],
        prompts: Array,
        load: Array,
    ) -> Chances:
        pools = Pools(
            prefill=common.replace(**first),
            decode=common.replace(**second),
            prefill_copies=copies[0],
            decode_copies=copies[1],
            prefill_batch=prompts,
        )
        ends = servings[0], servings[-1]
        times = jax.vmap(at, in_axes=(0, 0, None, None))(*ends, pools, load)
        return _from_times(times, limits, doubts, offsets)

    return jax.vmap(one)(first, second, copies, prompts, batch)


def _times(estimate: Estimate) -> _Times:
    """The numbers that limits are on: TPOT, TTFT, p99 of TTFT, spare capacity."""
    p99 = getattr(estimate, "percentiles", {}).get("p99", estimate.ttft)
    both = {**estimate.prefill.limits, **estimate.decode.limits}
    arrivals = both.get("arrivals")
    far = jnp.full_like(estimate.tpot, np.exp(FAR))
    spare = far if arrivals is None else arrivals.capacity / arrivals.need
    return _Times(estimate.tpot, estimate.ttft, p99, spare)


def _from_times(
    times: _Times, limits: Sequence[Array], doubts: tuple[Doubt, Doubt], offsets: Array
) -> Chances:
    """The chances of one plan from its times, predicted and then at each draw."""
    tpot, ttft, p99 = limits
    now = trees.take(times, 0)
    # a server slower by a factor serves fewer requests by the same factor, so that spare capacity
    # is room for error as a limit of TPOT is
    sides = [doubt.spread for doubt in doubts]
    rooms = jnp.stack(
        [
            jnp.minimum(room(tpot, now.tpot, sides[0]), score(jnp.log(now.spare), sides[0])),
            jnp.minimum(room(ttft, now.ttft, sides[1]), room(p99, now.p99, sides[1])),
        ]
    )
    moved = jnp.stack(
        [
            (jnp.log(x[1:]) - jnp.log(x[0])) / spread.width
            for x, spread in zip((times.tpot, times.ttft), sides, strict=True)
        ]
    )
    common = jnp.stack([jnp.asarray(doubt.common) for doubt in doubts])
    settled = jnp.stack([jnp.asarray(doubt.settled) for doubt in doubts])
    common = jnp.where(settled > 0.5, jnp.minimum(common, jnp.var(moved, axis=1)), common)
    shared, own = shared_and_own(moved, common, offsets)
    return Chances(chance(rooms, shared, own), rooms, shared, own)
