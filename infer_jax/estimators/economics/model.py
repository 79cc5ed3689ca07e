"""Inference economics of language models (Erdil 2025, arXiv 2506.04645), levels 1 to 4.

One pass costs kernel launches, collectives, and the longer of memory traffic and arithmetic,
at the fastest split of N chips into tensor, pipeline and expert ranks. Levels 3 and 4 are one
assembly with more or less to search; levels 1 and 2 have a simpler one.
"""

from collections.abc import Mapping
from typing import Self

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators.economics.coefficients import (
    PUBLISHED,
    Coefficients,
    one_chip_memory,
)
from infer_jax.estimators.economics.forward_pass import (
    RankLayout,
    Split,
    one_pass,
    phase,
)
from infer_jax.estimators.estimate import Limit, Phase, stop_gradients
from infer_jax.estimators.estimator import Estimator
from infer_jax.estimators.search import Numbered, blend, fastest
from infer_jax.footprint import EngineSettings
from infer_jax.physics import decoder, matmul
from infer_jax.physics.decoder import total
from infer_jax.physics.network import collectives
from infer_jax.physics.numerics import tick
from infer_jax.specs import (
    LAYOUTS,
    Architecture,
    ForwardPass,
    Hardware,
    Plan,
    checked,
    spec,
)

PAPERS = "in the economics paper, weights and cache in the memory of all GPUs together"


