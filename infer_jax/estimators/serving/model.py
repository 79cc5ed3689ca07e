"""The serving model, our own: real engines, in terms that measurements can separate.

One pass is a sum of terms, each the smooth larger of moving and computing; a request waits for the
prefills of others, admission and memory, too. Derivation and fit: docs/theories/serving.md.
"""

from collections.abc import Collection, Mapping, Sequence

import jax
import jax.numpy as jnp
from jax import Array

from infer_jax.catalog.published import power_shares, serving_coefficients
from infer_jax.errors import InputError
from infer_jax.estimators.estimate import Phase
from infer_jax.estimators.estimator import Estimator
from infer_jax.estimators.search import chosen
from infer_jax.estimators.serving import memory
from infer_jax.estimators.serving.coefficients import COMPLETE, Coefficients, Laws
from infer_jax.estimators.serving.context import Context, Shape, select, shape
from infer_jax.estimators.serving.engines import ENGINES, GENERATIONS, Engine, Generation
from infer_jax.estimators.serving.loads import closed_loop, open_loop
from infer_jax.estimators.serving.plan import Deployment, deployment, requests
from infer_jax.estimators.serving.server_coefficients import ladder, spreads
from infer_jax.estimators.serving.server_estimate import (
    Pass,
    RequestTokens,
    ServerEstimate,
    one_pass,
    one_token,
)
from infer_jax.footprint import Overheads
from infer_jax.physics.chance import TENTH
from infer_jax.physics.decoder import total
from infer_jax.specs import (
    Architecture,
    ForwardPass,
    Hardware,
    Plan,
    Workload,
    checked,
    leaves,
    spec,
)
from infer_jax.typed_jax import trees


