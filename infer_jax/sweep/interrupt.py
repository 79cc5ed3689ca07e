"""Did the user press Ctrl-C? Heard between segments, so that what was done is not lost."""

import signal
import threading
from types import FrameType
from typing import Any


class Listener:
    """While open, the first Ctrl-C sets ``stopped``; the second one interrupts at once."""

    def __init__(self) -> None:
        self.stopped = False
        self._before: Any = None

    def __enter__(self) -> "Listener":
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.stopped:
            raise KeyboardInterrupt
        self.stopped = True
