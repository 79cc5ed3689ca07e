"""Files of measured runs: each format is read into the same record, in SI units."""

import json
from pathlib import Path

import pytest

from infer_jax.catalog.measurements import Run, WorkerPool, read_kernels, read_runs
from infer_jax.catalog.models import model_named
from infer_jax.catalog.systems import system_named

DATA = Path(__file__).resolve().parents[2] / "data" / "measurements"


def one(name, **facts) -> Run:
    (run,) = read_runs(DATA / name, **facts)
    return run


# the same run of 8 requests at a time, as four clients would write it
@pytest.mark.parametrize(
    "name, source",
    [
        ("vllm.json", "vllm"),
        ("sglang.jsonl", "sglang"),
        ("aiperf.json", "aiperf"),
        ("aiperf.csv", "aiperf"),
    ],
)
def test_clients_agree_on_one_run(name, source):
    run = read_runs(DATA / name)[0]
    assert run.source == source
    assert (run.isl, run.osl, run.completed, run.failed) == (1000.0, 101.0, 64.0, 0.0)
    assert run.ttft.mean == pytest.approx(0.2) and run.ttft.std == pytest.approx(0.03)
    assert run.ttft.at(50.0) == pytest.approx(0.19) and run.ttft.at(99.0) == pytest.approx(0.31)
    assert run.tpot.mean == pytest.approx(0.010) and run.tpot.at(99.0) == pytest.approx(0.012)
    assert run.e2el.typical == pytest.approx(1.2)
    assert run.request_throughput == pytest.approx(64 / 9.6, rel=1e-3)
    assert run.output_throughput == pytest.approx(6464 / 9.6, rel=1e-3)
    if name != "aiperf.csv":  # a table of metrics tells no load
        assert run.concurrency == 8.0 and run.loop == "closed"


def test_vllm_tells_engine_model_and_drafts_but_no_chips():
    run = one("vllm.json")
    assert (run.engine, run.model) == ("vllm", "meta-llama/Llama-3.1-8B-Instruct")
    assert run.chips is None and run.tp is None
    assert run.speculation is not None
    assert run.speculation.acceptance_rate == pytest.approx(0.6)  # written in percent
    assert run.speculation.acceptance_length == 2.2
    assert run.speculation.per_position == (0.7, 0.5)


def test_sglang_closed_and_open_loops_and_the_servers_settings():
    closed, opened = read_runs(DATA / "sglang.jsonl")
    assert (closed.loop, opened.loop) == ("closed", "open")
    assert opened.request_rate == 4.0 and opened.concurrency is None
    assert (closed.line, opened.line) == (1, 2)
    assert (closed.model, closed.tp, closed.chips) == ("Qwen/Qwen3-32B", 4.0, 4.0)
    assert closed.speculation is None


def test_early_aiperf_nests_its_metrics(tmp_path):
    profile = json.loads((DATA / "aiperf.json").read_text())
    profile["ttft"] = profile.pop("time_to_first_token")
    (tmp_path / "profile.json").write_text(json.dumps({"records": profile}))
    (run,) = read_runs(tmp_path, concurrency=8)
    assert run.ttft.mean == pytest.approx(0.2) and run.e2el.mean == pytest.approx(1.2)


def test_requests_recorded_one_by_one_are_summed_up():
    run = one("aiperf_records.jsonl", concurrency=2)
    # (0.1 + 0.3 + 0.2) / 3, (10 + 10 + 20) / 3 ms, from the first start to the last end
    assert run.ttft.mean == pytest.approx(0.2)
    assert run.tpot.mean == pytest.approx(0.04 / 3)
    assert run.duration == pytest.approx(2.2 + 0.2 + 100 * 0.02 - 1.0)
    assert run.output_lens == (101.0, 51.0, 101.0)
    assert run.output_throughput == pytest.approx(253 / 3.4)


