"""Runs a verb with the options of its command, prints its answer, and draws it."""

import json
import sys
from collections.abc import Callable, Mapping

import typer

from infer_jax.cli.runtime import is_quiet, loops_in_one_piece, prepare, use_all_cores
from infer_jax.errors import InputError
from infer_jax.plots.rendering import FigureResult
from infer_jax.results import Notes, Part, Result
from infer_jax.results.numbers import plain
from infer_jax.results.result import SCHEMA
from infer_jax.results.text import show
from infer_jax.verbs import pictures

Verb = Callable[..., Result]
Options = Mapping[str, object]


def show_result(
    result: Result, *, as_json: bool, picture: str | None = None, lacking: str = ""
) -> None:
    """Print a result, as JSON where that is asked for, and the file of its picture.

    ``lacking``: why there is no picture, where one was asked for.
    """
    if as_json:
        drawn = {} if picture is None else {"picture": picture}
        drawn |= {"picture": None, "why_no_picture": lacking} if lacking else {}
        print_json({**result.to_dict(), **drawn})
        return
    from rich.console import Console

    parts = [*result.parts()]
    if last := f"Picture: {picture}." if picture is not None else lacking:
        notes = [x for part in parts if isinstance(part, Notes) for x in part.sentences]
        above: list[Part] = [part for part in parts if not isinstance(part, Notes)]
        parts = [*above, Notes([*notes, last])]
    show(parts, Console(highlight=False), notes=not is_quiet())


def print_json(fields: Mapping[str, object]) -> None:
    """Print one JSON object; a number that is not finite is null.

    What a terminal would obey stands within strings, as its number there.
    """
    text = json.dumps(
        plain({"schema": SCHEMA, **fields}), indent=2, allow_nan=False, ensure_ascii=False
    )
    print("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text))


def run_verb(verb: Verb, options: Options, *, every_device: bool = False) -> Result:
    """Ask ``verb``, and print what it answers.

    ``every_device``: wake accelerators, too.
    """
    prepare(every_device=every_device)
    result = verb(**{name: x for name, x in options.items() if name != "as_json"})
    show_result(result, as_json=bool(options["as_json"]))
    return result


def draw_verb(verb: Verb, options: Options, *, page: bool = False) -> Result:
    """``run_verb``, with a picture of the answer in the file ``out`` of the options.

    ``page``: an .html file is a page of charts.

    Raises:
        InputError: a file that no picture can be written to, or matplotlib is not installed;
            before anything is computed.
    """
    out = options.get("out")
    rest = {name: x for name, x in options.items() if name != "out"}
    if out is None:
        return run_verb(verb, rest)
    pictures.check(str(out), otherwise="", page=page)
    charts = page and str(out).lower().endswith(".html")
    if not charts and (lacks := pictures.missing()):
        raise InputError("command line", "--out", str(out), lacks)
    prepare()
    result = verb(**{name: x for name, x in rest.items() if name != "as_json"})
    assert isinstance(result, FigureResult)
    result.draw(str(out))
    show_result(result, as_json=bool(options["as_json"]), picture=str(out))
    return result


def _frontier(verb: Verb, options: Options) -> None:
    given = dict(options)
    if given.pop("no_picture"):
        del given["out"]
    run_verb(verb, given)


def _offload(verb: Verb, options: Options) -> None:
    """The answer with its picture, where it has one and matplotlib is installed."""
    from infer_jax.verbs.offload import OffloadResult

    given, as_json = dict(options), bool(options["as_json"])
    out, none, _ = str(given.pop("out")), given.pop("no_picture"), given.pop("as_json")
    if none:
        run_verb(verb, {**given, "as_json": as_json})
        return
    pictures.check(out)
    prepare()
    result, lacks = verb(**given), pictures.missing()
    assert isinstance(result, OffloadResult)
    if result.block is not None and not lacks:
        result.draw(out)
        show_result(result, as_json=as_json, picture=out)
    else:
        show_result(result, as_json=as_json, lacking=lacks)


def _plan(verb: Verb, options: Options) -> None:
    from infer_jax.verbs.plan_result import PlanResult

    result = draw_verb(verb, options, page=True)
    if isinstance(result, PlanResult) and not result.feasible:
        raise typer.Exit(1)  # no plan meets every limit, for scripts


def _replay(verb: Verb, options: Options) -> None:
    with loops_in_one_piece():
        run_verb(verb, options)


def _measure(verb: Verb, options: Options) -> None:
    run_verb(verb, options, every_device=True)


def _doctor(verb: Verb, options: Options) -> None:
    from infer_jax.cli.doctor import Verdicts

    verdicts = run_verb(verb, options, every_device=True)
    if isinstance(verdicts, Verdicts) and not verdicts.agrees:
        raise typer.Exit(1)


def _sweep(verb: Verb, options: Options) -> None:
    """A sweep on all cores, or one of its points."""
    from infer_jax.sweeps.interrupt import Stopped
    from infer_jax.verbs.sweep import explain

    use_all_cores()
    if "at" in options:
        own = {name: options[name] for name in ("space", "at", "precision", "as_json")}
        run_verb(explain, own, every_device=True)
        return
    try:
        run_verb(verb, options, every_device=True)
    except Stopped as stopped:
        print(f"infer-jax: {stopped}", file=sys.stderr)
        raise typer.Exit(128 + stopped.number) from None


RUNS: Mapping[str, Callable[[Verb, Options], object]] = {
    "frontier": _frontier,
    "offload": _offload,
    "plan": _plan,
    "replay": _replay,
    "measure": _measure,
    "doctor": _doctor,
    "sweep": _sweep,
}
