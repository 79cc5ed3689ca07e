"""``@verb``: 64-bit numbers, and errors that name options as the caller writes them."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import jax

from infer_jax.errors import InputError
from infer_jax.results.wording import by_command, keywords
from infer_jax.verbs.arguments import read_arguments

P = ParamSpec("P")
R = TypeVar("R")


def verb(function: Callable[P, R]) -> Callable[P, R]:
    """Decorates a verb: it computes in 64-bit numbers, whatever precision the caller works in.

    Its arguments are checked by their names; a problem with one is named as a keyword argument,
    unless the command line asks.
    """

    @wraps(function)
    def asked(*args: P.args, **options: P.kwargs) -> R:
        with jax.enable_x64(True):
            try:
                return function(**read_arguments(function, args, options))  # pyright: ignore[reportCallIssue]
            except InputError as error:
                if not by_command():
                    _as_keyword(error, function.__name__)
                raise

    return asked


def _as_keyword(error: InputError, name: str) -> None:
    """Spell the options in a problem as keyword arguments of the verb ``name``."""
    sentence = keywords(str(error))
    error.field, error.allowed = keywords(error.field), keywords(error.allowed)
    if error.where == "infer-jax":
        error.where, sentence = name, sentence.replace("infer-jax", name, 1)
    error.args = (sentence,)
