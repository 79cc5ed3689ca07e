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
        ("#1d4f87", ""): "compute, feedforward, weights: feedforward",
        ("#8fb8e3", ""): "projections, weights: attention",
        ("#4f86c0", ""): "shared experts",
        ("#cfe1f3", ""): "head, weights: embedding, weights: head",
        ("#8fb8e3", "||||"): "elementwise",
    },
    "attention and its KV cache: orange": {
        ("#d9731f", ""): "attention, KV cache",
        ("#f2b98a", ""): "index",
    },
    "reading memory: ochre": {
        ("#c9a227", ""): "memory",
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
    "launch and host: slate": {
        ("#5b7f95", "\\\\\\\\"): "launch, reserve outside the cache",
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
