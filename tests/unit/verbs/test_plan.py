"""`ij.plan`: what the command prints, as a result; names, profiles and specs alike."""

import math
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import infer_jax as ij
from infer_jax.engines import ENGINES
from infer_jax.planning import Choice
from infer_jax.results.numbers import digits
from infer_jax.servers import runs
from infer_jax.verbs.inputs import systems_of
from infer_jax.verbs.plan_search import frontiers
from tests.cli.report.reading import Reader
from tests.cli.running import answer, answered_once, as_command

MODEL, SYSTEM = "llama-3.1-8b", "h100_sxm"
FEW = {"isl": 2000, "osl": 200, "total_gpus": 2, "mode": "aggregated"}
WORDS = ("plan", MODEL, "--hardware", SYSTEM, "--isl", "2000", "--osl", "200")
WORDS += ("--total-gpus", "2", "--mode", "aggregated")


def test_both_pools_are_planned_in_64_bits_whatever_the_caller_works_in():
    asked: dict[str, Any] = {**FEW, "mode": "disaggregated", "ttft": "none"}
    before, answers = jax.config.jax_enable_x64, []  # pyright: ignore[reportAttributeAccessIssue]
    try:
        for wide in (True, False):  # of every thread, where a context is of one
            jax.config.update("jax_enable_x64", wide)
            answers.append(ij.plan(MODEL, SYSTEM, **asked).to_dict())
    finally:
        jax.config.update("jax_enable_x64", before)
    assert answers[0]["plans"] and answers[0] == answers[1]


@pytest.fixture(scope="module")
def plans():
    return ij.plan(MODEL, SYSTEM, **FEW, tpot=0.012)


def test_it_answers_what_its_command_prints(plans):
    printed, text = answered_once(*WORDS, "--tpot", "12ms")
    assert {"schema": printed["schema"], **as_command(plans)[0]} == printed
    assert as_command(plans)[1].split() == text.split()
    assert plans.best.layout in plans._repr_html_() and "vllm serve" in plans._repr_html_()


def test_profiles_and_specs_answer_as_names_do(plans):
    """But for what starts a plan: numbers do not say which weights to load, on which GPUs."""
    system, model = ij.load_system(SYSTEM), ij.load_model(MODEL)
    given = ij.plan(model, [system], **FEW, tpot=0.012)
    assert given.rows() == plans.rows()
    reasons = [reason for one in given.launch.values() for reason in one.missing]
    assert reasons and all("its name or config.json" in reason for reason in reasons)
    bare = ij.plan(MODEL, system.hardware, **FEW)
    assert bare.best is not None and bare.best.system == "hardware"
    assert not any(x.steps for x in bare.launch.values())
    assert "profile says which GPUs" in str(bare)
    # the architecture and the hardware alone are a system without coefficients of its own, and of
    # a model without a name less is known
    numbers = ij.plan(model.architecture, system.hardware, **FEW).rows()
    for row, named in zip(numbers, bare.rows(), strict=True):
        assert {**row, "limits_hold": 0} == {**named, "formats": "as given", "limits_hold": 0}


def test_systems_that_share_a_name_are_told_apart():
    system = ij.load_system(SYSTEM)
    cheap = replace(system, hardware=system.hardware.with_(price=1.0))
    plans = ij.plan(MODEL, [system, cheap, SYSTEM, SYSTEM], **FEW, top=1)
    assert plans.best is not None and plans.best.system == "h100_sxm (2)"
    assert {c.system for c in plans.plans} == {"h100_sxm", "h100_sxm (2)", "h100_sxm (3)"}
    names = [one.name for one in systems_of([SYSTEM, "h200_sxm"], "h200_sxm")[0]]
    assert names == [SYSTEM, "h200_sxm"]


