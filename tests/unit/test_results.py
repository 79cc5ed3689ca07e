"""A verb called from Python: what the command prints, as text, HTML, JSON and rows; new outputs."""

import os
import pickle
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import infer_jax as ij
from infer_jax.estimators import Economics, Estimate
from infer_jax.estimators.registry import ERDIL, VARIANTS, Variant
from infer_jax.results import Column, Lines, Notes, Result, Table
from infer_jax.specs import Output, number, outputs, spec
from infer_jax.sweeps import Axis, Pareto, Space
from infer_jax.sweeps.paths import Point, declared
from infer_jax.verbs.changes import Changes
from tests.cli.running import answer, answered_once, as_command

ROOT = Path(__file__).parents[2]
POINT = ("llama-3.1-8b", "h100_sxm")


class Small(Result):
    def fields(self):
        return {"a": jnp.asarray(1.5), "deep": {"b": float("inf")}, "text": "<b>"}

    def parts(self):
        yield "a <sentence>"
        yield Table((Column("n", left=True), Column("x", "ms")), [["<i>", "1.5"]], 0)
        yield Lines("run --this")
        yield Notes(["assumed", "assumed"])


def test_a_result_prints_escapes_and_turns_into_rows():
    small = Small()
    assert small.to_dict() == {"schema": 2, "a": 1.5, "deep": {"b": None}, "text": "<b>"}
    assert small.rows() == [{"a": 1.5, "deep": {"b": None}, "text": "<b>"}]
    assert repr(small) == str(small)
    assert str(small).count("- assumed") == 1 and "run --this" in str(small)
    page = small._repr_html_()
    assert "&lt;i&gt;" in page and "<i>" not in page and "<table>" in page
    pandas = pytest.importorskip("pandas")
    assert isinstance(small.to_pandas(), pandas.DataFrame)
    assert small.to_pandas().loc[0, "a"] == 1.5 and "deep.b" in small.to_pandas()
    with pytest.raises(ij.InputError, match="picture"):
        small.plot()


def test_a_verb_computes_in_64_bits_whatever_the_caller_works_in():
    wide = ij.memory(*POINT, tp=1).to_dict()
    with jax.enable_x64(False):
        assert ij.memory(*POINT, tp=1).to_dict() == wide
        assert jnp.asarray(1.0).dtype == jnp.float32


def test_a_verb_takes_specs_and_names_problems_as_keywords():
    system, model = ij.load_system("h100_sxm"), ij.load_model("llama-3.1-8b")
    by_name = ij.memory(*POINT, tp=1)
    for config, hardware in ((model, system), (model.architecture, system.hardware)):
        given = ij.memory(config, hardware, tp=1)
        assert float(given.memory.tokens) == float(by_name.memory.tokens)
    with pytest.raises(ij.InputError, match=r"^memory: tp is") as wrong:
        ij.memory(*POINT, tp=3)
    assert "--" not in str(wrong.value)
    with pytest.raises(ij.InputError, match="quant"):
        ij.memory(model, system, quant="fp8")
    doubled = ij.memory(*POINT, tp=1, set="hardware.chip.memory=*2")
    assert float(doubled.memory.visible) == 2 * float(by_name.memory.visible)


RUNS = str(ROOT / "tests/data/server/runs.csv")
ASKED: dict[str, dict[str, Any]] = {
    "memory": {"tp": 1, "batch": 8},
    "estimate of a server": {"tp": 1, "batch": 16, "ttft": "0.5s"},
    "estimate of arrivals": {"tp": 1, "request_rate": 2, "isl": "2200±600"},
    "estimate searched": {"total_gpus": 2},
    "compare": {"estimator": "economics.planned", "tp": 1},
    "compare with runs": {"measured": RUNS, "tp": 1},
    "sensitivity": {"tp": 1, "batch": 8, "estimator": "economics.planned"},
    "kernels": {"batch": 8},
    "layout": {"total_gpus": 64, "batch": 512},
    "replay": {"tp": 1, "request_rate": 60, "prompts": 30, "isl": 400, "osl": 40, "ttft": "200ms"},
}
PALM = ("palm-540b-padded", "tpu_v4")


@pytest.mark.parametrize("name", ASKED)
def test_a_verb_answers_what_its_command_prints(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")  # as wide as a result prints where there is no terminal
    options, verb = ASKED[name], name.partition(" ")[0]
    words = [f"--{k.replace('_', '-')}={x}" for k, x in options.items()]
    model, system = PALM if verb == "layout" else POINT
    result = getattr(ij, verb)(model, system, **options)
    said, text = answered_once(verb, model, "--hardware", system, *words)
    assert as_command(result)[0] == said
    assert as_command(result)[1].split() == text.split()
    if verb == "estimate":
        assert said["tpot_ms"] == 1e3 * float(result.estimate.tpot)
    elif "runs" in name:
        assert len(result.rows()) == len(said["runs"])


ALONE = """if True:
    import jax
    import infer_jax as ij
    from infer_jax.sweeps import Axis, Best, Space

    model, system = ij.load_model("llama-3.1-8b"), ij.load_system("h100_sxm")
    estimator, plan = ij.make("economics.planned", system.coefficients), ij.Plan.of(tp=1)
    arch, hardware = model.architecture, system.hardware

    def tpot(batch):
        work = ij.Workload.of(isl=512, osl=64, batch=batch)
        return estimator.estimate(arch, hardware, work, plan).tpot

    mine = jax.jit(tpot)(8.0)
    options = {"tp": 1, "batch": 8, "isl": 512, "osl": 64}
    verb = ij.estimate(model, system, estimator="economics.planned", **options).estimate.tpot
    work = ij.Workload.of(isl=512, osl=64).replace(batch=Axis.values(4, 8))
    best = ij.sweep(Space(arch, hardware, work, plan), keep=Best("cost"), estimator=estimator)
    again = jax.jit(lambda batch: tpot(batch))(8.0)
    print(float(mine), float(verb), float(again), float(best.axes(0)["workload.batch"]))
"""


def test_a_program_of_the_callers_own_and_a_verb_leave_each_other_alone(tmp_path):
    """JAX keeps a NumPy constant as wide as its first trace: no spec is shared between them."""
    kept = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path)}  # nothing is traced by another test
    ran = subprocess.run(
        [sys.executable, "-c", ALONE], capture_output=True, text=True, env={**os.environ, **kept}
    )
    assert ran.returncode == 0, ran.stderr
    mine, verb, again, batch = map(float, ran.stdout.split())
    assert mine == again and verb == pytest.approx(mine, rel=1e-5) and batch == 8


PAGE = Path(ij.__file__).parents[1] / "docs" / "add-an-output.md"
WORDS = ("llama-3.1-8b", "--hardware", "h100_sxm", "--isl", "1024", "--osl", "128", "--tp", "1")
NAME = "economics.carbon"


@pytest.fixture(scope="module")
def carbon():
    """The estimator of the page, with an output that no view of the package knows by name."""
    if not PAGE.exists():
        pytest.skip("installed without the checkout")
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
    # an estimate, as docs/add-an-output.md has it, or its class
    assert outputs(one) == outputs(type(one)) and outputs(one)[0].name == "ttft"


def test_changes_of_an_answer_can_be_pickled():
    path = "hardware.chip.memory_bandwidth"
    changes = pickle.loads(pickle.dumps(Changes.of(f"{path}=*1.5")))
    assert changes.numbers[path](2.0) == 3.0


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
    assert not declared("power", point, life).more_is_better
    assert declared("pace", point, life).more_is_better
