"""What the verbs print is what the Python API answers, changes and trust included, and fits."""

import json
from inspect import signature

import jax
import pytest

import infer_jax as ij
from infer_jax.cli.commands import command_of
from infer_jax.cli.table import VERBS, line_of
from infer_jax.estimators import VARIANTS
from infer_jax.footprint import EngineSettings, memory
from infer_jax.physics import decoder
from infer_jax.verbs.option import Time
from tests.cli.running import answer, answered_once, close, run

PLANNED = ("estimate", "llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "2", "--isl", "1000")


@pytest.fixture(scope="module")
def world():
    model, system = ij.load_model("llama-3.1-8b"), ij.load_system("h100_sxm")
    return model.architecture, system.hardware, system.coefficients


def test_estimate_is_the_estimate(world):
    arch, hardware, coefficients = world
    words = (*PLANNED, "--osl", "101", "--concurrency", "24", "--dp", "3", "--ttft", "0.3s")
    output = answer(*words, "--price", "1.5")
    work = ij.Workload.of(isl=1000, osl=101, batch=8)
    estimator = ij.make("serving", coefficients)
    priced = hardware.with_(price=1.5)
    life = jax.jit(estimator.estimate)(arch, priced, work, ij.Plan.of(tp=2, dp=3))
    assert close(output["ttft_ms"], 1e3 * life.ttft)
    assert close(output["tpot_ms"], 1e3 * life.tpot)
    assert close(output["speed_tokens_per_s"], life.speed)
    assert close(output["output_cost_per_mtok_usd"], life.cost)
    assert close(output["input_cost_per_mtok_usd"], life.input_cost)
    assert close(output["throughput_tokens_per_s"], 6 * life.throughput)
    assert (output["batch"], output["gpus"], output["total_gpus"]) == (8, 2, 6)
    assert output["price_source"] == "given by --price"
    notes = " ".join(answer(*PLANNED)["notes"])
    assert "flops_4 missing: filled with flops_8" in notes
    assert "Hyperstack GPU price list" in notes
    assert output["limits"]["ttft"] == {
        "limit_ms": 300,
        "value_ms": output["ttft_ms"],
        "met": bool(life.ttft <= 0.3),
    }
    for phase, built in (("prefill", life.prefill), ("decode", life.decode)):
        assert output[phase]["feasible"]
        assert set(output[phase]["terms"]) == {f"{name}_ms" for name in built.terms}
        for name, term in built.terms.items():
            assert close(output[phase]["terms"][f"{name}_ms"], 1e3 * term)
        limit = built.limits["memory"]
        assert close(output[phase]["limits"]["memory"]["slack_bytes"], limit.slack)


def test_not_fitting_is_an_answer():
    words = ("llama-3.1-70b", "--hardware", "h100_sxm", "--tp", "1")
    output, printed = answered_once("estimate", *words)
    assert not output["feasible"] and "Not feasible: decode: memory needs" in printed
    limit = output["decode"]["limits"]["memory"]
    assert limit["slack_bytes"] == limit["capacity_bytes"] - limit["need_bytes"] < 0
    output, printed = answered_once("memory", *words)
    assert not output["fits"] and "Does not fit: " in printed


def test_memory_is_the_memory(world):
    arch, hardware, _ = world
    words = ("memory", "llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "2")
    given = ("--max-model-len", "8192", "--gpu-memory-utilization", "0.8")
    output, printed = answered_once(*words, *given)
    shown = ij.load_system("h100_sxm").coefficients["serving"]["visible"]
    engine = EngineSettings.of(visible=shown, utilization=0.8, context=8192)
    held = memory(arch, hardware, ij.Plan.of(tp=2), engine)
    assert close(output["kv_cache_size_tokens"], held.tokens)
    assert close(output["maximum_concurrency"], held.concurrency)
    assert close(output["slack_bytes"], held.slack)
    assert close(sum(output["weights"].values()), held.weight_bytes)
    assert "GPU KV cache size: " in printed
    assert "Maximum concurrency for 8,192 tokens per request: " in printed


def test_lists_are_complete():
    models = answer("models")["models"]
    assert tuple(row["name"] for row in models) == ij.list_models()
    llama = next(row for row in models if row["name"] == "llama-3.1-8b")
    arch = ij.load_model("llama-3.1-8b").architecture
    assert close(llama["parameters"], decoder.total(decoder.parameters(arch).values()))
    systems = answer("hardware")["hardware"]
    assert tuple(row["name"] for row in systems) == ij.list_systems()
    one = answer("hardware", "h100_sxm")["hardware"][0]
    assert {x["field"]: x["source"] for x in one["numbers"]}["chip.memory"].startswith("NVIDIA")
    assert [row["name"] for row in answer("estimators")["estimators"]] == list(VARIANTS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_helps_with_an_example_and_has_what_all_have(verb):
    ran = run(verb, "--help")
    assert ran.code == 0
    assert f"Example: infer-jax {verb} {VERBS[verb].example}".rstrip() in " ".join(ran.out.split())
    assert "--json" in ran.out and "--quiet" in ran.out
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= 80 and not any(x.endswith("-") for x in lines)
    assert "\x1b" not in ran.out and "…" not in ran.out


def test_quiet_leaves_the_answer_alone():
    words = ("memory", "llama-3.1-8b", "--hardware", "h100_sxm")
    output, quiet = run(*words), run(*words, "--quiet")
    assert quiet.code == 0
    assert output.out.startswith(quiet.out)
    assert output.out.removeprefix(quiet.out).startswith("\n- ")
    assert run(*words, "--json", "-q") == run(*words, "--json")
    assert run(*words) == output  # it holds for one command


@pytest.mark.parametrize(
    ("words", "result"),
    [
        ("infer-jax es", {"estimate", "estimators"}),
        ("infer-jax estimate llama-3.3", {"llama-3.3-70b"}),
        ("infer-jax estimate llama-3.3-70b --hardware h200", {"h200_sxm"}),
        ("infer-jax estimate llama-3.3-70b --estimator serving.v", {"serving.vllm"}),
    ],
)
def test_the_tab_key_completes_verbs_and_names(words, result, monkeypatch):
    monkeypatch.setenv("_INFER_JAX_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    assert set(run().out.split()) == result


def test_no_words_are_a_question_for_help_which_has_every_verb_in_full():
    assert run().out == run("--help").out
    words = " ".join(run().out.split())
    assert all(f"{name} {line_of(name)}" in words for name in VERBS)


def test_durations():
    kind = Time()
    read = {x: kind.check(kind.parse(x)) for x in ("300ms", "0.3s", "300", "80us", " 1e3 ms ")}
    assert [*read.values()] == pytest.approx([0.3, 0.3, 0.3, 8e-5, 1.0], rel=1e-12)


# a profile is written, which says nothing of changed hardware; a design is said in its spec
UNFIT = ("calibrate", "codesign")
POINT = ("llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "1")
FASTER = ("--set", "hardware.chip.memory_bandwidth=*2")


def test_every_verb_of_a_model_and_hardware_takes_it():
    for name in VERBS:
        own = signature(command_of(name)).parameters
        wanted = {"config", "hardware"} <= set(own) and name not in UNFIT
        ran = run(name, "--set", "nonsense")
        assert ("No such option" in ran.err) != wanted, (name, ran.err)
        assert ran.code == 2


def test_what_is_set_is_what_answers():
    output = answer("estimate", *POINT, *FASTER, "--set", "estimator.weight_read=0.8")
    system, model = ij.load_system("h100_sxm"), ij.load_model("llama-3.1-8b")
    chip = system.hardware.chip
    faster = system.hardware.replace(chip=chip.with_(memory_bandwidth=2 * chip.memory_bandwidth))
    estimator = ij.make("serving", system.coefficients).with_(weight_read=0.8)
    life = jax.jit(estimator.estimate)(
        model.architecture, faster, ij.Workload.of(isl=4096, osl=512, batch=1), ij.Plan.of(tp=1)
    )
    assert output["tpot_ms"] == pytest.approx(1e3 * float(life.tpot), rel=1e-6)
    assert output["set"] == [FASTER[1], "estimator.weight_read=0.8"]
    assert output["trust"]["borrowed_from"] == "Hopper" and "tpot_interval80_ms" not in output
    assert any("Changed by --set" in note for note in output["notes"])
    # one command's changes are not another's
    assert answer("estimate", *POINT)["tpot_ms"] > output["tpot_ms"]


def test_memory_and_a_price_are_set_too():
    more = answer("memory", *POINT, "--set", "hardware.chip.memory=160e9")
    assert more["kv_cache_size_tokens"] > 2 * answer("memory", *POINT)["kv_cache_size_tokens"]
    output = answer("estimate", *POINT, "--set", "hardware.price=1")
    assert (output["price_per_hour_usd"], output["price_source"]) == (1, "given by --set")


def test_memory_says_that_one_gpu_is_taken_where_none_is_given():
    for given, said in (((), "TP1 (no --tp is given)"), (("--tp", "1"), "_sxm, TP1")):
        assert run("memory", *POINT[:3], *given).out.splitlines()[0].endswith(said)


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [(("--tp", "3"), "--tp", "3"), (("--tp", "x"), "--tp", "x"),
     (("--tp", "1", "--quant", "fp7"), None, None)],
)  # fmt: skip
def test_errors_are_json_where_json_is_asked_for(words, field, value):
    ran = run("estimate", *POINT[:3], *words, "--json")
    assert ran.code == 2 and ran.err.count("\n") == 1
    error = json.loads(ran.out)["error"]
    assert set(error) == {"field", "value", "allowed", "message"} and error["message"]
    if field:
        assert (error["field"], error["value"]) == (field, value)
    assert run("estimate", *POINT[:3], *words).out == ""


def test_a_token_visits_no_more_experts_than_there_are():
    few = ("--set", "arch.blocks.0.feedforward.experts=1")
    for name in ("serving", "economics.planned"):
        words = ("mixtral-8x7b", "--hardware", "h100_sxm", "--tp", "4", "--estimator", name)
        ran = run("estimate", *words, *few)
        assert ran.code == 2 and ran.err.count("\n") == 1
        assert "active is '2'; allowed: at most 1, the routed experts" in ran.err


ONE = ("--tp", "1", "--isl", "1000", "--osl", "101")
SPACE = """
[arch]
model = "llama-3.1-8b"
[hardware]
systems = ["h100_sxm", "h20_sxm", "dark.toml"]
[plan]
tp = { values = [1, 2] }
[keep]
top = 6
by = "cost"
"""


DARK = """
base = "h100_sxm"
title = "an H100 of unknown power"
power_w = { value = 0, source = "us" }
[sources]
us = "we, 2026"
"""


def lines(out: str) -> str:
    return " ".join(out.split())


def test_estimate_marks_what_is_borrowed():
    point = ("estimate", "llama-3.1-8b", "--hardware", "h20_sxm", *ONE)
    output, printed = answered_once(*point)
    assert output["trust"]["borrowed_from"] == "Hopper" and output["trust"]["rows"] == 0
    assert "no measured rows for h20_sxm: coefficients borrowed from Hopper" in lines(printed)
    assert f"~{output['ttft_ms']:.4g}" in printed


def test_a_plan_marks_its_borrowed_rows_and_no_other():
    words = ("plan", "llama-3.1-8b", "--hardware", "h100_sxm", "--hardware", "h20_sxm")
    words += ("--total-gpus", "1", "--isl", "1000", "--osl", "101")
    output, printed = answered_once(*words)
    assert {row["hardware"]: row["borrowed_from"] for row in output["plans"]} == {
        "h100_sxm": None,
        "h20_sxm": "Hopper",
    }
    assert output["trust"]["h100_sxm"]["rows"] > 0 == output["trust"]["h20_sxm"]["rows"]
    rows = [line for line in printed.splitlines() if "x TP1" in line and " 1 " in line]
    assert rows
    for line in rows:
        if "h20_sxm" in line or "h100_sxm" in line:
            assert line.startswith("~") == ("h20_sxm" in line)


def test_compare_marks_the_column():
    words = ("compare", "llama-3.1-8b", "--hardware", "h20_sxm", *ONE, "--estimator",
             "economics.planned")  # fmt: skip
    output, printed = answered_once(*words)
    one, two = output["estimators"]
    assert one["trust"]["borrowed_from"] == "Hopper" and two["trust"]["borrowed_from"] is None
    assert "serving ~" in printed and "economics.planned ~" not in printed
    assert "second over first" in lines(printed)


def test_a_sweep_marks_its_rows_and_asks_no_energy_of_a_chip_whose_power_is_unknown(tmp_path):
    (tmp_path / "dark.toml").write_text(DARK)
    file = tmp_path / "space.toml"
    file.write_text(SPACE.replace('by = "cost"', 'by = "energy"'))
    refused = run("sweep", "space.toml")
    assert refused.code == 2 and "dark has none" in refused.err
    file.write_text(SPACE)
    output, printed = answered_once("sweep", "space.toml")
    borrowed = {one["hardware"]: one["borrowed_from"] for one in output["trust"]}
    assert borrowed["h100_sxm"] is None and borrowed["h20_sxm"] == "Hopper"
    assert "~ h20_sxm" in printed and "~ h100_sxm" not in printed
    energies = {row["hardware"]: row.get("energy") for row in output["rows"]}
    assert energies["dark"] is None


def test_a_command_is_of_the_release_that_it_names():
    words = ("estimate", "llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "1")
    old = answer(*words, "--engine-version", "0.12.0")
    assert old["engine_version"] == "0.12.0" and old["tpot_ms"] > answer(*words)["tpot_ms"]
    assert "vLLM 0.12.0 of 2025-12, 6 months older than" in old["trust"]["says"]
    wrong = run(*words, "--engine-version", "0.5.0")
    known = "a release of vLLM from 0.6.0 to 0.33.0, or a month from 2024-09 on\n"
    assert wrong.code == 2
    assert wrong.err == f"infer-jax: --engine-version is '0.5.0'; allowed: {known}"
    assert "of 2026-06" in " ".join(run("estimate", "--help").out.split())


def test_a_measured_system_is_told_by_its_errors_and_marked_nowhere():
    point = ("llama-3.1-8b", "--hardware", "h100_sxm", *ONE)
    for verb in ("estimate", "sensitivity"):  # which lists other chips, too
        answered, printed = answered_once(verb, *point)
        assert answered["trust"]["says"] in lines(printed)
        assert verb != "estimate" or "~" not in printed
