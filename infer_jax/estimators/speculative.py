"""Speculative decoding, for any estimator with ``step``."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from infer_jax.errors import InputError
from infer_jax.estimators.estimate import Estimate, Phase, estimate_of_passes, passes_of
from infer_jax.estimators.estimator import Estimator, Wrapper
from infer_jax.estimators.search import best
from infer_jax.physics.root import crossing
from infer_jax.physics.speculation import bonus_yield, curve_yield, verified_yield
from infer_jax.specs import (
    Architecture,
    ForwardPass,
    Hardware,
    Plan,
    Workload,
    checked,
    number,
    part,
    spec,
    static,
)
from infer_jax.typed_jax import trees

MAX_DRAFTS = 5  # tokens drafted for a pass at most


class Drafting(NamedTuple):
    """The drafter (``None``: the model's own heads), acceptance by position, and notes.

    ``count``: tokens drafted for each request in a pass of a replay.
    """

    draft: Architecture | None
    acceptance: np.ndarray | float
    notes: list[str]
    count: int = 0  # pyright: ignore[reportIncompatibleMethodOverride]

    @property
    def words(self) -> str:
        """What a pass of a replay does, in words."""
        count = "1 draft" if self.count == 1 else f"{self.count} drafts"
        return f"a pass verifies {count} and one token more of each request that decodes"

    @property
    def counts(self) -> list[float]:
        """The numbers of drafted tokens to try, 0 among them."""
        curve = np.asarray(self.acceptance)
        most = MAX_DRAFTS if curve.ndim == 0 else min(MAX_DRAFTS, len(curve))
        return [float(d) for d in range(most + 1)]


@spec
class Speculative(Wrapper):
    """An estimator whose decode drafts tokens cheaply and verifies them in one pass.

    Two conventions by name. ``economics``: a pass verifies g drafted tokens and yields
    (1 - a^g) / (1 - a), as the economics paper's program does. ``bonus``: it feeds g + 1
    tokens and yields (1 - a^(g+1)) / (1 - a), as speculative sampling is defined; ``curve``
    is that with an acceptance of its own at each position.

    Drafts come from a model (``draft``), from the model's own prediction heads (``heads``: one more
    block and the output head, as in MTP and EAGLE), or from a lookup in the text (neither), which
    costs nothing.
    """

    target: Estimator = part("the estimator of both models")
    draft: Architecture | None = part("the model that drafts", default_factory=lambda: None)
    acceptance: Array = number("probability that a draft is accepted", kind="fraction", high=1)
    heads: bool = static("draft with one more block of the model itself", default=False)
    fed_extra: float = static("tokens a verification feeds beside the drafts", default=0.0)
    drafts: tuple[int, ...] = static("draft lengths tried beside none", default=(2, 3, 4, 5))
    may_stop: bool = static("decode without drafts where that is faster", default=True)
    yields: Callable[[Array, Array], Array] = static(
        "tokens a verification yields", default=verified_yield
    )

    @classmethod
    def economics(
        cls, target: Estimator, draft: Architecture, acceptance: float, most: int = 5
    ) -> "Speculative":
        """The convention of the economics paper's program: 2 to ``most`` drafts, no bonus."""
        lengths = tuple(range(2, most + 1))
        return cls.of(target=target, draft=draft, acceptance=acceptance, drafts=lengths)

    @classmethod
    def bonus(
        cls,
        target: Estimator,
        draft: Architecture | None,
        acceptance: float,
        most: int = 5,
        heads: bool = False,
    ) -> "Speculative":
        """Speculative sampling: 1 to ``most`` drafts, and one token sampled by the target."""
        return cls.of(
            target=target,
            draft=draft,
            acceptance=acceptance,
            drafts=tuple(range(1, most + 1)),
            yields=bonus_yield,
            fed_extra=1.0,
            heads=heads,
        )

    @classmethod
    def curve(
        cls,
        target: Estimator,
        acceptance: ArrayLike | Sequence[float],
        draft: Architecture | None = None,
        *,
        drafts: tuple[int, ...] | None = None,
        heads: bool = False,
    ) -> "Speculative":
        """Speculative sampling with the acceptance measured at each position, in order.

        Raises:
            InputError: no position, or more drafts than positions with an acceptance.
        """
        positions = np.atleast_1d(np.asarray(acceptance, np.float64))
        drafts = tuple(range(1, len(positions) + 1)) if drafts is None else tuple(drafts)
        if not drafts or max(drafts) > len(positions):
            allowed = f"at most {len(positions)}, one acceptance for each position"
            raise InputError("speculation", "drafts", drafts, allowed)
        return cls.of(
            target=target,
            draft=draft,
            acceptance=positions,
            drafts=drafts,
            yields=curve_yield,
            fed_extra=1.0,
            heads=heads,
        )

    def always(self, drafts: int) -> "Speculative":
        """The same with this fixed number of drafts in every pass, faster or not."""
        return self.replace(drafts=(drafts,), may_stop=False)

    @checked
    def step(
        self, arch: Architecture, hardware: Hardware, forward: ForwardPass, plan: Plan
    ) -> Phase:
        """One generated token per sequence, at the best number of drafts, or without any.

        min(T(1), min over g of [T(g) + g T_draft(1)] / yield(a, g)); ``new_tokens`` of the
        pass is taken as 1. Terms are per generated token, drafting is a term of its own.
        Source: Erdil 2025 (arXiv 2506.04645), Section 4.1, Eq. 46.
        """
        one, plain, small = self._passes(arch, hardware, forward, plan)

        def drafted(g: Array) -> Phase:
            return self._drafted(g, arch, hardware, one, plan, plain, small)

        lengths = jnp.asarray(self.drafts, plain.time.dtype)
        # in a loop over lengths, so that the target is compiled once
        phases = trees.one_by_one(drafted, lengths)
        if not self.may_stop:
            return best(trees.take(phases, 0), phases)
        none = _joined(plain, small, jnp.zeros_like(plain.time), jnp.asarray(1.0), plain)
        return best(none, phases)

    def with_drafts(
        self,
        drafts: Array,
        arch: Architecture,
        hardware: Hardware,
        forward: ForwardPass,
        plan: Plan,
    ) -> Phase:
        """One generated token per sequence with a real number of ``drafts`` in every pass."""
        one, plain, small = self._passes(arch, hardware, forward, plan)
        return self._drafted(drafts, arch, hardware, one, plan, plain, small)

    @checked
    def estimate(
        self, arch: Architecture, hardware: Hardware, workload: Workload, plan: Plan
    ) -> Estimate:
        """The target's prefill of one request, then speculative decode of the batch."""
        prefill, decode = passes_of(workload)
        first = self.target.step(arch, hardware, prefill, plan)
        then = self.step(arch, hardware, decode, plan)
        return estimate_of_passes(hardware, workload, plan, first, then)

    def _passes(
        self, arch: Architecture, hardware: Hardware, forward: ForwardPass, plan: Plan
    ) -> tuple[ForwardPass, Phase, Phase]:
        """The pass of one token, and its phases in the target and in the drafter."""
        one = forward.replace(new_tokens=jnp.ones_like(forward.new_tokens))
        plain = self.target.step(arch, hardware, one, plan)
        drafter = head_of(arch) if self.heads else self.draft
        if drafter is not None:
            return one, plain, self.target.step(drafter, hardware, one, plan)
        return one, plain, jax.tree.map(jnp.zeros_like, plain).replace(limits={})

    def _drafted(
        self,
        g: Array,
        arch: Architecture,
        hardware: Hardware,
        one: ForwardPass,
        plan: Plan,
        plain: Phase,
        small: Phase,
    ) -> Phase:
        fed = one.replace(new_tokens=one.new_tokens * (g + self.fed_extra))
        verify = self.target.step(arch, hardware, fed, plan)
        return _joined(verify, small, g, self.yields(self.acceptance, g), plain)


