"""`infer-jax plan`: the answer, near misses, drafts, spreads and traces, and what it refuses."""

import numpy as np
import pytest

from infer_jax.errors import InputError
from infer_jax.results.problems import from_command
from infer_jax.verbs.requests import read_requests
from tests.cli.running import answer, answered_once, run

ASKED = ("plan", "llama-3.1-8b", "--hardware", "h100_sxm", "--isl", "2000", "--osl", "200")
LIMITED = (*ASKED, "--total-gpus", "4", "--ttft", "0.4s", "--tpot", "12ms")


@pytest.fixture(scope="module")
def met():
    return answer(*LIMITED)


def test_plans_meet_the_limits_cheapest_first(met):
    output = met
    assert output["feasible"] and not output["near_misses"]
    asked = {"ttft_ms": 400, "tpot_ms": 12, "p95_ttft_ms": None, "p99_ttft_ms": None}
    assert output["limits"] == asked and output["request_rate_per_s"] is None
    plans = output["plans"]
    assert {p["mode"] for p in plans} == {"aggregated", "disaggregated"}
    for mode in ("aggregated", "disaggregated"):
        costs = [p["blended_cost_per_mtok_usd"] for p in plans if p["mode"] == mode]
        assert costs == sorted(costs)
    for p in plans:
        assert p["ttft_ms"] <= 400 and p["tpot_ms"] <= 12 and p["gpus"] <= 4 and not p["broken"]
        tokens = 3600 * p["requests_per_s"] * (2000 + 200)
        assert p["blended_cost_per_mtok_usd"] == pytest.approx(
            p["cost_per_hour_usd"] / tokens * 1e6
        )
        # what is paid and drawn is that of the prompts and of the outputs
        for cost, unit in (("cost_per_mtok", "usd"), ("energy_per_mtok", "j")):
            both = 2000 * p[f"input_{cost}_{unit}"] + 200 * p[f"output_{cost}_{unit}"]
            assert both == pytest.approx(2200 * p[f"blended_{cost}_{unit}"], rel=1e-6)


def test_gpus_that_stay_free_are_counted():
    """And a plan of few can be run again, unless the traffic is given."""
    few = (
        "plan", "llama-3.1-70b", "--quant", "fp8", "--hardware", "b200_sxm", "--total-gpus", "11",
    )  # fmt: skip
    output = answer(*few, "--mode", "disaggregated", "--ttft", "2s", "--tpot", "20ms")
    assert all(p["gpus"] + p["idle_gpus"] == 11.0 for p in output["plans"])
    taken = output["plans"][0]["gpus"]
    assert f"takes {taken:g} of 11 GPUs and leaves {11 - taken:g} free" in output["notes"][0]
    load = ("--request-rate", "1", "--mode", "aggregated")
    given = answer(*ASKED, "--total-gpus", "4", *load)
    assert given["plans"][0]["idle_gpus"] == 3 and "leaves 3 free." in given["notes"][0]
    assert answer(*ASKED, *load)["plans"][0]["idle_gpus"] is None
    whole = answer(*ASKED, "--total-gpus", "4", "--mode", "aggregated")
    assert whole["plans"][0]["idle_gpus"] == 0 and not any("free" in n for n in whole["notes"])


def test_rents_of_a_region_in_its_own_currency_and_its_power():
    few = (*ASKED, "--total-gpus", "2", "--mode", "aggregated", "--top", "1")
    plain = answer(*few, "--price", "2")["plans"][0]
    local = ("--price", "2", "--currency", "EUR", "--region-factor", "1.5", "--pue", "3.12")
    output, printed = answered_once(*few, *local)
    (there,) = output["plans"]
    assert there["blended_cost_per_mtok_eur"] == pytest.approx(
        1.5 * plain["blended_cost_per_mtok_usd"]
    )
    assert there["input_cost_per_mtok_eur"] == pytest.approx(1.5 * plain["input_cost_per_mtok_usd"])
    ratio = there["blended_energy_per_mtok_j"] / plain["blended_energy_per_mtok_j"]
    assert ratio == pytest.approx(3.12)
    assert "EUR/Mtok" in printed and "$" not in printed and "GB of" in printed


