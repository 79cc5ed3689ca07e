"""Prefill and decode in separate pools, for any estimator with ``step``."""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.estimate import Estimate, Limit, Phase, decode_context, fresh_tokens
from infer_jax.estimators.estimator import Estimator, Wrapper
from infer_jax.estimators.serving.plan import requests
from infer_jax.physics import decoder, pipelining
from infer_jax.physics.cost import usd_per_million_tokens
from infer_jax.physics.network import switch_collectives
from infer_jax.physics.root import crossing
from infer_jax.physics.scheduling.interference import first_wave, passes_beyond
from infer_jax.physics.scheduling.queueing import closed_rate, single_server_wait
from infer_jax.specs import (
    UNBOUNDED,
    Architecture,
    ForwardPass,
    Hardware,
    Plan,
    Spec,
    Workload,
    checked,
    number,
    part,
    spec,
)

# terms of TTFT beside those of the prompt's pass
OUTSIDE = ("front", "router", "transfer", "hand-over", "queue", "first wave")
FEWEST = 1e-4  # share of the requests in flight that decode at least
PassLaw = Callable[[ForwardPass, Plan], Phase]


def _none() -> None:
    return None


@spec
class Pools(Spec):
    """Prefill instances and decode instances, each kind with a plan of its own."""

    prefill: Plan = part("an instance that prefills")
    decode: Plan = part("an instance that decodes")
    prefill_copies: Array = number("instances that prefill", kind="count", low=1, default=1.0)
    decode_copies: Array = number("instances that decode", kind="count", low=1, default=1.0)
    prefill_batch: Array = number("prompts of one prefill pass", kind="count", low=1, default=1.0)
    full_batch: Array = number(
        "prompts of a prefill pass for which as many wait as its token budget holds;"
        " prefill_batch at least",
        kind="count",
        low=1,
        default=1.0,
    )

    @property
    def pool_chips(self) -> tuple[Array, Array]:
        """Chips of each pool."""
        first, second = self.prefill.instance, self.decode.instance
        return first * self.prefill_copies, second * self.decode_copies

    @property
    def chips(self) -> Array:
        """Chips of both pools."""
        first, second = self.pool_chips
        return first + second


