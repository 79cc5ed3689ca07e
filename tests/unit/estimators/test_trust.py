"""What an answer says of its errors: of measured rows, of its software, else from where."""

from dataclasses import replace
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import infer_jax as ij
from infer_jax.catalog import list_systems, load_system
from infer_jax.catalog.published import (
    Within,
    facts,
    serving_coefficients,
    serving_errors,
    serving_measured,
    unseen,
    unseen_errors,
    widen_bands,
)
from infer_jax.engines import ENGINES
from infer_jax.engines.engine import NEWEST
from infer_jax.errors import InputError
from infer_jax.estimators import make, measured_within, trust
from infer_jax.estimators.known_errors import FACTS, GENERATION, gap_share
from infer_jax.estimators.serving import (
    GENERATIONS,
    Deployment,
    Generation,
    Serving,
    ServingWorkload,
)


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
    assert "weights of" not in some.says
    assert some.median == serving_errors()["h200_sxm", "vllm"].median
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


ASKED: dict[str, Any] = {"tp": 1, "batch": 32, "isl": 1000, "osl": 200}
SIDES = ("tpot", "ttft")


def ages(engine, *versions):
    return [ENGINES[engine].software(version)[0] for version in versions]


def test_a_release_has_the_age_of_its_month():
    """vLLM 0.12.0 came on 2025-12-03, six months before June 2026; a day is of its month.

    What is not listed is of the newest below it: 1.1.0 of TensorRT-LLM came on 2025-12-19, 1.2.0
    on 2026-03-12.
    """
    assert ages("vllm", "0.12.0", "v0.12.0", " 0.12 ", "2025-12", "2025-12-31") == [6.0] * 5
    assert ages("sglang", "0.5.9", "0.4.3.post4") == [4.0, 15.0]  # 2026-02-23, 2025-03-06
    assert ages("trtllm", "1.2.0rc6", "1.2.0.dev3", "1.1.4", "1.1.0+cu130") == [6.0] * 4
    assert ages("vllm", "0.9.0", "0.9.0.1", "0.9.0.post3") == [13.0] * 3
    assert ages("vllm", "0.12.0rc1") == ages("vllm", "0.11.2")


def test_newer_software_counts_as_the_newest_measured():
    assert ages("vllm", "0.33.0", "2027-01", NEWEST) == [0.0, 0.0, 0.0]
    age, says = ENGINES["vllm"].software("9.0")
    assert age == 0.0 and "newer than the releases known (to 0.33.0)" in says


UNKNOWN = ("0.5.5", "2026-01-15abc", "2024-08", "2026-13", "2026-02-32", "12", "new", "",
           "0." + "9" * 6000)  # fmt: skip


@pytest.mark.parametrize("version", UNKNOWN)
def test_what_no_release_is_is_refused(version):
    with pytest.raises(InputError, match=r"from 0\.6\.0 to 0\.33\.0, or a month from 2024-09 on"):
        ENGINES["vllm"].software(version)
    with pytest.raises(InputError, match=r"^estimate: engine_version is .*allowed: a release of"):
        ij.estimate("llama-3.1-8b", "h100_sxm", **ASKED, engine_version=version)


def test_an_estimate_is_of_the_release_and_says_so():
    """Gaps and host times grow by e^(r a), and nothing else does."""
    versions = (None, "2026-08", "0.12.0")
    now, new, old = (
        ij.estimate("llama-3.1-8b", "h100_sxm", **ASKED, engine_version=x) for x in versions
    )
    assert "Priced for" not in now.trust.says and "of 2026-08 as the newest" in new.trust.says
    assert "vLLM 0.12.0 of 2025-12, 6 months older than" in old.trust.says
    assert float(new.estimate.tpot) == float(now.estimate.tpot) and new.intervals == now.intervals
    growth = np.exp(6.0 * float(Serving.of().monthly))
    for name in {*now.estimate.decode.terms} - {"other prefills"}:
        factor = growth if name in ("launch", "host") else 1.0
        before, after = (float(x.estimate.decode.terms[name]) for x in (now, old))
        assert after == pytest.approx(factor * before, rel=1e-9), name


def test_a_plan_a_page_and_a_replay_are_of_the_release():
    few: dict[str, Any] = {"total_gpus": 1, "mode": "aggregated", "top": 1, "isl": 1000, "osl": 200}
    plans = [
        ij.plan("llama-3.1-8b", "h100_sxm", **few, engine_version=x).plans[0]
        for x in (None, "2025-06")
    ]
    asked = {**ASKED, "batch": plans[1].batch}
    one = ij.estimate("llama-3.1-8b", "h100_sxm", **asked, engine_version="2025-06-10")
    assert plans[1].tpot == pytest.approx(float(one.estimate.tpot))
    for name, ends in one.intervals.items():
        if name in plans[1].intervals:
            assert ends == pytest.approx(plans[1].intervals[name])
    page = ij.report("llama-3.1-8b", "h100_sxm", **ASKED, engine_version="0.12.0").page
    assert "--engine-version 0.12.0" in page and "6 months older" in page
    few = {"tp": 1, "concurrency": 2, "prompts": 8, "isl": 64, "osl": 16}
    runs = [
        ij.replay("llama-3.1-8b", "h100_sxm", **few, engine_version=x) for x in (None, "2025-06")
    ]
    assert runs[0].throughput > runs[1].throughput


