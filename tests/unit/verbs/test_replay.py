"""``ij.replay``: the scheduler of an engine for the requests of a trace or of a benchmark."""

import csv
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.tree_util import Partial

import infer_jax as ij
from infer_jax.errors import InputError
from infer_jax.estimators.serving import Deployment, Serving, shape
from infer_jax.estimators.serving.price import PassLaw, pass_time
from infer_jax.replays import Requests, serve, vllm
from infer_jax.replays.requests import drawn_arrivals, drawn_lengths
from infer_jax.replays.runs import BATCHES, statistic
from infer_jax.servers.instance import Sizes, replayed_instance
from tests.cli.running import as_command

TRACE = Path(__file__).parents[2] / "data" / "traces" / "llmservingsim_run.jsonl"
SERVER = ("llama-3.1-8b", "h100_sxm")
SIZES: dict[str, Any] = {"tp": 1, "max_num_seqs": 8, "max_num_batched_tokens": 512}
# few requests in all tests, so that they share a program
DRAWN: dict[str, Any] = {"prompts": 30, "isl": 400, "osl": 40, "range_ratio": 0.5, **SIZES}
DRAFTED: dict[str, Any] = {"drafts": 3, "acceptance": 0.7, "heads": True}
SPLIT: dict[str, Any] = {"prefill_tp": 1, "prefill_instances": 2, "decode_tp": 2}
OPEN, CLOSED = {"request_rate": 60, **DRAWN}, {"concurrency": 6, **DRAWN}


@pytest.fixture(scope="module")
def loaded():
    return ij.replay(*SERVER, **OPEN, ttft=0.2, tpot="20ms")


@pytest.fixture(scope="module")
def flying():
    return ij.replay(*SERVER, **CLOSED)


def test_times_are_those_of_the_scheduler_with_the_estimators_own_pass(loaded):
    model, system = ij.load_model(SERVER[0]), ij.load_system(SERVER[1])
    run = loaded.runs[0]
    with jax.enable_x64(True):
        plan = Deployment.of(tp=1, chunk=512, max_sequences=8, block=16)
        estimator = ij.make("serving", system.coefficients)
        assert isinstance(estimator, Serving)
        c = estimator.context(shape(model.architecture), system.hardware, plan)
        held = ij.memory(*SERVER, tp=1, max_num_seqs=8, max_num_batched_tokens=512).memory
        rules = vllm(blocks=float(held.blocks), budget=512, slots=8)
        front = float(estimator.front_time(plan))
        requests = Requests.of(run.arrival + front, run.prompt, run.output)
        log = serve(Partial(_direct, c), rules, requests)
        there = np.asarray(log.there)
        first, last = (np.asarray(x)[there] for x in (log.first, log.last))
    # the table of the way through the layers is within 1e-4
    np.testing.assert_allclose(run.first - run.arrival, first - run.arrival, rtol=2e-4)
    np.testing.assert_allclose(run.last, last, rtol=2e-4)
    ttft = 1e3 * (first - run.arrival)
    assert loaded.to_dict()["ttft_ms"]["p90"] == pytest.approx(np.percentile(ttft, 90), rel=2e-4)


def _direct(c, *batch):
    return pass_time(PassLaw.of_context(c, table=False), *batch)


@pytest.mark.parametrize(("engine", "block"), [("vllm", 16), ("sglang", 1), ("trtllm", 32)])
def test_the_cache_is_that_of_the_account_of_memory(engine, block):
    model, system = ij.load_model("gpt-oss-120b"), ij.load_system(SERVER[1])
    estimator = ij.make(f"serving.{engine}", system.coefficients)
    assert isinstance(estimator, Serving)
    with jax.enable_x64(True):
        built = replayed_instance(
            estimator, model.architecture, system.hardware, {"tp": 1}, Sizes(), 4608
        )
    # vLLM prints tokens of requests of 4,608 that each hold all of a pass in every other layer,
    # whose window is of 128 tokens; while they decode they hold a window there
    held = ij.memory("gpt-oss-120b", SERVER[1], tp=1, max_model_len=4608, block_size=block).memory
    blocks, window = 4608 / block, 128 / block + 1
    expected = float(held.tokens) * (blocks + blocks + 1) / (blocks + window)
    assert built.tokens == pytest.approx(expected, abs=128)
    assert float(built.rules.blocks) * block == built.tokens


