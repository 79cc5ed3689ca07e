"""The sentences about one wrong or missing option."""

from collections.abc import Iterable

from infer_jax.errors import InputError, MissingOptionError
from infer_jax.results.wording import option


def refuse(name: str, value: object, allowed: str) -> InputError:
    """The sentence about one option, by its name: ``total_gpus``, or ``--total-gpus``."""
    if isinstance(value, float):
        value = f"{value:.12g}"
    return InputError("infer-jax", _as_written(name), value, allowed)


def ask(name: str, question: str, ways: str) -> InputError:
    """The question about an option that is not given, and the ways to answer it."""
    return MissingOptionError("infer-jax", _as_written(name), question, ways)


def _as_written(name: str) -> str:
    """The option as the reader writes it; what is no option's name, such as CONFIG, as it is."""
    bare = name.removeprefix("--")
    return option(bare) if bare != name or (name.islower() and name.isidentifier()) else name


def forbid(allowed: str, **options: object) -> None:
    """Raise InputError for the first of these options that is given; ``allowed``: in its place."""
    for name, value in options.items():
        if value is not None:
            raise refuse(name, value, allowed)


def exclude(**options: object) -> None:
    """Raise InputError where more than one of these options is given."""
    names = [name for name, value in options.items() if value is not None]
    if len(names) > 1:
        raise refuse(names[-1], options[names[-1]], f"one of {', '.join(map(option, options))}")


def check_name(name: str, value: str | None, names: Iterable[str]) -> None:
    """Raise InputError unless ``value`` is None or one of ``names``."""
    names = tuple(names)
    if value is not None and value not in names:
        raise refuse(name, value, f"one of {', '.join(names)}")
