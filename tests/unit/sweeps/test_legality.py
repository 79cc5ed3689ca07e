"""What `estimate` refuses no sweep ranks: refused at the door, or left out where it stands."""

from typing import Any

import numpy as np
import pytest

from infer_jax import legal
from infer_jax.catalog import load_model, load_system
from infer_jax.errors import InputError
from infer_jax.estimators import make
from infer_jax.specs import Plan, Workload
from infer_jax.sweeps import Axis, Everything, Space, TopK, legality, prepare
from tests.unit.sweeps.toy import Toy, sweep

SMALL, LARGE = load_model("llama-3.1-8b"), load_model("llama-3.1-70b")
CHIP = load_system("h200_sxm")


def space(models: Any = SMALL, work=None, plan=None, **more):
    base = Workload.of(isl=1024, osl=64, batch=4).replace(**(work or {}))
    return Space(models, CHIP, base, Plan.of().replace(**(plan or {})), **more)


def wide(low, high, tp):
    """Of one GPU or several, and feedforwards of two widths."""
    widths = {"arch.blocks.0.feedforward.width": Axis.values(low, high)}
    return {"plan": {"tp": Axis.values(1, tp)}, "axes": widths}


def prepared(**given):
    return prepare(make("economics.planned"), space(**given), TopK(1, "cost"))


@pytest.mark.parametrize(
    ("given", "named", "allowed"),
    [
        ({"plan": {"tp": Axis.values(1, 3.7)}}, "plan.tp is 3.7", "whole number"),
        ({"plan": {"tp": Axis.values(1, 1000)}}, "plan.tp is 1000", "divide the query heads"),
        ({"plan": {"pp": Axis.values(1, 1e9)}}, "plan.pp is 1000000000", "the 32 layers"),
        (wide(14336, 15360, tp=1000), "plan.tp is 1000", "divide the query heads"),
        (wide(1001, 1003, tp=8), "plan.tp", "of 1001 columns in whole columns, not in 8 slices"),
        ({"work": {"batch": Axis.values(0.001, 1)}}, "workload.batch is 0.001", "at least 1"),
        ({"work": {"prefix": Axis.values(0, 5000)}}, "workload.prefix is 5000", "at most isl"),
        ({"work": {"isl": Axis.values(1, 131072)}}, "workload.isl is 131072", "longest context"),
        ({"work": {"osl": Axis.values(1, 131072)}}, "workload.osl (for isl)", "longest context"),
        ({"plan": {"tp": np.float64(3.7), "pp": Axis.values(1, 2)}}, "plan.tp is '3.7'", "whole"),
    ],
)
def test_what_no_point_may_have_is_refused_at_the_door(given, named, allowed):
    with pytest.raises(InputError) as output:
        prepared(**given)
    assert named in str(output.value) and allowed in str(output.value).split("allowed:")[1]


def test_what_some_points_may_have_is_left_out_elsewhere():
    """Sixty-four ranks divide the heads of one model; a prefix of 900 fits one prompt of two."""
    tp = (1.0, 8.0, 64.0)
    isl, prefix = (512.0, 1024.0), (0.0, 900.0)
    grid = space(
        [SMALL, LARGE],
        {"isl": Axis.values(*isl), "prefix": Axis.values(*prefix)},
        {"tp": Axis.values(*tp)},
    )
    result = sweep(make("economics.planned"), grid, Everything("ttft"), chunk=8)
    columns = result.columns
    asked = {
        (m.name, i, p, t)
        for m in (SMALL, LARGE)
        for i in isl
        for p in prefix
        for t in tp
        if legal.holds(m.architecture, Plan.of(tp=t), Workload.of(isl=i, osl=64, prefix=p))
    }
    names = ("arch", "workload.isl", "workload.prefix", "plan.tp")
    kept = set(zip(*(columns[n].tolist() for n in names), strict=True))
    assert result.provenance["counts"]["accepted"] == str(len(asked)) == "15"
    assert kept <= asked and {k for k in asked if k[3] > 1} <= kept
    assert columns["ttft"].min() > 0


@pytest.mark.parametrize("entries", [legality.MAX_ENTRIES, 2])
def test_requests_beyond_the_longest_context_are_left_out(entries, monkeypatch):
    """By a table, and where that has too many entries by each point; of any estimator."""
    monkeypatch.setattr(legality, "MAX_ENTRIES", entries)
    axes = {"isl": Axis.values(1000, 131000), "osl": Axis.values(72, 100)}
    result = sweep(Toy.of(), space(work=axes, plan={"tp": 8}), Everything("ttft"), chunk=8)
    assert result.provenance["counts"]["accepted"] == "3"


def test_a_theory_that_splits_the_chips_itself_takes_any_number_of_them():
    grid = space(plan={"tp": Axis.linear(2.5, 40.25, 7)})
    assert prepare(Toy.of(), grid, TopK(1, "cost")).size == 7