def test_inferencex_interactivity_power_and_data_parallel_attention():
    run = read_runs(DATA / "inferencex.json")[0]
    assert (run.unit, run.line) == ("entry", 1)
    assert (run.engine, run.system, run.precision) == ("trtllm", "h200_sxm", "fp8")
    assert (run.tp, run.dp, run.ep, run.chips) == (1.0, 8.0, 8.0, 8.0)
    assert run.tpot.mean == pytest.approx(1 / 200) and run.tpot.at(99.0) == pytest.approx(1 / 160)
    assert "interactivity" in run.tpot_from
    assert run.output_throughput == pytest.approx(200.0 * 8)
    assert (run.power, run.energy) == (650.0, 1e6)
    assert run.speculation is not None and run.speculation.method == "mtp"


def test_inferencex_disaggregated_pools():
    run = read_runs(DATA / "inferencex.json")[1]
    assert run.pools == (
        WorkerPool("prefill", workers=2.0, chips=8.0, tp=1.0, dp=4.0, ep=4.0),
        WorkerPool("decode", workers=1.0, chips=8.0, tp=8.0, dp=1.0, ep=8.0),
    )
    assert run.chips == 16.0 and run.tp is None
    assert run.power is None and "power_valid" in run.notes[-1]


def test_inferencex_agentic_scenarios_tell_no_lengths(tmp_path):
    entry = json.loads((DATA / "inferencex.json").read_text())[0]
    entry |= {"scenario_type": "agentic", "isl": None, "osl": None, "kv_offloading": "on"}
    (tmp_path / "agg.json").write_text(json.dumps([entry]))
    (run,) = read_runs(tmp_path)
    assert run.isl is None and run.notes == ("scenario agentic, KV offloading on",)


def test_inferencex_client_writes_seconds(tmp_path):
    sample = json.loads((DATA / "vllm.json").read_text())
    for key in [key for key in sample if key.endswith("_ms")]:
        sample[key.removesuffix("_ms")] = sample.pop(key) / 1e3
    (tmp_path / "run.json").write_text(json.dumps(sample))
    (run,) = read_runs(tmp_path)
    assert run.ttft.mean == pytest.approx(0.2) and run.tpot.mean == pytest.approx(0.010)


def test_mlperf_log():
    run = one("mlperf_log_detail.txt", model="llama-3.1-70b", osl=101)
    assert (run.loop, run.request_rate) == ("open", 4.0)
    assert run.ttft.mean == pytest.approx(0.2) and run.ttft.at(99.0) == pytest.approx(0.31)
    assert run.tpot.mean == pytest.approx(0.010) and run.tpot.at(50.0) == pytest.approx(0.0098)
    assert run.output_throughput == 402.0
    assert (run.model, run.osl) == ("llama-3.1-70b", 101.0)


def test_a_log_without_completed_tokens_has_those_of_all(tmp_path):
    text = (DATA / "mlperf_log_detail.txt").read_text()
    rate = 'result_completed_tokens_per_second", "value": '
    every = ':::MLLOG {"key": "result_tokens_per_second", "value": 77.0}\n'
    (tmp_path / "log.txt").write_text(text.replace(f"{rate}402.0", f"{rate}0.0") + every)
    assert one(tmp_path / "log.txt").output_throughput == 77.0


def test_plain_table_converts_the_definition_of_tpot():
    first, second = read_runs(DATA / "runs.csv")
    assert first.tpot.mean == pytest.approx(0.010)
    # 101 tokens in 101 x 20 ms, of which 500 ms are the first: 15.2 ms for each of the others
    assert second.tpot.mean == pytest.approx(0.0152)
    assert "all tokens" in second.tpot_from
    assert (second.chips, second.tp, second.power) == (2.0, 2.0, 610.0)


def test_sidecar_and_flags_fill_what_files_leave_open():
    (run,) = read_runs(DATA / "vllm.json", sidecar=DATA / "sidecar.toml", pp=2)
    assert (run.engine, run.system, run.precision) == ("vllm", "h100_sxm", "bf16")
    assert (run.tp, run.pp, run.chips) == (1.0, 2.0, 2.0)
    run.require("chips", "system")


