"""The plan of the kernel model: attention groups, expert ranks and micro-batches."""

from jax import Array

from infer_jax.specs import Plan, number, spec


@spec
class KernelsPlan(Plan):
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
