"""Grids beyond 2^31 and 2^63 points: an optimum planted by predicate is found there."""

import jax.numpy as jnp
import pytest

from infer_jax.sweeps import Axis, Space, TopK, prepare
from infer_jax.sweeps.digits import to_digits
from infer_jax.sweeps.engine import SweepRun, start
from tests.unit.sweeps.toy import Toy, arch, hardware, plan, workload

AXES = ("workload.isl", "workload.batch", "plan.tp", "plan.pp", "plan.ep", "plan.dp")


def grid(digits):
    """2^72 points, all but one excluded: 6 axes of 4096."""

    def planted(point):
        held = [point.workload.isl, point.workload.batch, point.plan.tp, point.plan.pp]
        held += [point.plan.ep, point.plan.dp]
        same = [x == float(d + 1) for x, d in zip(held, digits, strict=True)]
        return jnp.all(jnp.stack(same))

    axis = Axis.integers(1, 4096)
    roomy = hardware(memory=1e9)
    return Space(
        arch(), roomy, workload(isl=axis, batch=axis), plan(tp=axis, pp=axis, ep=axis, dp=axis),
        where=(planted,),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("index", "precision"),
    [(2**31, "float32"), (2**70, "float32"), (2**63 + 1, "float64")],
)
def test_a_planted_point_is_found(index, precision, monkeypatch):
    ready = prepare(Toy.of(), grid(to_digits(index, (4096,) * 6)), TopK(1, "cost"),
                    precision=precision)  # fmt: skip
    assert ready.size == 2**72
    assert {c.path for c in ready.parts[0].group.columns} == set(AXES)

    # a sweep that was at 300 points before, and ends 700 points after
    begin = SweepRun.resume

    def late(self):
        begin(self)
        self.position = index - 300

    monkeypatch.setattr(SweepRun, "resume", late)
    monkeypatch.setattr(type(ready.parts[0].group), "size", property(lambda self: index + 700))
    result = start(ready, chunk=256)
    assert result.index == [index]
    expected = [float(d + 1) for d in to_digits(index, (4096,) * 6)]
    assert [float(result.columns[name][0]) for name in AXES] == expected
    assert result.provenance["counts"]["accepted"] == "1"