def test_idle_gpus_of_machines_and_doubtful_limits_are_said():
    """Seven instances on a machine of eight; a limit of p99 alone takes the usual one away."""
    asked: dict[str, Any] = {"request_rate": 20, "tpot": 0.02, "mode": "aggregated", "top": 1}
    result = ij.plan(MODEL, SYSTEM, **asked, p99_ttft=3.0)
    best, row = result.best, result.rows()[0]
    assert best is not None and best.chips == 7 and row["gpus_of_machines"] == 8
    assert row["idle_gpus_of_machines"] == 1
    whole: Any = row["whole_machines_cost_per_mtok_usd"]
    assert whole == pytest.approx(best.usd_per_mtok * 8 / 7)
    said = " ".join(str(result).split())
    assert "7 x TP1 leaves 1 of 8 GPUs of its machines idle: with whole machines" in said
    assert result.to_dict()["usual_ttft_ms"] is None and "usual" not in said
    assert best.holds is not None and 0.5 < best.holds < 0.8
    odds = f"keeps the limits with a probability of {100 * best.holds:.2g} %"
    assert odds in said and "confidence=0.8 asks for more" in said
    owned = ij.plan(MODEL, SYSTEM, **FEW, tpot=0.012)
    assert owned.rows()[0]["gpus_of_machines"] == 8
    tpu = ij.plan(MODEL, "tpu_v6e", **FEW)  # slices are rented by their chips
    assert tpu.rows()[0]["idle_gpus_of_machines"] == 0 and "machines idle" not in str(tpu)


def test_a_limit_of_p95_lies_between_those_of_other_percentiles(monkeypatch):
    """A limit between the p95 and the p99 of a plan is kept as one, and broken as the other."""
    monkeypatch.setattr(runs, "ARRIVALS", 500)
    asked: dict[str, Any] = {"request_rate": 20, "tpot": 0.02, "mode": "aggregated", "top": 1}
    server: Any = ij.estimate(MODEL, SYSTEM, layout="7 x TP1", request_rate=20).estimate
    p95, p99 = (float(server.percentiles[name]) for name in ("p95", "p99"))
    between = 0.5 * (p95 + p99)
    kept = ij.plan(MODEL, SYSTEM, **asked, p95_ttft=between, replay=True)
    (row,) = (x for x in kept.rows() if x["layout"] == "7 x TP1")
    assert row["p95_ttft_ms"] == pytest.approx(1e3 * p95, rel=1e-6) and not row["broken"]
    times: Any = [row[f"replay_{name}_ms"] for name in ("ttft", "p95_ttft", "p99_ttft")]
    assert times == sorted(times) and "p95 of TTFT" in str(kept)
    sure = ij.plan(MODEL, SYSTEM, **asked, p99_ttft=between)
    assert all(c.layout != "7 x TP1" and c.p95_ttft is None for c in sure.plans)
    both = ij.plan(MODEL, SYSTEM, **asked, p95_ttft=10.0, p99_ttft=between)
    assert [c.layout for c in both.plans] == [c.layout for c in sure.plans]
    # the probability is by the limit that is nearest
    assert [c.holds for c in both.plans] == pytest.approx([c.holds for c in sure.plans])


def test_rents_are_of_all_systems_or_of_one():
    def rents(price: Any) -> dict[str, float]:
        plans = ij.plan(MODEL, [SYSTEM, "b200_sxm"], **FEW, top=1, price=price).searched
        return {name: float(x.side.hardware.price) for name, x in plans.systems.items()}

    listed = {name: float(ij.load_system(name).hardware.price) for name in (SYSTEM, "b200_sxm")}
    assert rents(None) == listed and rents(2) == dict.fromkeys(listed, 2.0)
    assert rents({"h100": 2.1}) == rents("h100_sxm=2.1") == listed | {SYSTEM: 2.1}
    assert rents([3.0, "b200_sxm=4"]) == {SYSTEM: 3.0, "b200_sxm": 4.0}


def test_rents_of_different_classes_are_said():
    def notes(*systems: str, **price: Any) -> str:
        return " ".join(ij.plan(MODEL, systems, **FEW, top=1, **price).notes())

    said = "of a GPU cloud: h100_sxm; of a hyperscaler: mi355x: price="
    assert said in notes(SYSTEM, "mi355x")
    assert "different classes" not in notes(SYSTEM, "b200_sxm") + notes("mi355x")
    assert "different classes" not in notes(SYSTEM, "mi355x", price={"mi355x": 4.0})
    assert "different classes" not in notes(SYSTEM, "mi355x", set="hardware.price=*0.5")