@pytest.mark.parametrize(("load", "measured"), [(64, (31.45, 31.83)), (128, (62.86, 62.86))])
def test_a_cache_with_windows_is_as_full_as_that_of_a_server(load, measured):
    """Most of the cache of gpt-oss-120b on one H200, vLLM 0.22, and no request preempted.

    Of 8,192 tokens in and 1,024 out, drawn from 80 % of these to all (GloriaXimingLu/
    inferencex-profiling at 237385b, kv_max of 21 runs of 64 in flight, and of one of 128).
    """
    found = ij.replay(
        "gpt-oss-120b", "h200_sxm", tp=1, concurrency=load, prompts=2 * load, isl=7373, osl=922
    ).to_dict()
    least, most = measured
    assert 0.97 * least < found["cache_peak_percent"] < 1.03 * most
    assert found["preemptions"] == 0


def test_goodput_counts_the_requests_within_all_limits(loaded):
    table = loaded.to_pandas()
    good = (table.ttft_ms <= 200) & (table.tpot_ms <= 20)
    assert 0 < good.sum() < len(table)
    assert "requests/s within TTFT 200 ms and TPOT 20 ms" in as_command(loaded)[1]
    assert loaded.goodput * loaded.runs[0].duration == pytest.approx(good.sum())
    assert loaded.request_throughput * loaded.runs[0].duration == pytest.approx(30)
    assert loaded.throughput == pytest.approx(table.osl_tokens.sum() / loaded.runs[0].duration)


def test_a_closed_loop_keeps_its_requests_in_flight(flying):
    run = flying.runs[0]
    # Little's law over the whole run, until the last requests are fewer
    flight = run.latency.sum() / run.duration
    assert 0.85 * 6 < flight <= 6 * (1 + 1e-9) + 30 * flying.server.front / run.duration
    assert flying.to_dict()["running_peak"] == 6
    assert np.sort(run.arrival)[5] == -flying.server.front < np.sort(run.arrival)[6]


def test_a_cap_holds_requests_back_and_times_begin_when_they_are_sent(loaded):
    capped = ij.replay(*SERVER, **OPEN, concurrency=4)
    run, free = capped.runs[0], loaded.runs[0]
    front = capped.server.front
    sent, left = run.arrival + front, np.sort(run.last)
    flight = [(sent <= at).sum() - (left <= at).sum() for at in sent]
    assert max(flight) == 4 and loaded.to_dict()["running_peak"] > 4
    # each as it was drawn, or the moment that one of the four before it ended
    drawn = free.arrival + front
    expected = np.maximum(drawn, np.concatenate([np.zeros(4), left[:-4]]))
    np.testing.assert_allclose(sent, expected, rtol=1e-12)
    assert (sent > drawn).any() and (sent == drawn).any()
    assert "at 60 requests/s, at most 4 in flight" in str(capped)
    wide = ij.replay(*SERVER, **OPEN, concurrency=30).runs[0]
    np.testing.assert_array_equal(wide.last, free.last)


