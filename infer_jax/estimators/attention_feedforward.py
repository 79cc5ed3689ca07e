"""Attention and feedforward in separate pools: time of a pass with every layer split."""

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.estimate import Phase
from infer_jax.estimators.estimator import Estimator, Wrapper
from infer_jax.physics import decoder, pipelining
from infer_jax.physics.network import switch_collectives
from infer_jax.specs import (
    Architecture,
    ForwardPass,
    Hardware,
    Plan,
    Spec,
    checked,
    number,
    part,
    spec,
)


@spec
class Halves(Spec):
    """M instances that run attention and N that run the feedforward layers, in micro-batches."""

    attention: Plan = part("an attention instance")
    feedforward: Plan = part("a feedforward instance")
    attention_copies: Array = number("attention instances", kind="count", low=1, default=1.0)
    feedforward_copies: Array = number("feedforward instances", kind="count", low=1, default=1.0)
    micro_batches: Array = number(
        "micro-batches of an attention instance", kind="count", low=1, default=3.0
    )

    @property
    def chips(self) -> Array:
        """Chips of both pools."""
        first, second = self.attention.instance, self.feedforward.instance
        return first * self.attention_copies + second * self.feedforward_copies


@spec
class AttentionFeedforward(Wrapper):
    """Any estimator that prices passes, with each layer divided between two pools.

    Activations cross the link twice a layer. Attention instances hold caches, embedding and head;
    feedforward instances serve the micro-batches of all of them.
    """

    target: Estimator = part("the estimator of both pools")
    feedforward_hardware: Hardware | None = part(
        "what the feedforward pool runs on; none: the same", default_factory=lambda: None
    )
    hop: Array = number("latency of a transfer", unit="s", kind="time", default=0.0)
    link_share: Array = number(
        "share of link bandwidth that transfers reach", kind="fraction", high=1, default=0.8
    )

    @checked
    def step(
        self, arch: Architecture, hardware: Hardware, forward: ForwardPass, plan: Halves
    ) -> Phase:
        """One pass of ``forward.sequences`` sequences in each attention instance.

        L max(m max(t_a, t_f, t_x), t_a + t_f + 2 t_x) for m micro-batches, t_a and t_f a layer's
        time for one of them in either pool, t_x that of its activations on the link. ``overlap``
        is the part of the stages' sum that is hidden; negative, it is waiting.
        """
        other = self.feedforward_hardware or hardware
        count, layers = plan.micro_batches, decoder.layers(arch)
        one = forward.replace(sequences=forward.sequences / count)
        ratio = plan.attention_copies / plan.feedforward_copies
        fed = one.replace(sequences=one.sequences * ratio)
        attending = self.target.step(_half(arch, attention=True), hardware, one, plan.attention)
        feeding = self.target.step(_half(arch, attention=False), other, fed, plan.feedforward)
        size = arch.width * arch.activations.bytes * forward.new_tokens
        crossing = jnp.maximum(
            self.sending(hardware, plan, plan.attention.instance, one.sequences * size),
            self.sending(other, plan, plan.feedforward.instance, fed.sequences * size),
        )
        per_layer = [attending.time / layers, crossing, feeding.time / layers, crossing]
        time = layers * pipelining.rounds(tuple(per_layer), count)
        terms = {
            "attention pool": count * attending.time,
            "feedforward pool": count * feeding.time,
            "transfers": 2.0 * count * layers * crossing,
        }
        limits = {f"attention {k}": v for k, v in attending.limits.items()}
        limits |= {f"feedforward {k}": v for k, v in feeding.limits.items()}
        # all micro-batches keep their caches at once
        room = limits["attention memory"]
        blank = one.replace(cached_tokens=jnp.zeros_like(one.cached_tokens))
        empty = self.target.step(_half(arch, attention=True), hardware, blank, plan.attention)
        cache = room.need - empty.limits["memory"].need
        limits["attention memory"] = room.replace(need=room.need + (count - 1.0) * cache)
        useful = attending.mfu * attending.time * plan.attention.instance * plan.attention_copies
        useful += feeding.mfu * feeding.time * plan.feedforward.instance * plan.feedforward_copies
        return Phase(
            time=time,
            terms=terms,
            limits=limits,
            mfu=useful * count / (time * plan.chips),
            layout={"micro_batches": count, "ratio": ratio},
        )

    def sending(self, hardware: Hardware, plan: Halves, chips: Array, size: Array) -> Array:
        """Seconds in which an instance sends or receives ``size`` bytes over its chips' links."""
        rate = switch_collectives.link_rate(hardware.network, plan.chips)
        return self.hop + size / (chips * rate * self.link_share)


def _half(arch: Architecture, *, attention: bool) -> Architecture:
    """The model without its feedforwards, or without attention, embedding and head."""
    if attention:
        blocks = tuple(b.replace(feedforward=None) for b in arch.blocks if b.attention is not None)
        return arch.replace(blocks=blocks)
    blocks = tuple(b.replace(attention=None) for b in arch.blocks if b.feedforward is not None)
    return arch.replace(blocks=blocks, vocabulary=jnp.zeros_like(arch.vocabulary))
