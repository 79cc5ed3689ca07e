"""What is asked: one forward pass, or a stream of requests."""

from jax import Array

from infer_jax.specs.fields import Spec, number, spec


@spec
class ForwardPass(Spec):
    """One pass of the model: prefill, decode, verification and chunks are all of this form."""

    sequences: Array = number("sequences in the batch", kind="count")
    new_tokens: Array = number(
        "tokens each sequence feeds", unit="tokens", kind="count", default=1.0
    )
    cached_tokens: Array = number(
        "tokens each sequence has in the cache", unit="tokens", kind="count", default=0.0
    )


@spec
class Workload(Spec):
    """Requests of one shape, and how many run at once."""

    isl: Array = number(
        "input sequence length: prompt tokens", unit="tokens", kind="count", default=0.0
    )
    osl: Array = number(
        "output sequence length: generated tokens",
        unit="tokens",
        kind="count",
        low=1.0,
        default=1.0,
    )
    prefix: Array = number(
        "prompt tokens already in the cache", unit="tokens", kind="count", default=0.0
    )
    batch: Array = number("requests running at once in one instance", kind="count", default=1.0)