def test_a_frontier_trades_speed_for_dollars(met):
    (output, printed), plain = answered_once(*LIMITED, "--frontier"), met["plans"]
    assert "plans" not in output and output["feasible"]
    rows, times = output["frontier"], [p["tpot_ms"] for p in output["frontier"]]
    costs = [p["blended_cost_per_mtok_usd"] for p in rows]
    assert {p["mode"] for p in rows} == {"aggregated", "disaggregated"}
    assert times == sorted(times) and costs == sorted(costs, reverse=True)
    assert all(p["ttft_ms"] <= 400 and p["tpot_ms"] <= 12 and p["gpus"] <= 4 for p in rows)
    # the cheapest plan is its slow end, but for a step of the speeds at which pools are sought
    cheapest = min(p["blended_cost_per_mtok_usd"] for p in plain)
    assert costs[-1] == pytest.approx(cheapest, rel=0.02)
    assert "speed" in printed and f"of {len(rows)} points of the frontier" in printed


def test_formats_are_compared():
    few = (*ASKED, "--total-gpus", "2", "--mode", "aggregated", "--top", "1")
    plain = {form: answer(*few, "--quant", form)["plans"] for form in ("bf16", "fp8")}
    both = (*few, "--quant", "bf16", "--quant", "fp8")
    output, printed = answered_once(*both)
    plans = output["plans"]
    assert plans == plain["fp8"] + plain["bf16"]  # the cheaper first
    assert plans[0]["formats"].startswith("fp8") and plans[1]["formats"].startswith("bfloat16")
    assert " fp8 " in printed and " bf16 " in printed


def test_chunks_are_compared():
    few = (*ASKED, "--total-gpus", "2", "--mode", "aggregated", "--top", "9", "--tpot", "20ms")
    plain, output = answer(*few), answer(*few, "--chunk", "500", "--chunk", "2000")
    assert output["configurations"] == 2 * plain["configurations"]
    assert "chunk" not in plain["plans"][0]["degrees"]
    cut, cost = answer(*few, "--chunk", "500"), "blended_cost_per_mtok_usd"
    assert "chunk 500" in cut["plans"][0]["layout"]
    # of each layout the better is told; 2000 tokens are the whole prompt and those that decode
    whole = answer(*few, "--chunk", "2000")

    def costs(plans):
        kept = [{k: x for k, x in p["degrees"].items() if k != "chunk"} for p in plans]
        return {tuple(k.items()): p[cost] for k, p in zip(kept, plans, strict=True)}

    whole, parts = costs(whole["plans"]), costs(cut["plans"])
    for layout, least in costs(output["plans"]).items():
        best = min(x[layout] for x in (whole, parts) if layout in x)
        assert least == pytest.approx(best, rel=1e-12)


def test_without_a_limit_the_first_token_comes_within_the_usual_time():
    few = ("plan", "llama-3.1-70b", "--hardware", "h100_sxm", "--total-gpus", "16", "--top", "1")
    few = (*few, "--osl", "64", "--mode", "aggregated", "--isl")
    usual, free = answer(*few, "8192"), answer(*few, "8192", "--ttft", "none")
    assert usual["usual_ttft_ms"] == 2000 and free["usual_ttft_ms"] is None
    assert usual["plans"][0]["ttft_ms"] <= 2000 < free["plans"][0]["ttft_ms"]
    assert any("--ttft none" in note for note in usual["notes"])
    # no server is that fast on such prompts: said, and not a reason to answer nothing
    long = answer(*few, "120000")
    assert long["feasible"] and long["usual_ttft_ms"] is None
    assert any("keeps TTFT within 2 s" in note for note in long["notes"])
    # another limit is in the way, memory or TPOT: of TTFT nothing is said
    few = ("--hardware", "h100_sxm", "--mode", "aggregated", "--total-gpus")
    for asked in (("llama-3.1-8b", *few, "1", "--tpot", "1us"), ("llama-3.1-405b", *few, "8")):
        none = answer("plan", *asked, code=1)
        assert not none["feasible"] and "TTFT" not in none["near_misses"][0]["broken"]
        assert not any("TTFT" in note for note in none["notes"])