def test_a_calibrated_profile_is_of_its_own_software():
    system = ij.load_system("h100_sxm")
    bands = {f"{name}_{end}": x for name in SIDES for end, x in (("low", 0.9), ("high", 1.1))}
    coefficients = {**system.coefficients, "serving_bands": bands}
    own = replace(system, name="mine", coefficients=coefficients)
    old, new = (
        ij.estimate("llama-3.1-8b", own, **ASKED, engine_version=version)
        for version in ("0.9.0", None)
    )
    assert float(old.estimate.tpot) == float(new.estimate.tpot) and old.intervals == new.intervals
    assert "engine_version changes nothing" in old.trust.says


def test_only_servers_have_a_release():
    with pytest.raises(InputError, match=r"engine_version is '0.12.0'; allowed: with estimator="):
        ij.estimate(
            "llama-3.1-8b", "h100_sxm", **ASKED, estimator="kernels", engine_version="0.12.0"
        )


def test_bands_widen_by_the_uncertainty_of_a_month():
    """By hand: the root of h^2 + (z a sd s)^2, s the share of gaps, sd of r by its interval."""
    old = ij.estimate("llama-3.1-8b", "h100_sxm", **ASKED, engine_version="2024-12")
    month, share = serving_coefficients()["monthly"], gap_share(old.estimate.decode.terms)
    deviation = 18.0 * share * (month.high - month.low) / 2.0  # of a tenth on either side
    estimator = Serving.of(software_age=18.0)
    within = trust("serving", make("serving"), old.setup.system, "llama-3.1-8b").within
    known = within(32.0, (1000.0, 200.0))
    for name in SIDES:
        for end, plain in zip(old.intervals[f"{name}_interval80_ms"], known[name][80], strict=True):
            half = abs(np.log(end / (1e3 * float(getattr(old.estimate, name)))))
            assert half == pytest.approx(np.hypot(np.log(plain), deviation), rel=1e-9)
            assert half > 1.001 * abs(np.log(plain))
    assert trust("serving", estimator, old.setup.system, "llama-3.1-8b").age_deviation > 0.1


def test_an_end_on_the_other_side_of_the_prediction_moves_outwards():
    band: Within = {"tpot": {80: (1.1, 1.3), 95: (1.0, 1.4)}}
    wide = widen_bands(band, 0.1)["tpot"]
    assert wide[80][0] < 1.1 and wide[80][1] > 1.3 and wide[95][0] < 1.0
    assert widen_bands(band, 0.0) == band


def test_the_share_of_gaps_is_the_slope_of_a_token(x64):
    """d log(decode pass) / d r = a s by a derivative; of times that prefills share, less."""
    model = ij.load_model("llama-3.1-8b").architecture
    hardware = ij.load_system("h100_sxm").hardware

    @jax.jit
    def slopes(age, batch):
        start = Serving.of().replace(software_age=age)
        work = ServingWorkload.of(isl=2000, osl=500).replace(batch=batch)

        def times(monthly):
            made = start.replace(monthly=monthly).estimate(model, hardware, work, Deployment.of())
            own = sum(x for name, x in made.decode.terms.items() if name != "other prefills")
            return jnp.log(jnp.stack([own, made.tpot, made.ttft])), made.decode.terms

        (_, terms), (found, _) = jax.jvp(times, (start.monthly,), (jnp.ones_like(start.monthly),))
        return terms, found

    for age, batch in product((0.0, 12.0), (1.0, 64.0)):
        terms, found = slopes(age, batch)
        limit = age * gap_share(terms)
        assert float(found[0]) == pytest.approx(limit, rel=1e-9)
        assert np.all(np.isfinite(found)) and np.all(found <= limit * (1.0 + 1e-9))


def test_a_version_of_an_engine_without_listed_releases_is_refused(monkeypatch):
    """In one sentence, whatever the version."""
    monkeypatch.setattr(type(ENGINES["vllm"]), "name", "unheard of")
    with pytest.raises(InputError, match="none: releases of vLLM are not listed"):
        ENGINES["vllm"].software("1.0")


def test_each_engine_has_a_code_of_its_own():
    """Codes are the choices 0, 1, 2, ... of a field; those of saved fits stay what they were."""
    codes = {name: engine.code for name, engine in ENGINES.items()}
    assert sorted(codes.values()) == list(range(len(codes)))
    assert (codes["trtllm"], codes["sglang"], codes["vllm"]) == (0, 1, 2)
