"""Request traces and acceptance curves: each format is read, and what is empty is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from infer_jax.catalog.acceptance import curve_of, read_acceptance
from infer_jax.catalog.measurements import Speculation
from infer_jax.catalog.traces import cached_tokens, read_trace
from infer_jax.errors import InputError

DATA = Path(__file__).resolve().parents[2] / "data" / "traces"


@pytest.mark.parametrize(
    "name, source, arrivals, prompts, outputs",
    [
        ("azure.csv", "azure", [0, 1, 3], [4000, 2000, 3000], [10, 20, 60]),
        ("burstgpt.csv", "burstgpt", [0, 113], [472, 417], [18, 276]),
        ("mooncake.jsonl", "mooncake", [0, 3, 3, 9], [1500, 1600, 1000, 1500], [50, 20, 30, 40]),
        ("vidur.csv", "vidur", [0, 0.25], [200, 100], [20, 10]),  # the file is out of order
        ("llmservingsim.jsonl", "llmservingsim", [0, 0.5], [100, 200], [10, 20]),
        ("llmservingsim_run.jsonl", "llmservingsim run", [0, 0.5, 1], [300, 200, 100], [11, 21, 1]),
        ("apex.jsonl", "apex", [0, 2], [100, 200], [10, 20]),
        ("vllm_detailed.json", "vllm", [0, 0.25, 0.5], [100, 300, 200], [10, 30, 20]),
    ],
)
def test_formats(name, source, arrivals, prompts, outputs):
    trace = read_trace(DATA / name)
    assert trace.source == source and len(trace) == len(prompts)
    np.testing.assert_allclose(trace.arrivals, arrivals, atol=1e-9)
    np.testing.assert_array_equal(trace.isl, prompts)
    np.testing.assert_array_equal(trace.osl, outputs)
    assert trace.dropped == (1 if source == "burstgpt" else 0)  # a failed request


@pytest.mark.parametrize("by_columns", [True, False])
def test_damaged_rows_are_counted_or_refused_with_their_line(by_columns, tmp_path, monkeypatch):
    if not by_columns:  # as without pyarrow
        monkeypatch.setattr("infer_jax.catalog.traces.read_table", lambda *_: None)
    day = "2024-05-10 00:00"
    rows = [f"{day}:01.5+00:00,10,5", f"{day}:02,ten,5", "noon,10,5"]
    rows += [f"{day}:04,0,5", f"{day}:06,12,-5", f"{day}:07,12,6"]
    file = tmp_path / "azure.csv"
    file.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]))
    with pytest.raises(InputError, match="line 3, ContextTokens is 'ten'"):
        read_trace(file)
    trace = read_trace(file, skip_damaged=True)
    assert trace.damaged == 4 and trace.isl.tolist() == [10, 12]
    np.testing.assert_allclose(trace.arrivals, [0.0, 5.5])
    assert trace.start == pytest.approx(1715299201.5)


@pytest.mark.parametrize("by_columns", [True, False])
def test_rows_mean_the_same_with_and_without_columns(by_columns, tmp_path, monkeypatch):
    """Time zones, requests without a session, times below 0, and seconds in place of dates."""
    if not by_columns:
        monkeypatch.setattr("infer_jax.catalog.traces.read_table", lambda *_: None)

    def read(*rows):
        file = tmp_path / "trace.csv"
        file.write_text("\n".join(rows))
        return read_trace(file, skip_damaged=True)

    zoned = "2026-11-02 09:00:00+08:00,1,1", "2026-11-02 03:00:30+02:00,1,1"
    plain = "2026-11-02 01:00:00,1,1", "2026-11-02T01:00:30Z,1,1"
    for rows in (zoned, plain):
        found = read(AZURE.strip(), *rows)
        assert found.arrivals.tolist() == [0, 30] and found.start == 1793581200
    with pytest.raises(InputError, match="line 2, TIMESTAMP is '1793581200'"):
        read(AZURE.strip(), "1793581200,1,1", "1793581201,1,1")
    own = "arrival_s,prompt_tokens,output_tokens,session"
    sessions = read(own, "1,1,1,a", "2,1,1,", "3,1,1,a", "4,1,1,").sessions
    assert sessions.tolist() == [0, 1, 0, 2]
    assert not len(read(own, "1,1,1,", "2,1,1,").sessions)
    assert read(own, "-1,1,1,", "2,1,1,").damaged == 1


def test_a_run_has_the_times_of_the_server():
    trace = read_trace(DATA / "llmservingsim_run.jsonl")
    # request b was queued at once: 50.5 s of the engine's clock are 0.5 s after the first arrival
    np.testing.assert_allclose(trace.first, [0.1, 0.6, 1.05], atol=1e-9)
    np.testing.assert_allclose(trace.last, [0.3, 1.0, 1.05], atol=1e-9)
    assert not len(read_trace(DATA / "llmservingsim.jsonl").first)


def test_a_detailed_result_has_the_times_of_the_server(tmp_path):
    output = json.loads((DATA / "vllm_detailed.json").read_text())
    assert not len(read_trace(DATA / "vllm_detailed.json").first)  # no times between tokens
    output["ttfts"], output["itls"] = [0.1, 0.2, 0.3], [[0.01] * 9, [0.02] * 19, [0.03] * 29]
    file = tmp_path / "detailed.json"
    file.write_text(json.dumps(output))
    trace = read_trace(file)  # in order of arrival: the second request came last
    np.testing.assert_allclose(trace.first, [0.1, 0.25 + 0.3, 0.5 + 0.2])
    np.testing.assert_allclose(trace.last - trace.first, [0.09, 0.87, 0.38])
    for itls in ("none", "", 0, [[0.01], "fast", [0.02]]):
        file.write_text(json.dumps({**output, "itls": itls}))
        with pytest.raises(InputError, match="itls"):
            read_trace(file)


def test_times_of_a_server_that_go_back_are_refused(tmp_path):
    text = (DATA / "llmservingsim_run.jsonl").read_text()
    file = tmp_path / "run.jsonl"
    for changed in (text.replace("50.30", "50.05"), text.replace('"queued_ts": 50.50, ', "")):
        file.write_text(changed)
        with pytest.raises(InputError, match="three times that do not decrease, or none"):
            read_trace(file)


def test_prefix_hits_are_those_of_the_hashed_blocks():
    trace = read_trace(DATA / "mooncake.jsonl")
    # two blocks of 512 again, nothing, and a whole prompt of three blocks
    np.testing.assert_array_equal(trace.prefix(), [0, 1024, 0, 1500])
    assert trace.hit_ratio() == pytest.approx(2524 / 5600)
    # with room for three blocks, [5, 6] leave the first of [0, 1, 3]; with room for two, none
    np.testing.assert_array_equal(trace.prefix(capacity=3), [0, 1024, 0, 512])
    np.testing.assert_array_equal(trace.prefix(capacity=2), [0, 1024, 0, 0])
    assert read_trace(DATA / "azure.csv").hit_ratio() == 0.0


def by_hand(hashes, block):
    """Hits by comparing every prompt with all earlier ones."""
    result = []
    for index, blocks in enumerate(hashes):
        seen = {one for earlier in hashes[:index] for one in earlier}
        count = next((i for i, one in enumerate(blocks) if one not in seen), len(blocks))
        result.append(count * block)
    return result


@settings(derandomize=True, max_examples=100)
@given(st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=5, unique=True), max_size=12))
def test_prefix_hits_by_comparison(hashes):
    prompts = np.array([16.0 * len(blocks) for blocks in hashes])
    everything = cached_tokens(hashes, prompts, block=16)
    np.testing.assert_array_equal(everything, by_hand(hashes, 16))
    np.testing.assert_array_equal(cached_tokens(hashes, prompts, block=16, capacity=9), everything)
    assert np.all(cached_tokens(hashes, prompts, block=16, capacity=2) <= everything)
    assert not cached_tokens(hashes, prompts, block=16, capacity=0).any()


def test_workloads():
    trace = read_trace(DATA / "mooncake.jsonl")
    # gaps of 3, 0 and 6 s: a request in 3 s, variance 6 over a squared mean of 9
    assert trace.rate == pytest.approx(1 / 3) and trace.variability == pytest.approx(6 / 9)
    opened = trace.workload()
    assert opened.arrivals is not None
    assert float(opened.arrivals.rate) == pytest.approx(1 / 3)
    assert (float(opened.isl), float(opened.osl)) == (1400.0, 35.0)
    assert float(opened.prefix) == pytest.approx(2524 / 4)
    mean = sum(float(s.weight * s.isl) for s in opened.lengths)
    assert mean == pytest.approx(1.0) and len(opened.lengths) > 1
    faster = trace.workload(rate=5.0).arrivals
    assert faster is not None and float(faster.rate) == 5.0
    assert trace.workload(batch=16).arrivals is None


VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURSTGPT = "Timestamp,Request tokens,Response tokens\n"
MOONCAKE = '{"timestamp": 1, "input_length": 5, "output_length": 5%s}\n'


@pytest.mark.parametrize(
    "name, contents, said",
    [
        ("a.csv", "TIMESTAMP,ContextTokens\n2023-11-16,5\n", "GeneratedTokens is missing"),
        ("a.csv", "one,two\n1,2\n", "columns is 'one, two'"),
        ("a.csv", VIDUR, "no requests"),
        ("a.csv", VIDUR + "1,5,5\n2,5,0\n", "line 3, num_decode_tokens is '0'"),
        ("a.csv", VIDUR + "1,x,5\n", "line 2, num_prefill_tokens is 'x'"),
        ("a.csv", AZURE + "yesterday,5,5\n", "line 2, TIMESTAMP is 'yesterday'"),
        ("a.csv", BURSTGPT + "1,5,0\n", "Response tokens is '0 in every row'"),
        ("a.jsonl", MOONCAKE % ', "hash_ids": [1]' + MOONCAKE % "", "line 2, hash_ids is missing"),
        ("a.jsonl", '{"timestamp": 1}\n[1]\n', "line 2 is 'unrecognised contents'"),
        ("a.json", json.dumps({"input_lens": [1, 2], "output_lens": [1]}), "2 and 1"),
        ("a.json", json.dumps({"input_lens": [1, 0], "output_lens": [1, 1]}), "input_lens[1]"),
    ],
)
def test_bad_traces(tmp_path, name, contents, said):
    (tmp_path / name).write_text(contents)
    with pytest.raises(InputError) as raised:
        read_trace(tmp_path / name)
    assert said in str(raised.value) and str(tmp_path) in str(raised.value)


def test_conversations_need_a_tokenizer():
    with pytest.raises(InputError, match="need a tokenizer"):
        read_trace(DATA / "sharegpt.json")


def test_loads_that_cannot_be(tmp_path):
    trace = read_trace(DATA / "azure.csv")
    with pytest.raises(InputError, match="one of the two"):
        trace.workload(batch=3, rate=2)
    (tmp_path / "a.json").write_text(json.dumps({"input_lens": [5], "output_lens": [5]}))
    timeless = read_trace(tmp_path / "a.json")
    assert float(timeless.workload(batch=2).batch) == 2.0
    with pytest.raises(InputError, match="arrival times"):
        timeless.workload()


CURVES = Path(__file__).resolve().parents[2] / "data" / "acceptance.yaml"


def test_curves_of_a_file():
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    on, off = read_acceptance(CURVES)
    assert (on.model, on.mode, on.lengths[1]) == ("some-model", "thinking_on", (2, 2.4))
    assert on.per_position == pytest.approx((0.8, 0.6, 0.2))
    # a third draft accepted more often than the second is noise: the two are pooled
    assert off.per_position == pytest.approx((0.9, 0.5, 0.5))


def test_curve_of_vllms_counts():
    curve = curve_of(Speculation(per_position=(0.7, 0.5)), "m")
    assert [length for _, length in curve.lengths] == pytest.approx([1.7, 2.2])
    assert curve.per_position == pytest.approx((0.7, 0.5))
    with pytest.raises(InputError, match="per_position is missing"):
        curve_of(Speculation())
    with pytest.raises(InputError, match=r"per_position\[0\] is 1\.7"):
        curve_of(Speculation(per_position=(1.7,)))


@pytest.mark.parametrize(
    "contents, said",
    [
        ("a: [", "not YAML"),
        ("- 1", "top level is ['1']"),
        ("model: 3", "model is '3'"),
        ("model: {mode: {1: 2.5}}", "model.mode.1 is '2.5'; allowed: 1 to 2"),
        ("model: {mode: {zero: 1.5}}", "model.mode is 'zero'"),
        ("model: {mode: {0: 1.0}}", "model.mode is '0'"),
    ],
)
def test_rubbish(tmp_path, contents, said):
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    (tmp_path / "curves.yaml").write_text(contents)
    with pytest.raises(InputError) as raised:
        read_acceptance(tmp_path / "curves.yaml")
    assert said in str(raised.value)


def test_gaps_in_a_curve(tmp_path):
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    (tmp_path / "curves.yaml").write_text("model: {mode: {1: 1.5, 3: 2.0}}")
    (curve,) = read_acceptance(tmp_path / "curves.yaml")
    with pytest.raises(InputError, match="every number of drafts"):
        _ = curve.per_position
