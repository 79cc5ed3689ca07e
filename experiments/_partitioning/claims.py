"""Which claims does the paper make in its text, and what do we find?"""

import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from experiments._claims import Claim, Ours, beside, is_close
from experiments._partitioning import measured
from experiments._partitioning.printed import estimator, names, run
from infer_jax.catalog import load_system
from infer_jax.catalog.published import partitioning_model, partitioning_parameters
from infer_jax.estimators.partitioning import slice_of
from infer_jax.physics import decoder
from infer_jax.physics.network import sharding

PALM, CHIPS = "PaLM_540B", 64
CONTEXT = 2048.0
SIZES = {"PaLM_8B": 8e9, "PaLM_62B": 62e9, PALM: 540e9}
BATCH = {"layout": 1.0, "attention": 1.0}


def all_claims() -> list[Claim]:
    """Every claim in the order of the paper."""
    ours = _sizes() | _optima() | _attention() | _blocks() | _ends() | _latency() | _later()
    return beside(Path(__file__).with_name("claims.csv"), ours)


def _later() -> Ours:
    """int8 at low latency, and PaLM beside Megatron in Tables D.2 to D.4."""
    half, whole = decode(weights="int8", batch=4, chips=32), decode(weights="bf16", batch=4)
    printed, ours = _largest_lead()
    return {
        "int8_cost": (
            f"{2.0 * whole / half:.2f} times, {half * 1e3:.1f} ms against {whole * 1e3:.1f}",
            half <= whole and is_close(2.0 * whole / half, 2.0, 0.25),
        ),
        "megatron": (
            f"{ours:.0f} points ({printed:.0f} between the printed cells)",
            abs(ours - 10.0) <= 2.5,
        ),
    }


def _largest_lead() -> tuple[float, float]:
    """Most points of MFU by which PaLM leads at Megatron's times, printed and ours.

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
    return most[0], most[1]


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
    return {
        "cache": (f"{cache / 1e12:.2f} TB", is_close(cache, 3e12, 0.02)),
        "padding": (f"{added / 1e9:.1f} B", is_close(added, 18e9, 0.02)),
        "padding_mfu": (f"{added / padded:.1%}", is_close(added / padded, 0.03, 0.15)),
    }


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
    return {
        "best_x": (
            f"{exact[0]:.2f}; two inward matrices {exact[1]:.2f}; model {best}, x = 4 {loss:+.1%}",
            is_close(exact[0], 4.0, 1e-6) and loss < 0.05,
        ),
        "gathered": (
            f"gathered from {first:,} tokens (N* = {ideal:.1f}): "
            + ", ".join(dict.fromkeys(tokens.values())),
            tokens[2048] == "ws_2d" and tokens[512 * 2048] == "wg_xyz",
        ),
    }


def _attention_share(batch: float, context: float) -> float:
    """Share of a decode step that goes when the model has no attention core and cache."""
    full = decode(batch=batch, context=context)
    return 1.0 - decode(batch=batch, context=0.0) / full


def _attention() -> Ours:
    shares = (_attention_share(512, 8192.0), _attention_share(128, 32768.0))
    agrees = is_close(shares[0], 0.08, 0.25) and is_close(shares[1], 0.31, 0.25)
    return {"attention": (f"{shares[0]:.0%} and {shares[1]:.0%}", agrees)}


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
    return {
        "serial": (f"{slower:+.1%}", is_close(1 + slower, 1.14, 0.05)),
        "serial_prefill": (f"{both[0] / both[1] - 1.0:+.1%}", both[0] / both[1] - 1.0 < slower),
        "einsum": (
            f"1 to {off / on:.2f} times",
            off / on >= 1.4,
            "overlap alone gains at most what the network takes; the paper's 1.4 counts "
            "faster kernels, too. The fit, of programs that had the looped einsum, has an "
            f"overlap of {caps['hidden_network']:g} and counts what hid as network_cap",
        ),
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
        "chat": (
            f"{reply:.2f} s: {chat * 1e3:.0f} ms and 64 of {batch64 * 1e3:.1f} ms",
            is_close(reply, 1.9, 0.1),
        ),
        "efficiency": (f"{mfu:.0%}", is_close(mfu, 0.73, 0.1)),
        "prefill_cost": (f"{1 / ratio:.2f} times", is_close(1 / ratio, 2.0, 0.25)),
        "server": (
            f"{server:.2f} + {pair - server:.2f} s; one decoder keeps "
            f"{64 * server / (pair - server):.1f} prefill servers busy",
            is_close(pair, 2.11, 0.1),
        ),
    }


def least_latency(name: str, chips: int, weights: str = "bf16") -> float:
    """Seconds of the fastest decode step on these chips, at batches of 4 to 64."""
    return min(decode(name, weights=weights, batch=b, chips=chips) for b in (4, 8, 16, 32, 64))


def _latency() -> Ours:
    times = {weights: decode(weights=weights, batch=64) for weights in ("int8", "bf16")}
    ratio = decode(batch=512) / least_latency(PALM, CHIPS)
    chips = {"PaLM_8B": 8, "PaLM_62B": 16, PALM: 64}
    printed = {"PaLM_8B": 4e-3, "PaLM_62B": 13e-3, PALM: 32e-3}
    ours = {name: least_latency(name, n) for name, n in chips.items()}
    shown = ", ".join(f"{t * 1e3:.1f}" for t in ours.values())
    slope = math.log(ours[PALM] / ours["PaLM_8B"]) / math.log(SIZES[PALM] / SIZES["PaLM_8B"])
    agrees = all(is_close(ours[n], t, 0.25) for n, t in printed.items())
    beyond, small = least_latency(PALM, 256), least_latency(PALM, CHIPS, "int8")
    why = (
        "bf16, since int8 at batch 64 is below 32 ms already (ours at batch 4 in int8: "
        f"{small * 1e3:.1f} ms); chips 64 and 16 as in Tables 2 and 3, those of 8B are lost, 8 are "
        f"taken. On 256 chips ours falls to {beyond * 1e3:.1f} ms for 540B, beyond the end of the "
        "paper's curve: all cells that calibrate are on 64 chips and bear nothing out there"
    )
    return {
        "int8": (f"{times['int8'] * 1e3:.1f} ms", is_close(times["int8"], 28.5e-3, 0.1)),
        "bf16": (f"{times['bf16'] * 1e3:.1f} ms", is_close(times["bf16"], 36.9e-3, 0.1)),
        "least_latency": (f"{ratio:.1f} times", is_close(ratio, 3.0, 0.25)),
        "by_size": (f"{shown} ms; exponent {slope:.2f}", agrees, why),
    }
