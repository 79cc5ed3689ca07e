"""What an answer says of its errors: of measured rows where there are any, else from where."""

from dataclasses import replace

import jax
import pytest

import infer_jax as ij
from infer_jax.catalog import list_systems, load_system
from infer_jax.catalog.published import (
    facts,
    serving_errors,
    serving_measured,
    unseen,
    unseen_errors,
)
from infer_jax.estimators import make, measured_within, trust
from infer_jax.estimators.known_errors import FACTS, GENERATION
from infer_jax.estimators.serving import GENERATIONS, Generation, Serving


def said(name, system, model="qwen3-32b", **asked):
    found = ij.load_system(system)
    return trust(name, make(name, found.coefficients), found, model, **asked)


def test_a_measured_system_has_its_own_errors_and_another_borrows():
    own = said("serving", "h100_sxm")
    assert own.rows == serving_measured().rows["h100_sxm"]["vllm"]
    assert own.borrowed_from is None and own.mark == ""
    assert own.median == serving_errors()["h100_sxm", "vllm"].median
    for system, kind in (("tpu_v6e", "make"), ("h20_sxm", "system"), ("h800_sxm", "system")):
        assert said("serving.sglang", system).median == unseen_errors()[kind].median


def test_one_law_has_the_bands_of_every_question():
    """It asks for the load, the lengths and the pools, and for no chip or model."""

    def width(found, load=32.0, lengths=(1000.0, 1000.0), output="tpot", **asked):
        low, high = found.within(load, lengths, **asked)[output][80]
        assert low < 1.0 < high
        return high / low

    own = said("serving", "h100_sxm")
    others = ("mi355x", "deepseek-r1"), ("l40s", "qwen3-32b"), ("h100_sxm", "opt-13b")
    for system, model in others:
        assert width(said("serving", system, model)) == width(own)
    assert width(own) < width(said("serving", "tpu_v6e"))
    assert width(own, 1.0, output="ttft") < width(own, 256.0, output="ttft")
    assert width(own, output="ttft") < width(own, output="ttft", pools=True)
    chat, document = ((100.0, 1600.0), (1600.0, 100.0))
    for output in ("tpot", "ttft"):
        assert width(own, output=output, lengths=document) < width(own, output=output, lengths=chat)
    assert own.known and not said("serving.complete", "h100_sxm").known


def test_two_systems_have_the_outer_ends_of_both_bands():
    here, there = said("serving", "h100_sxm"), said("serving", "tpu_v6e")
    asked = (32.0, (1000.0, 100.0))
    both = measured_within([here, there], *asked, pools=True)
    for name, shares in both.items():
        for share, (low, high) in shares.items():
            ends = [x.within(*asked, pools=True)[name][share] for x in (here, there)]
            assert (low, high) == (min(x for x, _ in ends), max(x for _, x in ends))


def test_a_chip_whose_title_names_no_measured_make_has_the_bands_of_another_make():
    system = ij.load_system("v100_sxm")
    own = trust("serving", make("serving"), system, "llama-3.1-8b")
    other = trust("serving", make("serving"), replace(system, title="Acme X1"), "llama-3.1-8b")
    asked = (8.0, (1000.0, 100.0))
    assert own.within(*asked) == unseen(facts(*asked))
    for name, shares in unseen_errors()["make"].within.items():
        ends = other.within(*asked)[name]
        assert all(ends[k][0] <= low and high <= ends[k][1] for k, (low, high) in shares.items())


def test_amd_chips_have_coefficients_of_their_own_and_errors_of_their_own_rows():
    own = said("serving.sglang", "mi355x", "deepseek-r1")
    assert own.borrowed_from is None and own.median == serving_errors()["mi355x", "sglang"].median
    assert own.median["tpot"] > own_median()["tpot"]  # the build is not known
    for other in (said("serving.sglang", "mi355x"), said("serving.vllm", "mi300x", "qwen3-32b")):
        assert other.median == unseen_errors()["amd"].median
        assert "AMD servers left out" in other.says


def test_few_rows_and_other_models_get_the_errors_of_what_was_left_out():
    few = said("serving.trtllm", "b300_sxm")
    assert 0 < few.rows < 30 and few.borrowed_from is None
    assert few.median == unseen_errors()["system"].median
    other = said("serving", "h100_sxm", "opt-13b")
    assert other.rows == said("serving", "h100_sxm").rows and "none of opt-13b" in other.says
    assert other.median == unseen_errors()["model"].median
    assert said("serving", "h100_sxm", "llama-3.3-70b").median == own_median()