def test_attention_ranks_have_queues_of_their_own_on_one_clock():
    mixture = ("gpt-oss-20b", "h100_sxm")
    both = ij.replay(*mixture, **OPEN, ep=2)
    run, fields = both.runs[0], both.to_dict()
    assert set(run.copy) == {0, 1} and len(run.series) == 2
    # passes of both end together, and a token of each request that decodes comes with each
    np.testing.assert_array_equal(run.series[0].time, run.series[1].time)
    assert run.gaps.count.sum() == (run.output - 1).sum()
    spent = (run.last - run.first).sum()
    assert (run.gaps.seconds * run.gaps.count).sum() == pytest.approx(spent, rel=1e-9)
    assert (fields["total_gpus"], fields["router"], fields["ep"]) == (2, "weighted_queue", 2)
    assert both.energy is not None and both.energy > 0
    assert "2 h100_sxm, 2 attention ranks" in str(both)
    for options, says in (
        ({"router": "by_prefix"}, "router is 'by_prefix'; allowed: one of round_robin"),
        ({"router": "cache_aware"}, "router is 'cache_aware'; allowed: with copies"),
        ({**DRAFTED, "heads": False, "draft": SERVER[0]}, "ep is .* 1 with draft"),
    ):
        with pytest.raises(InputError, match=says):
            ij.replay(*mixture, **{**OPEN, **options}, ep=2)


@pytest.mark.parametrize(("engine", "warmup"), [("vllm", 10), ("sglang", 0), ("trtllm", 0)])
def test_gaps_between_tokens_add_up_to_what_requests_take(engine, warmup):
    run = ij.replay(*SERVER, **OPEN, engine=engine, warmup=warmup).runs[0]
    assert not run.preempted.any()
    counted = run.counted
    assert counted.sum() == 30 - warmup
    assert run.gaps.count.sum() == (run.output - 1)[counted].sum()
    assert (run.gaps.seconds > 0).all()
    spent = (run.last - run.first)[counted].sum()
    assert (run.gaps.seconds * run.gaps.count).sum() == pytest.approx(spent, rel=1e-9)


def test_prompts_are_cut_and_passes_overlap_where_the_engine_is_asked_to():
    long = {**OPEN, "isl": 1000, "engine": "trtllm"}
    cut = ij.replay(*SERVER, **long, enable_chunked_prefill=True)
    assert (cut.runs[0].prompt > 512).any() and cut.runs[0].last.all()


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_who_arrives_during_a_pass_waits_for_the_next_one_that_is_already_together(engine):
    quiet = {**OPEN, "request_rate": 4, "engine": engine}
    overlapped, alone = (ij.replay(*SERVER, **quiet, async_scheduling=x) for x in (True, False))
    assert alone.times["ttft"].values["mean"] < overlapped.times["ttft"].values["mean"]


def test_seeds_are_runs_of_other_requests_and_warmup_is_not_counted(loaded):
    many = ij.replay(*SERVER, **OPEN, seeds=3, warmup=10)
    assert len(many.runs) == 3 and many.to_pandas().counted.sum() == 60
    np.testing.assert_array_equal(many.runs[0].prompt, loaded.runs[0].prompt)
    means = [run.ttft[10:].mean() for run in many.runs]
    assert many.times["ttft"].values["mean"] == pytest.approx(np.mean(means))
    assert many.times["ttft"].errors["mean"] == pytest.approx(np.std(means, ddof=1) / np.sqrt(3))
    assert len(set(means)) == 3


def test_a_burst_that_warms_up_is_not_in_what_comes_after_it(tmp_path):
    line = '{{"input_toks": 400, "output_toks": {}, "arrival_time_ns": {}}}\n'
    file, alone = tmp_path / "burst.jsonl", tmp_path / "alone.jsonl"
    file.write_text(line.format(300, 0) * 29 + line.format(40, 60 * 10**9))
    alone.write_text(line.format(40, 0))
    # a cache of some 2,000 tokens, so that the burst waits and is preempted
    after = ij.replay(*SERVER, trace=file, warmup=29, gpu_memory_utilization=0.209, **SIZES)
    quiet = ij.replay(*SERVER, trace=alone, gpu_memory_utilization=0.209, **SIZES)
    (series,) = after.runs[0].series
    assert after.runs[0].preempted.sum() > 0 and series.queue.max() > 10
    answered: dict[str, Any] = after.to_dict()
    expected = quiet.to_dict()
    assert (answered["preemptions"], answered["running_peak"]) == (0, 1)
    assert answered["queue_peak"] <= 1
    for name in ("itl_ms", "cache_peak_percent", "throughput_tokens_per_s"):
        assert answered[name] == pytest.approx(expected[name], rel=1e-9), name
    # a server that runs already rests while the request is on its way
    resting = series.power[np.argmax(np.diff(series.time)) + 1] * after.server.front
    assert after.energy == pytest.approx(quiet.energy + resting / 40, rel=1e-9)


