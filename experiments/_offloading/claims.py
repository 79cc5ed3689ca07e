"""Which claims of FlexGen stand beside no row of its tables, and what do we find?"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments._claims import Claim, Ours, beside
from experiments._offloading.measured import (
    BREAKDOWN,
    CPU,
    HARDWARE,
    RUNS,
    Run,
    breakdown,
    inputs,
    opt_model,
    rates,
    row_by_row,
    stacked,
)
from experiments._offloading.tables import IMPROVED
from infer_jax.physics import decoder

MODELS = ("opt-6.7b", "opt-30b", "opt-175b")
priced = jax.jit(rates)


def all_claims() -> list[Claim]:
    """Every claim in the order of the paper."""
    with jax.enable_x64(True):
        ours = _cache() | _scaling() | _deepspeed() | _shares() | _without_disk()
    ours |= dict.fromkeys(("petals", "accuracy", "deepspeed_opt-6.7b"), ())
    return beside(Path(__file__).with_name("claims.csv"), ours)


def _cache() -> Ours:
    """Both are counted in 2^30 and 2^40 bytes, which the paper writes GB and TB."""
    cache = 512.0 * float(decoder.cache_bytes(opt_model("opt-175b"), jnp.asarray(512.0 + 32.0)))
    own, work, plan = inputs(next(r for r in RUNS if r.model == "opt-175b"))
    layer = IMPROVED.job(own, HARDWARE, work, plan).layer
    weights = float(layer.count * layer.weights)
    return {"cache": (cache / 2**40, weights / 2**30, cache / weights)}


def _scaling() -> Ours:
    """Rates of four GPUs over those of one, by model."""
    result: Ours = {}
    for name, first, column in (
        ("decode", "Table 3, decode", 1),
        ("generation", "Table 2, 512", 0),
    ):
        ours = []
        for model in MODELS:
            pair = [_run(first, model, 1.0), _run(f"Table 3, {name}", model, 4.0)]
            found = np.asarray(priced(IMPROVED, stacked(pair))[column])
            ours.append(float(found[1] / found[0]))
        result[f"scaling_{name}"] = tuple(ours)
    return result


def _run(where: str, model: str, gpus: float) -> Run:
    return next(r for r in RUNS if (r.where, r.model, r.gpus) == (where, model, gpus))


def _deepspeed() -> Ours:
    """DeepSpeed's policy on one GPU, four times: at which batch and split it ran is not printed."""
    batches = {"opt-30b": 8.0, "opt-175b": 2.0}
    runs = stacked([row_by_row(model, batch) for model, batch in batches.items()])
    ours = 4.0 * np.asarray(priced(IMPROVED, runs)[0])
    return {f"deepspeed_{model}": float(x) for model, x in zip(batches, ours, strict=True)}


def _shares() -> Ours:
    """Seconds of computing over the total of Table 4, where nothing overlaps: ours and printed."""
    ours, result = breakdown(IMPROVED), {}
    for phase in BREAKDOWN:
        both = (table[phase]["compute"] / table[phase]["total"] for table in (ours, BREAKDOWN))
        result[f"share_{phase}"] = tuple(map(float, both))
    return result


def _without_disk() -> Ours:
    """Without a disk: what lies on none runs as before, and OPT-175B fits nowhere."""
    smaller = next(r for r in RUNS if r.where == "Table 5" and r.model == "opt-30b")
    large = Run("", "", "opt-175b", 512.0, (1.0, 1.0), CPU, 1.0)
    whole, _, fits = (np.asarray(x) for x in priced(IMPROVED, stacked([smaller, large])))
    return {
        "no_disk_30b": (float(whole[0]), smaller.percent[0] + smaller.percent[1]),
        "no_disk_175b": "fits" if fits[1] else "out of memory",
    }
