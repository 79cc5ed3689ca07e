"""`infer-jax calibrate` on runs that hold every request: fitted through the scheduler's replay.

The servers are those of the referee, a scheduler in plain Python, with the estimator's own passes.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import infer_jax as ij
from infer_jax.estimators.serving import Deployment, Serving, shape
from infer_jax.estimators.serving.price import PassLaw, pass_time
from infer_jax.replays import reference
from tests.cli.running import as_command, run

SERVER = ("llama-3.1-8b", "h100_sxm")
TRUE = {"decode_factor": 1.25, "first_factor": 0.7, "vllm.eager": 3.5}
SIZES: dict[str, Any] = {"max_num_seqs": 8, "max_num_batched_tokens": 512}
COUNT, USED = 60, 48  # requests, and those that are fitted
NOISE = 0.05  # of a pass, in log
CLOSED = 6  # requests in flight


def served(concurrency: int | None = None, seed: int = 1) -> list[reference.ReferenceRequest]:
    """Requests of a server of ``TRUE`` coefficients, whose passes scatter."""
    model, system = ij.load_model(SERVER[0]), ij.load_system(SERVER[1])
    estimator = ij.make("serving", system.coefficients)
    assert isinstance(estimator, Serving)
    plan = Deployment.of(tp=1, chunk=512, max_sequences=8, block=16)
    table = PassLaw.of_context(
        estimator.fitted(TRUE).context(shape(model.architecture), system.hardware, plan)
    )
    step, random = jax.jit(partial(pass_time, table)), np.random.default_rng(seed)

    def seconds(*batch: float) -> float:
        return float(step(*map(float, batch))) * np.exp(NOISE * random.normal())

    gaps = np.zeros(COUNT) if concurrency else random.exponential(0.1, COUNT)
    sizes = (random.integers(low, high, COUNT) for low, high in ((300, 3000), (1, 120)))
    lengths = zip(*(x.tolist() for x in (np.cumsum(gaps), *sizes)), strict=True)
    engine = reference.Vllm(512, 8, 20000, overlap=True)
    return reference.serve_plainly(seconds, engine, lengths, concurrency)


def bundle(folder: Path, seed: int = 1) -> Path:
    """A folder of one run, as LLMServingSim's benchmark writes it."""
    folder.mkdir()
    lines = [
        {"input_toks": r.prompt, "output_toks": r.output, "arrival_time": 1e9 + r.arrival,
         "queued_ts": 50 + r.arrival, "first_token_ts": 50 + r.first, "last_token_ts": 50 + r.last}
        for r in served(seed=seed)
    ]  # fmt: skip
    (folder / "requests.jsonl").write_text("\n".join(map(json.dumps, lines)))
    kwargs = {"tensor_parallel_size": 1, "data_parallel_size": 1, **SIZES}
    meta = {"model": "meta-llama/Llama-3.1-8B", "vllm_version": "0.19.0", "num_requests": COUNT,
            "engine_kwargs": kwargs}  # fmt: skip
    (folder / "meta.json").write_text(json.dumps(meta))
    (folder / "timeseries.csv").write_text("t,running\n1.0,9\n")
    return folder


def detailed(path: Path, front: float) -> Path:
    """A closed loop as `vllm bench serve --save-result --save-detailed` writes it."""
    done = served(CLOSED, seed=2)
    lists = {
        "input_lens": [r.prompt for r in done],
        "output_lens": [r.output for r in done],
        "start_times": [7.0 + r.arrival for r in done],
        "ttfts": [front + r.first - r.arrival for r in done],
        "itls": [[(r.last - r.first) / max(r.output - 1, 1)] * (r.output - 1) for r in done],
    }
    means = {"mean_ttft_ms": 1e3 * np.mean(lists["ttfts"]), "mean_tpot_ms": 20.0}
    totals = {"total_input_tokens": sum(lists["input_lens"])}
    totals |= {"total_output_tokens": sum(lists["output_lens"]), "request_rate": "inf"}
    facts = {"backend": "vllm", "model_id": "m", "num_prompts": COUNT, "completed": COUNT}
    path.write_text(json.dumps(facts | {"max_concurrency": CLOSED} | totals | means | lists))
    return path


@pytest.fixture(scope="module")
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def fitted(x64, tmp_path_factory):
    folder = bundle(tmp_path_factory.mktemp("runs") / "bench")
    out = folder.parent / "mine.toml"
    return folder, out, ij.calibrate(*SERVER, folder, parameter=list(TRUE), prompts=USED, out=out)


def test_coefficients_come_back_within_their_intervals(fitted):
    *_, fit = fitted
    ends = fit.server.interval(0.95)
    for name, value in TRUE.items():
        assert ends[name][0] < value < ends[name][1], (name, ends[name])
    for one in fit.server.identified.parameters:
        assert one.verdict == "identified"
    requests = as_command(fit)[0]["requests"]
    assert (requests["count"], requests["fitted"]) == (COUNT - USED, False)
    for time in ("ttft_ms", "tpot_ms", "latency_ms"):
        measured, before, after = (
            requests[time][k]["mean"] for k in ("measured", "before", "after")
        )
        assert abs(before / measured - 1) > 0.15 and abs(after / measured - 1) < 0.05


