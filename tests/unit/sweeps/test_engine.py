"""A sweep as it runs: what it compiles and decides, how it is stopped, dense and enormous grids."""

import os
import signal
import time
from typing import Any

import jax
import jax._src.test_util as jtu
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.catalog import load_model, load_system
from infer_jax.errors import InputError
from infer_jax.estimators import make
from infer_jax.specs import Plan, Workload
from infer_jax.sweeps import Axis, Pareto, Space, TopK, engine, pareto, prepare
from infer_jax.sweeps.digits import to_digits
from infer_jax.sweeps.engine import Listener, Stopped, SweepRun, start
from infer_jax.sweeps.states import FrontierState
from tests.unit.sweeps.toy import Toy, arch, hardware, plan, sweep, workload
from tests.unit.sweeps.worker import space

COMPILED: list[str] = []


def _note(event: str, duration_secs: float, **kwargs: Any) -> None:
    if event.endswith("backend_compile_duration"):
        COMPILED.append(event)


jax.monitoring.register_event_duration_secs_listener(_note)


def swept(estimator, low, where=()):
    tp = Axis.linear(low, 9, 40)
    space = Space(arch(), hardware(price=low), workload(), plan(tp=tp), where=where)
    return sweep(estimator, space, Pareto("speed", "cost"), chunk=8, precision="float32")


def test_a_new_space_compiles_the_stream_and_the_exact_points():
    where = (lambda point: point.plan.tp > 0.25,)
    swept(Toy.of(), 1.0)  # operations of one program each that all sweeps use
    before = len(COMPILED)
    result = swept(Toy.of(), 1.0, where=where)
    assert "tpot" in result.columns and result.explain(0).terms
    assert len(COMPILED) - before == 2


def test_nothing_is_traced_or_compiled_twice():
    swept(Toy.of(), 1.0)
    with jtu.count_jit_tracing_cache_miss() as traced, jtu.count_jit_compilation_cache_miss() as c:
        swept(Toy.of(), 2.0).explain(0)
    assert (traced(), c()) == (0, 0)


def test_two_signals():
    before = signal.getsignal(signal.SIGINT)
    with Listener() as listener:
        assert not listener.stopped
        os.kill(os.getpid(), signal.SIGTERM)
        assert listener.stopped and listener.signal == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_sweep_that_stops_before_its_last_decisions_carries_on(tmp_path, monkeypatch):
    """All points are seen then, and the close rows are still to be decided."""
    ready = prepare(Toy.of(), space(9), Pareto("ttft", "cost", "max decode.mfu"))
    file = tmp_path / "point.npz"
    with monkeypatch.context() as patch:
        patch.setattr(FrontierState, "refine", lambda *_: None)  # a signal comes meanwhile
        with pytest.raises(Stopped):
            start(ready, checkpoint=file)
    assert start(ready, checkpoint=file).index == start(ready).index


LONGEST = 30.0  # seconds between two reports, on a machine that does much else


def dense(count, systems=2, **more):
    """Time and throughput both grow with the batch: every batch is on the frontier."""
    chips = [hardware(1 + i, memory=1e9) for i in range(systems)]
    batch = workload(batch=Axis.linear(5, 700, count))
    return Space(arch(), chips, batch, plan(tp=Axis.values(1, 2)), **more)


def run(space, **how):
    keep = how.pop("keep", Pareto("tpot", "throughput", per="hardware"))
    return sweep(Toy.of(), space, keep, **{"chunk": 4096, **how})


def test_a_dense_frontier_is_whole_and_never_long_without_a_report():
    reports = [time.monotonic()]
    count = 20_000

    def report(_):
        reports.append(time.monotonic())
        assert reports[-1] - reports[-2] < LONGEST

    result = run(dense(count), precision="float64", progress=report)
    columns = result.columns
    for name in (0, 1):
        mine = columns["hardware"] == name
        for tp in (1.0, 2.0):
            on = columns["workload.batch"][mine & (columns["plan.tp"] == tp)]
            # one of the two degrees is the faster at each batch, and none of its batches is beaten
            assert len(on) == len(np.unique(on))
        assert mine.sum() >= count - 1
    assert len(set(result.index)) == len(result)


def test_stopped_and_carried_on_it_is_the_same_to_the_count(tmp_path, monkeypatch):
    """Rows, values and ``decided_in_float64``: wherever it was stopped, whatever the chunks."""
    monkeypatch.setattr(engine, "SPACING", 4096)
    monkeypatch.setattr(engine, "DECISIONS", 3)
    space = dense(6000)
    whole = run(space, chunk=512)
    assert whole.provenance.get("decided_in_float64", 0) >= len(whole) > 5000
    path = tmp_path / "point.npz"

    def stop(progress):
        if progress.done > stop.after:
            signal.raise_signal(signal.SIGTERM)

    for after in (1000, 9000, 17000):
        stop.after = after
        with pytest.raises(Stopped, match="goes on from") as output:
            run(space, chunk=256, checkpoint=path, progress=stop)
        assert path.exists() and output.value.number == signal.SIGTERM
        assert output.value.position < output.value.total
    result = run(space, chunk=1024, checkpoint=path)
    assert result.index == whole.index
    for name in ("tpot", "throughput"):
        assert result.columns[name].tobytes() == whole.columns[name].tobytes()
    facts, expected = result.provenance, whole.provenance
    assert facts["counts"] == expected["counts"]
    assert facts.get("decided_in_float64") == expected.get("decided_in_float64") is not None


def test_a_part_that_has_no_room_is_done_again(monkeypatch):
    expected = run(dense(3000), chunk=256).index
    monkeypatch.setattr(pareto, "NEW_ROWS", (300, 300))
    assert run(dense(3000), chunk=256).index == expected


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
    ("index", "precision"), [(2**31, "float32"), (2**70, "float32"), (2**63 + 1, "float64")]
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
