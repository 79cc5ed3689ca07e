"""A textbook chapter on inference optimisation: its worked numbers beside ours.

Where, if anywhere, do pools of their own serve DeepSeek-R1 thirty times as fast? Throughput over
interactivity on GB200 NVL72, by the serving estimator: pools that prefill and decode, and three
servers that do both. Every curve is the best of its layouts at each speed.
"""

import sys
from collections.abc import Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax
import jax.numpy as jnp
import numpy as np
import typer

from experiments import _report
from experiments._claims import Claim, beside, show
from infer_jax.catalog import load_model, load_system
from infer_jax.compiling import quick
from infer_jax.estimators import make
from infer_jax.estimators.disaggregated import Disaggregated
from infer_jax.estimators.estimate import Phase, decode_context
from infer_jax.estimators.serving import Deployment
from infer_jax.physics import attention as att
from infer_jax.physics.speculation import bonus_yield, verified_yield
from infer_jax.planning import Layout, PlanSpace, Requirements, Side, table
from infer_jax.planning.instances import batches, degrees
from infer_jax.specs import Format, ForwardPass, GroupedQuery, Latent, Workload

app = _report.program(__doc__)

TWO_BYTES = Format.of(bytes=2, bits=16)
MODEL = "deepseek-r1"
PATIENCE = 5.0  # seconds to the first token
SPEEDS = np.r_[5.0, 10.0, 20:101:10, 105:151:5]
WORK = Workload.of(isl=8192, osl=1024)
DOMAIN = 64  # chips of the largest instance: a power of 2 within the 72
POOLS, WIDE, NODE, HOPPER = (
    "pools, up to 64 GPUs each",
    "co-located, up to 64 GPUs",
    "co-located, 8 GPUs",
    "co-located, 8 H200 in FP8",
)


def compression(rope_width: float) -> float:
    """Example 4.3: bytes of 128 heads of 128 over those of a latent of 512 and a rope key."""
    every = GroupedQuery.of(query_heads=128, kv_heads=128, head_width=128, value_width=128)
    latent = Latent.of(
        query_heads=128, nope_width=128, rope_width=rope_width, value_width=128, kv_rank=512,
        query_rank=1536,
    )  # fmt: skip
    one = jnp.asarray(1.0)
    both = [float(att.of(x).held_bytes(TWO_BYTES, one)) for x in (every, latent)]
    return both[0] / both[1]


def claims() -> list[Claim]:
    """The numbers of the chapter; two do not agree with its own formulas."""
    acceptance, drafts = jnp.asarray(0.8), jnp.asarray(5.0)
    tokens, verified = (float(law(acceptance, drafts)) for law in (bonus_yield, verified_yield))
    # 32 requests of 32,768 tokens, 80 layers of 8 heads of 128
    heads = GroupedQuery.of(query_heads=64, kv_heads=8, head_width=128, value_width=128)
    gb = 80 * 32 * float(att.of(heads).held_bytes(TWO_BYTES, jnp.asarray(32768.0))) / 1e9
    ours = {"cache": gb, "latent": compression(0.0), "cached": compression(64.0)}
    ours |= {"formula": tokens, "text": (tokens, verified)}
    return beside(Path(__file__).parent / "_chapter" / "claims.csv", ours)


