"""Level 4 of the economics model for a dense model on NVIDIA nodes, in plain NumPy.

The other way of doing it: what a careful NumPy user writes, whole arrays over the grid and a
loop over layouts. Written from the equations, apart from the library's own laws, so that it is
a second opinion as well as a clock. Source: Erdil 2025 (arXiv 2506.04645).
"""

from typing import Any

import numpy as np

PROTOCOLS = ((0.6e-6, 5e-6, 6.8e-6, 0.5), (1.25e-6, 8.5e-6, 14e-6, 0.95), (28e-6, 28e-6, 0.0, 1.0))


def collective(ranks: Any, nodes: Any, size: Any, inner: float, outer: float, passes: float) -> Any:
    """Seconds of NCCL's tree: the best of three protocols."""
    share = 1.0 if passes == 2.0 else 0.5
    group = ranks / nodes
    transfer = share * np.maximum(
        nodes * np.maximum(0.0, group - 1.0) / inner, (nodes - 1.0) / outer
    )
    transfer = transfer * size / ranks
    levels = np.log2(nodes)
    times = [
        passes * ((group - 1.0) * hop + levels * far) + base + transfer / reach
        for hop, far, base, reach in PROTOCOLS
    ]
    return np.where(ranks > 1.0, np.minimum(np.minimum(times[0], times[1]), times[2]), 0.0)


def streamed(m: float, k: float, tokens: Any, split: Any, weight: float, held: float) -> Any:
    """Bytes of one product sliced near square."""
    rows = np.clip(np.sqrt(m / k * split), 1.0, np.maximum(split, 1.0))
    return m * k * weight + (rows * k + split / rows * m) * tokens * held


def tick(j: Any, count: int, top: Any) -> Any:
    """The j-th of ``count`` ticks from 1 to ``top``, both ends exact; ``j`` an int or an array."""
    if isinstance(j, int):
        if j == 0:
            return np.ones_like(top)
        return top if j == count - 1 else np.exp2(j * np.log2(top) / (count - 1))
    middle = np.exp2(j * np.log2(top) / (count - 1))
    return np.where(j == 0, top.dtype.type(1), np.where(j == count - 1, top, middle))


def one_layout(n: Any, b: Any, m: dict[str, float], h: dict[str, float], code: tuple) -> Any:
    """(seconds, feasible) at layout ``code``: 2-D or 1-D, pipeline tick, split tick."""
    two_d, stage_tick, split_tick = code
    top = np.minimum(b, m["layers"])
    if isinstance(stage_tick, int):
        stages = np.ones_like(top) if stage_tick == 0 else tick(stage_tick - 1, 10, top)
    else:
        ticks = tick(np.maximum(stage_tick - 1, 0), 10, top)
        stages = np.where(stage_tick == 0, top.dtype.type(1), ticks)
    t, u = n / stages, b / stages
    split = tick(split_tick, 6, t)
    w, a, d, f, layers = m["weight"], m["held"], m["d"], m["f"], m["layers"]
    q = m["heads"] * m["head"]
    qkv = q + 2.0 * m["heads"] / m["group"] * m["head"]
    t_at, t_ff = t / split, np.maximum(1.0, t)
    words = u * a

    def reduces(chips: Any, inner: float, outer: float, stage: Any) -> Any:
        nodes = np.ceil(chips / 8.0)
        if not two_d:
            return collective(chips, nodes, outer * words / (stage / chips), *h["net"], 2.0)
        ranks, nodes = np.sqrt(chips), np.sqrt(nodes)
        first = collective(ranks, nodes, inner * words / (stage / ranks), *h["net"], 2.0)
        return first + collective(ranks, nodes, outer * words / (stage / ranks), *h["net"], 2.0)

    two = np.full_like(t, 2.0)
    net = layers * (reduces(t_at, qkv, d, t_at) + reduces(t_ff, 2.0 * f, d, t)) + (
        stages - 1.0
    ) * collective(two, two, d * words / t, *h["net"], 1.0)
    ff = 3.0 * streamed(d, f, u, t_ff, w, a)
    at = streamed(qkv, d, u, t_at, w, a) + streamed(d, q, u, t_at, w, a)
    traffic = layers * (ff + split * at) + w * m["vocabulary"] * d
    projections = (qkv * d + d * q) * layers + 2.0 * m["vocabulary"] * d
    flops = 2.0 * (3.0 * layers * d * f + split * projections) * b
    memory = stages * traffic / (n * h["bandwidth"])
    time = 4.0 * layers * 4e-6 + net + np.maximum(memory, flops / (n * h["flops"]))
    stored = w * (projections + 3.0 * layers * d * f)
    return time, (n * h["memory"] >= stored) & (stages <= np.minimum(n, b))


def least_times_at_once(n: Any, b: Any, m: dict[str, float], h: dict[str, float]) -> Any:
    """Seconds per pass at the best of 132 layouts, every axis an array axis; else infinity."""
    stage = np.arange(11, dtype=n.dtype).reshape(11, 1, 1, 1)
    split = np.arange(6, dtype=n.dtype).reshape(6, 1, 1)
    best = np.full(n.shape, np.inf, n.dtype)
    for two_d in (True, False):
        time, ok = one_layout(n, b, m, h, (two_d, stage, split))
        best = np.minimum(best, np.where(ok, time, np.inf).min((0, 1)))
    return best


def looped(n: Any, b: Any, m: dict[str, float], h: dict[str, float]) -> Any:
    """The same with a loop over layouts: arrays over the grid alone."""
    best = np.full(n.shape, np.inf, n.dtype)
    for two_d in (True, False):
        for stage in range(11):
            for split in range(6):
                time, ok = one_layout(n, b, m, h, (two_d, stage, split))
                best = np.minimum(best, np.where(ok, time, np.inf))
    return best


LLAMA_3_70B = {
    "d": 8192.0,
    "f": 28672.0,
    "layers": 80.0,
    "heads": 64.0,
    "group": 8.0,
    "head": 128.0,
    "vocabulary": 128256.0,
    "weight": 2.0,
    "held": 2.0,
}
H100 = {
    "flops": 0.7 * 1e15,
    "bandwidth": 0.75 * 3.3e12,
    "memory": 8e10,
    "net": (2.25e11, 2.5e10),
}
