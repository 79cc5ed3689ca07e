"""The sentences about one wrong or missing option."""

from collections.abc import Iterable

from infer_jax.errors import InputError, UnsaidError


def refuse(option: str, value: object, allowed: str) -> InputError:
    """The sentence about one option, spelt as on the command line: ``--total-gpus``."""
    if isinstance(value, float):
        value = f"{value:.12g}"
    return InputError("infer-jax", option, value, allowed)


def ask(option: str, question: str, ways: str) -> InputError:
    """The question about an option that is not given, and the ways to answer it."""
    return UnsaidError("infer-jax", option, question, ways)


def check_name(option: str, value: str | None, names: Iterable[str]) -> None:
    """Raise InputError unless ``value`` is None or one of ``names``."""
    names = tuple(names)
    if value is not None and value not in names:
        raise refuse(option, value, f"one of {', '.join(names)}")
