"""Level 4 of the economics model in numba: one compiled loop over points and layouts, all cores.

The same equations as ``numpy_economics``, a point at a time; in float64, which numba computes
its literals in. Source: Erdil 2025 (arXiv 2506.04645).
"""

from collections.abc import Callable
from math import ceil, log2, sqrt
from typing import Any

import numpy as np
from numpy_economics import PROTOCOLS


def compile_search(m: dict[str, float], h: dict[str, Any]) -> Callable[..., Any] | None:
    """(chips, batches) -> least seconds of 132 layouts, infinity where none fits; or None."""
    try:
        import numba  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    d, f, layers, w, a = m["d"], m["f"], m["layers"], m["weight"], m["held"]
    q, vocabulary = m["heads"] * m["head"], m["vocabulary"]
    qkv = q + 2.0 * m["heads"] / m["group"] * m["head"]
    (inside, between), bandwidth, flops, memory = h["net"], h["bandwidth"], h["flops"], h["memory"]
    table = tuple(PROTOCOLS)
    projections = (qkv * d + d * q) * layers + 2.0 * vocabulary * d
    stored = w * (projections + 3.0 * layers * d * f)

    @numba.njit
    def collective(ranks: float, nodes: float, size: float, passes: float) -> float:
        if ranks <= 1.0:
            return 0.0
        share = 1.0 if passes == 2.0 else 0.5
        moved = max(nodes * max(0.0, ranks / nodes - 1.0) / inside, (nodes - 1.0) / between)
        moved = share * moved * size / ranks
        best, levels = np.inf, log2(nodes)
        for hop, far, base, reach in table:
            wait = passes * ((ranks / nodes - 1.0) * hop + levels * far) + base
            best = min(best, wait + moved / reach)
        return best

    @numba.njit
    def reduces(two_d: bool, chips: float, inner: float, outer: float, each: float) -> float:
        nodes = ceil(chips / 8.0)
        if not two_d:
            return collective(chips, nodes, outer * each * chips, 2.0)
        ranks, rows = sqrt(chips), sqrt(nodes)
        size = each * ranks
        first = collective(ranks, rows, inner * size, 2.0)
        return first + collective(ranks, rows, outer * size, 2.0)

    @numba.njit
    def streamed(rows: float, columns: float, tokens: float, split: float) -> float:
        sliced = min(max(sqrt(rows / columns * split), 1.0), max(split, 1.0))
        moved = sliced * columns + split / sliced * rows
        return rows * columns * w + moved * tokens * a

    @numba.njit
    def tick(j: int, count: int, top: float) -> float:
        if j == 0:
            return 1.0
        return top if j == count - 1 else 2.0 ** (j * log2(top) / (count - 1))

    @numba.njit(parallel=True)
    def search(n: Any, b: Any) -> Any:
        best = np.full(n.size, np.inf)
        for i in numba.prange(n.size):
            if n[i] * memory < stored:
                continue
            for stage in range(11):
                stages = 1.0 if stage == 0 else tick(stage - 1, 10, min(b[i], layers))
                if stages > min(n[i], b[i]):
                    continue
                t, u = n[i] / stages, b[i] / stages
                wide = max(1.0, t)
                dense = 3.0 * streamed(d, f, u, wide)
                pair = (stages - 1.0) * collective(2.0, 2.0, d * u * a / t, 1.0)
                for two_d in (True, False):
                    both = reduces(two_d, wide, 2.0 * f, d, u * a / t)
                    for j in range(6):
                        split = tick(j, 6, t)
                        at = t / split
                        net = layers * (reduces(two_d, at, qkv, d, u * a / at) + both) + pair
                        moved = streamed(qkv, d, u, at) + streamed(d, q, u, at)
                        traffic = layers * (dense + split * moved) + w * vocabulary * d
                        work = 2.0 * (3.0 * layers * d * f + split * projections) * b[i]
                        bound = max(stages * traffic / bandwidth, work / flops) / n[i]
                        best[i] = min(best[i], 4.0 * layers * 4e-6 + net + bound)
        return best

    return search
