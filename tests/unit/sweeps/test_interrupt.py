"""The first Ctrl-C lets a sweep save what it has; the second interrupts at once."""

import os
import signal

import pytest

from infer_jax.sweeps.interrupt import Listener


def test_two_signals():
    before = signal.getsignal(signal.SIGINT)
    with Listener() as listener:
        assert not listener.stopped
        os.kill(os.getpid(), signal.SIGTERM)
        assert listener.stopped and listener.signal == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