@pytest.mark.parametrize(
    "price, sentence",
    [
        ([2, 4], 'price is 4; allowed: one for all systems, or one of each, such as price="h100'),
        ([2.5, 4], 'such as price="h100_sxm=2.5" and price="b200_sxm=4"'),
        (["h100=2", "h100_sxm=3"], "price is '3'; allowed: one for all systems"),
        ({"b300_sxm": 1.0}, "price is 'b300_sxm=1'; allowed: of one of h100_sxm, b200_sxm"),
        ({SYSTEM: 0.0}, "a price above 0, of 1e\\+12 at most, or with a system: {"),
        ("cheap", "price is 'cheap'; allowed: a price above 0"),
    ],
)
@pytest.mark.parametrize("verb", ["plan", "compare", "frontier", "report"])
def test_rents_of_no_system_are_refused(verb, price, sentence):
    with pytest.raises(ij.InputError, match=sentence):
        getattr(ij, verb)(MODEL, [SYSTEM, "b200_sxm"], total_gpus=2, price=price)


def test_at_the_rent_that_is_said_another_system_costs_the_same_and_then_wins():
    """Of measured systems; one that was never measured wins below it, by its slow end."""
    systems, nudge = [SYSTEM, "b200_sxm", "mi355x"], 1e-3
    asked: dict[str, Any] = {**FEW, "tpot": 0.03, "top": 1}
    random = np.random.default_rng(0)
    rents = dict(zip(systems, random.uniform([1.0, 2.0, 1.0], [4.0, 8.0, 6.0]), strict=True))
    answer = ij.plan(MODEL, systems, **asked, price=rents)
    assert answer.best is not None and len(answer.searched.break_evens) == 2
    first = answer.best.system

    def plans_at(name: str, rent: float):
        return ij.plan(MODEL, systems, **asked, price={**rents, name: rent})

    for x in answer.searched.break_evens:
        other = x.choice.system
        assert x.rent == rents[other] and (x.below == x.equal) == ("mi355x" not in (first, other))
        costs = {c.system: c.usd_per_mtok for c in plans_at(other, x.equal).plans}
        assert costs[other] == pytest.approx(costs[first], rel=1e-9)
        wins, loses = (plans_at(other, x.below * (1.0 + s)).best for s in (-nudge, nudge))
        assert wins and loses and (wins.system, loses.system) == (other, first)
    nearest = answer.searched.break_evens[0]
    stays, goes = (plans_at(first, nearest.above * (1.0 + s)).best for s in (-nudge, nudge))
    assert stays and goes and (stays.system, goes.system) == (first, nearest.choice.system)
    said = f"{nearest.choice.system} wins below {digits(nearest.below)} $/h"
    assert said in " ".join(str(answer).split())
    row = answer.to_dict()["break_even"][0]  # pyright: ignore
    assert row["wins_below_per_hour_usd"] == nearest.below


def test_engines_are_compared_by_the_plan_that_each_would_be_asked_for():
    asked: dict[str, Any] = {**FEW, "tpot": 0.012, "top": 1}
    both = ij.plan(MODEL, SYSTEM, **asked, engine="sglang", compare_engines=True)
    assert [*both.engines] == [*ENGINES]
    rows = {row["engine"]: row for row in both.to_dict()["engines"]}  # pyright: ignore
    for name, plans in both.engines.items():
        alone = ij.plan(MODEL, SYSTEM, **asked, engine=name)
        assert plans.best == alone.best and rows[name] == {"engine": name, **alone.rows()[0]}
    assert both.best == both.engines["sglang"].best
    assert "The cheapest plan of each engine" in str(both)
    # an engine that runs on none of the chips has no row of numbers
    asked["tpot"] = 0.03
    amd = ij.plan(MODEL, "mi300x", **asked, compare_engines=True)
    rows = {row["engine"]: row for row in amd.to_dict()["engines"]}  # pyright: ignore
    assert rows["trtllm"] == {"engine": "trtllm", "why_none": "TensorRT-LLM runs on NVIDIA GPUs"}
    assert rows["vllm"]["layout"] in str(amd) and "runs on NVIDIA GPUs" in str(amd)
    asked["tpot"] = 1e-4
    fast = ij.plan(MODEL, SYSTEM, **asked, compare_engines=True)
    assert "none meets every limit" in str(fast)
    with pytest.raises(ij.InputError, match="allowed: one of estimator, compare_engines"):
        ij.plan(MODEL, SYSTEM, **asked, estimator="serving.vllm", compare_engines=True)


