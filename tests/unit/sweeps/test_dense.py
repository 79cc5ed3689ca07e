"""Frontiers of which every other point is a part: exact, a part at a time, and soon stopped."""

import signal
import time

import numpy as np
import pytest

from infer_jax.sweeps import Axis, Pareto, Space, engine, pareto
from infer_jax.sweeps.engine import Stopped
from tests.unit.sweeps.toy import Toy, arch, hardware, plan, sweep, workload

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