def test_batches_say_how_sure_a_mean_is():
    # independent samples: the standard error is sigma / sqrt(n)
    random = np.random.default_rng(0)
    each = [statistic([random.normal(1.0, 0.5, 640)], sure=True).errors["mean"] for _ in range(40)]
    assert np.mean(each) == pytest.approx(0.5 / np.sqrt(640), rel=0.1)
    assert np.isnan(statistic([np.ones(2 * BATCHES - 1)], sure=True).errors["mean"])
    weighted = statistic([np.array([3.0, 1.0])], [np.array([1.0, 9.0])]).values
    assert (weighted["mean"], weighted["p50"], weighted["p99"]) == (pytest.approx(1.2), 1.0, 3.0)


def test_lengths_and_arrivals_are_drawn_as_benchmarks_draw_them():
    random = np.random.default_rng(1)
    sizes = drawn_lengths(random, 1000, 0.8, 20000)
    assert (sizes.min(), sizes.max()) == (800, 1000) and sizes.mean() == pytest.approx(
        900, rel=3e-3
    )
    gaps = np.diff(drawn_arrivals(random, 40000, 8.0, burstiness=0.25))
    # a gamma law of shape k: the squared coefficient of variation is 1 / k
    assert gaps.mean() == pytest.approx(1 / 8, rel=0.02)
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(4.0, rel=0.08)
    rising = drawn_arrivals(random, 20001, 30.0, ramp_up=10.0)
    assert 500 / (rising[500] - rising[0]) == pytest.approx(10.25, rel=0.15)
    assert 500 / (rising[-1] - rising[-501]) == pytest.approx(29.75, rel=0.15)


def test_a_run_of_a_server_is_shown_beside_its_replay():
    result = ij.replay(*SERVER, trace=TRACE, **SIZES)
    shown: dict[str, Any] = result.to_dict()
    # the shortest way to the queue, 0 s of request b, sets the engine's clock
    assert shown["measured_ttft_ms"]["mean"] == pytest.approx((100 + 100 + 50) / 3)
    assert shown["measured_tpot_ms"]["mean"] == pytest.approx(20)
    assert shown["measured_latency_ms"]["p50"] == pytest.approx(300)
    text = str(result)
    assert "  measured" in text and "  error" in text and "±" not in text
    faster = ij.replay(*SERVER, trace=TRACE, request_rate=10, **SIZES)
    assert not faster.measured
    np.testing.assert_allclose(faster.runs[0].arrival + faster.server.front, [0, 0.1, 0.2])


def test_a_trace_beyond_the_models_context_is_refused(tmp_path):
    file = tmp_path / "long.jsonl"
    file.write_text(TRACE.read_text().replace("200", "131072"))
    with pytest.raises(InputError, match=r"request 2 by arrival is .* the model's longest context"):
        ij.replay(*SERVER, trace=file, **SIZES)
    assert len(ij.replay(*SERVER, trace=file, prompts=1, **SIZES).to_pandas()) == 1


def test_requests_go_to_a_file_and_a_picture(loaded, tmp_path):
    loaded.write(tmp_path / "requests.csv")
    rows = list(csv.DictReader((tmp_path / "requests.csv").open()))
    assert len(rows) == 30
    assert float(rows[4]["ttft_ms"]) == pytest.approx(1e3 * loaded.runs[0].ttft[4])
    figure = loaded.plot(tmp_path / "replay.svg")
    over_time, *_ = figure.axes
    running = over_time.get_lines()[0].get_ydata()
    assert max(running) == loaded.to_dict()["running_peak"] and running[-1] == 0
    spread = figure.axes[1].get_lines()[0]
    np.testing.assert_allclose(spread.get_xdata(), 1e3 * np.sort(loaded.runs[0].ttft))
    limit = figure.axes[1].get_lines()[1]
    assert list(limit.get_xdata()) == [200, 200] and limit.get_label() == "limit, 200 ms"
    assert (tmp_path / "replay.svg").stat().st_size > 10_000


