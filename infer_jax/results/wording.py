"""Options in sentences: ``--total-gpus`` on the command line, ``total_gpus=`` in Python."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from infer_jax.results.parts import Notes, Part

OWN = ("no_overlap",)  # keywords that begin so
_from_command = ContextVar("asked from the command line", default=False)
OPTION = re.compile(r"`[^`]*`|\binfer-jax .*|--json\b|--([a-z][a-z0-9-]*)( none\b| [0-9][^\s;,]*)?")
NUMBER = re.compile(r"[0-9][0-9.e+]*")


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
        return f"--{name.replace('_', '-')}" + ("" if value is None else f" {value}")
    if name == "json":
        return "to_dict()"
    name = name.replace("-", "_")
    if name.startswith("no_") and name not in OWN:
        return f"{name[3:]}=False"
    written = f'"{value}"' if isinstance(value, str) else value
    return name if value is None else f"{name}={written}"


def keywords(text: str) -> str:
    """A sentence with its options as keyword arguments; a command, or text in backticks, stays.

    >>> keywords("--ttft none takes it away, see `vllm serve --help`; --json has all.")
    'ttft="none" takes it away, see `vllm serve --help`; to_dict() has all.'
    >>> keywords("--concurrency 64, or --ttft 300ms")
    'concurrency=64, or ttft="300ms"'
    >>> keywords("--no-enable-prefix-caching: none is")
    'enable_prefix_caching=False: none is'
    """
    return OPTION.sub(_keyword, text)


def _keyword(match: re.Match[str]) -> str:
    if match[1] is None:
        return "to_dict()" if match[0] == "--json" else match[0]
    name = match[1].replace("-", "_")
    if match[2] is None:
        return f"{name[3:]}=False" if name.startswith("no_") and name not in OWN else name
    value = match[2].strip()
    return f"{name}={value}" if NUMBER.fullmatch(value) else f'{name}="{value}"'


def worded(parts: Iterable[Part]) -> Iterator[Part]:
    """The parts, with options in sentences and notes spelt for the command line or for Python."""
    for part in parts:
        if by_command():
            yield part
        elif isinstance(part, Notes):
            yield Notes([keywords(note) for note in part.sentences])
        else:
            yield keywords(part) if isinstance(part, str) else part
