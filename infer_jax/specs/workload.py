"""The work: one forward pass, or a stream of requests."""

from jax import Array

from infer_jax.specs.fields import Spec, number, part, spec


@spec
class ForwardPass(Spec):
    """One pass of the model: prefill, decode, verification of drafts, or a chunk of a prompt."""

    sequences: Array = number("sequences in the batch", kind="count")
    new_tokens: Array = number(
        "tokens each sequence feeds", unit="tokens", kind="count", default=1.0
    )
    cached_tokens: Array = number(
        "tokens each sequence has in the cache", unit="tokens", kind="count", default=0.0
    )


@spec
class Share(Spec):
    """A group of requests of one size: its share, and its lengths relative to the mean lengths."""

    weight: Array = number("weight among the shares of a workload", kind="fraction", default=1.0)
    isl: Array = number("prompt, relative to the workload's", kind="size", default=1.0)
    osl: Array = number("output, relative to the workload's", kind="size", default=1.0)
    prefix: Array = number("cached prompt, relative to the workload's", kind="size", default=1.0)


@spec
class Arrivals(Spec):
    """An open loop: requests arrive at one instance at a given rate."""

    rate: Array = number("requests that arrive per second", unit="1/s", kind="rate")
    variability: Array = number(
        "squared coefficient of variation of the time between arrivals: 1 is Poisson, "
        "more is burstier (the inverse of vLLM's --burstiness)",
        kind="size",
        default=1.0,
    )


@spec
class Workload(Spec):
    """Requests, and either how many are kept in flight (``batch``) or how often they arrive.

    Lengths are means. ``lengths`` says how they spread: nothing is all of one length, else
    shares (``infer_jax.specs.lengths`` makes them of distributions and samples). ``arrivals``
    makes the loop open; without it ``batch`` requests are in flight at all times.
    """

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
    lengths: tuple[Share, ...] = part(
        "how lengths spread around their means", default_factory=tuple
    )
    arrivals: Arrivals | None = part(
        "arrivals of an open loop; none: closed", default_factory=lambda: None
    )
