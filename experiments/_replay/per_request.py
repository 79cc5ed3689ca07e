"""Two servers of which every request was measured: replayed, and calibrated on some of them.

A folder of LLMServingSim's bench/examples has ``meta.json`` (engine arguments), ``config.json``
(bandwidths of the machine), ``requests.jsonl`` (arrival, first and last token of every request).
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

import infer_jax as ij
from experiments._replay import server as replay
from experiments._replay.server import Server, Times, errors, served, shipped
from experiments._report import show, verdict
from infer_jax.catalog import System, load_model
from infer_jax.catalog.files import read_text
from infer_jax.catalog.foreign import json_of
from infer_jax.catalog.traces import Trace, read_trace
from infer_jax.errors import InputError
from infer_jax.estimators.serving import Serving
from infer_jax.replays import Requests
from infer_jax.specs import Architecture, Experts
from infer_jax.verbs.calibrate_result import CalibrateResult

MEMORY = 0.15  # relative difference of a chip's memory from its profile's, which is of 10^9 bytes
# words of engine arguments, and the format that they mean; arguments that are not modelled here
DTYPES = dict.fromkeys(("auto", "bfloat16", "float16", "half"))
CACHES = {"auto": None, "bfloat16": "bf16", "fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"}
ABSENT = ("quantization", "speculative_config", "cpu_offload_gb", "kv_transfer_config")
FITTED = 100  # requests to calibrate on: the first
GOALS = {"tpot mean": 0.03, "ttft mean": 0.10, "ttft p99": 0.15, "tpot p99": 0.15, "e2e p99": 0.15}
PRINTED = ("ttft mean", "ttft p50", "ttft p90", "ttft p99", "tpot mean", "tpot p90", "tpot p99")
PRINTED += ("e2e mean", "e2e p99")


class NotReplayedError(InputError):
    """A server that is not one of those that are replayed here."""


class Bundle(NamedTuple):
    """A measured run: its server on the machine as measured, and the profile of that machine."""

    name: str
    server: Server
    system: System
    requests: Requests
    measured: Times
    date: str


def read(folder: Path) -> Bundle:
    """The run of a folder: model, machine, layout and formats are those of its files.

    Raises:
        InputError: a file that is missing or not understood.
        NotReplayedError: a model or machine that is not bundled, or another kind of server.
    """
    meta, machine = (
        json_of(str(path), read_text(path))
        for path in (folder / "meta.json", folder / "config.json")
    )
    try:
        server, system = _server(meta, machine)
    except (LookupError, TypeError, ValueError) as problem:
        allowed = "a server that is replayed"
        raise NotReplayedError(str(folder), "server", str(problem), allowed) from None
    trace = read_trace(folder / "requests.jsonl")
    requests = Requests.of(trace.arrivals, trace.isl, trace.osl)
    date = str(meta.get("started_at", ""))[:10]
    return Bundle(folder.name, server, system, requests, _measured(folder, trace), date)


def _server(meta: dict, machine: dict) -> tuple[Server, System]:
    """The server of engine arguments on a machine, and the profile of its chips.

    Raises:
        ValueError: what is said to be there and not replayed.
    """
    given, (node,) = meta["engine_kwargs"], machine["nodes"]
    (instance,) = node["instances"]
    system, chip = replay.profile(instance["hardware"]), instance["npu_mem"]
    stated, own = chip["mem_size"] * 1e9, float(system.hardware.chip.memory)
    if abs(stated / own - 1.0) > MEMORY:
        raise ValueError(f"{chip['mem_size']} GB, where {system.name} has {own / 1e9:g}")
    if strange := [name for name in ABSENT if given.get(name)]:
        raise ValueError(f"{strange[0]} is not replayed")
    tp, copies = given["tensor_parallel_size"], given.get("data_parallel_size") or 1
    if given.get("pipeline_parallel_size", 1) != 1 or instance.get("pd_type"):
        raise ValueError("stages and separate pools are not replayed")
    if instance.get("num_npus", tp * copies) != tp * copies:
        raise ValueError("num_npus is not tensor times data parallel")
    arch = _architecture(meta["model"], given)
    mixture = any(isinstance(block.feedforward, Experts) for block in arch.blocks)
    if mixture and copies > 1:
        raise ValueError("experts that attention groups share are not replayed")
    hardware = system.hardware.replace(
        chip=system.hardware.chip.with_(memory_bandwidth=chip["mem_bw"] * 1e9),
        network=system.hardware.network.with_(domain_bandwidth=machine["link_bw"] * 1e9),
    )
    utilization = given.get("gpu_memory_utilization") or chip.get("mem_util")
    server = Server.of(
        arch,
        hardware,
        tp=tp,
        ep=tp if mixture and given.get("enable_expert_parallel") else 1,
        copies=copies,
        budget=given["max_num_batched_tokens"],
        slots=given["max_num_seqs"],
        context=given.get("max_model_len") or float(arch.max_positions),
        overheads=replay.overheads(meta["vllm_version"]),
        **({"utilization": utilization} if utilization else {}),
    )
    return server, system


def _architecture(name: str, given: dict) -> Architecture:
    """A model in the formats of its name, unless engine arguments say others."""
    for key, known in (("dtype", DTYPES), ("kv_cache_dtype", CACHES)):
        if given.get(key, "auto") not in known:
            raise ValueError(f"{key} {given[key]!r} is not known here")
    return load_model(name, kv_dtype=CACHES[given.get("kv_cache_dtype", "auto")]).architecture


def _measured(folder: Path, trace: Trace) -> Times:
    if not len(trace.first):
        raise InputError(str(folder), "requests.jsonl", "no times", "first and last tokens")
    each = (trace.last - trace.first) / np.maximum(trace.osl - 1, 1)
    return Times(trace.first - trace.arrivals, each, trace.last - trace.arrivals)


def calibrated(folder: Path, fitted: int = FITTED) -> tuple[Times, Times, CalibrateResult]:
    """Requests that were not fitted, as replayed and as measured, and the fit to the others.

    They are what ``calibrate`` and then ``replay`` answer, from the data sheet's machine. All
    arrivals and lengths are replayed; times of the first ``fitted`` requests are fitted, and those
    of the others are what the profile is then tried on.
    """
    meta = json_of(str(folder), read_text(folder / "meta.json"))
    given, log, system = meta["engine_kwargs"], folder / "requests.jsonl", read(folder).system.name
    sizes = {name: given[name] for name in ("max_num_seqs", "max_num_batched_tokens")}
    with TemporaryDirectory() as place:
        profile = Path(place, "calibrated.toml")
        fit = ij.calibrate(meta["model"], system, folder, prompts=fitted, out=profile)
        tp = given["tensor_parallel_size"]
        again = ij.replay(meta["model"], profile, tp=tp, trace=log, warmup=fitted, **sizes)
    run = again.runs[0]
    times = Times(run.ttft, run.tpot, run.latency)
    later = slice(fitted, None)
    return times.of(later), _measured(folder, read_trace(log)).of(later), fit


def run(folders: list[Path]) -> dict[str, Any]:
    """Print the errors of every folder, which agree where the calibrated are within the goals."""
    rows, notes, headline, agrees = [], [], {}, True
    for folder in folders:
        b = read(folder)
        model, sold = shipped(b.system), b.server._replace(hardware=b.system.hardware)
        later, measured_later, fit = calibrated(folder)
        # full rates, and no time of launches or of the host
        sheet = Serving.roofline().fitted(b.system.coefficients.get("serving", {}))
        cases = (
            ("data sheet", served(b.server, sheet, b.requests), b.measured),
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
    return headline | {"agrees": agrees}
