"""The path of a design, one change at a time, and frontiers of designs along a limit."""

from itertools import pairwise

import numpy as np
import pytest

from infer_jax.design import Search
from infer_jax.design.frontier import change_path, flips, follow
from infer_jax.specs import Plan, Workload
from infer_jax.sweeps import Axis, Best, Space
from tests.unit.design.bowls import Bowl, Toll, hardware
from tests.unit.sweeps import toy

pytestmark = pytest.mark.usefixtures("x64")

AXES = {
    "arch.width": Axis.integers(128, 4096, 64),
    "workload.batch": Axis.integers(1, 64),
    "plan.tp": Axis.values(1, 2, 4, 8),
}
START = {"arch.width": 2048.0, "workload.batch": 4.0, "plan.tp": 2.0}
SEARCH = {"start": START, "restarts": 8, "steps": 48}


def cost(values):
    """Log cost of the bowl, by hand."""
    u, v = np.log(values["arch.width"] / 900.0), np.log(values["workload.batch"] / 25.0)
    return u**2 + 0.5 * v**2 + np.log(values["plan.tp"] / 3.0) ** 2 + 0.6 * u * v


def tpot(values):
    """Time of the bowl, by hand."""
    return 1e-3 * values["arch.width"] * np.sqrt(values["workload.batch"]) / values["plan.tp"]


@pytest.fixture(scope="module")
def bowl():
    space = Space(toy.arch(), hardware(), toy.workload(), toy.plan(), axes=AXES)
    return Search.of(Bowl.of(), space, Best("cost", under={"tpot": 2.1}))


def test_a_path_goes_from_the_start_to_the_design_within_limits(bowl):
    design = bowl.run(**SEARCH)
    path, here = change_path(bowl, design, START), dict(START)
    assert len(path.steps) >= 3
    for step in path.steps:
        assert step.before == here[step.path]
        # greedy: no other number, moved as far as the limit lets it, gains more
        gains = {}
        for name, axis in AXES.items():
            values = sorted({float(x) for x in axis.steps}, key=lambda x: abs(x - here[name]))
            way = np.sign(design.values[name] - here[name])
            ahead = [x for x in values if way * (x - here[name]) > 0]
            ahead = [x for x in ahead if way * (design.values[name] - x) >= 0]
            held = [x for x in ahead if tpot({**here, name: x}) <= 2.1]
            if held:
                gains[name] = cost(here) - cost({**here, name: held[-1]})
        assert np.log(step.gain) == pytest.approx(max(gains.values()), abs=1e-9)
        here |= {step.path: step.after, **{name: x[1] for name, x in step.others.items()}}
        assert tpot(here) <= 2.1
    assert here == {name: design.values[name] for name in AXES}
    assert np.prod([step.gain for step in path.steps]) == pytest.approx(path.total, rel=1e-9)
    assert path.total == pytest.approx(design.gain, rel=1e-9)


def test_what_is_left_over_is_the_interaction(bowl):
    """Without a limit in the way: 0.6 u v, the only term of two numbers."""
    design = bowl.run(**SEARCH, under={"tpot": 1e6})
    path = change_path(bowl, design, START, under={"tpot": 1e6})
    width, batch = (design.values[x] / START[x] for x in ("arch.width", "workload.batch"))
    assert np.log(path.interaction) == pytest.approx(-0.6 * np.log(width) * np.log(batch), rel=1e-9)


def test_a_frontier_is_the_best_under_each_limit(bowl):
    limits = [0.3, 0.9, 2.4]
    found = follow(bowl, [{"tpot": x} for x in limits], **SEARCH)
    for limit, design in zip(limits, found, strict=True):
        keep = Best("cost", under={"tpot": limit})
        space = Space(toy.arch(), hardware(), toy.workload(), toy.plan(), axes=AXES)
        best = toy.sweep(Bowl.of(), space, keep, precision="float64")
        assert design.objective == pytest.approx(best.columns["cost"][0], rel=1e-12)
    for flip, (one, two) in zip(flips(bowl, found, limits), pairwise(found), strict=False):
        for name, (before, after) in flip.jumps.items():
            steps = np.array(AXES[name].steps, float)
            far = abs(np.searchsorted(steps, after) - np.searchsorted(steps, before))
            assert far > 1 and abs(np.log(after / before)) > np.log(flip.high / flip.low)
            assert (before, after) == (one.values[name], two.values[name])


def test_a_limit_on_an_input_is_a_cap_and_a_jump_is_told():
    """A token costs the rent of 2 N FLOP: the fastest chip that a cap on FLOP/s leaves."""
    rates = (1e14, 2e14, 5e14, 1e15, 5e15)
    axes = {"hardware.chip.flops_16": Axis.values(*rates), "arch.width": Axis.values(512, 1024)}
    work = Workload.of(isl=1, osl=1, batch=1)
    space = Space(toy.arch(), hardware(), work, Plan.of(), axes=axes)
    keep = Best("cost", under={"hardware.chip.flops_16": 1e15})
    swept = toy.sweep(Toll.of(), space, keep, precision="float64")
    assert swept.columns["hardware.chip.flops_16"][0] == 1e15
    search = Search.of(Toll.of(), space, keep)
    caps = [1.9e14, 5.1e14, 4e15, 6e15]
    found = follow(search, [{"hardware.chip.flops_16": x} for x in caps], restarts=4, steps=16)
    assert [x.values["hardware.chip.flops_16"] for x in found] == [1e14, 5e14, 1e15, 5e15]
    [flip] = flips(search, found, caps)  # the others are of one value, or follow the cap
    assert (flip.low, flip.high) == (1.9e14, 5.1e14)
