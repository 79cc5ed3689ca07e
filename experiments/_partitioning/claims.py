"""Which claims does the paper make in its text, and what do we find?"""

import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments._claims import Claim, Ours, beside
from experiments._partitioning import measured
from experiments._partitioning.measured import partitioning_model, partitioning_parameters
from experiments._partitioning.tables import estimator, names, run
from infer_jax.catalog import load_system
from infer_jax.estimators.partitioning import slice_of
from infer_jax.physics import decoder
from infer_jax.physics.network import sharding

PALM, CHIPS = "PaLM_540B", 64
CONTEXT = 2048.0
BATCH = {"layout": 1.0, "attention": 1.0}


def all_claims() -> list[Claim]:
    """Every claim in the order of the paper."""
    ours = _sizes() | _optima() | _attention() | _blocks() | _ends() | _latency() | _later()
    return beside(Path(__file__).with_name("claims.csv"), ours)


def _later() -> Ours:
    """int8 at low latency, and PaLM beside Megatron in Tables D.2 to D.4."""
    half, whole = decode(weights="int8", batch=4, chips=32), decode(weights="bf16", batch=4)
    costs = (2.0 * whole / half, half * 1e3, whole * 1e3, whole - half)
    return {"int8_cost": costs, "megatron": _largest_lead()}


def _largest_lead() -> tuple[float, float]:
    """Most points of MFU by which PaLM leads at Megatron's times, ours and printed.

    The two totals of Table D.4 are swapped in the paper.
    """
    rows = [c for c in measured.cells() if c.series in (measured.SUM, measured.OWN[2])]
    seconds = measured.predictor(rows)(estimator("partitioning.planned"))
    most = [0.0, 0.0]
    for table in {c.table for c in rows}:
        for k in range(2):
            points: dict[str, list[tuple[float, float]]] = {}
            for cell, own in zip(rows, seconds, strict=True):
                if cell.table == table:
                    at = cell.seconds if k == 0 else float(own)
                    share = cell.mfu if k == 0 else cell.mfu_of(at, CHIPS, 275e12)
                    swapped = k == 0 and table == "D.4"
                    palm = (cell.model == PALM) != swapped
                    points.setdefault("palm" if palm else "other", []).append((at, share))
            times, shares = np.asarray(sorted(points["palm"])).T
            leads = [np.interp(t, times, shares) - x for t, x in points["other"] if t >= times[0]]
            most[k] = max(most[k], *map(float, leads))
    return most[1], most[0]


def decode(name: str = PALM, batch: float = 512, chips: int = CHIPS, **more) -> float:
    """Seconds of one token at 2048 tokens and half of 64 more, 2-D, attention by batch."""
    weights = more.pop("weights", "bf16")
    arch = more.pop("arch", None) or partitioning_model(name, weights=weights)
    plan = slice_of(chips, **BATCH)
    return float(run(arch, plan, batch, 1, more.pop("context", CONTEXT + 31.5), **more).time)


def _sizes() -> Ours:
    multihead = partitioning_model("PaLM_540B_48", multihead=True)
    cache = 512 * float(decoder.cache_bytes(multihead, jnp.asarray(CONTEXT)))
    padded = float(decoder.active_parameters(partitioning_model(PALM)))
    added = padded - float(decoder.active_parameters(partitioning_model("PaLM_540B_48")))
    return {"cache": cache / 1e12, "padding": added / 1e9, "padding_mfu": added / padded}


