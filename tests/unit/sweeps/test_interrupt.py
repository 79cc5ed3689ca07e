"""The first Ctrl-C lets a sweep save what it has; the second interrupts at once."""

import os
import signal

import pytest

from infer_jax.sweeps import Pareto, prepare, start
from infer_jax.sweeps.engine import Listener, Stopped
from infer_jax.sweeps.states import FrontierState
from tests.unit.sweeps.toy import Toy
from tests.unit.sweeps.worker import space


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
