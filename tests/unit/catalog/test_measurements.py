"""Files of measured runs: each format is read into the same record, in SI units, or refused."""

import json
from pathlib import Path

import pytest

from infer_jax.catalog.measurements import Run, WorkerPool, read_kernels, read_runs, silicon
from infer_jax.catalog.models import model_named
from infer_jax.catalog.systems import system_named
from infer_jax.errors import InputError

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


VLLM = json.loads((DATA / "vllm.json").read_text())
NCCL = (DATA / "nccl_all_reduce.txt").read_text()
MLPERF = (DATA / "mlperf_log_detail.txt").read_text()


@pytest.fixture
def refused(tmp_path):
    """The sentence with which contents (text, or JSON) are refused."""

    def sentence(contents, name="run.json", door=read_runs, **facts):
        text = contents if isinstance(contents, str) else json.dumps(contents)
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError) as raised:
            door(tmp_path / name, **facts)
        assert str(tmp_path / name) in str(raised.value)
        return str(raised.value)

    return sentence


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"mean_tpot_ms": 3 * 3600e3}, "tpot (s) is 10800"),  # three hours
        ({"mean_ttft_ms": -3.0}, "mean_ttft_ms is -3;"),
        ({"mean_ttft_ms": "quick"}, "mean_ttft_ms is 'quick'"),
        ({"p99_ttft_ms": float("nan")}, "p99_ttft_ms is nan"),
        ({"completed": 0}, "completed is 0"),
        ({"failed": 7}, "failed is 7;"),
        ({"num_prompts": 80}, "failed is 16;"),  # 64 of 80 completed
        ({"errors": ["", "HTTP 429: Too Many Requests"]}, "rate-limited requests is 1;"),
        ({"request_rate": "fast"}, "request_rate is 'fast'"),
        ({"input_lens": 7}, "input_lens is 7"),
        ({"input_lens": [1, None]}, "input_lens[1] is None"),
        # ten times the latency for the same throughput cannot be eight requests at a time
        ({"mean_e2el_ms": 12000.0}, "requests in flight"),
    ],
)
def test_impossible_and_failed_runs(refused, changes, said):
    assert said in refused(VLLM | changes)


def test_seconds_taken_for_milliseconds(refused):
    wrong = {k: v / 1e3 if k.endswith("_ms") else v for k, v in VLLM.items()}
    assert "ttft (s) is" in refused(wrong) or "units" in refused(wrong)


@pytest.mark.parametrize(
    "contents, said",
    [
        ("", "an empty file"),
        ("{", "not JSON"),
        ("[1, 2]", "entry 1 is 'unrecognised contents'"),
        ({"hello": 1}, "unrecognised contents"),
        (NCCL, "kernel measurements"),
        ({k: v for k, v in VLLM.items() if "ttft" not in k}, "mean_ttft is missing"),
        (MLPERF.replace('"VALID"', '"INVALID"'), "result_validity is 'INVALID'"),
        (MLPERF.replace("PerformanceOnly", "AccuracyOnly"), "effective_test_mode"),
        (MLPERF.replace("result_first_token", "other"), "use_token_latencies"),
        (":::MLLOG {", "line 1, entry"),
    ],
)
def test_files_of_the_wrong_kind(refused, contents, said):
    assert said in refused(contents)


def test_the_line_of_a_bad_run_is_named(refused):
    lines = (DATA / "sglang.jsonl").read_text().splitlines()
    bad = lines[1].replace('"mean_tpot_ms": 10.0', '"mean_tpot_ms": null')
    bad = bad.replace('"mean_ttft_ms": 200.0', '"mean_ttft_ms": [200.0]')
    assert "line 2, mean_ttft_ms is [200.0]" in refused("\n".join([lines[0], bad]), "x.jsonl")
    assert "line 2 is 'not JSON" in refused("\n".join([lines[0], lines[1][:-9]]), "x.jsonl")


def test_unknown_units_of_a_metric(refused):
    profile = json.loads((DATA / "aiperf.json").read_text())
    profile["time_to_first_token"]["unit"] = "fortnights"
    assert "time_to_first_token.unit is 'fortnights'" in refused(profile)
    profile["time_to_first_token"]["unit"] = "ms"
    assert "was_cancelled" in refused(profile | {"was_cancelled": True})
    assert "rate-limited" in refused(profile | {"error_summary": [{"code": 429, "count": 3}]})


