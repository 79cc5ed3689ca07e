"""A verb as a command: its options are those that the verb declares, and a few of every command."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from inspect import Parameter, getdoc, signature
from types import NoneType
from typing import Annotated, get_args

import typer
from typer.core import TyperCommand, TyperOption

from infer_jax.cli import importing
from infer_jax.cli.table import VERBS, Verb, function_of
from infer_jax.errors import InputError, MissingOptionError
from infer_jax.results import Result
from infer_jax.results.problems import from_command
from infer_jax.verbs.option import Option, option_of, type_and_kind

JSON = Option("Print one JSON object and nothing else.", flags=("--json",))
QUIET = Option("The answer alone: no progress, no notes below it.", flags=("--quiet", "-q"))
NO_PICTURE = Option("Write no picture.")
SLIDE = Option("Draw the picture for a talk: 16:9, larger type, a caption of one line.")
AS = Option("Read a config.json of a new model_type as a known one, such as llama.", "FAMILY")
AT = Option("Sweep nothing: one point in full, by its index.", "INDEX")
OF_COMMAND = {"as_json": (bool, JSON, False), "quiet": (bool, QUIET, False)}
HYPHEN = "\N{NON-BREAKING HYPHEN}"  # at which no line of help is broken


class VerbCommand(TyperCommand):
    """The command of a verb, whose help leaves options whole, and whose options are given once."""

    def get_help(self, ctx: typer.Context) -> str:
        """The help that ``--help`` prints."""
        return super().get_help(ctx).replace(HYPHEN, "-")

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:
        """What is left of the words of a command.

        Raises:
            InputError: an option of one value has several, of which the last would count.
        """
        _, _, order = self.make_parser(ctx).parse_args(args=[*args])
        for x in (x for i, x in enumerate(order) if x in order[:i]):
            if isinstance(x, TyperOption) and not (x.multiple or x.is_flag):
                raise InputError("infer-jax", x.opts[0], "given twice", "once: it has one value")
        return super().parse_args(ctx, args)


def command_of(name: str) -> Callable[..., None]:
    """The function of a command, with the signature that typer reads; it imports no JAX."""
    verb: Callable[..., Result] = function_of(name)

    def command(*, quiet: bool, **options: object) -> None:
        with importing():  # JAX, too
            from infer_jax.cli.runs import RUNS, run_verb
            from infer_jax.plots.style import slides
            from infer_jax.verbs.progress import show_progress
        show_progress(not quiet)
        with from_command():
            given = {k: x for k, x in options.items() if x is not None and x != []}
            if family := given.pop("family", None):
                given["config"] = f"{given['config']}:{family}"
            slide = bool(given.pop("slide", False))
            if slide and ("out" not in given or given.get("no_picture")):
                ways = "both" + ", without --no-picture" * bool(given.get("no_picture"))
                needs = "--slide needs --out FILE.png: it is a picture."
                raise MissingOptionError("infer-jax", "--slide", needs, ways)
            with slides(slide):
                RUNS.get(name, run_verb)(verb, given)

    parameters = dict(_parameters(verb, VERBS[name]))
    command.__signature__ = signature(command).replace(parameters=[*parameters.values()])  # pyright: ignore
    command.__annotations__ = {name: x.annotation for name, x in parameters.items()}
    return command


def _parameters(verb: Callable[..., object], row: Verb) -> Iterator[tuple[str, Parameter]]:
    """The parameters of a command: those of its verb that declare an option, then its own."""
    own = signature(verb).parameters
    _, _, described = (getdoc(verb) or "").partition("\nArgs:\n")
    lines = re.findall(r"^ {4}(\w+): (.+(?:\n {5,}.+)*)", described.partition("\n\n")[0], re.M)
    helps = {name: " ".join(text.split()) for name, text in lines}
    for name, parameter in own.items():
        if option := option_of(parameter.annotation):
            option = replace(option, help=option.help or helps[name])
            type_, _ = type_and_kind(parameter.annotation)
            yield name, _parameter(name, type_, option, parameter.default)
    added: dict[str, tuple[object, Option, object]] = {}
    if row.picture:
        option = Option(row.picture, "FILE", default=row.drawn or None)
        added["out"] = str | None, option, None
    if row.drawn:
        added["no_picture"] = bool, NO_PICTURE, False
    if row.picture or ".png" in helps.get("out", ""):
        added["slide"] = bool, SLIDE, False
    if "config" in own:
        added["family"] = str | None, replace(AS, flags=("--as",)), None
    if "space" in own:
        added["at"] = str | None, AT, None
    for name, (type_, option, default) in {**added, **OF_COMMAND}.items():
        yield name, _parameter(name, type_, option, default)


def _parameter(name: str, type_: object, option: Option, default: object) -> Parameter:
    """A parameter as typer reads it: a flag, a text, or texts, which the verb reads."""
    types = get_args(type_) or (type_,)
    if bool in types:
        needed, optional, first = bool, bool | None, default
    else:
        needed, optional = (list[str], list[str] | None) if option.many else (str, str | None)
        first = default if option.default is None else option.default
        if first not in (None, Parameter.empty):  # as a user would type it
            first = f"{first:g}" if isinstance(first, float) else str(first)
    if option.required:
        first = Parameter.empty
    how = {"help": option.help.replace("-", HYPHEN), "metavar": option.metavar or None}
    if (names := option.names) is not None:
        how["autocompletion"] = lambda incomplete: [x for x in names() if x.startswith(incomplete)]
    spelling = f"--{name.replace('_', '-')}"
    if bool in types and NoneType in types:
        spelling = f"{spelling}/--no-{spelling[2:]}"
    flags = option.flags or (spelling,)
    declared = typer.Argument(**how) if option.by_place else typer.Option(*flags, **how)
    kind = Annotated[optional if first is None else needed, declared]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=first, annotation=kind)