@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say(x64, tmp_path):
    """Ten servers: 28 of 30 within those of 80 %, all within those of 95 %."""
    inside = {0.8: 0, 0.95: 0}
    for seed in range(10):
        fit = ij.calibrate(*SERVER, bundle(tmp_path / str(seed), seed), parameter=list(TRUE))
        for share in inside:
            ends = fit.server.interval(share)
            inside[share] += sum(ends[n][0] < x < ends[n][1] for n, x in TRUE.items())
    assert inside[0.8] >= 21 and inside[0.95] >= 27


def test_a_replay_with_the_profile_is_near_the_server(fitted):
    folder, out, fit = fitted
    trace = folder / "requests.jsonl"
    replayed = ij.replay(SERVER[0], out, tp=1, trace=trace, **SIZES)
    run, front = replayed.runs[0], replayed.server.front
    assert fit.server.requests
    tpot, ttft = fit.server.requests.predictions["after"]
    # the profile has four digits of each coefficient
    np.testing.assert_allclose(run.ttft - front, ttft, rtol=1e-2)
    np.testing.assert_allclose(run.tpot, tpot, rtol=1e-2)


def test_a_closed_loop_is_fitted_beside_arrivals(fitted, tmp_path):
    folder, _, alone = fitted
    system = ij.load_system(SERVER[1])
    estimator = ij.make("serving", system.coefficients)
    assert isinstance(estimator, Serving)
    front = float(estimator.front_time(Deployment.of(tp=1)))
    files = [folder, detailed(tmp_path / "closed.json", front * TRUE["first_factor"])]
    both = ij.calibrate(*SERVER, files, tp=1, **SIZES, parameter=list(TRUE))
    ends, wider = both.server.interval(0.95), alone.server.interval(0.95)
    for name, value in TRUE.items():
        assert ends[name][0] < value < ends[name][1], (name, ends[name])
    assert np.ptp(np.log(ends["first_factor"])) < np.ptp(np.log(wider["first_factor"]))
    assert both.server.requests and both.server.requests.measured.shape == (2, 2 * COUNT)
    tpot, ttft = both.server.times.measured[:, 1]
    assert tpot == pytest.approx(both.server.times.predictions["after"][0, 1], rel=0.03)
    assert ttft == pytest.approx(both.server.times.predictions["after"][1, 1], rel=0.05)
    assert as_command(both)[0]["errors"]["after"]["ttft"]["worst_percent"] < 5


ARRIVED = {"input_toks": 10, "output_toks": 5, "arrival_time": 1.0, "queued_ts": 1.0}
ANSWERED = {"first_token_ts": 1.5, "last_token_ts": 2.0}
BAD = {
    "another count": ({"num_requests": 7}, ARRIVED | ANSWERED, "num_requests is 7"),
    "another model": ({"model": "Qwen/Qwen3-32B"}, ARRIVED | ANSWERED, "Qwen3-32B"),
    "drafts": (
        {"engine_kwargs": {"tensor_parallel_size": 1, "speculative_config": {"method": "eagle"}}},
        ARRIVED | ANSWERED,
        "drafts",
    ),
    "no such argument": (
        {"engine_kwargs": {"tensor_parallel_size": "many"}}, ARRIVED | ANSWERED, "number"
    ),
    "no table": ("[1, 2", ARRIVED | ANSWERED, "JSON"),
    "times that go back": ({}, ARRIVED | ANSWERED | {"last_token_ts": 1.2}, "three times"),
    "no answer": ({}, ARRIVED | {"first_token_ts": None, "last_token_ts": None}, "three times"),
    "too few": ({}, ARRIVED | ANSWERED, "at least 3"),
}  # fmt: skip


@pytest.mark.parametrize(("meta", "request_", "said"), BAD.values(), ids=BAD)
def test_a_bad_log_is_one_sentence(meta, request_, said, tmp_path):
    folder = tmp_path / "bench"
    folder.mkdir()
    (folder / "requests.jsonl").write_text(json.dumps(request_))
    right = {"vllm_version": "0.19.0", "num_requests": 1,
             "engine_kwargs": {"tensor_parallel_size": 1}}  # fmt: skip
    (folder / "meta.json").write_text(meta if isinstance(meta, str) else json.dumps(right | meta))
    ran = run("calibrate", str(folder), "--config", SERVER[0], "--hardware", SERVER[1],
              *(f"--parameter={x}" for x in TRUE), "--out", "mine.toml")  # fmt: skip
    assert (ran.code, ran.out) == (2, ""), ran
    assert said in ran.err and ran.err.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["bench"]
