"""A verb as a command: its options are those that the verb declares, and a few of every command."""

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from inspect import Parameter, signature
from types import NoneType
from typing import Annotated, get_args

import typer

from infer_jax.cli.runs import RUNS, draw_verb, run_verb
from infer_jax.cli.runtime import set_quiet
from infer_jax.cli.table import VERBS, Verb
from infer_jax.results.wording import from_command
from infer_jax.verbs.option import Option, option_of, type_of

JSON = Option("Print one JSON object and nothing else.", flags=("--json",))
QUIET = Option("The answer alone: no progress, no notes below it.", flags=("--quiet", "-q"))
NO_PICTURE = Option("Write no picture.")
AT = Option("Sweep nothing: one point in full, by its index.", "INDEX")
OF_COMMAND = {"as_json": (bool, JSON, False), "quiet": (bool, QUIET, False)}


def command_of(name: str) -> Callable[..., None]:
    """The function of a command, with the signature that typer reads."""
    row = VERBS[name]
    module = f"cli.{row.module}" if row.module else f"verbs.{name}"  # no verb of the library
    verb = getattr(import_module(f"infer_jax.{module}"), name)
    run = RUNS.get(name, draw_verb if row.picture else run_verb)

    def command(*, quiet: bool, **given: object) -> None:
        set_quiet(quiet)
        with from_command():
            run(verb, {k: x for k, x in given.items() if x is not None and x != []})

    parameters = dict(_parameters(verb, row))
    command.__signature__ = signature(command).replace(parameters=[*parameters.values()])  # pyright: ignore
    command.__annotations__ = {name: x.annotation for name, x in parameters.items()}
    return command


def _parameters(verb: Callable[..., object], row: Verb) -> Iterator[tuple[str, Parameter]]:
    """The parameters of a command: those of its verb that declare an option, then its own."""
    own = signature(verb).parameters
    for name, parameter in own.items():
        if option := option_of(parameter.annotation):
            type_ = type_of(parameter.annotation)
            yield name, _parameter(name, type_, option, parameter.default)
    added: dict[str, tuple[object, Option, object]] = {}
    if row.picture:
        option = Option(row.picture, "FILE", default=row.drawn or None)
        added["out"] = str | None, option, None
    if row.drawn:
        added["no_picture"] = bool, NO_PICTURE, False
    if "space" in own:
        added["at"] = str | None, AT, None
    for name, (type_, option, default) in {**added, **OF_COMMAND}.items():
        yield name, _parameter(name, type_, option, default)


def _parameter(name: str, type_: object, option: Option, default: object) -> Parameter:
    """A parameter as typer reads it: a flag, a text, or texts, which the verb reads."""
    types = get_args(type_) or (type_,)
    flag, spelling = bool in types, f"--{name.replace('_', '-')}"
    first = default if flag else _text(default if option.default is None else option.default)
    if option.required:
        first = Parameter.empty
    needs, may = (str, str | None) if not option.many else (list[str], list[str] | None)
    if flag:
        needs, may = bool, bool | None
    complete = _completion(option.names) if option.names else None
    metavar = option.metavar or None
    if option.by_place:
        given = typer.Argument(help=option.help, metavar=metavar, autocompletion=complete)
    else:
        both = f"{spelling}/--no-{spelling[2:]}" if flag and NoneType in types else spelling
        flags = option.flags or (both,)
        given = typer.Option(*flags, help=option.help, metavar=metavar, autocompletion=complete)
    kind = may if first is None else needs
    return Parameter(name, Parameter.KEYWORD_ONLY, default=first, annotation=Annotated[kind, given])


def _text(default: object) -> object:
    """A default as a user would type it; what must be given, or need not be, stays."""
    return (
        default
        if default in (None, Parameter.empty)
        else f"{default:g}"
        if isinstance(default, float)
        else str(default)
    )


def _completion(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """A shell completion: those of ``names`` that begin with the typed text."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete
