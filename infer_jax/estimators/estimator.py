"""Base classes of estimators: what a subclass writes, declares and inherits."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Self

import jax.numpy as jnp
from jax import Array

from infer_jax.errors import InputError
from infer_jax.estimators.estimate import Estimate, Phase, estimate_of_passes, passes_of
from infer_jax.specs import (
    Architecture,
    ForwardPass,
    Hardware,
    Plan,
    Spec,
    Workload,
    checked,
    leaves,
)
from infer_jax.typed_jax import trees

SPREAD = 0.5  # prior deviation of the logarithm of a coefficient of which its value alone is known

# the plan of an estimator: a Plan, or a spec of several plans (Pools, Halves)
AnyPlan = Any


class Estimator(Spec):
    """A pytree of coefficients that predicts times from a model, a system, a workload and a plan.

    A subclass writes ``step``, one forward pass, and inherits ``estimate``; or it writes
    ``estimate`` alone if it prices only whole requests. The other properties have defaults here.
    """

    table: ClassVar[str] = ""  # the table of a profile that holds its coefficients; "": none
    needs_host: ClassVar[bool] = False  # whether it places tensors on the host of the chips
    # what its numbers were compared with, printed above every answer
    checked_against: ClassVar[str] = "no measured rows of servers"
    plan_type: ClassVar[type[Plan]] = Plan  # the plan of one instance that it reads
    # whether it prices a server that batches (``serve``, ``token``), as plans, replays, arrivals,
    # and drafts need
    batches: ClassVar[bool] = False
    lanes: ClassVar[int] = 0  # points that a sweep evaluates at once; 0: as many as suit the device

    @property
    def prices_passes(self) -> bool:
        """Whether it answers ``step``."""
        return type(self).step is not Estimator.step

    @property
    def engine_name(self) -> str:
        """The engine whose scheduler it follows, by its short name such as ``vllm``; "": none."""
        return ""

    @property
    def generation_name(self) -> str:
        """The generation of chips whose coefficients it uses, such as ``hopper``; "": none."""
        return ""

    @property
    def has_bands(self) -> bool:
        """Whether the errors of its coefficients on measured servers are known."""
        return False

    @property
    def age_deviation(self) -> float:
        """Deviation of log(time) of what grows with the age of its software; 0 of nothing."""
        return 0.0

    @property
    def searches(self) -> bool:
        """Whether it splits the plan's chips by itself, so that any number of them is a plan."""
        return False

    @property
    def smooths(self) -> bool:
        """Whether it has a ``smoothing``, the temperature of its maxima and searches."""
        return False

    @property
    def memory_account(self) -> str:
        """Whose memory account limits it, in words; "": that of ``footprint``."""
        return ""

    @property
    def innermost(self) -> "Estimator":
        """The estimator inside all wrappers; itself where it is none."""
        return self

    def exchange(self, inner: "Estimator", other: "Estimator") -> "Estimator":
        """The same wrappers around another estimator, in the place of one inside them."""
        return other if self is inner else self

    def for_engine(self, name: str) -> Self:
        """The same for servers of another engine, where it tells engines apart."""
        return self

    def at_data_sheet(self) -> "Estimator | None":
        """The same at the rates of the data sheet; None where it has no such form."""
        return None

    @property
    def server_spreads(self) -> Mapping[str, float]:
        """The coefficients that a calibration may fit, by dotted path, with their spread.

        The spread is the deviation of the logarithm from one server to another, the prior of a fit.
        By default every number above 0 but choices and counts, within a factor of 1.6 or so.
        """
        return {
            path: SPREAD
            for path, declared, value in leaves(self)
            if declared["kind"] not in ("choice", "count") and float(value) > 0.0
        }

    def server_coefficients(
        self, arch: Architecture, plans: Sequence[Plan], outputs: Collection[str]
    ) -> tuple[str, ...]:
        """The coefficients that runs of one server are fitted in, the most useful first.

        ``plans``: those of the runs; ``outputs``: which of ``tpot`` and ``ttft`` were measured. By
        default its own numbers of ``server_spreads``, as declared, without those of parts.
        """
        return tuple(name for name in self.server_spreads if "." not in name)

    def softened(self, temperature: Array) -> Self:
        """The same with ``smoothing`` at this temperature."""
        return self.replace(smoothing=temperature) if self.smooths else self

    def fitted(self, coefficients: Mapping[str, float]) -> Self:
        """The same with coefficients by name, as its table of a profile has them.

        Raises:
            InputError: a name that is no coefficient, or a value out of bounds.
        """
        return self.with_(**coefficients)

    def fitted_to(self, tables: Mapping[str, Mapping[str, float]]) -> Self:
        """The same with the coefficients of its own table, out of all tables of a profile."""
        return self.fitted(tables.get(self.table, {}))

    def front_time(self, plan: Plan) -> Array:
        """Seconds between a request's arrival and its place in the queue; 0 if not known."""
        return jnp.zeros_like(plan.instance)

    def request_places(
        self, arch: Architecture, hardware: Hardware, workload: Workload, plan: Plan
    ) -> Array:
        """Requests that an instance has memory for; ``workload.batch`` where that is not known."""
        return workload.batch

    def step(
        self, arch: Architecture, hardware: Hardware, forward: ForwardPass, plan: AnyPlan
    ) -> Phase:
        """One forward pass.

        Raises:
            InputError: it prices whole requests alone.
        """
        allowed = "estimate: it prices whole requests, not single passes"
        raise InputError(self.table or type(self).__name__, "step", "asked for", allowed)

    @checked
    def estimate(
        self, arch: Architecture, hardware: Hardware, workload: Workload, plan: AnyPlan
    ) -> Estimate:
        """A request on an idle instance, then ``batch`` of them decoded: ``estimate_of_passes``."""
        first, then = (self.step(arch, hardware, one, plan) for one in passes_of(workload))
        return estimate_of_passes(hardware, workload, plan, first, then)

    def estimate_once(
        self, arch: Architecture, hardware: Hardware, workload: Workload, plan: AnyPlan
    ) -> Estimate:
        """``estimate`` of one configuration: both passes in one loop, so that ``step`` is compiled
        once.

        A command that answers one configuration waits for the compiler alone; a sweep that reads
        one of the phases is faster without the loop, for XLA then drops the other phase.
        """
        if type(self).estimate is not Estimator.estimate:
            return self.estimate(arch, hardware, workload, plan)
        passes = trees.stack(*passes_of(workload))
        phases = trees.one_by_one(lambda one: self.step(arch, hardware, one, plan), passes)
        first, then = (trees.take(phases, i) for i in range(2))
        return estimate_of_passes(hardware, workload, plan, first, then)


class Wrapper(Estimator):
    """An estimator around another one, its ``target``, whose properties it takes over."""

    target: Estimator

    @property
    def prices_passes(self) -> bool:
        """Whether it answers ``step``: it has one of its own, and so has its target."""
        return super().prices_passes and self.target.prices_passes

    @property
    def searches(self) -> bool:
        """Whether its target splits the plan's chips by itself."""
        return self.target.searches

    @property
    def smooths(self) -> bool:
        """Whether its target has a smoothing."""
        return self.target.smooths

    @property
    def memory_account(self) -> str:
        """Whose memory account limits its target."""
        return self.target.memory_account

    @property
    def innermost(self) -> Estimator:
        """The estimator inside all wrappers."""
        return self.target.innermost

    def exchange(self, inner: Estimator, other: Estimator) -> Estimator:
        """The same wrappers around another estimator, in the place of one inside them."""
        return other if self is inner else self.replace(target=self.target.exchange(inner, other))

    def softened(self, temperature: Array) -> Self:
        """The same wrapper around its target with ``smoothing`` at this temperature."""
        return self.replace(target=self.target.softened(temperature))

    def fitted(self, coefficients: Mapping[str, float]) -> Self:
        """The same wrapper around its target with these coefficients."""
        return self.replace(target=self.target.fitted(coefficients))

    def fitted_to(self, tables: Mapping[str, Mapping[str, float]]) -> Self:
        """The same wrapper around its target with the target's table of a profile."""
        return self.replace(target=self.target.fitted_to(tables))

    def front_time(self, plan: Plan) -> Array:
        """Seconds between a request's arrival and its place in the queue, by its target."""
        return self.target.front_time(plan)
