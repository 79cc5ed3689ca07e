"""The command line: parse, call, print. One file a verb; errors are one sentence and code 2."""

import atexit
import gc
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130
ALLOCATED = 1_000_000  # objects between two searches for cycles


def main() -> None:
    """The program ``infer-jax``.

    Modules and traces stay until it ends: searching them for garbage at Python's pace, every 700
    objects, takes a tenth of a short command, and once more at its end a quarter.
    """
    gc.set_threshold(ALLOCATED)
    atexit.register(gc.freeze)  # the first to be registered is the last to be called
    with importing():
        from infer_jax.cli.verbs import app
    app()


@contextmanager
def importing() -> Iterator[None]:
    """Modules are imported within: Ctrl-C ends the program at once, without a traceback.

    An import has nothing to put in order, and an exception in the midst of one is not always
    passed on as it was raised. An ignored signal stays ignored.
    """
    try:
        mine = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if mine:
            signal.signal(signal.SIGINT, _leave)
    except ValueError:  # not in the main thread
        mine = False
    try:
        yield
    finally:
        if mine:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    os._exit(INTERRUPTED)
