"""Numbers of the report are those of the other verbs."""

import re
import shlex
from html import unescape
from xml.etree import ElementTree as ET

import pytest

from infer_jax.plots.plan_chart import in_words
from tests.cli.report.reading import ASKED, INTERVALS, WORDS, Reader
from tests.cli.running import answer, answered_once


def test_the_frontier_of_an_ideal_server_is_the_one_that_the_verb_prints(given_page):
    output, text = given_page
    theirs = answer("frontier", "llama-3.1-8b", "--hardware", "h100_sxm", "--no-picture")["rows"]
    assert output["frontier"] == theirs
    drawn = [p for p in Reader(text).plans if p["line"]]
    names = {"gpus": "gpus", "batch": "batch", "speed": "speed_tokens_per_s"}
    names |= {"usd_out": "output_cost_per_mtok_usd", "tpot": "tpot_ms"}
    for row, mine in zip(theirs, drawn, strict=True):
        assert [mine[k] for k in names] == pytest.approx(
            [row[k] for k in names.values()], rel=1e-12
        )


def test_numbers_are_those_of_estimate_and_memory(given_page):
    output, text = given_page
    same = [*WORDS[1:], "--estimator", "economics.planned"]
    one = answer("estimate", *same)
    for name in ("ttft_ms", "tpot_ms", "speed_tokens_per_s", "output_cost_per_mtok_usd"):
        assert output[name] == pytest.approx(one[name], rel=1e-9)
    # what the page's filters compare with limits in ms
    (plan,) = (p for p in Reader(text).plans if p["chosen"])
    times = [one["ttft_ms"], one["tpot_ms"], one["speed_tokens_per_s"]]
    assert [plan[name] for name in ("ttft", "tpot", "speed")] == pytest.approx(times, rel=1e-6)
    # of the server that the page starts: its longest context is isl + osl and 128 of a template
    sequences = set(re.findall(r"--max-num-seqs (\d+)", text))
    assert len(sequences) == 1  # in the launch command and in the command of the memory
    held = answer("memory", *WORDS[1:6], "--max-model-len", "4736", "--max-num-seqs", *sequences)
    assert f"{held['weights_bytes']:,.0f}" in text
    assert f"{held['kv_cache_size_tokens']:,.0f} tokens" in text


def test_what_it_costs_adds_up(given_page):
    """Fresh and cached tokens at their prices are what a prompt with that much cached pays."""
    output, text = given_page
    costs, (isl, osl) = output["costs"], (4096, 512)
    assert costs["per_month_usd"] == pytest.approx(730 * costs["per_hour_usd"])
    assert costs["per_hour_usd"] == pytest.approx(2 * output["price_per_hour_usd"])
    paid = isl * costs["input_per_mtok_usd"] + osl * costs["output_per_mtok_usd"]
    assert paid == pytest.approx((isl + osl) * costs["blended_per_mtok_usd"])
    held = costs["cached_input_tokens"]
    same = [*WORDS[1:], "--estimator", "economics.planned", "--prefix", str(held)]
    half = answer("estimate", *same)["input_cost_per_mtok_usd"] * (isl - held)
    mine = (isl - held) * costs["input_per_mtok_usd"] + held * costs["cached_input_per_mtok_usd"]
    assert mine == pytest.approx(half)
    assert 0.0 < costs["cached_input_per_mtok_usd"] < costs["input_per_mtok_usd"]
    assert f"{costs['per_month_usd']:,.0f}" in text


def test_the_plan_is_the_first_that_the_verb_plan_prints(searched_page):
    """The same question has the same answer: layout, batch, times, dollars, what starts it."""
    output, text = searched_page
    planned = answer("plan", *ASKED, "--tpot", "20ms")
    first = planned["plans"][0]
    assert (output["layout"], output["hardware"]) == (first["layout"], first["hardware"])
    assert output["batch"] == first["concurrency_per_replica"]
    for name in ("ttft_ms", "tpot_ms", "output_cost_per_mtok_usd"):
        assert output[name] == pytest.approx(first[name], rel=1e-9)
    assert output["costs"]["blended_per_mtok_usd"] == first["blended_cost_per_mtok_usd"]
    assert output["launch"] == planned["launch"]
    for launch in planned["launch"].values():
        for step in launch["commands"]:
            assert step["command"] in unescape(text)
    chosen = [p for p in Reader(text).plans if p["chosen"]]
    assert [(p["layout"], p["usd"]) for p in chosen] == [
        (first["layout"], first["blended_cost_per_mtok_usd"])
    ]
    (plan,) = chosen
    assert plan["speed"] == pytest.approx(1e3 / first["tpot_ms"], rel=1e-6)
    params = {p["name"]: p.get("value") for p in Reader(text).data["tradeoff"]["spec"]["params"]}
    assert params["tpot"] == 20.0


