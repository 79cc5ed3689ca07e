"""The pages of the studies of silicon have what the laws say now, at the designs that were kept.

Draws and multipliers, which take minutes as tests are compiled, are left out.
"""

import json

import jax
import numpy as np
import pytest

from experiments._silicon.claims import Claim, World
from experiments._silicon.decode import shadow_prices
from experiments._silicon.frame import DRAWS, FITTED, IDEAL, KEPT, STUDIES, Study
from experiments.silicon import studied
from infer_jax.estimators.serving import GENERATIONS, Serving
from infer_jax.silicon.accelerator import chip_limits
from tests.installed.pages import ROOT, difference


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_writes_its_page(name):
    page, figure, _ = studied(name, again=False, light=True)
    written = (ROOT / "docs" / "silicon" / f"{name}.md").read_text("utf-8")
    assert not difference(page.lines, written)
    assert len(written.splitlines()) <= 150 and figure.get_suptitle()


@pytest.mark.slow
def test_limits_that_have_a_price_are_reached():
    kept = json.loads(KEPT.read_text("utf-8"))["decode"]
    study = Study("decode", kept, light=True)
    name, table = "best, ideal", {**study.table["search"], "estimator": IDEAL}
    with jax.enable_x64(True):
        study.search(name, table)
        prices = shadow_prices(study.spec(table), kept[name])
        chip = study.systems[name].chip
        limits = chip_limits(chip)
    reached = {k for k, x in limits.items() if x.need > 0.95 * x.capacity}
    assert reached & {k for k, x in prices.items() if x > 0.005}
    assert not {k for k, x in prices.items() if x > 0.005} & (limits.keys() - reached)
    assert "memory" not in prices  # less than a tenth of it is filled


def serving(study: Study, name: str) -> Serving:
    """The fitted estimator of a chip, with shares that are drawn."""
    target = study.estimators(FITTED, name, DRAWS, None).target
    assert isinstance(target, Serving)
    return target


def test_chips_that_were_measured_keep_their_shares_and_others_draw_those_of_one_more_generation():
    study = Study("memory", light=True)
    new, other, known = (serving(study, name) for name in ("N3, HBM4", "A100", "H100"))
    fitted = study.estimator(FITTED, "H100").target
    assert isinstance(fitted, Serving)
    assert all(np.ptp(x) == 0 for x in jax.tree.leaves(known))
    assert known.hopper.gap[0] == fitted.hopper.gap
    np.testing.assert_array_equal(new.blackwell.gap, other.hopper.gap)  # a draw is of all of them
    logs = np.log([float(getattr(Serving.of(), name).gap) for name in GENERATIONS])
    drawn = np.log(new.blackwell.gap)
    # normal, of a mean that is known from as many: a Latin hypercube of 256 is within 5 %
    assert np.median(drawn) == pytest.approx(logs.mean(), abs=0.01)
    assert np.std(drawn) == pytest.approx(np.std(logs, ddof=1) * (1 + 1 / 4) ** 0.5, rel=0.05)
    ideal = study.estimators(IDEAL, "N3, HBM4", DRAWS, None).target
    assert all(np.ptp(x) == 0 for x in jax.tree.leaves(ideal))


def test_a_claim_says_what_is_true_and_counts_draws_that_have_a_figure():
    claim = Claim({"says": "{x}: dearer", "no": "{x}: not dearer", "of": ["a"], "over": ["b"]})
    one, half = np.ones(1), np.array([0.5])
    worlds = {k: World({("a", ""): {"usd": x}, ("b", ""): {"usd": one}}, "") for k, x in
              {"dear": 2 * one, "cheap": half}.items()}  # fmt: skip
    assert claim.says(worlds["dear"]) == "2: dearer"
    assert claim.says(worlds["cheap"]) == "0.5: not dearer"
    usd = np.array([2.0, 3.0, 0.5, np.inf]), np.array([1.0, 1.0, 1.0, np.inf])
    drawn = World({(k, ""): {"usd": x} for k, x in zip("ab", usd, strict=True)}, "")
    assert claim.agreement(worlds["dear"], drawn) == (2, 3)  # the last keeps no limit
    assert claim.agreement(worlds["cheap"], drawn) == (1, 3)
