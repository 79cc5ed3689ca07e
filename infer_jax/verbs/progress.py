"""What does somebody who waits at a terminal see?"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_shown = [False]  # by the command line, unless --quiet


def show_progress(wanted: bool) -> None:
    """From here on say on stderr what is being done, or not."""
    _shown[:] = [wanted]


def watched() -> bool:
    """Whether to show progress: it is wanted, and somebody watches a terminal."""
    return _shown[0] and sys.stderr.isatty()


@contextmanager
def busy(doing: str) -> Iterator[None]:
    """Say on stderr what is being done, where somebody watches a terminal."""
    if not watched():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(doing):
        yield
