"""Reads the arguments of a verb by the options that it declares, before anything is computed."""

import os
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from inspect import Parameter, Signature, signature
from types import NoneType
from typing import get_args, get_origin

import numpy as np

from infer_jax.errors import InputError
from infer_jax.results.wording import by_command
from infer_jax.verbs.option import SpreadTokens, Time, ValueKind, kind_of, type_of
from infer_jax.verbs.problems import refuse

TEXTS = {str, os.PathLike[str]}
READ_TEXTS = (Time, SpreadTokens)  # kinds whose texts have a meaning in Python, too
WORDS = {str: "a text", os.PathLike: "a path", bool: "True or False", Sequence: "several"}


def read_arguments(
    function: Callable[..., object], args: Sequence[object], options: Mapping[str, object]
) -> dict[str, object]:
    """The arguments of a verb by name, as its options read them.

    Raises:
        InputError: a keyword that the verb does not have, an argument too few or too many, or
            one that is not what it must be.
    """
    wanted = signature(function)
    _check_names(function.__name__, wanted, len(args), options)
    given = wanted.bind(*args, **options).arguments
    return {name: read_argument(wanted.parameters[name], x) for name, x in given.items()}


def _check_names(verb: str, wanted: Signature, count: int, options: Mapping[str, object]) -> None:
    """Raise InputError for an argument that is unknown, too many, given twice or missing."""
    known = wanted.parameters
    first = [p.name for p in known.values() if p.kind is Parameter.POSITIONAL_OR_KEYWORD]
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.5)
            closest = f"{near[0]} is closest; " if near else ""
            raise InputError(verb, "keyword", name, f"{closest}one of {', '.join(known)}")
        if name in first[:count]:
            raise InputError(verb, name, "given twice", "once, by place or by name")
    if count > len(first):
        allowed = f"{', '.join(first)}; the others by name"
        raise InputError(verb, "arguments", f"{count} without a name", allowed)
    for name in (n for n, p in known.items() if p.default is Parameter.empty):
        if name not in options and name not in first[:count]:
            raise InputError(verb, name, "missing", f"{verb}({', '.join(first)}, ...)")


def read_argument(parameter: Parameter, value: object) -> object:
    """The value of one argument as its option reads it.

    Raises:
        InputError: a value that the argument cannot have.
    """
    kind, own = kind_of(parameter.annotation), type_of(parameter.annotation)
    kinds, spelling = set(get_args(own)) or {own}, f"--{parameter.name.replace('_', '-')}"
    if value is None:
        if parameter.default is not None and NoneType not in kinds:
            raise refuse(spelling, value, "a value, or nothing: leave it out")
        return value
    text = isinstance(value, str) and str in kinds and not isinstance(kind, READ_TEXTS)
    if kind is None or (text and {float, int} & kinds):
        _check_type(spelling, value, kinds - {NoneType})
        return value
    several = isinstance(value, list | tuple | np.ndarray) and np.ndim(value) == 1  # pyright: ignore
    if several and any(get_origin(x) is Sequence for x in kinds):
        return [_read(spelling, kind, x) for x in value]  # pyright: ignore
    read = _read(spelling, kind, value)
    return int(read) if isinstance(read, float) and int in kinds else read


def _read(spelling: str, kind: ValueKind, value: object) -> object:
    """One value of an option, or a text of the command line."""
    try:
        return kind.check(kind.parse(value) if by_command() and isinstance(value, str) else value)
    except ValueError:
        raise refuse(spelling, value, kind.allowed) from None


def _check_type(spelling: str, value: object, kinds: set[object]) -> None:
    """Raise InputError unless ``value`` is of one of these kinds, where these are classes."""
    classes = [get_origin(kind) or kind for kind in kinds]
    known = [c for c in classes if isinstance(c, type) and not getattr(c, "_is_protocol", False)]
    if len(known) < len(classes):
        return
    allowed = " or ".join(sorted(WORDS.get(c, f"a {c.__name__}") for c in known))
    if not isinstance(value, (*known, *([np.bool_] if bool in known else []))):
        raise refuse(spelling, value, allowed)
    lists = [get_args(kind) for kind in kinds if get_origin(kind) is Sequence]
    several = isinstance(value, Sequence) and not isinstance(value, str)
    members = {member for (kind,) in lists for member in get_args(kind) or (kind,)}
    for member in value if several and members <= TEXTS else ():  # pyright: ignore
        if not isinstance(member, str | os.PathLike):
            raise refuse(spelling, member, allowed)
