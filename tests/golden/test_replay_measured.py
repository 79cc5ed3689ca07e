"""Replays of measured servers: within the goals, where the measured files are there.

The files are not ours to commit. What reads, replays and calibrates them is tried on a server of
our own besides, whose passes one after the other are those of the referee in plain Python.
"""

import json

import jax
import numpy as np
import pytest

from experiments._replay import open_loop, per_request
from experiments._replay.server import errors, served, shipped
from experiments._report import SHARED
from infer_jax.estimators.serving import shape
from infer_jax.estimators.serving.price import PassBatch, PassLaw, price as price_of
from infer_jax.replays import reference

MEASURED = SHARED / "data" / "measured"
BUNDLES = ("RTXPRO6000_Llama-3.1-8B", "RTXPRO6000_Qwen3-32B")
there = pytest.mark.skipif(not MEASURED.is_dir(), reason=f"no measured files in {MEASURED}")
PLANTED = {"blackwell.gemm_16": 0.6, "cache_read": 0.5, "vllm.layer_gap": 1.2e-4}
COUNT, SLOTS, BUDGET = 60, 12, 1024


@pytest.fixture(scope="module", autouse=True)
def _wide():
    with jax.enable_x64(True):
        yield


@there
@pytest.mark.parametrize("name", BUNDLES)
def test_shipped_coefficients_on_servers_that_they_were_not_fitted_to(name):
    """Measured: TPOT 8 and 7 %, TTFT 23 and 7 % too short in the mean, its p99 19 and 9 %."""
    b = per_request.read(MEASURED / "llmservingsim" / name)
    result = errors(served(b.server, shipped(b.system), b.requests), b.measured)
    # products in 16 bits are fitted to Blackwell's large chips, and too fast on this one
    assert abs(result["tpot mean"]) < 0.10 and abs(result["ttft mean"]) < 0.25
    assert abs(result["ttft p99"]) < 0.22 and abs(result["e2e p99"]) < 0.15


@there
@pytest.mark.slow
@pytest.mark.parametrize("name", BUNDLES)
def test_calibrated_on_100_requests_the_other_200_are_within_the_goals(name):
    replayed, measured, _ = per_request.calibrated(MEASURED / "llmservingsim" / name)
    result = errors(replayed, measured)
    for key, goal in per_request.GOALS.items():
        assert abs(result[key]) <= goal, key


@there
@pytest.mark.slow
def test_rows_at_given_rates_have_the_errors_that_the_docs_name():
    """The goals of TTFT are met; the one of latency, 12 %, is not: dense models are too slow."""
    medians = open_loop.run(MEASURED / "open_loop_h100.csv")
    shipped = medians["shipped"]
    for name in ("ttft_mean", "ttft_p99"):
        assert shipped[name] <= open_loop.GOALS[name]
    assert shipped["e2e_mean"] <= 0.165


def _written(folder, arrivals, sizes=None, times=None, given=(), **server):
    """A folder of requests, of 200 tokens in and 20 out and two seconds unless it is said."""
    where = {"hardware": "RTXPRO6000", "memory": 96, "model": "meta-llama/Llama-3.1-8B", **server}
    kwargs = {"max_num_batched_tokens": BUDGET, "max_num_seqs": SLOTS, "max_model_len": 4096}
    kwargs |= {"tensor_parallel_size": 1, **dict(given)}
    meta = {"model": where["model"], "vllm_version": "0.19.0", "engine_kwargs": kwargs}
    memory = {"mem_bw": 1597, "mem_size": where["memory"]}
    chip = {"hardware": where["hardware"], "npu_mem": memory}
    nodes = {"link_bw": 16, "nodes": [{"instances": [chip]}]}
    sizes, times = sizes or [(200, 20)] * len(arrivals), times or [(a + 1, a + 2) for a in arrivals]
    rows = [
        {"arrival_time": 1e3 + a, "input_toks": int(prompt), "output_toks": int(output),
         "queued_ts": a, "first_token_ts": float(first), "last_token_ts": float(last)}
        for a, (prompt, output), (first, last) in zip(arrivals, sizes, times, strict=True)
    ]  # fmt: skip
    folder.mkdir(exist_ok=True)
    (folder / "meta.json").write_text(json.dumps(meta))
    (folder / "config.json").write_text(json.dumps(nodes))
    (folder / "requests.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return folder


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A measured run of our own: the referee's passes, priced by other coefficients."""
    folder, random = tmp_path_factory.mktemp("planted"), np.random.default_rng(1)
    arrival = np.cumsum(random.exponential(0.2, COUNT))
    arrival -= arrival[0]
    prompt, output = random.integers(100, 2000, COUNT), random.integers(20, 80, COUNT)
    sizes = list(zip(prompt, output, strict=True))
    bundle = per_request.read(_written(folder, arrival, sizes))
    s, model = bundle.server, shipped(bundle.system).fitted(PLANTED)
    context = model.context(shape(s.arch), s.hardware, s.plan)
    law = PassLaw.of_context(context, table=False)
    price = jax.jit(lambda *batch: price_of(law, PassBatch(*batch)).time)
    engine = reference.Vllm(budget=BUDGET, slots=SLOTS, blocks=int(s.rules.blocks), overlap=True)
    done = reference.serve_plainly(
        lambda *batch: price(*map(float, batch)), engine, zip(arrival, prompt, output, strict=True)
    )
    return per_request.read(_written(folder, arrival, sizes, [(r.first, r.last) for r in done]))


def test_a_run_with_known_coefficients_is_replayed(planted):
    """The table of a pass is within a ten-thousandth of the pass, and nothing else differs."""
    model = shipped(planted.system)
    exact = served(planted.server, model.fitted(PLANTED), planted.requests)
    for ours, theirs in zip(exact, planted.measured, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-4)
    off = errors(served(planted.server, model, planted.requests), planted.measured)
    assert off["tpot mean"] < -0.1 and off["ttft mean"] < -0.1