def test_energy_is_between_that_of_chips_at_rest_and_at_full_power(loaded):
    hardware, run = ij.load_system(SERVER[1]).hardware, loaded.runs[0]
    board = float(hardware.power)
    joules = loaded.energy * run.output.sum()
    end = run.series[0].time[-1]
    assert 80 / 700 * board * end < joules < board * end
    assert run.series[0].power.max() <= board


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"pp": 2}, "pp is '2'; allowed: 1: micro-batches"),
        ({"ep": 2}, "ep is '2'; allowed: 1: no experts"),
        ({"router": "round_robin"}, "router is 'round_robin'; allowed: with ep or dp of 2"),
        ({"router": "least", "dp": 2}, "router is 'least'; allowed: one of round_robin"),
        ({"router": "cache_aware", "dp": 2}, "is 'cache_aware'; allowed: with enable_prefix"),
        ({"estimator": "economics.planned"}, "estimator is 'economics.planned'; allowed: serving"),
        ({"engine": "sglang", "estimator": "serving.vllm"}, "engine is 'sglang'; allowed: vllm"),
        ({"engine": "dynamo"}, "engine is 'dynamo'; allowed: one of vllm, sglang, trtllm"),
        ({"request_rate": None}, "When do requests come"),
        ({"trace": TRACE}, "isl is 400; allowed: trace or lengths"),
        ({"seeds": 2, "range_ratio": 1, "request_rate": None, "concurrency": 4}, "seeds is 2"),
        ({"isl": 0}, "isl is 0; allowed: a whole number from 1"),
        ({"warmup": 30}, "warmup is 30; allowed: fewer than"),
        ({"dp": 31}, "dp is '31'"),
        ({"max_num_seqs": 513}, "max_num_seqs is 513; allowed: at most max_num_batched_tokens"),
        ({"isl": 10**6}, "isl is '1000000'; allowed: with osl 40 at most 131072 tokens"),
        ({"isl": 120_000, "gpu_memory_utilization": 0.33}, r"request \d+ is .* blocks hold alone"),
        ({"engine": "trtllm", "isl": 2000}, "max_num_batched_tokens is '512'; allowed: at least"),
        ({"engine": "sglang", "enable_chunked_prefill": True}, "is 'yes'; .* vllm or trtllm"),
        ({"gpu_memory_utilization": 0.1}, "tp is '1'; allowed: more GPUs"),
        ({"out": "replay.doc"}, "out is 'replay.doc'"),
        ({"ramp_up": 1.0, "request_rate": None, "concurrency": 4}, "ramp_up is '1'"),
        ({"num_prefixes": 2}, "num_prefixes is 2; allowed: with prefix_len"),
        ({**DRAFTED, "acceptance": None, "heads": False}, "How many drafts are accepted"),
        ({**DRAFTED, "drafts": None}, "How many tokens does a pass draft"),
        ({**DRAFTED, "drafts": 6}, "drafts is '?6'?; allowed: at most 5"),
        ({**DRAFTED, "max_num_seqs": 129}, "max_num_seqs is 129; allowed: at most 128"),
        ({"prefill_tp": 1, "tp": None}, "decode_tp"),
        ({**SPLIT, "tp": 1}, "tp is '?1'?; allowed: without prefill_tp"),
        ({**SPLIT, "tp": None, "engine": "sglang"}, "engine is 'sglang'; allowed: vllm"),
        ({**SPLIT, "tp": None, "decode_tp": 3}, "tp"),
    ],
)
def test_what_is_not_replayed_is_refused_in_one_sentence(changed, says):
    with pytest.raises(InputError, match=says) as wrong:
        ij.replay(*SERVER, **{**OPEN, **changed})
    assert "\n" not in str(wrong.value) and "--" not in str(wrong.value)
