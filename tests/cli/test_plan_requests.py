"""What ``plan`` and ``estimate`` are asked beyond mean lengths: drafts, spreads, traces."""

import numpy as np
import pytest

from infer_jax.errors import InputError
from infer_jax.results.problems import from_command
from infer_jax.verbs.requests import read_requests
from tests.cli.running import answer, run
from tests.cli.test_plan import ASKED


def test_drafts_are_tried():
    few = (*ASKED, "--total-gpus", "2", "--mode", "aggregated", "--top", "1", "--tpot", "20ms")
    plain, cost = answer(*few)["plans"], "blended_cost_per_mtok_usd"
    # of drafts that are never accepted none is made
    none = answer(*few, "--heads", "--acceptance", "0")["plans"]
    assert [p["degrees"] for p in none] == [p["degrees"] for p in plain]
    assert none[0][cost] == pytest.approx(plain[0][cost], rel=1e-12)
    few = (*few[:-1], "6ms")
    plain, output = (
        answer(*few)["plans"][0],
        answer(*few, "--heads", "--acceptance", "0.8")["plans"][0],
    )
    assert 1 <= output["degrees"]["drafts"] <= 5 and output[cost] < plain[cost]
    assert f"drafts {output['degrees']['drafts']}" in output["layout"]


def test_estimate_asks_of_drafts_what_plan_asks():
    """Their waits, prefills and admission are in both: the plan's row is the estimate of it."""
    few = (*ASKED, "--total-gpus", "2", "--mode", "aggregated", "--top", "1", "--tpot", "6ms")
    who = ("--draft", "qwen3-0.6b")
    row = answer(*few, *who, "--acceptance", "0.8")["plans"][0]
    split = [f"--{name}={row['degrees'][name]}" for name in ("tp", "pp")]
    batch = str(int(row["concurrency_per_replica"]))
    there = ("estimate", *ASKED[1:], *split, "--batch", batch, *who, "--acceptance", "0.8")
    one = answer(*there)
    assert one["drafts"] == row["degrees"]["drafts"] > 0
    for name in ("ttft_ms", "tpot_ms"):
        assert one[name] == pytest.approx(row[name], rel=1e-9)
    assert one["tpot_ms"] < answer(*there[: -len(who) - 2])["tpot_ms"]


def test_later_drafts_are_accepted_less_as_a_file_of_curves_says(tmp_path):
    """A file's own steps; of a number the first, and less after it: long drafts lose."""
    few = ("plan", "deepseek-r1", "--hardware", "h200_sxm", "--total-gpus", "8", "--isl", "2000")
    few = (*few, "--osl", "200", "--tpot", "12ms", "--mode", "aggregated", "--top", "1")
    curves = tmp_path / "curves.yaml"
    lengths = {"flat": (1.8, 2.44, 2.952, 3.3616, 3.6893), "first": (1.8, 1.8, 1.8, 1.8, 1.8)}
    lines = [
        f"  {mode}: {{{', '.join(f'{j}: {y}' for j, y in enumerate(ys, 1))}}}"
        for mode, ys in lengths.items()
    ]
    curves.write_text("deepseek-r1:\n" + "\n".join(lines) + "\n")
    result = {
        mode: answer(*few, "--acceptance", f"{curves}:deepseek-r1.{mode}")["plans"][0]
        for mode in lengths
    }
    assert result["first"]["degrees"]["drafts"] == 1 < result["flat"]["degrees"]["drafts"]
    output = answer(*few, "--acceptance", "0.8")
    cost = "blended_cost_per_mtok_usd"
    assert result["flat"][cost] < output["plans"][0][cost] < result["first"][cost] * 1.001
    assert any("own heads: 1 " in note for note in output["notes"])
    ended = run(*few, "--acceptance", str(curves))
    assert ended.code == 2 and "deepseek-r1.first" in ended.err


def test_the_spread_of_lengths_moves_the_percentile_and_is_said():
    few = ("plan", "llama-3.1-8b", "--hardware", "h100_sxm", "--request-rate", "20", "--top", "1")
    few = (*few, "--mode", "aggregated", "--total-gpus", "2", "--p99-ttft", "10s")
    equal = answer(*few, "--isl", "2000", "--osl", "200")
    assert equal["lengths"] == "equal" and any("equal lengths" in n for n in equal["notes"])
    spread = answer(*few, "--isl", "2000±2000", "--osl", "200+-200")
    assert spread["lengths"] == "lognormal" and spread["isl_tokens"] == 2000
    p99 = [output["plans"][0]["p99_ttft_ms"] for output in (equal, spread)]
    assert p99[1] > 1.3 * p99[0]


def test_a_trace_says_lengths_and_bursts(tmp_path):
    """Half of the requests long, half short, in pairs: gaps of 0 and of 100 ms."""
    trace = tmp_path / "trace.csv"
    rows = [f"{i // 2 / 10},{3000 if i % 2 else 1000},200" for i in range(40)]
    trace.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n" + "\n".join(rows) + "\n")
    output = read_requests(None, None, 0.0, 20.0, str(trace))
    assert output.lengths == "trace" and (output.work.isl, output.work.osl) == (2000, 200)
    assert output.longest == 3200 and "trace" in output.within
    sizes = [float(share.isl) for share in output.work.lengths]
    assert (min(sizes), max(sizes)) == pytest.approx((0.5, 1.5))
    gaps = np.diff([i // 2 / 10 for i in range(40)])
    assert output.work.arrivals is not None and output.work.arrivals.rate == 20
    assert output.work.arrivals.variability == pytest.approx(gaps.var() / gaps.mean() ** 2)
    with pytest.raises(InputError, match="isl is '10'; allowed: trace or lengths, not both"):
        read_requests(10.0, None, 0.0, 20.0, str(trace))
    with pytest.raises(InputError, match="with request_rate: a closed loop"):
        read_requests(None, None, 0.0, None, str(trace))
    with from_command(), pytest.raises(InputError, match="with --request-rate: a closed loop"):
        read_requests(None, None, 0.0, None, str(trace))