def _optima() -> Ours:
    """The closed forms, and where the full model has its optimum."""
    arch = partitioning_model(PALM)
    width, hidden = 18432.0, 73728.0
    with jax.enable_x64(True):
        exact = [
            float(sharding.best_rows(*map(jnp.asarray, (64.0, width, hidden, i)))) for i in (1, 2)
        ]
    xs = (1, 2, 4, 8, 16, 32, 64)
    times = {}
    for x in xs:
        rest = 64 // x
        plan = slice_of(64, layout=1.0).with_(x=x, y=rest**0.5, z=rest**0.5)
        times[x] = float(run(arch, plan, 512, 1, 100.0).time)
    best = min(times, key=times.__getitem__)
    loss = times[4] / times[best] - 1.0
    tokens = {}
    for batch in (1, 4, 8, 16, 32, 64, 128, 256, 512):
        tokens[batch * 2048] = names(run(arch, CHIPS, batch, 2048))[0]
    gathered = [t for t, layout in tokens.items() if layout != "ws_2d"]
    first = min(gathered, default=0)
    with jax.enable_x64(True):
        count = jnp.asarray(float(first))
        ideal = float(sharding.best_gathered(count, *map(jnp.asarray, (64.0, hidden, 2.0))))
    every = ", ".join(dict.fromkeys(tokens.values()))
    return {
        "best_x": (*exact, best, loss),
        "gathered": (first, ideal, every, tokens[2048], tokens[512 * 2048]),
    }


def _attention_share(batch: float, context: float) -> float:
    """Share of a decode step that goes when the model has no attention core and cache."""
    full = decode(batch=batch, context=context)
    return 1.0 - decode(batch=batch, context=0.0) / full


def _attention() -> Ours:
    return {"attention": (_attention_share(512, 8192.0), _attention_share(128, 32768.0))}


def _blocks() -> Ours:
    serial = partitioning_model(PALM, parallel=False)
    slower = decode(arch=serial) / decode() - 1.0
    prefill = slice_of(CHIPS, layout=4.0, attention=1.0)
    both = [float(run(a, prefill, 512, CONTEXT).time) for a in (serial, partitioning_model(PALM))]
    plan = slice_of(CHIPS, layout=1.0, attention=0.0)
    off, on = (
        float(run(partitioning_model(PALM), plan, 512, 128, hidden_network=h).time)
        for h in (0.0, 1.0)
    )
    caps = load_system("tpu_v4").coefficients["partitioning"]
    prompts = both[0] / both[1] - 1.0
    return {
        "serial": (slower, 1.0 + slower),
        "serial_prefill": (prompts, slower - prompts),
        "einsum": (off / on, caps["hidden_network"]),
    }


def _ends() -> Ours:
    arch8, arch16 = (partitioning_model(PALM, weights=w) for w in ("int8", "bf16"))
    heads = slice_of(CHIPS, layout=1.0)
    chat = float(run(arch8, heads, 1, 64, 1920).time)
    batch64 = decode(weights="int8", batch=64, context=1984 + 31.5)
    reply = chat + 64 * batch64
    prefill = run(arch16, CHIPS, 512, 1984)
    total = float(prefill.time) + 64 * decode(batch=512, context=1984 + 31.5)
    flops = 2 * partitioning_parameters(PALM) * 512 * (1984 + 64)
    mfu = flops / (CHIPS * 275e12 * total)
    server = float(run(arch8, heads, 1, CONTEXT).time)
    pair = server + 64 * decode(weights="int8", batch=64)
    ratio = float(run(arch16, CHIPS, 512, CONTEXT).time) / CONTEXT / decode(batch=512)
    return {
        "chat": (reply, chat * 1e3, batch64 * 1e3),
        "efficiency": mfu,
        "prefill_cost": 1 / ratio,
        "server": (server, pair - server, 64 * server / (pair - server), pair),
    }


def least_latency(name: str, chips: int, weights: str = "bf16") -> float:
    """Seconds of the fastest decode step on these chips, at batches of 4 to 64."""
    return min(decode(name, weights=weights, batch=b, chips=chips) for b in (4, 8, 16, 32, 64))


def _latency() -> Ours:
    times = {w: 1e3 * decode(weights=w, batch=64) for w in ("int8", "bf16")}
    chips = {"PaLM_8B": 8, "PaLM_62B": 16, PALM: 64}
    ours = [1e3 * least_latency(name, n) for name, n in chips.items()]
    slope = math.log(ours[2] / ours[0]) / math.log(540 / 8)
    others = least_latency(PALM, CHIPS, "int8"), least_latency(PALM, 256)
    return {
        **times,
        "least_latency": 1e3 * decode(batch=512) / ours[2],
        "by_size": (*ours, slope, *(1e3 * x for x in others)),
    }
