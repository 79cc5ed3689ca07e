"""Two servers of which every request was measured: replayed, and calibrated on some of them.

A folder of LLMServingSim's bench/examples has ``meta.json`` (engine arguments), ``config.json``
(bandwidths of the machine), ``requests.jsonl`` (arrival, first and last token of every request).
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

import infer_jax as ij
from experiments._replay.server import Server, Times, errors, served, shipped
from experiments._report import show, verdict
from infer_jax.catalog import load_model, load_system
from infer_jax.catalog.files import read_text
from infer_jax.catalog.foreign import json_of
from infer_jax.catalog.traces import Trace, read_trace
from infer_jax.errors import InputError
from infer_jax.estimators.serving import Serving
from infer_jax.footprint import Overheads
from infer_jax.replays import Requests
from infer_jax.specs import Hardware
from infer_jax.verbs.calibrate_result import CalibrateResult

SYSTEM = "rtx_pro_6000"
MAX_MODEL_LEN = 40960  # tokens of max_model_len where it is null: the shorter of both models'
FITTED = 100  # requests to calibrate on: the first
GOALS = {"tpot mean": 0.03, "ttft mean": 0.10, "ttft p99": 0.15, "tpot p99": 0.15, "e2e p99": 0.15}
PRINTED = ("ttft mean", "ttft p50", "ttft p90", "ttft p99", "tpot mean", "tpot p90", "tpot p99")
PRINTED += ("e2e mean", "e2e p99")


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
    server = Server.of(
        load_model(meta["model"]).architecture,
        hardware,
        tp=given["tensor_parallel_size"],
        budget=given["max_num_batched_tokens"],
        slots=given["max_num_seqs"],
        context=given["max_model_len"] or MAX_MODEL_LEN,
        overheads=Overheads.vllm_0_18(),
        overlap=overlap,
    )
    trace = read_trace(folder / "requests.jsonl")
    requests = Requests.of(trace.arrivals, trace.isl, trace.osl)
    return Bundle(folder.name, server, profile, requests, _measured(folder, trace))


def _measured(folder: Path, trace: Trace) -> Times:
    if not len(trace.first):
        raise InputError(str(folder), "requests.jsonl", "no times", "first and last tokens")
    each = (trace.last - trace.first) / np.maximum(trace.osl - 1, 1)
    return Times(trace.first - trace.arrivals, each, trace.last - trace.arrivals)


def data_sheet() -> Serving:
    """Full rates of the data sheet, and no time of launches or of the host."""
    return Serving.roofline().fitted(load_system(SYSTEM).coefficients["serving"])


def calibrated(folder: Path, fitted: int = FITTED) -> tuple[Times, Times, CalibrateResult]:
    """Requests that were not fitted, as replayed and as measured, and the fit to the others.

    They are what ``calibrate`` and then ``replay`` answer, from the data sheet's machine. All
    arrivals and lengths are replayed; times of the first ``fitted`` requests are fitted, and those
    of the others are what the profile is then tried on.
    """
    meta = json_of(str(folder), read_text(folder / "meta.json"))
    given, log = meta["engine_kwargs"], folder / "requests.jsonl"
    sizes = {name: given[name] for name in ("max_num_seqs", "max_num_batched_tokens")}
    with TemporaryDirectory() as place:
        profile = Path(place, "calibrated.toml")
        fit = ij.calibrate(meta["model"], SYSTEM, folder, prompts=fitted, out=profile)
        tp = given["tensor_parallel_size"]
        again = ij.replay(meta["model"], profile, tp=tp, trace=log, warmup=fitted, **sizes)
    run = again.runs[0]
    times = Times(run.ttft, run.tpot, run.latency)
    later = slice(fitted, None)
    return times.of(later), _measured(folder, read_trace(log)).of(later), fit


def run(folders: list[Path], overlap: bool) -> tuple[bool, dict]:
    """Print the errors of every folder; whether the calibrated ones are within the goals."""
    rows, notes, headline, agrees = [], [], {}, True
    for folder in folders:
        b = read(folder, overlap)
        model, sold = shipped(SYSTEM), b.server._replace(hardware=b.profile)
        later, measured_later, fit = calibrated(folder)
        cases = (
            ("data sheet", served(b.server, data_sheet(), b.requests), b.measured),
            ("shipped, bandwidths of the profile", served(sold, model, b.requests), b.measured),
            ("shipped", served(b.server, model, b.requests), b.measured),
            (f"calibrated on {FITTED}: the others", later, measured_later),
        )
        for name, replayed, measured in cases:
            found = errors(replayed, measured)
            rows.append([b.name, name, *(f"{100 * found[key]:+.1f}" for key in PRINTED), ""])
            headline[f"{b.name} {name}"] = {key: round(found[key], 4) for key in PRINTED}
        within = all(abs(found[key]) <= goal for key, goal in GOALS.items())
        rows[-1][-1] = verdict(within)
        agrees &= within
        ends = fit.intervals
        words = ", ".join(
            f"{n} {x:.4g} ({ends[n][0]:.4g} to {ends[n][1]:.4g})"
            for n, x in fit.server.fit.values.items()
        )
        notes.append(f"{b.name}, fitted with 80 % intervals: {words}.")
    goals = ", ".join(f"{key} {100 * goal:.0f} %" for key, goal in GOALS.items())
    show(
        "Replayed over measured, per cent of error",
        ("server", "coefficients", *PRINTED, "goals"),
        rows,
        "\n".join([*notes, f"Goals of the calibrated: {goals}."]),
    )
    return agrees, json.loads(json.dumps(headline))