@pytest.mark.parametrize(
    "table, said",
    [
        ("ttft_mean_ms,speed\n1,2\n", "line 1, column is 'speed'"),
        ("ttft_mean_ms,isl\n1\n", "line 2, number of cells is 1"),
        ("ttft_mean_ms,isl\n1,x\n", "line 2, isl is 'x'"),
        ("tpot_mean_ms,tpot_definition\n1,mine\n", "tpot_definition is 'mine'"),
        ("tpot_mean_ms,tpot_definition\n1,includes_first\n", "osl above 1"),
        (
            "tpot_mean_ms,ttft_mean_ms,osl,tpot_definition\n1,900,10,includes_first\n",
            "tpot_mean is 0.001",
        ),
        ("ttft_mean_ms,isl,prefix\n10,100,200\n", "prefix is 200"),
        ("ttft_mean_ms,chips,tp\n10,3,2\n", "chips is 3"),
        ("ttft_mean_ms,chips,tp\n10,3,0\n", "tp is 0; allowed: a number above 0"),
        (" ,\n,,\n", "unrecognised contents"),
    ],
)
def test_plain_tables(refused, table, said):
    assert said in refused(table, "runs.csv")


def test_contradictions(refused, tmp_path):
    slower = {k: v * 2 if k.endswith(("_ms", "duration")) else v for k, v in VLLM.items()}
    slower = {k: v / 2 if k.endswith("_throughput") else v for k, v in slower.items()}
    (tmp_path / "a.json").write_text(json.dumps(VLLM))
    (tmp_path / "b.json").write_text(json.dumps(slower))
    with pytest.raises(InputError, match=r"b\.json: tpot \(s\) is 0\.02;.*a\.json"):
        read_runs(tmp_path)
    (tmp_path / "b.json").write_text(json.dumps(slower | {"tp": 2}))
    assert len(read_runs(tmp_path)) == 2  # they differ in what was served how
    assert "engine is 'vllm'; allowed: sglang" in refused(VLLM, engine="sglang")


def test_facts(refused, tmp_path):
    with pytest.raises(InputError, match=r"facts: colour is 'red'"):
        read_runs(DATA / "vllm.json", colour="red")
    with pytest.raises(InputError, match=r"facts: tp is 'two'"):
        read_runs(DATA / "vllm.json", tp="two")
    for fact, allowed in (("engine", "a text"), ("tp", "a number of at least 0")):
        with pytest.raises(InputError, match=f"facts: {fact} is ''; allowed: {allowed}"):
            read_runs(DATA / "vllm.json", **{fact: ""})
    (tmp_path / "side.json").write_text('{"vllm.json": {"chips": -1}}')
    with pytest.raises(InputError, match=r"table vllm\.json: chips is -1"):
        read_runs(DATA / "vllm.json", sidecar=tmp_path / "side.json")
    with pytest.raises(InputError, match=r"chips is not in the file.*chips given as an option"):
        read_runs(DATA / "vllm.json")[0].require("chips")
    with pytest.raises(InputError, match="no file"):
        read_runs(str(tmp_path / "none*.json"))


@pytest.mark.parametrize(
    "old, new, said",
    [
        ("0.08    0.08      0", "0.08    0.08      3", "line 13, out_of_place #wrong is '3'"),
        ("1000.0  268.44", "1.0  268.44", "line 14, in_place algbw is 268.44"),
        ("  1.2e+06", "    quick", "line 14, time is 'quick'"),
        ("    12.80", "", "line 13, number of cells is 12"),
        ("all_reduce_perf", "", "collective is 'not named'"),
    ],
)
def test_nccl_tests(refused, old, new, said):
    text = NCCL.replace(old, new)
    assert text != NCCL
    text = text.replace("Collective test starting:", "x") if "named" in said else text
    assert said in refused(text.replace("concluded: \n", "\n"), "out.txt", read_kernels)


def test_kernel_files_of_the_wrong_kind(refused):
    assert "unrecognised contents" in refused(VLLM, door=read_kernels)
    assert "unrecognised contents" in refused("words", door=read_kernels)
    entry = [{"metadata": {"benchmark_name": "gemm"}, "metrics": {"throughput": 1}}]
    assert "entry 1, metrics.p50_ms" in refused(entry, door=read_kernels)
    with pytest.raises(InputError, match="device is missing"):
        read_kernels(DATA)


def test_rows_of_a_package_that_is_absent(monkeypatch):
    monkeypatch.setattr(silicon, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"not installed.*infer_jax\[silicon\]"):
        silicon.published_rows()
