"""``--set`` on every verb of a model and hardware; a schema in all JSON; errors as JSON."""

import json
from inspect import signature

import jax
import pytest

import infer_jax as ij
from infer_jax.cli.commands import command_of
from infer_jax.cli.table import VERBS
from tests.cli.running import answer, run

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