@pytest.mark.parametrize(
    "systems, few", [(["h100_sxm", "b200_sxm"], {}), ([SYSTEM], {"total_gpus": 1})]
)
def test_at_the_rate_that_is_said_another_plan_comes_first(systems, few):
    """Or none meets the limits: of one GPU, beyond what it carries."""
    asked: dict[str, Any] = {"isl": 2000, "osl": 200, "mode": "aggregated", "top": 1, **few}
    asked |= {"ttft": 0.3, "tpot": 0.03}
    answer = ij.plan(MODEL, systems, **asked, request_rate=8.0, other_rates=True)

    def kind(plan: Choice | None) -> object:
        return plan and (plan.system, plan.pools[0].layout)

    assert answer.rates
    for x in answer.rates:
        assert max(x.rate, x.same) <= 1.01 * min(x.rate, x.same)
        there, here = (ij.plan(MODEL, systems, **asked, request_rate=r).best for r in x[:2])
        assert kind(there) == kind(x.choice) != kind(answer.best) == kind(here)
        where = f"{'from' if x.rate > 8.0 else 'up to'} {digits(x.rate)} requests/s"
        said = "no plan meets" if x.choice is None else f"{x.choice.layout} on {x.choice.system}"
        assert f"{where} {said}" in " ".join(str(answer).split())
    assert (answer.rates[0].choice is None) == bool(few)
    rows: Any = answer.to_dict()["other_rates"]
    assert [row["request_rate_per_s"] for row in rows] == [x.rate for x in answer.rates]


def test_plans_of_two_systems_have_no_rent_that_decides():
    plans = ij.plan(MODEL, SYSTEM, decode_hardware="h200_sxm", total_gpus=2, isl=2000, osl=200)
    assert plans.plans and not plans.searched.break_evens


def test_its_page_has_every_plan_of_the_frontier_and_the_one_to_take(plans, tmp_path):
    pytest.importorskip("vl_convert")
    out = tmp_path / "plan.html"
    said = answer(*WORDS, "--tpot", "12ms", "--out", str(out))
    assert said["picture"] == str(out)
    page = out.read_text()
    shown = Reader(page).plans
    (chosen,) = (plan for plan in shown if plan["chosen"])
    assert chosen["layout"] == plans.best.layout
    assert chosen["speed"] == pytest.approx(1.0 / plans.best.tpot)
    assert chosen["usd"] == pytest.approx(plans.best.usd_per_mtok)
    assert f"TP{chosen['gpus']:g}'" in chosen["command"] and "--quant" not in chosen["command"]
    systems = {label: search.systems for label, search in plans.searched.searches.items()}
    (series,) = frontiers(plans.question, systems).values()
    assert {plan["usd"] for plan in shown} >= {choice.usd_per_mtok for choice in series}
    assert "choose among these plans" in page and plans.best.layout in page.split("<form")[0]
    paid = ij.plan(MODEL, SYSTEM, **FEW, tpot=0.012, price=3.0, currency="EUR")
    paid.draw(out)
    assert "EUR per million tokens" in out.read_text() and "USD per" not in out.read_text()


