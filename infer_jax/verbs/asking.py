"""``@verb``: 64-bit numbers, and errors that name options as the caller writes them."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec, TypeVar

import jax

from infer_jax.errors import InputError, UnsaidError

P = ParamSpec("P")
R = TypeVar("R")
_from_command = ContextVar("asked from the command line", default=False)


def refuse(option: str, value: object, allowed: str) -> InputError:
    """The sentence about one option, spelt as on the command line: ``--total-gpus``."""
    if isinstance(value, float):
        value = f"{value:.12g}"
    return InputError("infer-jax", option, value, allowed)


def ask(option: str, question: str, ways: str) -> InputError:
    """The question about an option that is not given, and the ways to answer it."""
    return UnsaidError("infer-jax", option, question, ways)


def verb(function: Callable[P, R]) -> Callable[P, R]:
    """``function`` as a verb of the package: in 64-bit numbers, whatever the caller works in.

    A problem with an option is named as a keyword argument, unless the command line asks.
    """

    @wraps(function)
    def asked(*args: P.args, **options: P.kwargs) -> R:
        with jax.enable_x64(True):
            try:
                return function(*args, **options)
            except InputError as error:
                if not _from_command.get():
                    _as_keyword(error, function.__name__)
                raise

    return asked


@contextmanager
def from_command() -> Iterator[None]:
    """Problems within are named as options: ``--total-gpus``, not ``total_gpus``."""
    token = _from_command.set(True)
    try:
        yield
    finally:
        _from_command.reset(token)


def by_command() -> bool:
    """Whether the command line asks, and not Python."""
    return _from_command.get()


def _as_keyword(error: InputError, name: str) -> None:
    """Spell the options in a problem as keyword arguments of the verb ``name``."""
    sentence = _keywords(str(error))
    error.field, error.allowed = _keywords(error.field), _keywords(error.allowed)
    if error.where == "infer-jax":
        error.where, sentence = name, sentence.replace("infer-jax", name, 1)
    error.args = (sentence,)


def _keywords(text: str) -> str:
    return re.sub(r"--([a-z][a-z0-9-]*)", lambda option: option[1].replace("-", "_"), text)
