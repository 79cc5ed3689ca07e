"""Rubbish among measured files is refused in one sentence: file, line or entry, field, value."""

import json
from pathlib import Path

import pytest

from infer_jax.catalog.measurements import read_kernels, read_runs, silicon
from infer_jax.errors import InputError

DATA = Path(__file__).resolve().parents[2] / "data" / "measurements"
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
        assert "\n" not in str(raised.value)
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