def show_pools(result: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Print throughput over interactivity; by baseline, the most that pools are over it."""
    ratios = times(result)
    columns = ("tokens/s of a request", *result, *(f"over: {name}" for name in ratios))
    rows = [
        (
            f"{speed:g}",
            *(f"{values[i]:.4g}" if values[i] > 0 else "-" for values in result.values()),
            *("-" if np.isnan(x[i]) else f"{x[i]:.3g}" for x in ratios.values()),
        )
        for i, speed in enumerate(SPEEDS)
    ]
    _report.show("4.2 DeepSeek-R1, output tokens per second and GPU", columns, rows)
    return {name: float(np.nanmax(x)) for name, x in ratios.items()}


def space_on(system: str, quant: str | None) -> PlanSpace:
    """DeepSeek-R1 in a format on a system, under TensorRT-LLM's coefficients."""
    found, model = load_system(system), load_model(MODEL, quant=quant)
    serving: Any = make("serving.trtllm", found.coefficients)
    side = Side("", found.hardware, serving)
    return PlanSpace((side,), model.architecture, WORK, Requirements())


def layouts(chips: int) -> list[Layout]:
    """Powers of 2: tensor by data ranks, every expert on one rank of all of them or cut."""
    sizes = 2 ** np.arange(int(np.log2(chips)) + 1)
    return [
        Layout(float(tp), float(dp), float(ep), 1.0)
        for tp, dp in product(sizes, sizes)
        for ep in {1, tp * dp}
        if tp * dp <= chips
    ]


def curves() -> dict[str, np.ndarray]:
    """Output tokens per second and GPU at every speed of ``SPEEDS``; 0 where none is that fast."""
    rack, hopper = space_on("gb200_nvl72", "nvfp4"), space_on("h200_sxm", None)
    return {
        POOLS: pools(rack),
        WIDE: together(rack, layouts(DOMAIN)),
        NODE: together(rack, layouts(8)),
        HOPPER: together(hopper, layouts(8)),
    }


def together(on: PlanSpace, legal: list[Layout]) -> np.ndarray:
    """One server for both phases: the best layout and batch at each speed."""
    served = table(on, legal).estimates
    fits = _fits_memory(served.decode) & (np.asarray(served.ttft) <= PATIENCE)
    return _best(np.asarray(served.throughput), np.asarray(served.tpot), fits)


def pools(on: PlanSpace) -> np.ndarray:
    """Two pools in balance, each of its best instances: 1 / (1 / prefill + 1 / decode).

    In a fleet large enough that pools need not be whole numbers of instances; the cache crosses
    layer by layer while the prompt is computed.
    """
    wrapper = Disaggregated.of(target=None)
    index, prompts = _grid(np.array([1.0, 2.0, 4.0]))
    first = _passes(on, index, prompts, float(WORK.isl), 0.0)
    fits = _fits_memory(first) & (np.asarray(first.time) <= PATIENCE)
    chips = np.array([layout.chips for layout in layouts(DOMAIN)])
    rate = prompts / np.asarray(first.time) / chips[index] * float(wrapper.prefill_share)
    prefill = float(rate[fits].max())

    index, requests = _grid(batches())
    second = _passes(on, index, requests, 1.0, float(decode_context(WORK)))
    rate = requests / np.asarray(second.time) / chips[index] * float(wrapper.decode_share)
    decode = _best(rate / (float(WORK.osl) - 1.0), np.asarray(second.time), _fits_memory(second))
    return float(WORK.osl) * prefill * decode / (prefill + decode)


def _grid(each: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of every layout with so many sequences in each attention group."""
    legal = layouts(DOMAIN)
    index, count = (x.ravel() for x in np.meshgrid(np.arange(len(legal)), each, indexing="ij"))
    return index, count * np.array([layout.attention_dp for layout in legal])[index]


def _passes(
    on: PlanSpace, index: np.ndarray, sequences: np.ndarray, new: float, cached: float
) -> Phase:
    (side,) = on.sides
    forward: Any = (sequences, *(np.full(sequences.shape, x) for x in (new, cached)))
    plans = degrees(layouts(DOMAIN), index)
    return jax.device_get(_stepped(side.serving, on.arch, side.hardware, plans, forward))


@partial(jax.jit, compiler_options=quick("cpu"))
def _stepped(serving: Any, arch: Any, hardware: Any, plans: Any, forward: Any) -> Phase:
    def phase(layout: Any, numbers: Any) -> Phase:
        sequences, new, cached = numbers
        one_pass = ForwardPass(sequences=sequences, new_tokens=new, cached_tokens=cached)
        return serving.step(arch, hardware, one_pass, Deployment.of().replace(**layout))

    return jax.vmap(phase)(plans, forward)


def _fits_memory(phase: Phase) -> np.ndarray:
    room = [np.asarray(x.need) <= np.asarray(x.capacity) for x in phase.limits.values()]
    return np.all(room, axis=0)


def _best(throughput: np.ndarray, tpot: np.ndarray, fits: np.ndarray) -> np.ndarray:
    return np.array(
        [np.max(throughput, initial=0.0, where=fits & (tpot * speed <= 1.0)) for speed in SPEEDS]
    )


def times(result: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Pools over each of the others, at every speed; nan where the other is never that fast."""
    return {
        name: np.divide(result[POOLS], other, out=np.full_like(other, np.nan), where=other > 0)
        for name, other in result.items()
        if name != POOLS
    }


def draw(result: Mapping[str, np.ndarray], path: Path) -> Path:
    """The curves, by seconds a token; ``times`` tells how far they are apart."""
    from infer_jax.plots.frontier import plot_tradeoff  # matplotlib: an extra
    from infer_jax.plots.style import save

    curves = {name: (1.0 / SPEEDS[x > 0], x[x > 0]) for name, x in result.items()}
    caption = (
        f"{float(WORK.isl):g} tokens in, {float(WORK.osl):g} out, first token within {PATIENCE:g} "
        "s; latency: of an output token; throughput: of a GPU. A serving model fitted to other "
        "servers, not a measurement."
    )
    title = "DeepSeek-R1 on GB200 NVL72: pools against co-located serving"
    return save(plot_tradeoff({"Best layouts": curves}, title=title, caption=caption), path)


@_report.command(app)
def main(
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the pools' curves into this file.")
    ] = None,
) -> dict[str, Any]:
    """Print the chapter's worked numbers beside ours, and search for its thirty times."""
    figures = show("Numbers of the chapter", claims())
    result = curves()
    figures["pools over"] = show_pools(result)
    if picture is not None:
        print(f"Picture: {draw(result, picture)}")
    return figures


if __name__ == "__main__":
    app()
