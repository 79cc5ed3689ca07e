"""A float32 sweep decides in float64: its frontier is the float64 frontier, point for point."""

import numpy as np
import pytest

from infer_jax.catalog import load_model, load_system
from infer_jax.errors import InputError
from infer_jax.estimators import make
from infer_jax.specs import Plan, Workload
from infer_jax.sweeps import Axis, Pareto, Space, engine, prepare, start
from tests.unit.sweeps.toy import Toy, arch, hardware, plan, sweep, workload

SYSTEMS = [load_system(name) for name in ("h100_sxm", "h200_sxm")]
MODEL = load_model("llama-3.1-8b").architecture


def random_grid(seed, points):
    """About so many points, over axes of random ends and counts."""
    dice = np.random.default_rng(seed)
    side = max(4, round((points / (len(SYSTEMS) * 12)) ** (1 / 3)))

    def axis(low, high, count=side):
        a, b = sorted(np.exp(dice.uniform(np.log(low), np.log(high), 2)))
        return Axis.log(float(a), float(1.2 * b), count)

    work = Workload.of(osl=256).replace(isl=axis(64, 8192), batch=axis(16, 2048))
    tp, pp = Axis.values(1, 2, 4, 8, 16, 32), Axis.integers(1, 12)
    spread = Plan.of().replace(tp=tp, pp=pp)
    return Space(MODEL, SYSTEMS, work, spread)


def same(seed, points):
    """Both frontiers, and how many points float64 had to decide."""
    keep, estimator = Pareto("speed", "cost"), make("economics.planned")
    narrow, wide = (
        sweep(estimator, random_grid(seed, points), keep, precision=p)
        for p in ("float32", "float64")
    )
    assert narrow.index == wide.index and len(wide) > 1
    for name in ("speed", "cost", "tpot"):
        assert narrow.columns[name].tolist() == wide.columns[name].tolist()
    return narrow.provenance.get("decided_in_float64", 0)


def test_float32_finds_the_float64_frontier():
    assert same(0, 50_000) > 0


@pytest.mark.parametrize("objectives", [("chips", "tpot"), ("cost", "tpot", "chips")])
def test_whole_counts_are_exact_and_others_are_not(objectives):
    """Chips that are whole beat their equals; 2.99999 x 1 chips lie within the margin of 3 x 1."""
    near = Axis.values(1.0, 1.00001, 2.0, 2.99999, 3.0, 3.00001, 4.0)
    spread = plan(tp=near, pp=Axis.integers(1, 4))
    space = Space(arch(), hardware(memory=1e9), workload(batch=Axis.linear(1, 40, 400)), spread)
    keep = Pareto(*objectives)
    answer = [sweep(Toy.of(), space, keep, precision=p).index for p in ("float32", "float64")]
    assert answer[0] == answer[1]
    assert len(answer[0]) > 1


def test_equal_counts_do_not_fill_the_rows():
    """A third objective of few values once kept every point of its least value."""
    spread = plan(tp=Axis.values(1, 2), pp=Axis.integers(1, 4))
    grid = workload(batch=Axis.linear(1, 40, 20_000))
    space = Space(arch(), hardware(memory=1e9), grid, spread)
    answer = sweep(Toy.of(), space, Pareto("tpot", "cost", "chips"))
    assert answer.provenance.get("decided_in_float64", 0) < 160_000 / 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_float32_finds_the_float64_frontier_of_ten_million(seed):
    same(seed, 10_000_000)


def test_a_frontier_within_the_margin_does_not_outgrow_its_rows():
    """Two thousand points within the margin, of which one is the frontier."""
    batch = Axis.linear(5.0, 5.0001, 2_000)
    space = Space(arch(), hardware(memory=1e9), workload(batch=batch), plan())
    result = sweep(Toy.of(), space, Pareto("ttft", "tpot", capacity=64), chunk=256)
    assert result.index == [0]
    assert result.provenance.get("decided_in_float64", 0) > 1_000


def test_a_device_that_computes_wrong_is_refused_by_name(monkeypatch):
    from infer_jax import doctor

    bad = doctor.Verdict("gpu:3 H100", "float32", 0.25, "level4 Llama_3_70B", 50)
    monkeypatch.setattr(engine, "examine", lambda devices: [bad])
    monkeypatch.setattr(engine, "LONG", -1.0)
    monkeypatch.setattr(engine, "EARLY", 0.0)
    space = Space(arch(), hardware(), workload(), plan(tp=Axis.linear(1, 9, 5000)))
    ready = prepare(Toy.of(), space, Pareto("speed", "cost"))
    monkeypatch.setattr(engine, "TARGET", 0.0)
    with pytest.raises(InputError, match=r"gpu:3 H100.*off by 0.25.*stored answers"):
        start(ready, chunk=256)


def test_a_grid_on_which_nothing_fits_has_an_empty_frontier():
    space = Space(arch(), hardware(memory=1e-3), workload(), plan(tp=Axis.values(1, 2)))
    assert sweep(Toy.of(), space, Pareto("speed", "cost"), chunk=8).index == []
