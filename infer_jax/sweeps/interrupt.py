"""Signals that stop a sweep, read between segments so that a checkpoint can be written."""

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

Handler = Callable[[int, FrameType | None], object] | int | None
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(KeyboardInterrupt):
    """A sweep was asked to stop; says how far it came, and how to resume it."""

    def __init__(self, position: int, total: int, path: Path | None, number: int):
        self.position, self.total, self.path, self.number = position, total, path, number
        on = "without a checkpoint nothing is kept"
        if path:
            on = f"the same command goes on from {path}"
        super().__init__(
            f"stopped after {position:,} of {total:,} points ({position / total:.0%}); {on}"
        )


class Listener:
    """While open, the first Ctrl-C or SIGTERM sets ``stopped``; the second interrupts at once."""

    def __init__(self) -> None:
        self.stopped = False
        self.signal = int(signal.SIGINT)
        self._before: dict[signal.Signals, Handler] = {}

    def __enter__(self) -> "Listener":
        if threading.current_thread() is threading.main_thread():
            self._before = {s: signal.signal(s, self._stop) for s in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.stopped:
            raise KeyboardInterrupt
        self.stopped, self.signal = True, number
