"""Options in sentences: ``--total-gpus`` on the command line, ``total_gpus=`` in Python."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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
