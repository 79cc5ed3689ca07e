"""Efficiently scaling Transformer inference (Pope et al. 2022, arXiv 2211.05102).

One pass on a slice of a torus costs arithmetic, memory, collectives and their latency, at one
of five weight layouts and two attention layouts. The paper gives the volumes; what it measured
calibrates the coefficients, which stand in a hardware profile.
"""

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.estimate import Phase, stop_gradients
from infer_jax.estimators.estimator import Estimator
from infer_jax.estimators.partitioning.forward_pass import cache_share, one_pass
from infer_jax.estimators.partitioning.slices import (
    ATTENTION,
    LAYOUTS,
    TRIED,
    Coefficients,
    Sharding,
    axes_tried,
    sharding_of,
)
from infer_jax.estimators.search import Numbered, blend, fastest
from infer_jax.physics import attention as att
from infer_jax.physics.decoder import total
from infer_jax.specs import (
    Architecture,
    ForwardPass,
    Hardware,
    Plan,
    checked,
    spec,
)


@spec
class Partitioning(Coefficients, Estimator):
    """The partitioning model: one pass at the layout that the plan gives, or at the fastest."""

    table = "partitioning"
    checked_against = (
        "a forward pass without scheduler or waits, fitted to PaLM on TPU v4: no measured rows of "
        "servers"
    )

    @classmethod
    def searched(cls) -> "Partitioning":
        """The fastest layout on the plan's slice, in every phase anew."""
        return cls.of()

    @classmethod
    def as_planned(cls) -> "Partitioning":
        """The layout that the plan gives."""
        return cls.of(search=False)

    @property
    def memory_account(self) -> str:
        """Pope et al.'s own: ``memory`` has no layouts of a torus slice."""
        return "by Pope et al., weights and cache on a chip of the slice, without reserves"

    @property
    def searches(self) -> bool:
        """Whether it searches axes and layouts of the slice."""
        return self.search

    @property
    def smooths(self) -> bool:
        """True: ``smoothing`` is the temperature of maxima and the search."""
        return True

    @checked
    def step(
        self, arch: Architecture, hardware: Hardware, forward: ForwardPass, plan: Plan
    ) -> Phase:
        """One pass over ``forward.sequences`` sequences on the plan's slice.

        The search tries the five weight layouts, both attention layouts, and every way to make
        x, y and z of the slice's axes (``ORDERS``); a plan without axes has tp * ep chips, x on
        ticks from 1 to all of them, y and z alike. The gradient is the winner's.
        Source: Pope et al. 2022 (arXiv 2211.05102), Sections 2 and 3.
        """
        if not self.search:
            return one_pass(self, arch, hardware, forward, plan, sharding_of(plan, arch))

        def numbered(
            model: Partitioning, a: Architecture, h: Hardware, f: ForwardPass, q: Plan
        ) -> Numbered:
            return lambda *index: one_pass(model, a, h, f, q, _candidate(q, a, *index))

        counts = (len(LAYOUTS), axes_tried(plan)[0], len(ATTENTION))
        given = (self, arch, hardware, forward, plan)
        if self.smoothing is not None:
            return blend(numbered(*given), counts, self.smoothing)
        return numbered(*given)(*fastest(numbered(*stop_gradients(given)), counts))


def _candidate(plan: Plan, arch: Architecture, layout: Array, order: Array, by: Array) -> Sharding:
    """The sharding at these indices: which axes are x, y and z, and the two layouts."""
    own = sharding_of(plan, arch)
    kind = jnp.result_type(own.chips)
    # of equal candidates the first wins, named as the paper names it: 2-D at x = 1 is 1-D,
    # gathering over x y at z = 1 is over all, and there attention by batch is attention by heads
    codes = {"layout": jnp.asarray(TRIED, kind)[layout], "attention": 1.0 - by.astype(kind)}
    return Sharding(*axes_tried(plan)[1](own, order), **codes)


def max_context(
    arch: Architecture, hardware: Hardware, plan: Plan, batch: Array, reserved: Array
) -> Array:
    """Tokens of context that fit for each of ``batch`` sequences.

    reserved * memory / (bytes of one token of all sequences on one chip), with ``reserved``
    the share of a chip's memory that is kept for the cache. Layers that cache more with every
    token alone count (no windows). Source: Pope et al. 2022 (arXiv 2211.05102), Table 1.
    """
    sharding, one = sharding_of(plan, arch), jnp.asarray(1.0)
    each = total(
        b.count
        * att.of(b.attention).held_bytes(arch.cache, one)
        * cache_share(sharding, b.attention, batch)
        for b in arch.blocks
        if b.attention is not None
    )
    return reserved * hardware.chip.memory * plan.pp / (batch * each)
