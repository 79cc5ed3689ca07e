"""Options in sentences, and the sentences about one that is wrong or missing.

``--total-gpus`` on the command line is ``total_gpus=`` in Python.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from infer_jax.errors import InputError, MissingOptionError

OWN = ("no_overlap",)  # keywords that begin so
_from_command = ContextVar("asked from the command line", default=False)


@contextmanager
def from_command() -> Iterator[None]:
    """Problems and notes within are of options: ``--total-gpus``, not ``total_gpus``."""
    token = _from_command.set(True)
    try:
        yield
    finally:
        _from_command.reset(token)


def by_command() -> bool:
    """Whether the command line asks, and not Python."""
    return _from_command.get()


def option(name: str, value: object = None) -> str:
    """An option as the reader writes it: by the command line, or as a keyword argument.

    >>> option("ttft", "none"), option("concurrency", 64), option("total_gpus")
    ('ttft="none"', 'concurrency=64', 'total_gpus')
    >>> with from_command():
    ...     option("ttft", "none"), option("total_gpus")
    ('--ttft none', '--total-gpus')
    """
    if by_command():
        value = f'"{value}"' if " " in str(value) else value
        return f"--{name.replace('_', '-')}" + ("" if value is None else f" {value}")
    if name == "json":
        return "to_dict()"
    name = name.replace("-", "_")
    if name.startswith("no_") and name not in OWN:
        return f"{name[3:]}=False"
    written = f'"{value}"' if isinstance(value, str) else value
    return name if value is None else f"{name}={written}"


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
