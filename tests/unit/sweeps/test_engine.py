"""A sweep as it runs: what it compiles, how it is stopped, dense frontiers and enormous grids."""

import os
import signal
import time
from typing import Any

import jax
import jax._src.test_util as jtu
import jax.numpy as jnp
import numpy as np
import pytest

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
