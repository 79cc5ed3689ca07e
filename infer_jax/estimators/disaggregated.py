"""Prefill and decode in separate pools, for any estimator with ``step``."""

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.estimate import Estimate, Limit, Phase, decode_context
from infer_jax.estimators.estimator import Estimator, Wrapper
from infer_jax.physics import decoder, pipelining
from infer_jax.physics.network import switch_collectives
from infer_jax.physics.price import usd_per_million_tokens
from infer_jax.physics.root import crossing
from infer_jax.physics.scheduling.queueing import closed_wait, single_server_wait
from infer_jax.specs import (
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
OUTSIDE = ("front", "router", "transfer", "hand-over", "queue")


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

    @property
    def chips(self) -> Array:
        """Chips of both pools."""
        first, second = self.prefill.instance, self.decode.instance
        return first * self.prefill_copies + second * self.decode_copies


@spec
class Disaggregated(Wrapper):
    """Two pools and the transfer of the KV cache from one to the other.

    Both pools use the same estimator unless ``decoder`` is another, and run on the same hardware
    unless ``decode_hardware`` is another. ``prefill_share`` and ``decode_share`` are the shares of
    the rate its passes would allow that a pool reaches (0.9 and 0.92 in aiconfigurator 0.12,
    sdk/picking.py); InferSim assumes 0.8 of a link's rate (Alibaba 2025).
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

        Requests per second: the least of the capacities of prefill, decode and the link between
        them, or the arrival rate if there is one. TTFT adds up the time before a prompt's first
        pass (``front_time``), the prefill, the part of the transfer that the prefill does not hide,
        router and hand-over, and the wait for a prefill instance: in an open loop that of arrivals,
        else that of a closed loop over both pools (``queueing.closed_wait``). TPOT is a decode
        step without prefills in it.
        """
        fresh = jnp.maximum(workload.isl - workload.prefix, 1.0)
        first = self.target.step(
            arch,
            hardware,
            ForwardPass(
                sequences=plan.prefill_batch, new_tokens=fresh, cached_tokens=workload.prefix
            ),
            plan.prefill,
        )
        one = jnp.ones_like(workload.batch)
        second = (self.decoder or self.target).step(
            arch,
            self.decode_hardware or hardware,
            ForwardPass(
                sequences=workload.batch, new_tokens=one, cached_tokens=decode_context(workload)
            ),
            plan.decode,
        )
        return self.joined(arch, hardware, workload, plan, (first, second))

    def joined(
        self,
        arch: Architecture,
        hardware: Hardware,
        workload: Workload,
        plan: Pools,
        passes: tuple[Phase, Phase],
    ) -> Estimate:
        """The estimate from the passes of the two pools."""
        first, second = passes
        second_hardware = self.decode_hardware or hardware
        fresh = jnp.maximum(workload.isl - workload.prefix, 1.0)
        sent = decoder.cache_bytes(arch, workload.isl)
        copies = plan.prefill_copies, plan.decode_copies
        streams = jnp.minimum(copies[0] * plan.prefill.instance, copies[1] * plan.decode.instance)
        around = self.around(arch, hardware, workload, plan, first)

        prompts = copies[0] * plan.prefill_batch / first.time * self.prefill_share
        outputs = jnp.maximum(workload.osl - 1.0, 1.0)
        tokens = copies[1] * workload.batch / second.time * self.decode_share
        link = streams * self.link(hardware, second_hardware, plan) / sent
        most = jnp.minimum(jnp.minimum(prompts, tokens / outputs), link)
        alone = first.time + sum(around.values())
        limits: dict[str, Limit] = {}
        if workload.arrivals is None:
            rate, flight = most, copies[1] * workload.batch + most * alone
            wait = self._wait(flight, outputs * second.time, first, around, plan)
        else:
            asked = workload.arrivals.rate
            rate = jnp.minimum(most, asked)
            limits["arrivals"] = Limit(need=asked, capacity=most)
            served = first.time / (copies[0] * plan.prefill_batch * self.prefill_share)
            wait = single_server_wait(
                asked, served, served**2, asked * served, workload.arrivals.variability
            )
        ttft = alone + wait
        chips = plan.chips
        shares = copies[0] * plan.prefill.instance, copies[1] * plan.decode.instance
        into = usd_per_million_tokens(shares[0], hardware.price, 1.0 / rate, fresh)
        out = usd_per_million_tokens(shares[1], second_hardware.price, 1.0 / rate, workload.osl)
        prefill = first.replace(
            time=ttft,
            terms={**first.terms, **around, "queue": wait},
            limits={**first.limits, **limits},
            mfu=first.mfu * first.time / ttft,
        )
        return Estimate(
            ttft=ttft,
            tpot=second.time,
            chips=chips,
            throughput=rate * workload.osl / chips,
            cost=out,
            input_cost=into,
            prefill=prefill,
            decode=second,
        )

    def around(
        self, arch: Architecture, hardware: Hardware, workload: Workload, plan: Pools, first: Phase
    ) -> dict[str, Array]:
        """Seconds of TTFT beside the prompt's pass ``first`` and the wait for it, by name."""
        sent = decoder.cache_bytes(arch, workload.isl)
        link = self.link(hardware, self.decode_hardware or hardware, plan)
        each = jnp.minimum(plan.prefill.instance, plan.decode.instance)
        moving = plan.prefill_batch * sent / (each * link)
        hidden = pipelining.exposed(moving, first.time, decoder.layers(arch))
        return {
            "front": self.target.front_time(plan.prefill),
            "router": self.router,
            "transfer": jnp.where(self.layered > 0.5, hidden, moving),
            "hand-over": self.handover,
        }

    def _wait(
        self, flight: Array, decoding: Array, first: Phase, around: dict[str, Array], plan: Pools
    ) -> Array:
        """Seconds of waiting for a prefill instance with ``flight`` requests in a closed loop.

        ``decoding``: seconds that each decodes. Every prompt of a pass counts as a server.
        """
        servers = plan.prefill_copies * plan.prefill_batch
        between = sum(around.values()) + decoding + first.time * (1.0 - 1.0 / servers)
        return closed_wait(flight, first.time / servers, between)

    @checked
    def decoding(
        self, arch: Architecture, hardware: Hardware, workload: Workload, plan: Pools
    ) -> Array:
        """Decoding requests in each decode instance, with ``workload.batch`` in flight for each.

        The others wait for a prefill instance, are in one, or are between the pools. By Little's
        law for both pools: N + X (TTFT) = C, with X = N / ((O - 1) TPOT) requests a second.
        """
        fresh = jnp.maximum(workload.isl - workload.prefix, 1.0)
        prompts = ForwardPass(
            sequences=plan.prefill_batch, new_tokens=fresh, cached_tokens=workload.prefix
        )
        first = self.target.step(arch, hardware, prompts, plan.prefill)
        around = self.around(arch, hardware, workload, plan, first)
        alone = first.time + sum(around.values())
        outputs = jnp.maximum(workload.osl - 1.0, 1.0)
        flight, context = plan.decode_copies * workload.batch, decode_context(workload)

        def over(each: Array) -> Array:
            tokens = ForwardPass(
                sequences=each, new_tokens=jnp.ones_like(each), cached_tokens=context
            )
            second = (self.decoder or self.target).step(
                arch, self.decode_hardware or hardware, tokens, plan.decode
            )
            spent = outputs * second.time
            wait = self._wait(flight, spent, first, around, plan)
            running = plan.decode_copies * each
            return running + running / spent * (alone + wait) - flight

        return crossing(over, jnp.minimum(1.0, workload.batch), workload.batch)

    def link(self, hardware: Hardware, other: Hardware, plan: Pools) -> Array:
        """Bytes/s of a chip's link between the pools: the slower end's.

        The fast domain where both pools are of one system and fit in one, else the network.
        """

        if self.decode_hardware is None:
            return switch_collectives.link_rate(hardware.network, plan.chips) * self.link_share
        ends = (switch_collectives.reach(h.network)[2] for h in (hardware, other))
        return jnp.minimum(*ends) * self.link_share
