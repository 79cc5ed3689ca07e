"""The age of a server's software by its release or month, and what an answer makes of it."""

from dataclasses import replace
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import infer_jax as ij
from infer_jax.catalog.published import Within, serving_coefficients, widen_bands
from infer_jax.engines import ENGINES
from infer_jax.engines.engine import NEWEST
from infer_jax.errors import InputError
from infer_jax.estimators import make, trust
from infer_jax.estimators.known_errors import gap_share
from infer_jax.estimators.serving import Deployment, Serving, ServingWorkload

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
