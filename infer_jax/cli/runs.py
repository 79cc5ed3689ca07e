"""Runs a verb with the options of its command, prints its answer, and draws it."""

import sys
from collections.abc import Callable, Mapping

import typer

from infer_jax.cli import show
from infer_jax.cli.runtime import loops_in_one_piece, prepare, use_all_cores
from infer_jax.errors import InputError
from infer_jax.plots.pictured import Pictured
from infer_jax.results import Result
from infer_jax.verbs import pictures

Verb = Callable[..., Result]
Options = Mapping[str, object]


def run_verb(verb: Verb, options: Options, *, every_device: bool = False) -> Result:
    """Ask ``verb``, and print what it answers.

    ``every_device``: wake accelerators, too.
    """
    prepare(every_device=every_device)
    result = verb(**{name: x for name, x in options.items() if name != "as_json"})
    show.show_result(result, as_json=bool(options["as_json"]))
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
    assert isinstance(result, Pictured)
    result.draw(str(out))
    show.show_result(result, as_json=bool(options["as_json"]), picture=str(out))
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
        show.show_result(result, as_json=as_json, picture=out)
    else:
        show.show_result(result, as_json=as_json, lacking=lacks)


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


def _sweep(verb: Verb, options: Options) -> None:
    """A sweep on all cores, or one of its points."""
    from infer_jax.sweeps.interrupt import Stopped
    from infer_jax.verbs.sweep import explain

    use_all_cores()
    if "at" in options:
        shown = {name: options[name] for name in ("space", "at", "precision", "as_json")}
        run_verb(explain, shown, every_device=True)
        return
    try:
        run_verb(verb, options, every_device=True)
    except Stopped as stopped:
        print(f"infer-jax: {stopped}", file=sys.stderr)
        raise typer.Exit(128 + stopped.number) from None


RUNS: Mapping[str, Callable[[Verb, Options], object]] = {
    **dict.fromkeys(
        ("estimate", "memory", "layout", "kernels", "compare", "sensitivity"), draw_verb
    ),
    "frontier": _frontier,
    "offload": _offload,
    "plan": _plan,
    "replay": _replay,
    "measure": _measure,
    "sweep": _sweep,
}
