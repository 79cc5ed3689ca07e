"""How is it laid out: data-parallel attention over expert ranks, or tensor parallel ranks?"""

import dataclasses

import jax.numpy as jnp
from jax import Array

from infer_jax.specs import Plan, number, spec


@spec
class Serving(Plan):
    """A plan with what this estimator adds. An instance is tp x ep GPUs: ``ep`` groups of ``tp``.

    Each group is a data-parallel rank of attention; experts are spread over the groups.
    """

    nodes: Array = number(
        "nodes of the instance; 0: as few as its fast domain allows", kind="count", default=0.0
    )
    deepep: Array = number(
        "dispatch and combine by DeepEP: normal kernels in prefill, low-latency ones in decode",
        kind="choice",
        high=1,
        default=0.0,
        choices=("no", "yes"),
    )
    two_batch: Array = number(
        "two micro-batches, one computing while the other communicates",
        kind="choice",
        high=1,
        default=0.0,
        choices=("no", "yes"),
    )
    sm_share: Array = number(
        "share of the SMs that compute while prefill dispatches", kind="fraction", default=1.0
    )
    prefill_tokens: Array = number(
        "tokens of a prefill pass per group; 0: one prompt",
        unit="tokens",
        kind="count",
        default=0.0,
    )


def serving(plan: Plan) -> Serving:
    """``plan`` with what it does not say at its defaults, in the precision of what it says."""
    if isinstance(plan, Serving):
        return plan
    given = {f.name: getattr(plan, f.name) for f in dataclasses.fields(Plan)}
    own = {f.name: f for f in dataclasses.fields(Serving) if f.name not in given}
    # as weak constants: the declared defaults are 64 bits wide
    taken = {name: jnp.asarray(float(f.default_factory())) for name, f in own.items()}  # pyright: ignore[reportCallIssue]
    return Serving(**given, **taken)