@spec
class Serving(Coefficients, Estimator):
    """The serving model: passes and requests of a server by its coefficients."""

    table = "serving"
    batches = True
    plan_type = Deployment

    @classmethod
    def vllm_engine(cls) -> "Serving":
        """vLLM, at the fitted coefficients."""
        return cls.of(engine="vllm")

    @classmethod
    def sglang_engine(cls) -> "Serving":
        """SGLang, at the fitted coefficients."""
        return cls.of(engine="sglang")

    @classmethod
    def trtllm_engine(cls) -> "Serving":
        """TensorRT-LLM, at the fitted coefficients."""
        return cls.of(engine="trtllm")

    @classmethod
    def complete(cls) -> "Serving":
        """The fitted coefficients, with terms that were too small to see in the measured rows.

        These are FLOP of indexers and recurrences, routers, the output head after a prompt and
        exact windows: they count for models and lengths beyond the measured ones.
        """
        return cls.of(laws=COMPLETE)

    @classmethod
    def roofline(cls) -> "Serving":
        """A roofline: data-sheet rates, no launch gaps, no waits, no host time.

        Of each product the longer of reading and computing counts; where all weights are of one
        format, this is the roofline of the whole model.
        """
        none = ("layer_gap", "expert_gap", "sequence_time", "eager", "front", "phase", "ahead")
        idle = Engine.of(**dict.fromkeys(none, 0.0))
        rates = ("gemm_16", "gemm_8", "gemm_4", "attention_16", "attention_8", "tile")
        full = Generation.of(**dict.fromkeys(rates, 1.0))
        shares = ("weight_read", "cache_read", "grouped", "link", "usable_memory")
        shares += ("visible",)
        shares += ("prefill_attention",)
        none = (
            "quantised_gap",
            "hop",
            "far_hop",
            "passes",
            "skew",
            "expert_rows",
            "expert_moves",
        )
        return cls.of(
            **dict.fromkeys(shares, 1.0),
            **dict.fromkeys(none, 0.0),
            **dict.fromkeys(ENGINES, idle),
            **dict.fromkeys(GENERATIONS, full),
            overheads=Overheads.none(),
            overlap=1e6,
        )

    def fitted(self, coefficients: Mapping[str, float]) -> "Serving":
        """This variant with other coefficients, by dotted path (``vllm.layer_gap``).

        A generation brings the power that its chips draw; without one it is that of a mean chip.

        Raises:
            InputError: a name that is no coefficient, or a value out of bounds.
        """
        changed = self
        for name, value in coefficients.items():
            head, _, rest = name.rpartition(".")
            if not head:
                changed = changed.with_(**{name: value})
            elif head in (*ENGINES, *GENERATIONS):
                own = getattr(changed, head).with_(**{rest: value})
                changed = changed.replace(**{head: own})
            else:
                raise InputError("serving", "coefficient", name, "a path such as vllm.layer_gap")
        if "generation" in coefficients:
            drawn = power_shares(GENERATIONS[int(coefficients["generation"])])
            changed = changed.replace(draw=changed.draw.with_(**drawn))
        return changed

    @property
    def engine_name(self) -> str:
        """The engine: vllm, sglang or trtllm."""
        return ENGINES[int(self.engine)]

    @property
    def generation_name(self) -> str:
        """The generation of the chip, such as hopper."""
        return GENERATIONS[int(self.generation)]

    @property
    def has_bands(self) -> bool:
        """Whether it has both the laws and the coefficients of the fit to measured servers."""
        return type(self) is Serving and self.laws == Laws()

    @property
    def age_deviation(self) -> float:
        """Of log(launch gaps) and host times: months times the deviation of r by its interval."""
        month = serving_coefficients()["monthly"]
        return float(self.software_age) * (month.high - month.low) / (2.0 * TENTH)

    def for_engine(self, name: str) -> "Serving":
        """The same for servers of this engine."""
        return self.with_(engine=name)

    def at_data_sheet(self) -> "Serving":
        """A roofline of the same engine and chip."""
        return Serving.roofline().replace(engine=self.engine, generation=self.generation)

    @property
    def server_spreads(self) -> Mapping[str, float]:
        """The fitted coefficients and how servers scatter about them; a subclass adds its own."""
        if type(self) is Serving:
            return spreads()
        shipped = {path for path, *_ in leaves(Serving.of())}
        every: Mapping[str, float] = super().server_spreads
        own = {path: x for path, x in every.items() if path not in shipped}
        return {**spreads(), **own}

    def server_coefficients(
        self, arch: Architecture, plans: Sequence[Plan], outputs: Collection[str]
    ) -> tuple[str, ...]:
        """Factors on what was measured, then the coefficients that helped most on other servers."""
        values = {path: float(value) for path, _, value in leaves(self)}
        names = self.engine_name, self.generation_name
        return ladder(values, *names, shape(arch), plans, outputs)

    @property
    def chosen_engine(self) -> Engine:
        """The coefficients of the engine that is chosen."""
        return select(tuple(getattr(self, name) for name in ENGINES), self.engine)

    def context(
        self, seen: Shape, hardware: Hardware, plan: Plan, draft: Shape | None = None
    ) -> Context:
        """The inputs of the terms, with engine and generation chosen."""
        engine = self.chosen_engine
        generations = (self.hopper, self.blackwell, self.cdna3, self.cdna4)
        generation = select(generations, self.generation)
        aged = jnp.exp(self.monthly * self.software_age)
        generation = generation.replace(gap=generation.gap * aged)
        engine = engine.replace(sequence_time=engine.sequence_time * aged)
        context = Context(self, seen, hardware, deployment(plan), engine, generation).for_model(
            seen
        )
        if draft is None:
            return context
        small = context.plan.replace(drafts=jnp.zeros_like(context.plan.drafts))
        return context._replace(draft=context._replace(plan=small).for_model(draft))

    def front_time(self, plan: Plan) -> Array:
        """Seconds between a request's arrival and its place in the queue: ``arrival_terms``."""
        terms = self.arrival_terms(self.chosen_engine, deployment(plan))
        return total(terms.values()) * self.first_factor

    def request_places(
        self, arch: Architecture, hardware: Hardware, workload: Workload, plan: Plan
    ) -> Array:
        """Requests that an instance has memory for, of ``workload.batch`` in flight."""
        ctx = self.context(shape(arch), hardware, plan)
        isl, osl, prefix, _ = RequestTokens.of(ctx, requests(workload))
        common = requests(workload).common * prefix
        return memory.capacity(ctx, isl, osl, common, workload.batch / ctx.plan.attention_dp).places

    @checked
    def step(
        self, arch: Architecture, hardware: Hardware, forward: ForwardPass, plan: Plan
    ) -> Phase:
        """One forward pass of an instance, alone on it."""
        return one_pass(self.context(shape(arch), hardware, plan), forward)

    def token(
        self,
        seen: Shape,
        hardware: Hardware,
        forward: ForwardPass,
        plan: Plan,
        draft: Shape | None = None,
    ) -> Pass:
        """``step`` per token that a sequence gains, with ``plan.drafts`` drafted tokens."""
        return one_token(self.context(seen, hardware, plan, draft), forward)

    @checked
    def estimate(
        self, arch: Architecture, hardware: Hardware, workload: Workload, plan: Plan
    ) -> ServerEstimate:
        """A request of an instance: ``workload.batch`` kept in flight, or arrivals."""
        return self.estimate_shape(shape(arch), hardware, workload, plan)

    def estimate_shape(
        self,
        seen: Shape,
        hardware: Hardware,
        workload: Workload,
        plan: Plan,
        draft: Shape | None = None,
    ) -> ServerEstimate:
        """``estimate`` from the shape of a model: one program for models of any structure.

        ``draft`` is the model that drafts ``plan.drafts`` tokens a pass; where not given, the
        model's own heads do.
        """
        ctx, work = self.context(seen, hardware, plan, draft), requests(workload)
        if work.arrivals is not None:
            return open_loop(ctx, work, work.arrivals)
        return closed_loop(ctx, work)


def fastest_drafts(
    estimator: Serving,
    arch: Architecture,
    draft: Architecture | None,
    hardware: Hardware,
    work: Workload,
    plan: Plan,
    counts: Array,
) -> tuple[ServerEstimate, Array]:
    """The estimate with the least TPOT of those with ``counts`` drafts, and its number of them."""
    model, small = shape(arch), None if draft is None else shape(draft)

    def drafted_estimate(drafts: Array) -> ServerEstimate:
        drafted = deployment(plan).replace(drafts=drafts)
        return estimator.estimate_shape(model, hardware, work, drafted, small)

    every = jax.vmap(drafted_estimate)(counts)
    # limits are of the plan, not of its drafts alone: where none fits, the fastest is shown
    best = chosen(1.0 - every.feasible, every.tpot)
    return trees.take(every, best), counts[best]
