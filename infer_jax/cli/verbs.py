"""Runs a verb, and reports a problem of its user in one sentence.

A verb's module is imported when the verb is run; listing the verbs imports no JAX.
"""

import errno
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import infer_jax
from infer_jax.cli import INTERRUPTED, importing
from infer_jax.cli.table import VERBS, line_of
from infer_jax.errors import InputError, printable

NAME = "infer-jax: "
LONGEST = 240  # characters of a wrong value, or of the parser's sentence, that an error repeats


class ListedVerb(TyperCommand):
    """A verb in the list of all, before its options are known."""

    def get_short_help_str(self, limit: int = 0) -> str:
        """Its line, whole."""
        return line_of(self.name or "")


class Verbs(TyperGroup):
    """The group of verbs, which reports every problem of the user in one sentence."""

    def __init__(self, *, commands: dict[str, Any], **settings: Any):
        verbs = {name: ListedVerb(name) for name in VERBS}
        super().__init__(commands={**verbs, **commands}, **settings)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The verb that is named, with all its options."""
        name, command, rest = super().resolve_command(ctx, args)
        if name not in VERBS:
            return name, command, rest
        with importing():
            from infer_jax.cli.commands import HYPHEN, VerbCommand, command_of

            function = command_of(name)
        program = typer.Typer(add_completion=False, rich_markup_mode=None)
        example = f"Example: infer-jax {name} {VERBS[name].example}".rstrip().replace("-", HYPHEN)
        program.command(name, cls=VerbCommand, help=line_of(name), epilog=example)(function)
        return name, typer.main.get_command(program), rest

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> Any:
        """Run one command; exit 0, 1 (see docs/command-line.md), 2 or 130."""
        given = list(sys.argv[1:] if args is None else args) or ["--help"]
        extra |= {"prog_name": "infer-jax", "standalone_mode": False}
        if sys.stderr is None:  # closed by the shell: print(file=None) would be an answer
            sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        if sys.stdout is None:
            _complain("the answer cannot be written: standard output is closed")
            sys.exit(1)
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):  # a name no ASCII terminal can print: no crash
                stream.reconfigure(errors="replace")
        try:
            code = super().main(given, **extra)
            sys.stdout.flush()
        except InputError as error:
            code = _complain(str(error), given, error)
        except (KeyboardInterrupt, typer.Abort):
            code = INTERRUPTED
        except OSError as error:  # `infer-jax ... | head`, or a full disk
            sys.stdout = None
            code, reason = 1, error.strerror or str(error)
            place = f" ({_cut(str(error.filename))})" if error.filename else ""
            if error.errno == errno.ENAMETOOLONG:  # of a file to read: names to write are checked
                code = _complain(f"no file can be opened: {reason.lower()}{place}", given)
            elif not isinstance(error, BrokenPipeError):
                _complain(f"the answer cannot be written: {reason}{place}")
        except Exception as error:
            # usage errors of typer, whose base class has no public name in all its versions
            if not hasattr(error, "format_message"):
                raise
            options = getattr(getattr(error, "param", None), "opts", None) or [""]
            wrong = InputError("infer-jax", options[0], None, "see the message")
            code = _complain(_cut(error.format_message()), given, wrong)  # pyright: ignore
        sys.exit(code if isinstance(code, int) else 0)


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _complain(sentence: str, given: Sequence[str] = (), error: InputError | None = None) -> int:
    """Print an error in one sentence, with --json also as an object; returns exit code 2."""
    sentence = printable(" ".join(sentence.split()))
    if "--json" in given:
        from infer_jax.cli.runs import print_json

        value = None if error is None or error.value is None else printable(str(error.value))
        problem = {
            "field": error.field or None if error else None,
            "value": value and value[:LONGEST],
            "allowed": error.allowed if error and value is not None else None,
            "message": sentence,
        }
        print_json({"error": problem})
    print(sentence if sentence.startswith(NAME) else f"{NAME}{sentence}", file=sys.stderr)
    return 2


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"infer-jax {infer_jax.__version__}")
        raise typer.Exit()


app = typer.Typer(
    cls=Verbs,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich's tables cut words that are longer than their column
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def infer_jax_verbs(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """What LLM inference takes: time, memory and money, from a differentiable model."""
