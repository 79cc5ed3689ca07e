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
from tests.referee import schedulers

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
    """Measured: TPOT 2 and 7 %, TTFT 8 and 7 % too short in the mean, p99 5 and 8 %."""
    b = per_request.read(MEASURED / "llmservingsim" / name)
    result = errors(served(b.server, shipped(per_request.SYSTEM), b.requests), b.measured)
    assert abs(result["tpot mean"]) < 0.10 and abs(result["ttft mean"]) < 0.12
    assert abs(result["ttft p99"]) < 0.15 and abs(result["e2e p99"]) < 0.15


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
    _, medians = open_loop.run(MEASURED / "open_loop_h100.csv", overlap=True)
    shipped = medians["shipped"]
    for name in ("ttft_mean", "ttft_p99"):
        assert shipped[name] <= open_loop.GOALS[name]
    assert shipped["e2e_mean"] <= 0.165


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A measured run of our own: the referee's passes, priced by other coefficients."""
    folder = tmp_path_factory.mktemp("planted")
    given = {"max_num_batched_tokens": BUDGET, "max_num_seqs": SLOTS, "max_model_len": 4096}
    given |= {"tensor_parallel_size": 1}
    meta = {"model": "meta-llama/Llama-3.1-8B", "engine_kwargs": given}
    chip = {"npu_mem": {"mem_bw": 1597}}
    (folder / "meta.json").write_text(json.dumps(meta))
    (folder / "config.json").write_text(
        json.dumps({"link_bw": 16, "nodes": [{"instances": [chip]}]})
    )
    random = np.random.default_rng(1)
    arrival = np.cumsum(random.exponential(0.2, COUNT))
    arrival -= arrival[0]
    prompt, output = random.integers(100, 2000, COUNT), random.integers(20, 80, COUNT)
    rows = [
        {"arrival_time": 1e3 + a, "input_toks": int(p), "output_toks": int(o), "queued_ts": a,
         "first_token_ts": a + 1.0, "last_token_ts": a + 2.0}
        for a, p, o in zip(arrival, prompt, output, strict=True)
    ]  # fmt: skip

    def write():
        (folder / "requests.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))

    write()
    s = per_request.read(folder).server
    model = shipped(per_request.SYSTEM).fitted(PLANTED)
    context = model.context(shape(s.arch), s.hardware, s.plan)
    law = PassLaw.of_context(context, table=False)
    price = jax.jit(lambda *batch: price_of(law, PassBatch(*batch)).time)
    engine = schedulers.Vllm(budget=BUDGET, slots=SLOTS, blocks=int(s.rules.blocks), overlap=True)
    done = schedulers.serve(
        lambda *batch: price(*map(float, batch)), engine, zip(arrival, prompt, output, strict=True)
    )
    for row, request in zip(rows, done, strict=True):
        row |= {"first_token_ts": float(request.first), "last_token_ts": float(request.last)}
    write()
    return per_request.read(folder)


def test_a_run_with_known_coefficients_is_replayed(planted):
    """The table of a pass is within a ten-thousandth of the pass, and nothing else differs."""
    exact = served(planted.server, shipped(per_request.SYSTEM).fitted(PLANTED), planted.requests)
    for ours, theirs in zip(exact, planted.measured, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-4)
    off = errors(
        served(planted.server, shipped(per_request.SYSTEM), planted.requests), planted.measured
    )
    assert off["tpot mean"] < -0.1 and off["ttft mean"] < -0.1
