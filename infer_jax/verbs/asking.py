"""``@verb``: arguments read by their options, 64-bit numbers, errors as the caller writes them."""

import os
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, Signature, signature
from types import NoneType
from typing import ForwardRef, ParamSpec, TypeVar, get_args, get_origin

from infer_jax.errors import InputError
from infer_jax.results.numbers import is_truth
from infer_jax.results.problems import by_command, refuse
from infer_jax.verbs.option import SpreadTokens, Time, ValueKind, type_and_kind
from infer_jax.verbs.texts import MissingUnitError

P = ParamSpec("P")
R = TypeVar("R")
TEXTS = {str, os.PathLike[str]}
READ_TEXTS = (Time, SpreadTokens)  # kinds whose texts have a meaning in Python, too
WORDS = {str: "a text", os.PathLike: "a path", bool: "True or False", Sequence: "several"}


def verb(function: Callable[P, R]) -> Callable[P, R]:
    """Decorates a verb: it computes in 64-bit numbers, whatever precision the caller works in.

    Its arguments are checked by their options; a problem with one is one of the verb, unless the
    command line asks.
    """

    @wraps(function)
    def checked(*args: P.args, **options: P.kwargs) -> R:
        import jax

        with jax.enable_x64(True):
            try:
                declared = signature(function)
                try:
                    values = declared.bind(*args, **options).arguments
                except TypeError:
                    raise _unbound(function.__name__, declared, len(args), options) from None
                read = {k: read_argument(declared.parameters[k], x) for k, x in values.items()}
                return function(**read)  # pyright: ignore[reportCallIssue]
            except InputError as error:
                if error.where == "infer-jax" and not by_command():
                    error.where = function.__name__
                    error.args = (str(error).replace("infer-jax", error.where, 1),)
                raise

    return checked


def _unbound(
    verb: str, declared: Signature, count: int, options: Mapping[str, object]
) -> InputError:
    """The error about an argument that is unknown, too many, given twice or missing."""
    parameters = declared.parameters
    first = [p.name for p in parameters.values() if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
    for name in options:
        if name not in parameters:
            alike = get_close_matches(name, parameters, n=1, cutoff=0.5)
            closest = f"{alike[0]} is closest; " if alike else ""
            return InputError(verb, "keyword", name, f"{closest}one of {', '.join(parameters)}")
        if name in first[:count]:
            return InputError(verb, name, "given twice", "once, by place or by name")
    if count > len(first):
        allowed = f"{', '.join(first)}; the others by name"
        return InputError(verb, "arguments", f"{count} without a name", allowed)
    needed = [n for n, p in parameters.items() if p.default is Parameter.empty]
    missing = next(n for n in needed if n not in options and n not in first[:count])
    return InputError(verb, missing, "missing", f"{verb}({', '.join(first)}, ...)")


def read_argument(parameter: Parameter, value: object) -> object:
    """The value of one argument as its option reads it.

    Raises:
        InputError: a value that the argument cannot have.
    """
    own, kind = type_and_kind(parameter.annotation)
    kinds, name = set(get_args(own)) or {own}, parameter.name
    if value is None:
        if parameter.default is not None and NoneType not in kinds:
            raise refuse(name, value, "a value, or nothing: leave it out")
        return value
    text = isinstance(value, str) and str in kinds and not isinstance(kind, READ_TEXTS)
    if kind is None or (text and {float, int} & kinds):
        _check_type(name, value, kinds - {NoneType})
        return value
    several = isinstance(value, list | tuple) or getattr(value, "ndim", 0) == 1
    if several and any(get_origin(x) is Sequence for x in kinds):
        return [_read(name, kind, x) for x in value]  # pyright: ignore
    read = _read(name, kind, value)
    return int(read) if isinstance(read, float) and int in kinds else read


def _read(name: str, kind: ValueKind, value: object) -> object:
    """One value of an option, or a text of the command line."""
    try:
        return kind.check(kind.parse(value) if by_command() and isinstance(value, str) else value)
    except ValueError as error:
        allowed = str(error) if isinstance(error, MissingUnitError) else kind.allowed
        raise refuse(name, value, allowed) from None


def _a(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def _check_type(name: str, value: object, kinds: set[object]) -> None:
    """Raise InputError unless ``value`` is of one of these kinds, where these are classes."""
    classes = [get_origin(kind) or kind for kind in kinds]
    named = {x.__forward_arg__.rpartition(".")[2] for x in classes if isinstance(x, ForwardRef)}
    known = [c for c in classes if isinstance(c, type) and not getattr(c, "_is_protocol", False)]
    if len(known) + len(named) < len(classes):
        return
    own = {c.__name__ for c in type(value).__mro__}
    fits = isinstance(value, tuple(known)) or (bool in known and is_truth(value)) or named & own
    wrong = [] if fits else [value]
    lists = [get_args(kind) for kind in kinds if get_origin(kind) is Sequence]
    several = isinstance(value, Sequence) and not isinstance(value, str)
    members = {member for (kind,) in lists for member in get_args(kind) or (kind,)}
    if several and members <= TEXTS:
        wrong += [x for x in value if not isinstance(x, str | os.PathLike)]  # pyright: ignore
    if wrong:
        words = [*(WORDS.get(c) or _a(c.__name__) for c in known), *map(_a, named)]
        raise refuse(name, wrong[0], " or ".join(sorted(words)))