def test_two_pools_have_their_page(tmp_path):
    words = ("llama-3.1-8b", "--hardware", "h100_sxm", "--total-gpus", "8", "--tpot", "5ms")
    (output, printed), planned = answered_once("report", *words), answer("plan", *words)
    first = planned["plans"][0]
    assert output["layout"] == first["layout"] and ">" in output["layout"]
    assert output["launch"] == planned["launch"]
    costs = output["costs"]
    paid = 4096 * costs["input_per_mtok_usd"] + 512 * costs["output_per_mtok_usd"]
    assert paid == pytest.approx(4608 * first["blended_cost_per_mtok_usd"], rel=1e-9)
    assert 0.0 < costs["cached_input_per_mtok_usd"] < 0.5 * costs["input_per_mtok_usd"]
    text = unescape((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert in_words(output["layout"]) in text
    assert output["layout"] not in text.partition("<script")[0]
    first, second = output["layout"].split(" > ")
    assert f"{first} for prefill and {second} for decode" in output["answer"]
    assert "separate pools that prefill and decode" in text  # what hollow marks are
    assert "Plans of two pools:" in " ".join(printed.split())  # how sure


def test_a_system_that_cannot_meet_the_limits_is_said_and_no_error(searched_page):
    output, text = searched_page
    able, unable = output["systems"]
    assert (able["hardware"], able["feasible"]) == ("h100_sxm", True)
    assert (unable["hardware"], unable["feasible"]) == ("l4", False)
    (share,) = (unable["broken"][name] for name in ("TPOT",))
    lead = unescape(re.findall(r'id="answer">(.*?)</p>', text, re.DOTALL)[0])
    assert lead == output["answer"] and lead.endswith(f"l4 breaks {', '.join(broken(unable))}.")
    assert share == pytest.approx(unable["tpot_ms"] / 20.0 - 1.0)


def broken(system):
    worst = sorted(system["broken"].items(), key=lambda item: -item[1])
    return [f"{name} by {share:.1%}" for name, share in worst]


def test_where_no_system_meets_the_limits_the_nearest_is_said():
    output = answer("report", *ASKED, "--tpot", "0.5ms", "--out", "chart.svg")
    assert not any(system["feasible"] for system in output["systems"])
    nearest = min(output["systems"], key=lambda system: max(system["broken"].values()))
    assert output["hardware"] == nearest["hardware"]
    said = f"No plan meets every limit: the nearest breaks {broken(nearest)[0]}"
    assert said in output["answer"]
    # the chart alone, with its title and caption, also for readers of the screen
    said = " ".join(text.strip() for text in ET.parse("chart.svg").getroot().itertext())
    assert "speed of a request against cost" in said and "4,096 tokens in, 512 out" in said


def test_frontiers_are_those_of_the_verb_plan_on_every_system(searched_page):
    output, text = searched_page
    rows = output["frontiers"]
    assert {row["series"] for row in rows} == {"h100_sxm", "l4"}
    alone = answer("plan", "llama-3.1-8b", *ASKED[1:3], *ASKED[5:], "--frontier")["frontier"]
    key = ("layout", "concurrency_per_replica", "tpot_ms", "blended_cost_per_mtok_usd")
    mine = {tuple(row[k] for k in key) for row in rows if row["series"] == "h100_sxm"}
    assert {tuple(row[k] for k in key) for row in alone} <= mine
    drawn = Reader(text).plans
    seen = {
        (p["layout"], p["batch"], p["tpot"], p["usd"]) for p in drawn if p["series"] == "h100_sxm"
    }
    assert mine <= seen


def test_the_command_of_a_point_answers_it_and_its_band(searched_page):
    output, text = searched_page
    rows = [row for row in output["frontiers"] if row["series"] == "h100_sxm"]
    one = next(row for row in rows if row["mode"] == "aggregated")
    words = shlex.split(one["command"].replace("\\\n", ""))
    assert words[:2] == ["infer-jax", "estimate"]
    same = answer(*words[1:])
    for name in ("ttft_ms", "tpot_ms", "output_cost_per_mtok_usd", *INTERVALS):
        assert one[name] == pytest.approx(same[name], rel=1e-9), name
    pools = next(row for row in rows if row["mode"] == "disaggregated")
    words = shlex.split(pools["command"].replace("\\\n", ""))
    (best, *_) = answer(*words[1:])["plans"]
    assert best["tpot_ms"] <= 1.001 * pools["tpot_ms"]
    assert best["blended_cost_per_mtok_usd"] <= pools["blended_cost_per_mtok_usd"] * (1 + 1e-9)
    # the band: at the same requests in flight throughput and dollars go by the latency, which errs
    # as the time per output token does
    plans = Reader(text).plans
    drawn = next(p for p in plans if (p["layout"], p["tpot"]) == (one["layout"], one["tpot_ms"]))
    for side, end in (("fast", 0), ("slow", 1)):
        times = [one[name][end] for name in INTERVALS]
        assert one["ttft_ms"] < 511 * one["tpot_ms"]
        whole = times[1] / one["tpot_ms"]
        assert drawn[f"usd_{side}"] == pytest.approx(whole * one["blended_cost_per_mtok_usd"])
        assert drawn[f"speed_{side}"] == pytest.approx(1e3 / times[1])
    assert all(p["banded"] for p in plans if p["pools"])
