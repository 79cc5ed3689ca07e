"""Colours of all pictures and pages: one for each system, and one for each part of a time.

Hues are those that readers with any colour vision tell apart (after Okabe and Ito,
jfly.uni-koeln.de/color). Parts of bars also differ in grey or in their hatch.
"""

# of systems, in this order; each at least 3 : 1 against white and against a dark page
SERIES = ("#2a7fbf", "#d1580a", "#0b8f6a", "#c2569a", "#a87900", "#5b7f95")
WEIGHTS, CACHE, NETWORK, WAITING, MEMORY, HOST = SERIES

Look = tuple[str, str]  # colour and hatch
_FAMILIES: dict[str, dict[Look, str]] = {
    "computing and weights: blue": {
        ("#2a7fbf", ""): "compute, bound by compute",
        ("#1d4f87", ""): "feedforward, weights: feedforward, weights: experts",
        ("#8fb8e3", ""): "projections, weights: attention",
        ("#4f86c0", ""): "shared experts, weights: shared",
        ("#cfe1f3", ""): "head, weights: head",
        ("#cfe1f3", "||||"): "weights: embedding",
        ("#8fb8e3", "||||"): "elementwise",
    },
    "attention and its KV cache: orange": {
        ("#d9731f", ""): "attention, KV cache",
        ("#f2b98a", ""): "index",
    },
    "reading memory: ochre": {
        ("#c9a227", ""): "memory, bound by memory",
        ("#7a5c00", ""): "host memory, disk, link, fetch",
    },
    "between GPUs: green": {
        ("#0b8f6a", "////"): "network, all-reduce",
        ("#7cc9ad", "////"): "exchange, transfer",
        ("#054d39", "////"): "stages, hand-over",
    },
    "waiting: pink": {
        ("#c2569a", "...."): "wait until scheduled, queue",
        ("#7d2e68", "...."): "other prefills",
        ("#e6b8d4", "...."): "decodes beside the prompt",
        ("#e6b8d4", "xxxx"): "first wave of the benchmark",
    },
    "launch and host, and what a server takes beside weights and cache: slate": {
        ("#5b7f95", "\\\\\\\\"): "launch, scheduling, reserve outside the cache",
        ("#a9bfcc", "\\\\\\\\"): "host between passes, peak of activations",
        ("#33505f", "\\\\\\\\"): "network and tokeniser",
    },
}
PARTS: dict[str, Look] = {
    name: look
    for family in _FAMILIES.values()
    for look, names in family.items()
    for name in names.split(", ")
}
REST: Look = ("#c9c9c9", "")  # the small ones together


def part(name: str) -> Look | None:
    """Colour and hatch of a part of a time or of a memory; None where it has none of its own.

    >>> part("feedforward") == part("weights: feedforward"), part("KV cache of 32 requests")
    (True, ('#d9731f', ''))
    """
    return PARTS.get(name.partition(" of ")[0] if name.startswith("KV cache") else name)