@spec
class Economics(Coefficients, Estimator):
    """The economics model and its variants."""

    table = "economics"
    checked_against = (
        "an ideal machine without scheduler, waits or other requests: a bound, not fitted to "
        "servers"
    )

    @property
    def searches(self) -> bool:
        """Whether it splits the plan's chips by itself; the simple levels know no split."""
        return self.search or not self.layouts

    @property
    def memory_account(self) -> str:
        """Empty where memory is that of one chip on a server, else a sentence on the paper's."""
        return "" if self.laws.memory is one_chip_memory else PAPERS

    @property
    def smooths(self) -> bool:
        """True: ``smoothing`` is the temperature of maxima, ceilings and the search."""
        return True

    @classmethod
    def level1(cls) -> "Economics":
        """One chip: the longer of reading the weights and multiplying them (Section 2.1)."""
        return cls.level2().with_(root_hop=0.0, root_base=0.0)

    @classmethod
    def level2(cls) -> "Economics":
        """Many chips, infinite bandwidth, square-root all-reduce latency (Section 2.2)."""
        return cls.of(layouts=(), laws=PUBLISHED)

    @classmethod
    def level3(cls) -> "Economics":
        """Section 3.6: 2-D tensor parallelism over all chips, NCCL's tree."""
        return cls.pipeline(pipeline=False).replace(layouts=("2d",), staged=False)

    @classmethod
    def pipeline(cls, pipeline: bool = True) -> "Economics":
        """Level 3b: 1-D or 2-D tensor parallelism, and pipeline stages if ``pipeline``."""
        return cls.of(
            pipeline_ticks=10 if pipeline else 0,
            split_ticks=1,
            pipeline_to_batch=False,
            expert_parallel=False,
            laws=PUBLISHED._replace(resident=decoder.resident_before),
            table_products=2.0,
        )

    @classmethod
    def level4(cls, pipeline: bool = True) -> "Economics":
        """The paper's results: also with expert parallelism and a narrower split of attention."""
        ticks = 10 if pipeline else 0
        return cls.of(pipeline_ticks=ticks, laws=PUBLISHED, table_products=2.0)

    @classmethod
    def corrected(cls) -> "Economics":
        """Level 4, corrected for users.

        Memory is that of one chip on a server, by the account of ``memory``; MLA and causal
        attention are counted as engines compute them; micro-batches are of tokens, experts spread
        at any batch, and the output head sees one token of each sequence.
        """
        return cls.of(server=EngineSettings.of())

    @classmethod
    def as_planned(cls) -> "Economics":
        """The corrected model at the layout that the plan gives, with no search.

        ``ep`` attention groups of ``tp`` ranks share the experts, in ``pp`` stages.
        """
        return cls.corrected().replace(search=False)

    def fitted(self, coefficients: Mapping[str, float]) -> Self:
        """This variant with a chip's coefficients, as a profile or the paper gives them.

        ``protocol_base`` replaces the launch latency of every NCCL protocol.

        Raises:
            InputError: a name that is no coefficient, or a value out of bounds.
        """
        own = {k: v for k, v in coefficients.items() if k != "protocol_base"}
        model = self.with_(**own)
        if "protocol_base" not in coefficients:
            return model
        base = coefficients["protocol_base"]
        return model.replace(protocols=tuple(p.with_(base=base) for p in model.protocols))

    def fitted_to(self, tables: Mapping[str, Mapping[str, float]]) -> Self:
        """The same with its own table of a profile, on a server of that system."""
        fitted = super().fitted_to(tables)
        if fitted.server is None:
            return fitted
        return fitted.replace(server=fitted.server.on(tables))

    @checked
    def step(
        self, arch: Architecture, hardware: Hardware, forward: ForwardPass, plan: Plan
    ) -> Phase:
        """One pass over ``forward.sequences`` sequences on tp * pp * ep chips.

        latency = launches + collectives + max(memory, compute), at the fastest layout of the
        plan's chips (the plan's own where the variant does not search); the gradient is the
        winner's. Source: Sections 2.1, 2.2 and 3.6 of the paper.
        """
        chips = plan.instance
        if not self.layouts:
            return self._simple(arch, hardware, forward, chips)
        if not self.search:
            own = Split.widen(plan)
            ranks = RankLayout(own.tp * own.ep, own.pp, own.attention_split, own.layout, own.ep)
            return one_pass(self, arch, hardware, forward, ranks)

        def numbered(
            model: Economics, a: Architecture, h: Hardware, f: ForwardPass, n: Array
        ) -> Numbered:
            return lambda *index: one_pass(model, a, h, f, model._ranks(a, f, n, *index))

        counts = (max(1, self.pipeline_ticks), self.split_ticks, len(self.layouts))
        given = (self, arch, hardware, forward, chips)
        if self.smoothing is not None:
            return blend(numbered(*given), counts, self.smoothing)
        return numbered(*given)(*fastest(numbered(*stop_gradients(given)), counts))

    def _ranks(
        self,
        arch: Architecture,
        forward: ForwardPass,
        chips: Array,
        stage: Array,
        split: Array,
        slicing: Array,
    ) -> RankLayout:
        """The layout at these indices: stages and attention split in log steps, slicing."""
        kind = jnp.result_type(chips)
        codes = jnp.asarray([float(LAYOUTS.index(name)) for name in self.layouts], kind)
        top = decoder.layers(arch)
        if self.pipeline_to_batch:
            tokens = forward.sequences * forward.new_tokens
            load = self.laws.load(forward.sequences, tokens)
            top = jnp.clip(load, 1.0, jnp.maximum(top, 1.0))
        stages = jnp.ones_like(chips * top)
        if self.pipeline_ticks:
            stages = stages * tick(stage.astype(kind), self.pipeline_ticks, top)
        each = chips / stages
        return RankLayout(
            each, stages, tick(split.astype(kind), self.split_ticks, each), codes[slicing]
        )

    def _simple(
        self, arch: Architecture, hardware: Hardware, forward: ForwardPass, chips: Array
    ) -> Phase:
        """Levels 1 and 2: weights once, every parameter multiplied, latency-only all-reduces."""
        chip = hardware.chip
        stored = total(decoder.weight_bytes(arch, self.laws.projections).values())
        counts = total(decoder.parameters(arch, self.laws.projections).values())
        flops = 2.0 * counts * forward.sequences * forward.new_tokens
        spent = flops / (chips * matmul.rate(chip, arch.activations.bits))
        reduces = decoder.layers(arch) * (4.0 - 2.0 * arch.parallel)
        each = collectives.square_root_latency(chips, self.root_hop, self.root_base)
        terms = {
            "network": reduces * each,
            "memory": stored / (chips * chip.memory_bandwidth * self.memory_cap),
            "compute": spent / self.flop_cap,
        }
        need = stored + decoder.resident_before(arch, forward, chips)
        limits = {"memory": Limit(need=need, capacity=chips * chip.memory * (1.0 - self.headroom))}
        return phase(self, terms, limits, spent, {"tp": chips, "pp": jnp.ones_like(chips)})
