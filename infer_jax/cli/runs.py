"""Runs a verb with the options of its command, prints its answer, and draws it."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from inspect import signature
from pathlib import Path

import typer

from infer_jax.compiling.settings import loops_in_one_piece, prepare
from infer_jax.plots.rendering import FigureResult
from infer_jax.results import Notes, Result
from infer_jax.results.numbers import to_json_types
from infer_jax.results.result import SCHEMA
from infer_jax.results.text import show
from infer_jax.verbs import pictures
from infer_jax.verbs.option import option_of
from infer_jax.verbs.progress import is_shown

PIPED = 160  # characters of a line that another program or a file gets
Verb = Callable[..., Result]
Options = Mapping[str, object]


def show_result(result: Result, *, as_json: bool, lacking: str = "") -> None:
    """Print a result, as JSON where that is asked for.

    ``lacking``: why there is no picture, where one was to be drawn.
    """
    if as_json:
        why = {"picture": None, "why_no_picture": lacking} if lacking else {}
        print_json({**result.to_dict(), **why})
        return
    from rich.console import Console

    parts = [*result.parts(), *([Notes([lacking])] if lacking else [])]
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    show(parts, Console(highlight=False, width=PIPED if piped else None), notes=is_shown())


def print_json(fields: Mapping[str, object]) -> None:
    """Print one JSON object; a number that is not finite is null.

    What a terminal would obey stands within strings, as its number there.
    """
    text = json.dumps(
        to_json_types({"schema": SCHEMA, **fields}), indent=2, allow_nan=False, ensure_ascii=False
    )
    print("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text))


def run_verb(
    verb: Verb, options: Options, *, every_device: bool = False, every_core: bool = False,
    page: bool = False, must: str = "",
) -> None:  # fmt: skip
    """Call ``verb``, print what it answers, and draw that where the verb itself takes no ``out``.

    Args:
        verb: the function.
        options: of the command; those that are no argument of the verb are read here.
        every_device: wake accelerators, too.
        every_core: each core of a CPU is a device.
        page: an .html picture is a page of charts, which needs no matplotlib.
        must: a property of the answer; the command exits with 1 where it is False, for scripts.

    Raises:
        InputError: a file that no picture can be written to, or matplotlib is not installed;
            before anything is computed.
    """
    own = signature(verb).parameters
    arguments = {name: x for name, x in options.items() if name in own}
    out, lacks, unasked = None, "", "no_picture" in options
    if "out" not in own or option_of(own["out"].annotation) is None:  # the command draws
        out = arguments.pop("out", options.get("out"))
    if out is not None and not options.get("no_picture"):
        out = str(out)
        pictures.check(out, page=page, unasked=unasked)
        if unasked and not (page and out.lower().endswith(".html")):
            lacks = pictures.missing()
    prepare(every_device=every_device, every_core=every_core)
    result = verb(**arguments)
    drawn = isinstance(out, str) and not lacks and getattr(result, "drawable", True)
    if drawn and not options.get("no_picture"):
        assert isinstance(result, FigureResult)
        result.draw(str(out))
    show_result(result, as_json=bool(options["as_json"]), lacking=lacks)
    if must and not getattr(result, must):
        raise typer.Exit(1)


def _sweep(verb: Verb, options: Options) -> None:
    """A sweep on all cores, or one of its points."""
    from infer_jax.sweeps.engine import Stopped
    from infer_jax.verbs.sweep import explain

    chosen = explain if "at" in options else verb
    try:
        run_verb(chosen, options, every_device=True, every_core=True)
    except Stopped as stopped:
        print(f"infer-jax: {stopped}", file=sys.stderr)
        raise typer.Exit(128 + stopped.number) from None


def _plan(verb: Verb, options: Options) -> None:
    """Plans, and their picture or the folder that starts the first."""
    out = str(options.get("out", ""))
    if not out or (Path(out).suffix and not out.endswith(os.sep)):
        return run_verb(verb, options, page=True, must="feasible")
    from infer_jax.verbs.rollout import written_to

    rest = {name: x for name, x in options.items() if name != "out"}
    return run_verb(written_to(out, verb), rest, must="feasible")


RUNS: Mapping[str, Callable[[Verb, Options], object]] = {
    "plan": _plan,
    "frontier": partial(run_verb, page=True),
    "fleet": partial(run_verb, every_core=True),
    "replay": loops_in_one_piece()(run_verb),
    "measure": partial(run_verb, every_device=True),
    "doctor": partial(run_verb, every_device=True, must="agrees"),
    "sweep": _sweep,
}