def test_folders_patterns_and_duplicates(tmp_path):
    sample = (DATA / "vllm.json").read_text()
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(sample)
    assert len(read_runs(tmp_path)) == 1  # the same measurement twice
    (tmp_path / "facts.json").write_text('{"system": "h100_sxm"}')
    (run,) = read_runs(tmp_path, sidecar=tmp_path / "facts.json")  # which is no run itself
    assert run.system == "h100_sxm"
    (tmp_path / "facts.json").unlink()
    assert len(read_runs([str(tmp_path / "*.json"), DATA / "runs.csv"])) == 3


@pytest.mark.parametrize(
    "name, bundled",
    [
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-r1"),
        ("nvidia/DeepSeek-V3.1-NVFP4", "deepseek-v3"),
        ("meta-llama/Meta-Llama-3.1-70B-Instruct", "llama-3.1-70b"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507-FP8", "qwen3-235b-a22b"),
        ("moonshotai/Kimi-K2.5", "kimi-k2.5"),
        ("gpt2", None),
    ],
)
def test_names_of_models(name, bundled):
    assert model_named(name) == bundled
    assert system_named("b300") == "b300_sxm"


def test_nccl_tests_text():
    kernels = read_kernels(DATA / "nccl_all_reduce.txt")
    result = [(k.line, k.variant, k.sizes["bytes"], k.seconds) for k in kernels]
    # an empty message and N/A were not measured; 1.2e+06 is microseconds
    assert result == [
        (13, "out_of_place", 1024.0, pytest.approx(12.8e-6)),
        (14, "out_of_place", 268435456.0, pytest.approx(1.2)),
        (14, "in_place", 268435456.0, pytest.approx(1e-3)),
    ]
    assert {(k.operation, k.chips, k.dtype) for k in kernels} == {("all_reduce", 2.0, "float")}
    assert kernels[0].device == "NVIDIA H100 80GB HBM3"


def test_nccl_tests_document_is_named_by_its_program():
    outer, inner = read_kernels(DATA / "nccl_all_gather.json")
    assert (outer.operation, outer.chips, outer.device) == ("all_gather", 8.0, "NVIDIA H200")
    assert (outer.seconds, inner.seconds) == (pytest.approx(20e-6), pytest.approx(19e-6))


def test_microbenchmarks():
    (kernel,) = read_kernels(DATA / "microbenchmarks.json")
    assert (kernel.operation, kernel.device, kernel.dtype) == ("gemm", "TPU v6e", "bfloat16")
    assert kernel.sizes == {"m": 4096.0, "k": 4096.0, "n": 4096.0}
    assert kernel.seconds == pytest.approx(2e-4)
    assert dict(kernel.percentiles)[90.0] == pytest.approx(2.1e-4)


def test_kernel_tables(tmp_path):
    gemm = tmp_path / "gemm" / "x1"
    gemm.mkdir(parents=True)
    (gemm / "data.csv").write_text("m,k,n,latency_us,mfu\n16,2048,6144,10.5,0.2\n")
    core = tmp_path / "mha" / "decode" / "x1"
    core.mkdir(parents=True)
    table = "kv_dtype,batch_size,kv_len,latency_us,mfu\nbf16,4,1024,20,0.1\n"
    (core / "32-8-128.csv").write_text(table)
    product, attention = read_kernels(tmp_path, device="x1")
    assert product.sizes == {"m": 16.0, "k": 2048.0, "n": 6144.0}
    assert (product.operation, product.seconds) == ("gemm", pytest.approx(10.5e-6))
    assert attention.operation == "mha.decode" and attention.seconds == pytest.approx(20e-6)
    assert attention.sizes["kv_heads"] == 8.0 and attention.sizes["context"] == 1024.0