def test_the_first_plans_are_replayed_as_the_verb_replays_them():
    """The server that the launch command starts, its share of the load, a tenth not counted."""
    few: dict[str, Any] = FEW | {"total_gpus": None}
    limits: dict[str, Any] = {"ttft": 0.5, "tpot": 0.0125}
    plans = ij.plan(MODEL, SYSTEM, **few, concurrency=20, replay=True, top=2, **limits)
    table: list[dict[str, Any]] = [dict(row) for row in plans.rows()]
    for row, choice in zip(table, plans.plans, strict=True):
        degrees: dict[str, Any] = dict(choice.degrees)
        tp, loop = degrees["tp"], round(choice.batch)
        if degrees["pp"] > 1:
            assert row["replay_ttft_ms"] is None and "pipeline" in row["not_replayed"]
            continue
        sizes = {"max_num_seqs": loop, "max_num_batched_tokens": 8192}
        most = max(round(c.batch) for c in plans.plans)
        requests = {"prompts": max(10 * most, 200), "warmup": max(most, 20), "concurrency": loop}
        asked: dict[str, Any] = {"isl": 2000, "osl": 200, **requests, **sizes}
        run = ij.replay(MODEL, SYSTEM, tp=tp, **asked, **limits)
        assert run.goodput is not None
        share = run.goodput / run.request_throughput
        assert row["replay_within_limits"] == pytest.approx(share)
        for name, time in (("ttft", run.times["ttft"]), ("tpot", run.times["tpot"])):
            assert row[f"replay_{name}_ms"] == pytest.approx(1e3 * time.values["mean"])
            assert row[f"replay_p99_{name}_ms"] == pytest.approx(1e3 * time.values["p99"])
    assert any(row["replay_ttft_ms"] for row in table)
    assert "By law and by replay" in str(plans)


def test_a_plan_whose_requests_break_its_limits_too_often_goes_down(monkeypatch):
    """Its means keep them: of the cheapest plan at that load less than 95 % of the requests do."""
    monkeypatch.setattr(runs, "ARRIVALS", 500)
    asked: dict[str, Any] = {"isl": 2000, "osl": 200, "mode": "aggregated", "request_rate": 8.0}
    asked |= {"ttft": 0.3, "tpot": 0.015, "top": 2, "replay": True}
    by_means = ij.plan(MODEL, SYSTEM, **asked).best
    assert by_means and by_means.replay and by_means.replay.times
    assert by_means.replay.times.within < 0.95 and not by_means.replay.excess
    answer = ij.plan(MODEL, SYSTEM, **asked, goodput=0.95)
    best, table = answer.best, [dict[str, Any](row) for row in answer.rows()]
    assert best and best.replay and best.replay.times and best.usd_per_mtok > by_means.usd_per_mtok
    assert best.replay.times.within >= 0.95 and "goodput by" in str(answer)
    broken = [row["replay_broken"] != {} for row in table]
    assert broken == sorted(broken) and True in broken
    for row in table:
        missing = 1.0 - row["replay_within_limits"] / 0.95
        assert row["replay_broken"] == ({"goodput": missing} if missing > 0.0 else {})


def test_two_pools_are_replayed_with_all_their_instances():
    """As the verb replays them: decoding requests, and by Little's law those in front of them."""
    few = {"total_gpus": 3, "mode": "disaggregated", "isl": 2000, "osl": 20, "tpot": 0.008}
    plans = ij.plan(MODEL, SYSTEM, **few, ttft=1.0, replay=True, top=1)
    best, row = plans.best, plans.rows()[0]
    assert best is not None
    degrees: dict[str, Any] = dict(best.degrees)
    first, second = degrees["prefill"], degrees["decode"]
    loop = math.ceil(best.batch * second["instances"] + best.requests_per_s * best.ttft)
    given: dict[str, Any] = {"prefill_tp": first["tp"], "prefill_instances": first["instances"]}
    given |= {"decode_tp": second["tp"], "decode_instances": second["instances"]}
    count = max(10 * loop, 200)
    asked: dict[str, Any] = {
        "isl": 2000, "osl": 20, "concurrency": loop, "prompts": count, "warmup": count // 10,
    }  # fmt: skip
    run = ij.replay(MODEL, SYSTEM, **given, **asked)
    # sizes of the launch command, which hold more than there is, in place of the engine's
    assert row["replay_tpot_ms"] == pytest.approx(1e3 * run.times["tpot"].values["mean"], rel=0.05)
    assert row["replay_ttft_ms"] == pytest.approx(1e3 * run.times["ttft"].values["mean"], rel=0.35)
    assert row["not_replayed"] is None
