"""Speculative decoding: what does a draft model do to any estimator that has steps?"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from infer_jax.estimators.estimate import Estimate, Phase, request_life
from infer_jax.estimators.search import best
from infer_jax.physics.speculation import bonus_yield, verified_yield
from infer_jax.specs import (
    Architecture,
    ForwardPass,
    Hardware,
    Plan,
    Spec,
    Workload,
    number,
    part,
    spec,
    static,
)


@spec
class Speculative(Spec):
    """An estimator whose decode drafts with a small model and verifies with the large one.

    Two conventions by name. ``economics``: a pass verifies g drafted tokens and yields
    (1 - a^g) / (1 - a), as the economics paper's program does. ``bonus``: it feeds g + 1
    tokens and yields (1 - a^(g+1)) / (1 - a), as speculative sampling is defined.
    """

    target: Any = part("the estimator of both models")
    draft: Architecture = part("the model that drafts")
    acceptance: Array = number("probability that a draft is accepted", kind="fraction", high=1)
    fed_extra: float = static("tokens a verification feeds beside the drafts", default=0.0)
    drafts: tuple[int, ...] = static("draft lengths tried beside none", default=(2, 3, 4, 5))
    yields: Callable = static("tokens a verification yields", default=verified_yield)

    @classmethod
    def economics(
        cls, target: Any, draft: Architecture, acceptance: float, most: int = 5
    ) -> "Speculative":
        """The convention of the economics paper's program: 2 to ``most`` drafts, no bonus."""
        lengths = tuple(range(2, most + 1))
        return cls.of(target=target, draft=draft, acceptance=acceptance, drafts=lengths)

    @classmethod
    def bonus(
        cls, target: Any, draft: Architecture, acceptance: float, most: int = 5
    ) -> "Speculative":
        """Speculative sampling: 1 to ``most`` drafts, and one token of the target's own."""
        return cls.of(
            target=target,
            draft=draft,
            acceptance=acceptance,
            drafts=tuple(range(1, most + 1)),
            yields=bonus_yield,
            fed_extra=1.0,
        )

    def step(
        self, arch: Architecture, hardware: Hardware, forward: ForwardPass, plan: Plan
    ) -> Phase:
        """One generated token per sequence, at the best number of drafts, or without any.

        min(T(1), min over g of [T(g) + g T_draft(1)] / yield(a, g)); ``new_tokens`` of the
        pass is taken as 1. Terms are per generated token, drafting is a term of its own.
        Source: Erdil 2025 (arXiv 2506.04645), Section 4.1, Eq. 46.
        """
        one = forward.replace(new_tokens=jnp.ones_like(forward.new_tokens))
        plain = self.target.step(arch, hardware, one, plan)
        small = self.target.step(self.draft, hardware, one, plan)

        def drafted(g: Array) -> Phase:
            fed = one.replace(new_tokens=one.new_tokens * (g + self.fed_extra))
            verify = self.target.step(arch, hardware, fed, plan)
            return _joined(verify, small, g, self.yields(self.acceptance, g), plain)

        none = _joined(plain, small, jnp.zeros_like(plain.time), jnp.asarray(1.0), plain)
        lengths = jnp.asarray(self.drafts, plain.time.dtype)
        # one length at a time: the target is compiled once, not once a length
        return best(none, lax.map(drafted, lengths))

    def estimate(
        self, arch: Architecture, hardware: Hardware, workload: Workload, plan: Plan
    ) -> Estimate:
        """A request's life: the target's prefill, speculative decode."""
        return request_life(self, arch, hardware, workload, plan, prefill=self.target)


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