@spec
class Disaggregated(Wrapper):
    """Two pools and the transfer of the KV cache from one to the other.

    Both pools use the same estimator unless ``decoder`` is another, and run on the same hardware
    unless ``decode_hardware`` is another. ``prefill_share`` and ``decode_share`` are the shares of
    the rate its passes would allow that a pool reaches (0.9 and 0.92 in aiconfigurator 0.12,
    sdk/picking.py), the latter where it is not known how many requests are in flight, for else
    Little's law says how many decode. InferSim assumes 0.8 of a link's rate (Alibaba 2025).
    """

    target: Estimator = part("the estimator of the pools, or of the prefill pool")
    decoder: Estimator | None = part(
        "the estimator of the decode pool; none: the same", default_factory=_none
    )
    decode_hardware: Hardware | None = part(
        "what the decode pool runs on; none: the same", default_factory=_none
    )
    layered: Array = number(
        "whether the cache is sent layer by layer while the prompt is computed",
        kind="choice",
        high=1,
        default=1.0,
        choices=("no", "yes"),
    )
    link_share: Array = number(
        "share of link bandwidth that transfers reach", kind="fraction", high=1, default=0.8
    )
    prefill_share: Array = number(
        "share of its rate that the prefill pool keeps: bubbles between prompts",
        kind="fraction",
        high=1,
        default=0.9,
    )
    decode_share: Array = number(
        "share of its rate that the decode pool keeps: slots not yet filled",
        kind="fraction",
        high=1,
        default=0.92,
    )
    router: Array = number(
        "from a request's arrival at the router to its place in the queue of a prefill instance",
        unit="s",
        kind="time",
        default=0.0,
    )
    handover: Array = number(
        "from the end of a prompt's pass to its first token at the pool that decodes, without the "
        "bytes: the median of what InferenceX measured of DeepSeek-R1 beyond the pass, 52 runs of "
        "14 kinds of server with at most one request in flight a decode instance (quartiles 0.05 "
        "and 0.15 s; vngcloud/InferenceX-app at 7fe6d62)",
        unit="s",
        kind="time",
        default=0.07,
    )

    @checked
    def estimate(
        self, arch: Architecture, hardware: Hardware, workload: Workload, plan: Pools
    ) -> Estimate:
        """A request through both pools, ``workload.batch`` requests in each decode instance.

        TTFT adds up the time before a prompt is queued (``front_time``), the prefill, the part of
        the transfer that the prefill does not hide, router and hand-over, and waits. In an open
        loop these are of arrivals, and requests per second the least of their rate and the
        capacities of prefill, decode and the link; in a closed one both follow from the requests in
        flight (``joined``; ``loop`` where these are known). TPOT is a decode step without prefills.
        """
        prompt, token = forward_passes(workload, plan)
        first = self.target.step(arch, hardware, prompt, plan.prefill)
        second = self._decoder.step(arch, self._other(hardware), token, plan.decode)
        return self.joined(arch, hardware, workload, plan, (first, second))

    def joined(
        self,
        arch: Architecture,
        hardware: Hardware,
        workload: Workload,
        plan: Pools,
        passes: tuple[Phase, Phase],
        flight: Array | None = None,
        demands: tuple[Array, Array] | None = None,
    ) -> Estimate:
        """The estimate from the passes of the two pools.

        A closed loop keeps ``flight`` requests in flight; at most ``workload.batch`` decode in each
        instance. They go around prefill pool, link and decode pool
        (``queueing.closed_rate``), and by Little's law TTFT is what decoding leaves of a cycle.
        None: as many as keep that batch decoding where nobody waits; the rate is then what pools
        that are kept so carry. ``demands``: seconds that a request keeps the prefill pool and the
        link; None: in passes like the first.
        """
        first, second = passes
        other = self._other(hardware)
        demands = demands or self._demands(arch, hardware, workload, plan, first)
        around = self.around(arch, hardware, workload, plan, first)
        alone = first.time + sum(around.values())
        running, spent = plan.decode_copies * workload.batch, _later(workload) * second.time
        rate, wait, wave, limits = self._waits(workload, (running, alone, spent), demands, flight)
        ttft = alone + wait + wave
        fresh, (fed, decoded) = fresh_tokens(workload), plan.pool_chips
        prefill = first.replace(
            time=ttft,
            terms={**first.terms, **around, "queue": wait, "first wave": wave},
            limits={**first.limits, **limits},
            mfu=first.mfu * first.time / ttft,
        )
        return Estimate(
            ttft=ttft,
            tpot=second.time,
            chips=plan.chips,
            throughput=rate * workload.osl / plan.chips,
            cost=usd_per_million_tokens(decoded, other.price, 1.0 / rate, workload.osl),
            input_cost=usd_per_million_tokens(fed, hardware.price, 1.0 / rate, fresh),
            prefill=prefill,
            decode=second,
        )

    def _waits(
        self,
        workload: Workload,
        served: tuple[Array, Array, Array],
        demands: tuple[Array, Array],
        flight: Array | None,
    ) -> tuple[Array, Array, Array, dict[str, Limit]]:
        """Requests a second, seconds of waits in a loop and of a benchmark's start, and limits.

        ``served``: requests that decode, and seconds before a first token and after it.
        """
        running, alone, spent = served
        most = jnp.minimum(1.0 / jnp.maximum(*demands), self.decode_share * running / spent)
        if workload.arrivals is not None:
            asked, each = workload.arrivals.rate, demands[0]
            load, varied = asked * each, workload.arrivals.variability
            wait = single_server_wait(asked, each, each**2, load, varied)
            limits = {"arrivals": Limit(need=asked, capacity=most)}
            return jnp.minimum(most, asked), wait, jnp.zeros_like(wait), limits
        around = running + most * alone if flight is None else flight
        rate = jnp.minimum(closed_rate(around, alone + spent, demands), running / spent)
        wait = jnp.maximum(around / rate - alone - spent, 0.0)
        # who comes at the start of a benchmark waits for half of the others, not as in the loop
        waves = requests(workload).waves
        wave = first_wave(around, demands[0], waves) - wait / waves
        wave = jnp.where(waves < UNBOUNDED, wave, 0.0)
        return most if flight is None else rate, wait, wave, {}

    def _demands(
        self, arch: Architecture, hardware: Hardware, workload: Workload, plan: Pools, first: Phase
    ) -> tuple[Array, Array]:
        """Seconds that a request keeps the prefill pool, in passes like ``first``, and the link."""
        prompts = plan.prefill_copies * plan.prefill_batch * self.prefill_share
        link = jnp.minimum(*plan.pool_chips) * self.link(hardware, self._other(hardware), plan)
        sent = decoder.cache_bytes(arch, workload.isl) / link
        return first.time / prompts, sent

    @property
    def _decoder(self) -> Estimator:
        return self.decoder or self.target

    def _other(self, hardware: Hardware) -> Hardware:
        """What the decode pool runs on."""
        return self.decode_hardware or hardware

    def around(
        self, arch: Architecture, hardware: Hardware, workload: Workload, plan: Pools, first: Phase
    ) -> dict[str, Array]:
        """Seconds of TTFT beside the prompt's pass ``first`` and the wait for it, by name."""
        sent = decoder.cache_bytes(arch, workload.isl)
        link = self.link(hardware, self._other(hardware), plan)
        each = jnp.minimum(plan.prefill.instance, plan.decode.instance)
        moving = plan.prefill_batch * sent / (each * link)
        hidden = pipelining.exposed_time(moving, first.time, decoder.layers(arch))
        return {
            "front": self.target.front_time(plan.prefill),
            "router": self.router,
            "transfer": jnp.where(self.layered > 0.5, hidden, moving),
            "hand-over": self.handover,
        }

    def loop(
        self,
        arch: Architecture,
        hardware: Hardware,
        workload: Workload,
        plan: Pools,
        laws: tuple[PassLaw, PassLaw] | None = None,
    ) -> Estimate:
        """A closed loop, ``workload.batch`` requests in flight for each decode instance.

        Of them those decode whom Little's law leaves, X (O - 1) TPOT of X requests a second, where
        memory has room for them; the others wait, are in a prefill instance or between the pools.
        The prefill pool is as fast as passes of ``full_batch`` prompts let it be.
        ``laws``: the passes of both pools; None: of their estimators.
        """
        flight = plan.decode_copies * workload.batch
        prefill, decode = laws or (
            lambda forward, own: self.target.step(arch, hardware, forward, own),
            lambda forward, own: self._decoder.step(arch, self._other(hardware), forward, own),
        )
        prompt = forward_passes(workload, plan)[0]
        first = prefill(prompt, plan.prefill)
        # who waits shares a pass with as many as fit in it
        full = plan.replace(prefill_batch=jnp.maximum(plan.prefill_batch, plan.full_batch))
        together = prefill(prompt.replace(sequences=full.prefill_batch), plan.prefill)
        demands = self._demands(arch, hardware, workload, full, together)
        around = self.around(arch, hardware, workload, plan, first)
        alone = first.time + sum(around.values())

        def token(each: Array) -> Phase:
            return decode(forward_passes(workload.replace(batch=each), plan)[1], plan.decode)

        def surplus(each: Array) -> Array:
            spent = _later(workload) * token(each).time
            return plan.decode_copies * each - spent * closed_rate(flight, alone + spent, demands)

        places = self._decoder.request_places(arch, self._other(hardware), workload, plan.decode)
        most = jnp.minimum(workload.batch, places)
        each = crossing(surplus, FEWEST * most, most)
        decoding, second = workload.replace(batch=each), token(each)
        steady = self.joined(arch, hardware, decoding, plan, (first, second), flight, demands)
        # start and end of a benchmark, in which passes are as long as they are of few requests
        work, cycle = requests(workload), alone + _later(workload) * second.time
        fixed = jnp.maximum(2.0 * token(0.5 * each).time / second.time - 1.0, 0.0)
        feeding = flight * demands[0]
        ends = passes_beyond(work.waves, cycle, feeding, work.fixed > 0.5) * fixed / work.waves
        rate = steady.throughput * plan.chips / workload.osl
        longer = 1.0 + jnp.where(work.waves < UNBOUNDED, ends, 0.0) * rate / flight
        return steady.replace(
            throughput=steady.throughput / longer,
            cost=steady.cost * longer,
            input_cost=steady.input_cost * longer,
        )

    def link(self, hardware: Hardware, other: Hardware, plan: Pools) -> Array:
        """Bytes/s of a chip's link between the pools: the slower end's.

        The fast domain where both pools are of one system and fit in one, else the network.
        """

        if self.decode_hardware is None:
            return switch_collectives.link_rate(hardware.network, plan.chips) * self.link_share
        ends = (switch_collectives.reach(h.network)[2] for h in (hardware, other))
        return jnp.minimum(*ends) * self.link_share


def forward_passes(workload: Workload, plan: Pools) -> tuple[ForwardPass, ForwardPass]:
    """A pass of each pool: prompts, and a token of each request of a decode instance.

    A decode instance that is sometimes empty has one request in its passes.
    """
    one = jnp.ones_like(workload.batch)
    return (
        ForwardPass(
            sequences=plan.prefill_batch,
            new_tokens=fresh_tokens(workload),
            cached_tokens=workload.prefix,
        ),
        ForwardPass(
            sequences=jnp.maximum(workload.batch, 1.0),
            new_tokens=one,
            cached_tokens=decode_context(workload),
        ),
    )


def _later(workload: Workload) -> Array:
    """Output tokens after the first, at least one."""
    return jnp.maximum(workload.osl - 1.0, 1.0)
