"""An output is declared once, beside its field; every view reads the declaration."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import infer_jax as ij
from infer_jax.estimators import Economics, Estimate
from infer_jax.estimators.registry import ERDIL, VARIANTS, Variant
from infer_jax.specs import Output, number, spec
from infer_jax.sweeps import Axis, Pareto, Space
from infer_jax.sweeps.paths import Point, declared
from tests.cli.running import answer, answered_once

PAGE = Path(ij.__file__).parents[1] / "docs" / "add-an-output.md"
WORDS = ("llama-3.1-8b", "--hardware", "h100_sxm", "--isl", "1024", "--osl", "128", "--tp", "1")
NAME = "economics.carbon"

pytestmark = pytest.mark.skipif(not PAGE.exists(), reason="installed without the checkout")


@pytest.fixture(scope="module")
def carbon():
    """The estimator of the page, with an output that no view of the package knows by name."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(next(b for b in blocks if ">>>" not in b), str(PAGE), "exec"), names)
    kind = names["Carbon"]

    def built():
        return kind.of(target=Economics.as_planned(), intensity=400.0)

    VARIANTS[NAME] = Variant(built, "with CO2", ERDIL)
    yield built
    del VARIANTS[NAME]


def test_an_output_that_follows_from_others_follows_their_changes():
    model, system = ij.load_model("llama-3.1-8b"), ij.load_system("h100_sxm")
    work, plan = ij.Workload.of(isl=1024, osl=128, batch=16), ij.Plan.of(tp=1)
    one = Economics.as_planned().estimate(model.architecture, system.hardware, work, plan)
    assert float(one.speed * one.tpot) == pytest.approx(1.0)
    assert float(one.replace(tpot=0.04).speed) == pytest.approx(25.0)
    # what is given stays, and so does what follows from something else
    assert one.replace(tpot=0.04, speed=7.0).speed == 7.0
    assert one.replace(tpot=0.04, speed=7.0).replace(cost=1.0).speed == 7.0


def test_every_view_has_the_new_output(carbon, monkeypatch):
    """A row of estimate and compare, slopes, a column of a sweep and a line of a page."""
    monkeypatch.setenv("COLUMNS", "140")
    asked = (*WORDS, "--batch", "16", "--estimator")
    one, said = answered_once("estimate", *asked, NAME)
    system, model = ij.load_system("h100_sxm"), ij.load_model("llama-3.1-8b")
    joules = 1e6 * float(system.hardware.power) * 1e-3 * one["tpot_ms"] / 16
    assert one["carbon_per_mtok_g"] == pytest.approx(joules / 3.6e6 * 400.0)
    (row,) = (line for line in said.splitlines() if "CO2 of output tokens" in line)
    assert row.split()[-2:] == [f"{one['carbon_per_mtok_g']:.4g}", "g/Mtok"]
    both, said = answered_once("compare", *asked, "economics.planned", "--estimator", NAME)
    plain, mine = (each["answers"] for each in both["estimators"])
    assert mine["carbon_per_mtok_g"] == one["carbon_per_mtok_g"] and "carbon" not in str(plain)
    assert re.search(r"CO2 of output tokens +g/Mtok +- +\d", said)
    (point,) = answer("sensitivity", *asked, NAME)["points"]
    slopes = {e["path"]: e["slope"] for e in point["elasticities"] if e["output"] == "carbon"}
    # grams are power x time x intensity
    assert slopes["hardware.power"] == slopes["estimator.intensity"] == pytest.approx(1.0)
    work = ij.Workload.of(isl=1024, osl=128).replace(batch=Axis.values(1, 4, 16))
    space = Space(arch=model, hardware=system, workload=work, plan=ij.Plan.of(tp=1))
    keep = Pareto("speed", "carbon")
    kept = ij.sweep(space, keep=keep, estimator=carbon())
    assert kept.units["carbon"] == "g/Mtok"
    assert np.min(kept.columns["carbon"]) == pytest.approx(one["carbon_per_mtok_g"])
    dark = system.hardware.replace(power=0.0 * system.hardware.power)
    with pytest.raises(ij.InputError, match=r"carbon.*power_w"):
        ij.sweep(replace(space, hardware=dark), keep=keep, estimator=carbon())
    page = ij.report("llama-3.1-8b", "h100_sxm", tp=1, batch=16, estimator=NAME).page
    assert "CO2 of output tokens" in page and "g/Mtok" in page


def test_less_power_is_better():
    """A power is a rate by its kind, of which more is better; its field says that less is."""

    @spec
    class Drawing(Estimate):
        power: object = number("mean power", unit="W", kind="rate", output=Output(more=False))
        pace: object = number("passes a second", unit="1", kind="rate", output=Output())

    point: Any = Point(*5 * [None])  # pyright: ignore[reportArgumentType]
    values: Any = dict.fromkeys(Drawing.__dataclass_fields__, 1.0)
    life = Drawing(**values)
    assert (
        not declared("power", point, life).more_is_better
        and declared("pace", point, life).more_is_better
    )
