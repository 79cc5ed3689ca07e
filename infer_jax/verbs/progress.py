"""Progress on a terminal; without a terminal, one line when something takes long."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infer_jax.sweeps.engine import Progress

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
    """Show an activity on stderr: on a terminal at once, else when it takes long.

    What is yielded shows another text in its place, on a terminal.
    """
    if not is_watched():
        with _late(doing):
            yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status(doing) as status:
        yield status.update


@contextmanager
def _late(doing: str) -> Iterator[None]:
    """Print an activity once on stderr if it takes more than ``PATIENCE``."""

    def say() -> None:
        print(f"infer-jax: {doing}; --quiet leaves this out", file=sys.stderr, flush=True)

    if not _shown[0]:
        yield
        return
    timer = threading.Timer(PATIENCE[0], say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


Step = Callable[[], None]


@contextmanager
def steps(doing: str, count: int) -> Iterator[Step]:
    """A bar of ``count`` steps, and what to call after each, if stderr is a terminal."""
    if not is_watched():
        with _late(doing):
            yield lambda: None
        return
    from rich import console, progress as rich

    columns = ("{task.description}", rich.BarColumn(), rich.MofNCompleteColumn())
    where = console.Console(stderr=True)
    with rich.Progress(*columns, rich.TimeElapsedColumn(), console=where) as drawn:
        task = drawn.add_task(doing, total=count)
        yield lambda: drawn.advance(task)


@contextmanager
def bar() -> Iterator["Callable[[Progress], None] | None"]:
    """A bar with points per second and the time left, if stderr is a terminal."""
    if not is_watched():
        yield None
        return
    from rich import console, progress as rich

    text = rich.TextColumn("{task.fields[rate]:.3g} points/s, {task.fields[left]:.0f} s left")
    columns = (rich.BarColumn(), rich.TaskProgressColumn(), text, rich.TimeElapsedColumn())
    with rich.Progress(*columns, console=console.Console(stderr=True)) as drawn:
        task = drawn.add_task("", total=1.0, rate=0.0, left=0.0)

        def report(p: "Progress") -> None:
            drawn.update(task, completed=p.done / p.total, rate=p.rate, left=p.seconds_left)

        yield report