def head_of(arch: Architecture) -> Architecture:
    """The model that a prediction head is: its last block, once, and the output head.

    Source: DeepSeek-V3 (arXiv 2412.19437), Section 2.2, whose MTP module is one block; EAGLE
    (arXiv 2401.15077), one decoder layer.
    """
    last = arch.blocks[-1]
    return arch.replace(blocks=(last.replace(count=jnp.ones_like(jnp.asarray(last.count))),))


def relaxed_length(
    model: Speculative, arch: Architecture, hardware: Hardware, forward: ForwardPass, plan: Plan
) -> Array:
    """The real number of drafts, from 0 to the most tried, at which a token takes least time.

    The root of d time / d drafts; exact where time has a single minimum.
    """

    def slope(g: Array) -> Array:
        def time(x: Array) -> Array:
            return jnp.log(model.with_drafts(x, arch, hardware, forward, plan).time)

        one = jnp.ones_like(g)
        return jax.jvp(time, (g,), (one,))[1]  # pyright: ignore[reportUnknownMemberType]

    return crossing(slope, jnp.asarray(0.0), jnp.asarray(float(max(model.drafts))))


def break_even_acceptance(
    model: Speculative,
    drafts: Array,
    arch: Architecture,
    hardware: Hardware,
    forward: ForwardPass,
    plan: Plan,
) -> Array:
    """The acceptance from which ``drafts`` drafts are faster than none; 1 if they never are."""
    plain = model.target.step(
        arch, hardware, forward.replace(new_tokens=jnp.ones_like(forward.new_tokens)), plan
    ).time

    def gain(acceptance: Array) -> Array:
        changed = model.replace(acceptance=acceptance)
        return jnp.log(plain / changed.with_drafts(drafts, arch, hardware, forward, plan).time)

    return crossing(gain, jnp.asarray(0.0), jnp.asarray(1.0))


def break_even_batch(
    model: Speculative,
    drafts: Array,
    most: Array,
    arch: Architecture,
    hardware: Hardware,
    forward: ForwardPass,
    plan: Plan,
) -> Array:
    """The batch up to which ``drafts`` drafts are faster than none; ``most`` if they still are.

    A larger batch makes verification dearer, because it feeds the drafts of every sequence: where
    it is compute-bound a token costs (drafts + 1) / yield times that of plain decoding.
    """

    def loss(batch: Array) -> Array:
        one = forward.replace(sequences=batch, new_tokens=jnp.ones_like(forward.new_tokens))
        plain = model.target.step(arch, hardware, one, plan).time
        return jnp.log(model.with_drafts(drafts, arch, hardware, one, plan).time / plain)

    return crossing(loss, jnp.ones_like(most), most)


def _joined(verify: Phase, small: Phase, drafts: Array, tokens: Array, plain: Phase) -> Phase:
    """Verification and ``drafts`` drafting passes, divided by the tokens they yield."""
    drafting = drafts * small.time / tokens
    time = verify.time / tokens + drafting
    used = jnp.where(drafts > 0, 1.0, 0.0)
    return Phase(
        time=time,
        terms={**{k: v / tokens for k, v in verify.terms.items()}, "draft": drafting},
        limits={
            **verify.limits,
            **{f"draft {k}": v.replace(need=v.need * used) for k, v in small.limits.items()},
        },
        mfu=plain.mfu * plain.time / time,
        layout={**verify.layout, "drafts": drafts},
    )