def test_a_million_gpus_are_counted_out_in_little_memory():
    """Pools of one GPU each: as many counts as instances would be arrays of gigabytes."""
    few = (*ASKED, "--mode", "disaggregated", "--top", "1", "--tpot", "20ms")
    cost = "blended_cost_per_mtok_usd"
    small, large = (answer(*few, "--total-gpus", n)["plans"][0] for n in ("64", "1e6"))
    assert large["gpus"] <= 1e6 and large[cost] <= small[cost] * (1 + 1e-9)


def test_a_frontier_of_pools_that_fit_nowhere_is_a_near_miss():
    asked = ("plan", "llama-3.1-405b", "--hardware", "h100_sxm", "--total-gpus", "4", "--frontier")
    report = answer(*asked, "--mode", "disaggregated", code=1)
    assert not report["feasible"] and report["near_misses"]


def test_another_model_drafts_for_pools_too():
    asked = (*ASKED, "--total-gpus", "4", "--top", "1", "--tpot", "5ms")
    report = answer(*asked, "--draft", "qwen3-0.6b", "--acceptance", "0.8")
    assert any("qwen3-0.6b drafts" in note for note in report["notes"])
    pair = next(p for p in report["plans"] if p["mode"] == "disaggregated")
    plain = next(p for p in answer(*asked)["plans"] if p["mode"] == "disaggregated")
    cost = "blended_cost_per_mtok_usd"
    assert 1 <= pair["degrees"]["decode"]["drafts"] <= 5 and pair[cost] < plain[cost]


def test_near_misses_say_what_they_break():
    """And scripts see it by the exit code."""
    ran = run(*ASKED, "--total-gpus", "4", "--tpot", "0.1ms", "--mode", "aggregated")
    assert "No plan meets every limit" in ran.out and "TPOT by" in ran.out
    assert (ran.code, ran.err) == (1, "")


def test_the_best_plan_comes_with_what_starts_it():
    """In text for one engine, in JSON for all; the format of the plan, not of the repository."""
    words = ("plan", "llama-3.1-8b", "--hardware", "h100_sxm", "--total-gpus", "2")
    words += ("--quant", "fp8", "--mode", "aggregated")
    output, printed = answered_once(*words)
    best = output["plans"][0]
    launch = output["launch"]["vLLM"]
    (step,) = launch["commands"]
    assert "vllm serve meta-llama/Llama-3.1-8B-Instruct" in step["command"]
    assert "--quantization fp8_per_tensor" in step["command"]
    assert f"--max-num-seqs {best['concurrency_per_replica']:g}" in step["command"]
    assert output["launch"]["TensorRT-LLM"]["not_printed"]  # it casts nothing while it loads
    assert step["command"] in printed and f"vLLM {launch['version']}, {best['layout']}" in printed
    assert "starts the same layout on" not in printed
    # TensorRT-LLM casts nothing while it loads: said where its command would stand
    ran = run(*words, "--engine", "trtllm")
    says = " ".join(ran.out.split())
    why, other = (says.index(x) for x in ("No TensorRT-LLM command for", "the same layout on vLLM"))
    assert why < other < says.index("vllm serve") and "Times and costs are of TensorRT-LLM" in says
    ran = run(*words, "--set", "estimator.engine=1")  # SGLang, without --engine
    assert "sglang.launch_server" in ran.out and "vllm serve" not in ran.out
    words = (
        *words[:4],
        "--request-rate",
        "4",
        *words[6:],
        "--isl",
        "4000±2000",
        "--osl",
        "500±100",
    )
    ran = run(*words)
    assert "# context " in ran.out and "99.9 % of requests" in ran.out
    # the server that the open loop is computed with
    assert "max-model-len -1" not in ran.out and "--max-num-seqs 1024" in ran.out
    ran = run(*words, "--engine", "sglang", "--tpot", "1us")
    assert ran.code == 1 and "launch" not in ran.out.lower()  # nothing to start


