"""A wrapper whose estimates also have model size, loss and lifetime cost.

Being a wrapper, its terms can be used in sweeps, searches and elasticities as any others.
"""

import jax.numpy as jnp
from jax import Array

from infer_jax.design.problem import log
from infer_jax.design.quality import Law, depth
from infer_jax.design.sensitivity import energy
from infer_jax.estimators.estimate import ENERGY, Estimate, Phase
from infer_jax.estimators.estimator import Estimator, Wrapper
from infer_jax.physics import decoder
from infer_jax.physics.decoder import total
from infer_jax.silicon.accelerator import Accelerator
from infer_jax.silicon.mixture import MixtureEstimate
from infer_jax.silicon.on_silicon import OnSilicon
from infer_jax.specs import (
    Architecture,
    ForwardPass,
    Hardware,
    Output,
    Plan,
    Workload,
    number,
    part,
    spec,
    static,
)

HOUR = 3600.0
UNLISTED = Output(views=())  # in no table of other verbs


@spec
class SizedEstimate(Estimate):
    """An estimate, with the size of the model."""

    parameters: Array = number("parameters of the model", kind="count", output=UNLISTED)
    active: Array = number("parameters that a token meets", kind="count", output=UNLISTED)
    kv_bytes: Array = number(
        "cache of one token of context, all layers", unit="bytes", kind="size", output=UNLISTED
    )
    aspect: Array = number("width over layers", kind="size", output=UNLISTED)
    total: Array = number(
        "USD per million output tokens, their prompts included",
        unit="USD",
        kind="price",
        output=UNLISTED,
    )
    energy: Array = number("energy per million output tokens", unit="J", kind="size", output=ENERGY)
    score: Array = number("the weighted pair: first^w second^(1-w)", kind="size")


@spec
class QualityEstimate(SizedEstimate):
    """An estimate, with the model's size, its predicted loss and its lifetime cost."""

    loss: Array = number("predicted loss of a token", unit="nats", kind="size", output=UNLISTED)
    training: Array = number(
        "rent of the chips that train it", unit="USD", kind="price", output=UNLISTED
    )
    lifetime: Array = number(
        "training, and serving all its tokens", unit="USD", kind="price", output=UNLISTED
    )
    lifetime_cost: Array = number(
        "lifetime per million output tokens served", unit="USD", kind="price", output=UNLISTED
    )


@spec
class QualityWrapper(Wrapper):
    """An estimator with a law of quality, and the inputs of the lifetime cost.

    lifetime = training + served (cost + input_cost (isl - prefix) / osl) / 1e6, with training =
    6 N D / (utilisation x 16-bit rate) chip-seconds at the chip's price; N active parameters, D
    training tokens. Source of 6 N D: Kaplan et al. 2020 (arXiv 2001.08361), Section 2.1; of the
    sum at one loss: Sardana et al. 2024 (arXiv 2401.00448), Section 2. On silicon the chip that is
    designed trains the model, too, and an hour is counted as the estimator inside counts it.
    """

    target: Estimator = part("the estimator")
    law: Law | None = part("a law of quality; None: none", default_factory=lambda: None)
    tokens: Array = number("tokens it is trained on", unit="tokens", kind="count", default=0.0)
    served: Array = number(
        "output tokens it serves until it is retired", unit="tokens", kind="count", default=0.0
    )
    utilisation: Array = number(
        "share of the 16-bit rate that training sustains", kind="fraction", high=1, default=0.4
    )
    weight: Array = number(
        "exponent of the first of the pair", kind="fraction", high=1, default=0.5
    )
    pair: tuple[str, str] = static("two terms of an estimate", default=("cost", "tpot"))

    def step(
        self, arch: Architecture, hardware: Hardware, forward: ForwardPass, plan: Plan
    ) -> Phase:
        """One pass, by the estimator inside."""
        return self.target.step(arch, hardware, forward, plan)

    def estimate(
        self, arch: Architecture, hardware: Hardware, workload: Workload, plan: Plan
    ) -> SizedEstimate:
        """The estimate of the estimator inside, with size, loss and costs."""
        estimate = self.target.estimate(arch, hardware, workload, plan)
        first, second = (getattr(estimate, name) for name in self.pair)
        terms = {name: getattr(estimate, name) for name in Estimate.__dataclass_fields__}
        prompts = jnp.maximum(workload.isl - workload.prefix, 0.0) / workload.osl
        mixed = isinstance(estimate, MixtureEstimate)
        all_in = estimate.total if mixed else estimate.cost + estimate.input_cost * prompts
        terms |= {
            "total": all_in,
            "parameters": total(decoder.parameters(arch).values()),
            "active": decoder.active_parameters(arch),
            "kv_bytes": decoder.cache_bytes(arch, jnp.asarray(2.0))
            - decoder.cache_bytes(arch, jnp.asarray(1.0)),
            "aspect": arch.width / depth(arch),
            "energy": energy(estimate, hardware, workload),
            # a cost of 0 (no price) leaves the gradient of the other term intact
            "score": jnp.exp(self.weight * log(first) + (1.0 - self.weight) * log(second)),
        }
        if self.law is None:
            return SizedEstimate(**terms)
        sheet = hardware
        if isinstance(hardware, Accelerator) and isinstance(self.target, OnSilicon):
            sheet = self.target.lowered(hardware)
        seconds = 6.0 * terms["active"] * self.tokens / (self.utilisation * sheet.chip.flops_16)
        training = seconds / HOUR * sheet.price
        millions = self.served / 1e6
        lifetime = training + millions * all_in
        serves = millions > 0
        return QualityEstimate(
            **terms,
            loss=self.law.loss(arch, self.tokens),
            training=training,
            lifetime=lifetime,
            lifetime_cost=jnp.where(serves, lifetime / jnp.where(serves, millions, 1.0), 0.0),
        )
