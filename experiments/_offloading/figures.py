"""What do FlexGen's Figures 1 and 5 look like by our model?

The points of the originals are lost with their pictures: what is drawn is ours, and held against
what the text says of them.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments._offloading.measured import HARDWARE, TEXTS, TOKENS, opt_model, row_by_row, stacked
from experiments._report import OUT
from infer_jax.estimators.offloading import Offload, Offloading
from infer_jax.estimators.offloading.coefficients import Attained
from infer_jax.estimators.offloading.search import search
from infer_jax.plots.frontier import plot_tradeoff
from infer_jax.plots.style import save
from infer_jax.specs import Workload

Curve = tuple[np.ndarray, np.ndarray]
WORK = Workload.of(isl=512, osl=TOKENS)
NETWORKS = {  # Section 6.4: delay in seconds, bytes/s
    f"{milliseconds:g} ms, {gigabits:g} Gb/s": (milliseconds / 1e3, gigabits * 1e9 / 8)
    for milliseconds in (10.0, 100.0)
    for gigabits in (1.0, 0.1)
}
STAGES = 12.0  # T4s of the cluster, Section 6.4
MAX_SAMPLES = 64  # samples of a batch that are drawn


def best_blocks(model: str, *, compressed: bool = False) -> Curve:
    """(seconds, tokens/s) of FlexGen's best blocks, fastest first."""
    flag = float(compressed)
    plan = Offload.of(compress_weights=flag, compress_cache=flag, cpu_attention=1.0 - flag)
    with jax.enable_x64(True):
        grid = search(Offloading.improved(), opt_model(model), HARDWARE, WORK, plan)
    front = grid.frontier()
    return grid.time[front], grid.throughput[front]


def one_batch_at_a_time(model: str) -> Curve:
    """The policy of DeepSpeed and Accelerate: cache on the GPU, batches while they fit."""
    estimator, runs = Offloading.improved(solve=False), [row_by_row(model, b) for b in range(1, 65)]
    with jax.enable_x64(True):
        price = jax.vmap(lambda arch, work, plan: estimator.estimate(arch, HARDWARE, work, plan))
        priced = jax.device_get(jax.jit(price)(*stacked(runs)))
    return priced.time[priced.feasible], priced.throughput[priced.feasible]


def figure1() -> dict[str, dict[str, Curve]]:
    """Latency against throughput of OPT-175B and OPT-30B."""
    return {
        model.upper(): {
            "FlexGen": best_blocks(model),
            "FlexGen (c)": best_blocks(model, compressed=True),
            "DeepSpeed, Accelerate": one_batch_at_a_time(model),
        }
        for model in ("opt-175b", "opt-30b")
    }


def petals(delay: float, bandwidth: float) -> Curve:
    """OPT-30B on the chain of twelve T4, by batch; each as fast as improved has a T4.

    A pass takes max(FLOP, weights through memory) + stages (delay + hidden states / bandwidth):
    nothing is offloaded, stages work one after the other on one batch, so that arithmetic adds up
    to that of one GPU (Petals: Borzunov et al. 2022, arXiv 2209.01188).
    """
    estimator = Offloading.improved()
    assert isinstance(estimator.rates, Attained)
    flops = estimator.rates.matmul * HARDWARE.chip.flops_16
    layer = estimator.job(opt_model("opt-30b"), HARDWARE, WORK, Offload.of()).layer
    batch = np.arange(1.0, MAX_SAMPLES + 1.0)

    def passed(samples: Array, tokens: Array) -> Array:
        work = samples * tokens * (layer.count * layer.flops) / flops
        read = layer.count * layer.weights / HARDWARE.chip.memory_bandwidth
        hop = delay + samples * tokens * layer.buffers.hidden / bandwidth
        return jnp.maximum(work, read) + STAGES * hop

    with jax.enable_x64(True):
        samples = jnp.asarray(batch)
        later = passed(samples, jnp.ones_like(WORK.osl))
        time = np.asarray(passed(samples, WORK.isl) + (WORK.osl - 1.0) * later)
    return time, batch * TOKENS / time


def figure5() -> dict[str, dict[str, Curve]]:
    """OPT-30B: FlexGen on one T4 against a chain of twelve on four networks."""
    curves = {"FlexGen, 1 T4": best_blocks("opt-30b")}
    curves |= {f"Petals, 12 T4, {name}": petals(*network) for name, network in NETWORKS.items()}
    return {"OPT-30B, 512 + 32 tokens": curves}


def claims(panels: dict[str, dict[str, Curve]]) -> dict[str, Any]:
    """What Section 6.4 says of Figure 5, by our curves."""
    (curves,) = panels.values()
    flexgen, *others = curves.items()
    least, most = float(flexgen[1][0].min()), float(flexgen[1][1].max())
    result = {}
    for name, (time, rate) in others:
        at = np.interp(time, *flexgen[1], left=0.0)
        lower = int(np.sum(rate < most))
        result[name] = {
            "FlexGen has the higher throughput": bool(most > rate.max()),
            "up to a Petals batch of": lower if lower < len(rate) else f"{lower} or more",
            "per GPU": bool(most > rate.max() / STAGES),
            "least latency of Petals, s": float(time.min()),
            "of FlexGen, s": least,
            "FlexGen is sooner at some throughput": bool(np.any(at > rate)),
            "curves cross": bool(np.any(at > rate) and np.any(at < rate)),
        }
    return result


def _said(name: str, panels: dict[str, dict[str, Curve]]) -> dict[str, Any]:
    """What agrees with the paper's text and what does not, by our curves."""
    if name == "1":
        own, packed, others = (rate.max() for _, rate in panels["OPT-175B"].values())
        return {"packed": packed / others, "own": own / others}
    result = claims(panels)
    wins = [k for k, x in result.items() if x["FlexGen has the higher throughput"]]
    loses = [k for k in result if k not in wins]
    per = all(x["per GPU"] for x in result.values())
    return {
        "wins": " and ".join(wins) or "none",
        "per": ", and per GPU than all" * per,
        "loses": " and ".join(loses) or "nothing",
    }


FIGURES = {"1": figure1, "5": figure5}


def draw(name: str, folder: Path = OUT) -> tuple[Path, dict[str, dict[str, Curve]]]:
    """Draw a figure into ``folder``: where it is, and its curves."""
    text, panels = TEXTS[name], FIGURES[name]()
    path, caption = folder / text["file"], text["caption"].format(**_said(name, panels))
    save(plot_tradeoff(panels, title=text["title"], caption=caption), path)
    return path, panels