def test_the_longest_of_log_normal_requests_is_a_stated_quantile():
    """Of requests drawn from the law at least 99.9 % are no longer, and it is not far above."""
    output = read_requests("4000±2000", "500±100", 0.0, 2.0, None)
    draw, drawn = np.random.default_rng(7), np.zeros(400_000)
    for mean, deviation in ((4000.0, 2000.0), (500.0, 100.0)):
        sigma = np.sqrt(np.log1p((deviation / mean) ** 2))
        drawn += mean * np.exp(sigma * draw.standard_normal(400_000) - sigma**2 / 2)
    assert drawn.mean() == pytest.approx(4500.0, rel=5e-3)
    assert 0.999 <= np.mean(drawn <= output.longest) < 0.9999
    assert "99.9 %" in output.within


@pytest.mark.parametrize("more", [(), ("--frontier",)])
def test_plans_are_drawn(tmp_path, more):
    pytest.importorskip("matplotlib")
    words = ("plan", "llama-3.1-8b", "--hardware", "h100_sxm", "--hardware", "h200_sxm")
    words += ("--total-gpus", "2", "--mode", "aggregated", "--tpot", "20ms", *more)
    output = answer(*words, "--out", "plans.png")
    assert output["picture"] == "plans.png"
    data = (tmp_path / "plans.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    for said in (b"4,096 tokens in, 512 out", b"2 GPUs", b"weights in bfloat16"):
        assert said in data  # the caption goes with the file
    assert run(*words, "--out", "plans.txt").code == 2


def test_a_confidence_chooses_plans_whose_limits_hold():
    """Dearer than by the mean, and surer."""
    limits = (*ASKED, "--total-gpus", "2", "--ttft", "0.4s", "--tpot", "12ms")
    alone = (*limits, "--mode", "aggregated")
    plain, (sure, printed) = answer(*alone), answered_once(*alone, "--confidence", "0.9")
    assert "confidence" not in plain and plain["plans"][0]["limits_hold"] < 0.9
    assert sure["confidence"] == 0.9 and sure["feasible"] and sure["highest_confidence"] is None
    assert all(0.9 <= p["limits_hold"] <= 1.0 for p in sure["plans"])
    cost = "blended_cost_per_mtok_usd"
    assert sure["plans"][0][cost] > plain["plans"][0][cost]
    assert sure["by_mean"]["layout"] == plain["plans"][0]["layout"]
    assert sure["by_mean"]["limits_hold"] < 0.9
    run_next = sure["measure_next"]
    assert run_next["hardware"] == "h100_sxm" and 0.0 < run_next["share_of_certainty"] <= 1.0
    assert "two pools" not in run_next["unknown"]  # which were not asked for
    assert "limits" in printed and "Measure the" in printed and " %" in printed
    hard = run(*ASKED, "--total-gpus", "2", "--mode", "aggregated", "--ttft", "60ms", "--tpot",
               "4.8ms", "--confidence", "0.9")  # fmt: skip
    assert hard.code == 1 and "the highest that any plan" in " ".join(hard.out.split())


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


def test_a_length_without_spread_is_said_to_be_fixed():
    """Of the two lengths only the one with a spread is log-normal."""
    notes = [
        read_requests(isl, osl, 0.0, 2.0, None).notes
        for isl, osl in (("4000±2000", 200), (4000, "200±100"), ("4000±2000", "200±100"))
    ]
    assert notes == [
        ["Prompts are log-normal, 4000±2000 tokens; every output has 200 tokens."],
        ["Every prompt has 4000 tokens; outputs are log-normal, 200±100 tokens."],
        [
            "Lengths are log-normal, 4000±2000 tokens in and 200±100 tokens out, independent of "
            "each other."
        ],
    ]


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
