"""Coefficients of the partitioning model."""

from jax import Array

from infer_jax.specs import Spec, number, part, spec, static


@spec
class Coefficients(Spec):
    """Coefficients of a chip, which a profile gives, and whether layouts are searched.

    Without a profile's coefficients every rate is the data sheet's and nothing has a latency.
    """

    flop_cap: Array = number(
        "share of the peak rate that a large matmul reaches", kind="fraction", high=1, default=1.0
    )
    memory_cap: Array = number(
        "share of memory bandwidth sustained", kind="fraction", high=1, default=1.0
    )
    network_cap: Array = number(
        "share of network bandwidth sustained", kind="fraction", high=1, default=1.0
    )
    half_width: Array = number(
        "width of a weight shard at which half the matmul rate is reached",
        kind="size",
        default=0.0,
    )
    half_rows: Array = number(
        "tokens at which half the matmul rate is reached", unit="tokens", kind="size", default=0.0
    )
    collective: Array = number(
        "latency of a collective for every doubling of its chips",
        unit="s",
        kind="time",
        default=0.0,
    )
    layer_overhead: Array = number("fixed time of one layer", unit="s", kind="time", default=0.0)
    hidden_memory: Array = number(
        "part of the shorter of compute and memory that hides behind the longer",
        kind="fraction",
        high=1,
        default=1.0,
    )
    hidden_network: Array = number(
        "part of the shorter of those and the network that hides behind the longer",
        kind="fraction",
        high=1,
        default=1.0,
    )
    closing: Array = number(
        "chips from which a slice closes into a torus", kind="count", default=64.0
    )
    open_share: Array = number(
        "share of link bandwidth in a slice that is not closed",
        kind="fraction",
        high=1,
        default=0.5,
    )
    headroom: Array = number(
        "share of the memory kept free", kind="fraction", low=-1, high=1, default=0.0
    )
    smoothing: Array | None = part(
        "None: exact; a number: the temperature of every maximum and of the search",
        default_factory=lambda: None,
    )
    search: bool = static("search axes, weight and attention layouts", default=True)
