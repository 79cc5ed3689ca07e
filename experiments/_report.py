"""Prints experiments: tables, verdicts, the JSON line; and says where their files go."""

import functools
import inspect
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from infer_jax.errors import InputError
from infer_jax.results.numbers import to_json_types

Json = Annotated[bool, typer.Option("--json", help="End with the figures as JSON on one line.")]
OUT = Path(__file__).parent / "out"
GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden"  # cited figures of others
SHARED = Path(__file__).resolve().parents[2] / "shared"  # authors' files, beside the checkout
STYLES = {"pass": "green", "fail": "bold red", "not reachable": "yellow", "not compared": "yellow"}


USAGE = """
``python experiments/NAME.py`` and ``python -m experiments.NAME`` are the same program. With
``--json`` it ends with its figures on one line. Exit code 0: all that was compared agrees; 1:
something does not; 2: bad input.
"""


def program(about: str | None, **options: Any) -> typer.Typer:
    """The program of an experiment: what it is about, and what holds for all of them."""
    return typer.Typer(help=f"{about}{USAGE}", add_completion=False, **options)


def command(
    app: typer.Typer, *, x64: bool = False, **options: Any
) -> Callable[[Callable[..., dict[str, Any]]], Callable[..., dict[str, Any]]]:
    """Make a command of a function that returns its figures.

    The command ends with 1 where ``agrees`` is among them and false, and with 2 and one sentence
    where input is bad; it has ``--json``. ``x64``: it computes in float64.
    """

    def add(run: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        @functools.wraps(run)
        def ended(*args: Any, as_json: bool = False, **given: Any) -> None:
            with door(), float64() if x64 else nullcontext():
                figures = run(*args, **given)
            finish(figures.get("agrees", True), figures, as_json)

        signature = inspect.signature(run)
        last = inspect.Parameter("as_json", inspect.Parameter.KEYWORD_ONLY, default=False)
        both = [*signature.parameters.values(), last.replace(annotation=Json)]
        ended.__signature__ = signature.replace(parameters=both)  # type: ignore[attr-defined]
        ended.__annotations__ = {**run.__annotations__, "as_json": Json}
        app.command(**options)(ended)
        return run

    return add


def float64() -> Any:
    """Computing in float64."""
    import jax  # not where help is printed

    return jax.enable_x64(True)


def console() -> Console:
    """The terminal; where there is none, wide enough that no cell is cut."""
    terminal = sys.stdout.isatty()
    return Console(width=None if terminal else 160, soft_wrap=False, highlight=False)


def show(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], note: str = ""
) -> None:
    """Print a table: words to the left, everything after the first column to the right.

    A cell that is a verdict (pass, fail, not reachable, not compared) takes its colour.
    """
    table = Table()
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right")
    for row in rows:
        cells = [str(cell) for cell in row]
        table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in cells))
    out = console()
    if title:
        out.print(f"\n[bold]{title}[/]")
    out.print(table)
    if note:
        out.print(note)


def say(what: str, begin: float) -> None:
    """Print how far a long experiment is, and the seconds since it began."""
    console().print(f"[dim]{time.perf_counter() - begin:6.1f} s[/]  {what}")


def chosen_keys(kind: str, wanted: list[str], table: Any) -> list[Any]:
    """The keys of ``table`` that a user named."""
    keys = {str(key): key for key in table}
    for name in wanted:
        if name not in keys:
            raise InputError("command line", kind, name, ", ".join(keys))
    return [keys[name] for name in wanted]


def verdict(agrees: bool) -> str:
    """'pass' or 'fail'."""
    return "pass" if agrees else "fail"


def finish(agrees: bool, headline: dict[str, Any], as_json: bool) -> None:
    """End an experiment: the headline as JSON on the last line if asked; exit 0 or 1."""
    if as_json:
        sys.stdout.flush()
        print(json.dumps(to_json_types(headline), allow_nan=False))
    raise SystemExit(0 if agrees else 1)


@contextmanager
def door() -> Iterator[None]:
    """What a user got wrong is one sentence on stderr and exit code 2, never a traceback."""
    try:
        yield
    except InputError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
