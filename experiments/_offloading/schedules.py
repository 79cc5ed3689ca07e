"""How large a block fits, and what does it move, under the three schedules (Appendix A.2)?"""

from experiments._offloading.machine import SHAPES
from experiments._report import show
from infer_jax.estimators.offloading.published import GIB
from infer_jax.physics.memory import offload_schedule

MEMORY = 200 * GIB  # of the CPU, to which all is swapped
CASES = (
    ("opt-30b", 512, 32), ("opt-30b", 512, 512), ("opt-30b", 128, 1024),
    ("opt-66b", 512, 128), ("opt-175b", 512, 32), ("opt-175b", 1024, 32),
)  # fmt: skip


def graph(model: str, prompt: float, tokens: float) -> offload_schedule.Graph:
    """A model's squares: bytes of a layer's weights, of a hidden state, of a token's cache."""
    layers, width, _ = SHAPES[model]
    return offload_schedule.Graph(layers, prompt, tokens, 24.0 * width**2, 2.0 * width, 4.0 * width)


def print_schedules() -> dict[str, tuple[float, float]]:
    """The largest zig-zag and diagonal blocks, and the bytes they move."""
    rows, blocks = [], {}
    for model, prompt, tokens in CASES:
        g = graph(model, prompt, tokens)
        small, large = (
            offload_schedule.zigzag_block(g, MEMORY),
            offload_schedule.diagonal_block(g, MEMORY),
        )
        name = f"{model} {prompt} + {tokens}"
        blocks[name] = (float(small), float(large))
        rows.append(
            (name, f"{small:.2f}", f"{large:.2f}", f"{large / small:.4f}",
             f"{offload_schedule.zigzag_over_optimal(prompt, tokens):.4f}",
             f"{g.layers * g.weights / GIB:.1f}",
             f"{offload_schedule.cache_traffic(g, 1) / GIB:.2f}",
             f"{offload_schedule.hidden_traffic(g, 1) / GIB:.3f}")
        )  # fmt: skip
    columns = ("job", "zig-zag", "diagonal", "ratio", "zig-zag over the least", "weights, GiB",
               "cache, GiB a sample", "hidden, GiB a sample")  # fmt: skip
    note = "Theorem 4.1: the weights that zig-zag loads are at most twice the least there can be."
    show("Appendix A.2: samples of a block that fit 200 GiB", columns, rows, note)
    return blocks
