"""Progress on a terminal; without a terminal, one line when something takes long."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE = [10.0]  # seconds of silence where stderr is no terminal
_shown = [False]  # by the command line, unless --quiet


def show_progress(wanted: bool) -> None:
    """Switch notes, and the messages of progress on stderr, on or off."""
    _shown[:] = [wanted]


def is_shown() -> bool:
    """Whether more than the answer alone is shown."""
    return _shown[0]


def is_watched() -> bool:
    """Whether to show progress: it is switched on, and stderr is a terminal."""
    return _shown[0] and sys.stderr.isatty()


@contextmanager
def busy(doing: str) -> Iterator[Callable[[str], None]]:
    """Show an activity on stderr: on a terminal at once, else when it takes long, and once.

    What is yielded shows another text in its place, on a terminal.
    """
    if is_watched():
        from rich.console import Console

        with Console(stderr=True).status(doing) as status:
            yield status.update
        return

    def say() -> None:
        print(f"infer-jax: {doing}; --quiet leaves this out", file=sys.stderr, flush=True)

    timer = threading.Timer(PATIENCE[0], say)
    timer.daemon = True
    if _shown[0]:
        timer.start()
    try:
        yield lambda _: None
    finally:
        timer.cancel()
