"""Two servers of which every request was measured: replayed, and calibrated on some of them.

A folder of LLMServingSim's bench/examples has ``meta.json`` (engine arguments), ``config.json``
(bandwidths of the machine), ``requests.jsonl`` (arrival, first and last token of every request).
"""

import json
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import Partial

from experiments._replay.server import Arguments, Server, Times, errors, served, server
from experiments._report import show, verdict
from infer_jax.calibration import Prior, fit
from infer_jax.catalog import load_model, load_system
from infer_jax.catalog.files import read_text
from infer_jax.catalog.foreign import json_of
from infer_jax.catalog.published import serving_coefficients
from infer_jax.catalog.traces import Trace, read_trace
from infer_jax.errors import InputError
from infer_jax.estimators.serving import Serving
from infer_jax.estimators.serving.mixed import mixed_time
from infer_jax.footprint import Overheads
from infer_jax.replays import Requests, replay, retrace
from infer_jax.specs import Hardware

SYSTEM = "rtx_pro_6000"
LONGEST = 40960  # tokens of max_model_len where it is null: the shorter of both models'
SEEN = 100  # requests to calibrate on: the first
# what is calibrated: seconds a token, a byte of context, a pass, and between two chips
STEP = ("blackwell.gemm_16", "cache_read", "vllm.layer_gap")
BETWEEN = "link"
SCALE = {"ttft": 0.1, "tpot": 0.02}  # an ordinary error of a request, in log
GOALS = {"tpot mean": 0.03, "ttft mean": 0.10, "ttft p99": 0.15, "tpot p99": 0.15, "e2e p99": 0.15}
SHOWN = ("ttft mean", "ttft p50", "ttft p90", "ttft p99", "tpot mean", "tpot p90", "tpot p99")
SHOWN += ("e2e mean", "e2e p99")


class Bundle(NamedTuple):
    """A measured run: its server, on the machine as measured and as its profile has it."""

    name: str
    server: Server
    profile: Hardware
    requests: Requests
    measured: Times


def read(folder: Path, overlap: bool = True) -> Bundle:
    """The run of a folder.

    Raises:
        InputError: a file that is missing or not understood.
    """
    meta, machine = (
        json_of(str(path), read_text(path))
        for path in (folder / "meta.json", folder / "config.json")
    )
    given, chip = meta["engine_kwargs"], machine["nodes"][0]["instances"][0]["npu_mem"]
    profile = load_system(SYSTEM).hardware
    hardware = profile.replace(
        chip=profile.chip.with_(memory_bandwidth=chip["mem_bw"] * 1e9),
        network=profile.network.with_(domain_bandwidth=machine["link_bw"] * 1e9),
    )
    arguments = Arguments(
        given["max_num_batched_tokens"], given["max_num_seqs"], given["max_model_len"] or LONGEST
    )
    tp, arch = given["tensor_parallel_size"], load_model(meta["model"]).architecture
    s = server(arch, hardware, tp, arguments, Overheads.vllm_0_18(), overlap)
    trace = read_trace(folder / "requests.jsonl")
    requests = Requests.of(trace.arrivals, trace.isl, trace.osl)
    return Bundle(folder.name, s, profile, requests, _measured(folder, trace))


def _measured(folder: Path, trace: Trace) -> Times:
    if not len(trace.first):
        raise InputError(str(folder), "requests.jsonl", "no times", "first and last tokens")
    each = (trace.last - trace.first) / np.maximum(trace.osl - 1, 1)
    return Times(trace.first - trace.arrivals, each, trace.last - trace.arrivals)


def shipped() -> Serving:
    """The fitted coefficients."""
    return Serving.vllm_engine().fitted(load_system(SYSTEM).coefficients["serving"])


def data_sheet() -> Serving:
    """Full rates of the data sheet, and no time of launches or of the host."""
    return Serving.roofline().fitted(load_system(SYSTEM).coefficients["serving"])


def calibrated(b: Bundle, seen: int = SEEN, steps: int = 30) -> tuple[Serving, dict[str, float]]:
    """Coefficients fitted to the first ``seen`` requests, and their values.

    All arrivals and lengths are replayed, times are compared of those requests alone. Values are
    those of the replay, slopes those of its path (``retrace``, arrivals in phase).
    """
    base, turns = shipped(), 2 ** int(np.ceil(np.log2(8 * int(b.requests.count))))
    width = 2 ** int(np.ceil(np.log2(float(b.server.rules.slots))))
    names = STEP + ((BETWEEN,) if float(b.server.plan.tp) > 1 else ())

    def predict(model: Serving) -> Array:
        table = b.server.table(model)
        held = Partial(mixed_time, jax.lax.stop_gradient(table))
        log = replay(held, b.server.rules, b.requests, width=width, turns=turns)
        log = retrace(Partial(mixed_time, table), log, b.requests, phase=True)
        return jnp.concatenate([log.ttft[:seen], log.tpot[:seen]])

    known = serving_coefficients()
    priors = {n: Prior(known[n].value, np.log(known[n].high / known[n].low) / 2.56) for n in names}
    found = fit(
        predict,
        np.concatenate([b.measured.ttft[:seen], b.measured.tpot[:seen]]),
        base,
        names,
        priors=priors,
        scale=np.repeat(list(SCALE.values()), seen),
        tolerance=1e-4,
        restarts=1,
        steps=steps,
    )
    return found.tree, found.values


def run(folders: list[Path], overlap: bool) -> tuple[bool, dict]:
    """Print the errors of every folder; whether the calibrated ones are within the goals."""
    rows, notes, headline, agrees = [], [], {}, True
    for folder in folders:
        b = read(folder, overlap)
        sold = b.server._replace(hardware=b.profile)
        fitted, values = calibrated(b)
        later = slice(SEEN, None)
        cases = (
            ("data sheet", b.server, data_sheet(), slice(None)),
            ("shipped, bandwidths of the profile", sold, shipped(), slice(None)),
            ("shipped", b.server, shipped(), slice(None)),
            (f"calibrated on {SEEN}: the others", b.server, fitted, later),
        )
        for name, s, model, which in cases:
            times = served(s, model, b.requests)
            found = errors(times.of(which), b.measured.of(which))
            rows.append([b.name, name, *(f"{100 * found[key]:+.1f}" for key in SHOWN), ""])
            headline[f"{b.name} {name}"] = {key: round(found[key], 4) for key in SHOWN}
        within = all(abs(found[key]) <= goal for key, goal in GOALS.items())
        rows[-1][-1] = verdict(within)
        agrees &= within
        notes.append(f"{b.name}: " + ", ".join(f"{n} {x:.4g}" for n, x in values.items()))
    goals = ", ".join(f"{key} {100 * goal:.0f} %" for key, goal in GOALS.items())
    show(
        "Replayed over measured, per cent of error",
        ("server", "coefficients", *SHOWN, "goals"),
        rows,
        "\n".join([*notes, f"Goals of the calibrated: {goals}."]),
    )
    return agrees, json.loads(json.dumps(headline))
