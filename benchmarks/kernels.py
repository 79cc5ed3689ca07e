"""How many configurations a second does the kernel model evaluate, beside plain Python?

    python -m benchmarks.kernels [--json]

Ours: full estimates (TTFT, TPOT, tokens/s, cost and memory) of Qwen3-30B-A3B on H20 by fitted
curves, corrected assembly, all cores. Theirs: the published formula in plain Python, one
configuration a call, every MFU looked up by a scan of its table as InferSim does; tables are
kept in memory here, which InferSim reads from disk at every look-up, so that this is the faster
of the two. Both in one run; compilation is told apart.
"""

import argparse
import json
import math
import statistics
import time
from typing import Any

import jax
import numpy as np

from infer_jax.catalog import load_model, load_system
from infer_jax.estimators.kernels import Kernels, KernelsPlan
from infer_jax.specs import Workload

COUNT, RUNS, PLAIN = 65536, 7, 300
ROWS = 400  # of a table of products: as the published H20 table has
Point = tuple[float, float, float, float]  # batch, isl, osl, GPUs


def points(count: int) -> np.ndarray:
    """Configurations at random, the same every time."""
    draw = np.random.default_rng(0)
    ranks = 2.0 ** draw.integers(0, 5, count)
    each = draw.integers(1, 257, count)
    lengths = draw.integers(256, 16384, (2, count))
    return np.stack([each * ranks, *lengths, ranks], axis=1).astype(float)


def ours(kind: type) -> dict[str, float]:
    """Configurations per second in a precision, and seconds of the first call."""
    system, model = load_system("h20_sxm"), load_model("qwen3-30b-a3b")
    estimator = Kernels.corrected().fitted(system.coefficients["kernels"])
    inputs = (estimator, model.architecture, system.hardware)

    def estimate(inputs: Any, x: Any) -> Any:
        estimator, arch, hardware = inputs
        work = Workload(batch=x[0], isl=x[1], osl=x[2], prefix=0.0 * x[0])
        plan = jax.tree.map(lambda leaf: leaf.astype(x.dtype), KernelsPlan.of()).replace(ep=x[3])
        priced = estimator.estimate(arch, hardware, work, plan)
        return priced.ttft, priced.tpot, priced.throughput, priced.cost, priced.feasible

    with jax.enable_x64(kind is np.float64):
        inputs = jax.tree.map(lambda x: np.asarray(x, kind), inputs)
        many = points(COUNT).astype(kind)
        run = jax.jit(jax.vmap(estimate, in_axes=(None, 0)))
        begun = time.perf_counter()
        jax.block_until_ready(run(inputs, many))
        first = time.perf_counter() - begun
        spent = []
        for _ in range(RUNS):
            begun = time.perf_counter()
            jax.block_until_ready(run(inputs, many))
            spent.append(time.perf_counter() - begun)
    return {"per_s": COUNT / statistics.median(spent), "first_s": first}


class Plain:
    """The published formula of grouped-query attention and experts, one run a call."""

    layers, width, heads, kv, head, experts, active, inner = 48, 2048, 32, 4, 128, 128, 8, 768
    peak, memory, link = 148.0 * 1024, 4096 * 0.8, 900 * 0.8 / 2

    def __init__(self) -> None:
        draw = np.random.default_rng(1)
        shapes = draw.choice([512, 768, 2048, 4096, 5120, 6144], (ROWS, 2))
        sizes = 2.0 ** draw.integers(4, 13, ROWS)
        self.gemm = [
            (m, float(k), float(n), 0.5) for m, (k, n) in zip(sizes, shapes, strict=True)
        ]  # its MFU does not matter to the time that looking it up takes
        self.core = [(2.0**b, 1024.0 * s, 0.4) for b in range(9) for s in (1, 4, 8, 16, 32)]

    def product(self, m: float, k: float, n: float) -> float:
        """Seconds of a projection at the MFU of the nearest larger shape measured."""
        best, nearest = None, 1e9
        for _, k2, n2, _ in self.gemm:
            if k2 >= k and n2 >= n:
                far = (k2 - k) ** 2 + (n2 - n) ** 2
                if far < nearest:
                    best, nearest = (k2, n2), far
        mfu = 0.6
        for m2, k2, n2, result in self.gemm:
            if (k2, n2) == best and m2 <= m:
                mfu = result
        return 2.0 * m * k * n / 1e9 / (self.peak * mfu)

    def attention(self, tokens: float, pairs: float, cached: float) -> float:
        """Seconds of the core and the projections of a layer."""
        mfu = min(self.core, key=lambda row: abs(row[0] - tokens) + abs(row[1] - cached))[2]
        work = 4.0 * self.heads * self.head * pairs / 1e9 / (self.peak * mfu)
        load = 4.0 * self.kv * self.head * cached * tokens / 2**30 / self.memory
        wide = (self.heads + 2 * self.kv) * self.head
        shapes = ((self.width, wide), (self.heads * self.head, self.width))
        return max(work, load) + sum(self.product(tokens, k, n) for k, n in shapes)

    def feedforward(self, tokens: float, ranks: float) -> float:
        """Seconds of the experts of a layer, and of handing tokens to them and back."""
        work = 6.0 * tokens * self.active * self.width * self.inner / 1e9 / (self.peak * 0.5)
        held = 6.0 * self.width * self.inner * self.experts / ranks
        sent = tokens * ranks * self.width * 2.0 / 2**30 / self.link if ranks > 1 else 0.0
        return max(work, held / 2**30 / self.memory) + 2.0 * sent

    def run(self, point: Point) -> tuple[float, float]:
        """TTFT and TPOT in seconds."""
        batch, isl, osl, ranks = point
        each, seen = batch / ranks, math.floor(isl + osl / 2)
        first = self.attention(isl, isl * isl / 1.8, isl) + self.feedforward(isl, ranks)
        later = self.attention(each, each * seen, seen) + self.feedforward(each, ranks)
        return self.layers * first + 0.030, self.layers * later + 0.005


def theirs() -> float:
    """Configurations per second of plain Python."""
    plain, many = Plain(), points(PLAIN).tolist()
    begun = time.perf_counter()
    for point in many:
        plain.run(tuple(point))
    return PLAIN / (time.perf_counter() - begun)


def main() -> None:
    """Measure and print."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--json", action="store_true", help="one line of JSON")
    as_json = asked.parse_args().json
    result = {"float32": ours(np.float32), "float64": ours(np.float64), "python_per_s": theirs()}
    for kind in ("float32", "float64"):
        result[f"{kind}_ratio"] = result[kind]["per_s"] / result["python_per_s"]
    if as_json:
        print(json.dumps(result))
        return
    for kind in ("float32", "float64"):
        rate, first = result[kind]["per_s"], result[kind]["first_s"]
        print(f"{kind}: {rate:,.0f} estimates/s (first call, with compilation, {first:.1f} s)")
    print(f"plain Python: {result['python_per_s']:,.0f}/s")
    print(f"ratio: {result['float32_ratio']:,.0f} and {result['float64_ratio']:,.0f}")


if __name__ == "__main__":
    main()