def own_median():
    return serving_errors()["h100_sxm", "vllm"].median


def test_a_format_of_few_rows_is_said_and_one_of_none_has_the_errors_of_what_was_left_out():
    measured = serving_measured()
    for system, engines in measured.weights.items():
        for engine, widths in engines.items():
            assert sum(widths.values()) == measured.rows[system][engine]
    assert "16" not in measured.weights["h200_sxm"]["vllm"]
    none, some = said("serving", "h200_sxm", bits=16), said("serving", "h200_sxm", bits=8)
    assert ", none of them with weights of 16 bits; median error of models left" in none.says
    assert none.median == unseen_errors()["model"].median
    assert (
        "weights of" not in some.says and some.median == serving_errors()["h200_sxm", "vllm"].median
    )
    few = said("serving.sglang", "h100_sxm", bits=8)
    count = measured.weights["h100_sxm"]["sglang"]["8"]
    assert f", {count} of them with weights of 8 bits; median error of fitted" in few.says
    by_verb = ij.estimate("llama-3.1-8b", "h200_sxm", tp=1, batch=1)
    assert "with weights of 16 bits" in by_verb.trust.says


@pytest.mark.parametrize("name", ["economics", "kernels.published", "partitioning.planned"])
def test_what_was_not_fitted_to_servers_says_so(name):
    assert "servers" in said(name, "h100_sxm").says
    assert said(name, "h100_sxm").fields()["median_error_percent"] is None


ROWS = serving_measured().rows
# generations without a row, of a make that has some; then makes without any
SISTERS = ("a100_pcie", "a100_sxm", "a100_sxm_40gb", "l4", "l40s", "rtx_4090", "t4_host",
           "v100_sxm", "v100_sxm_16gb")  # fmt: skip
OTHERS = ("groq_lpu", "tpu_v4", "tpu_v5e", "tpu_v5p", "tpu_v6e", "tpu_v7", "trainium2")


@pytest.mark.parametrize("system", sorted(set(list_systems()) - set(ROWS)))
def test_an_answer_says_whose_coefficients_it_has_and_has_them(system):
    found = load_system(system)
    model = make("serving", found.coefficients)
    assert isinstance(model, Serving)
    whose = GENERATIONS[int(model.generation)]
    assert not set(found.coefficients.get("serving", {})) - FACTS
    used, fitted = getattr(model, whose), Generation.published(whose)
    assert jax.tree.leaves(used) == jax.tree.leaves(fitted)
    for name in ("serving", "serving.sglang", "serving.trtllm"):
        known = trust(name, make(name, found.coefficients), found, "llama-3.1-8b")
        assert (known.borrowed_from, known.rows, known.mark) == (GENERATION[whose], 0, "~")
        said = f"no measured rows for {system}: coefficients borrowed from {GENERATION[whose]}"
        assert said in known.says


def test_a_generation_without_rows_is_no_more_certain_than_one_with_and_a_make_less():
    def wide(system):
        found = load_system(system)
        known = trust("serving", make("serving"), found, "llama-3.1-8b")
        low, high = known.within(32.0, (1000.0, 1000.0))["tpot"][80]
        assert low < 1.0 < high
        return high / low

    sisters, others = (set(map(wide, names)) for names in (SISTERS, OTHERS))
    assert len(sisters) == len(others) == 1  # a make has one spread
    assert wide("h100_sxm") <= min(sisters) < min(others)


def test_a_profile_of_its_own_server_is_not_borrowed(tmp_path):
    path = tmp_path / "mine.toml"
    bands = ("tpot_low", "tpot_high", "ttft_low", "ttft_high")
    lines = "\n".join(f'{name} = {{ value = 1, source = "mine" }}' for name in bands)
    path.write_text(
        f'title = "mine"\nbase = "h100_sxm"\n[serving_bands]\n{lines}\n[sources]\nmine = "runs"\n'
    )
    known = trust("serving", make("serving"), ij.load_system(path), "qwen3-32b")
    assert known.calibrated and known.borrowed_from is None
    assert "does not say which model" in known.says and not known.covers()
    path.write_text('title = "mine"\nbase = "mi300x"\n')
    known = trust("serving", make("serving"), ij.load_system(path), "qwen3-32b")
    assert known.borrowed_from == "Hopper"
