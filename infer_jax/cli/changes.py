"""Which numbers of model, hardware and estimator does ``--set`` change, and to what?"""

import re
from collections.abc import Collection, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from infer_jax.cli.options import refuse

Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Change a number first: hardware.chip.memory_bandwidth=8e12, or *1.5 of it; "
        "`*` stands for any block. Repeat for several.",
    ),
]
HEADS = ("arch", "hardware", "estimator")
UNFIT = ("calibrate",)  # a profile is written, which says nothing of changed hardware
_texts: list[str] = []  # of this command


class Parts(NamedTuple):
    """What a path may begin with."""

    arch: Any = None
    hardware: Any = None
    estimator: Any = None


def heads(verb: str, parameters: Collection[str]) -> tuple[str, ...]:
    """What a verb lets be changed: the estimator where it takes one; all of a sensitivity's."""
    if verb in UNFIT:
        return ()
    if verb == "sensitivity":
        return (*HEADS, "workload", "plan")
    return HEADS if {"estimator", "engine"} & set(parameters) else HEADS[:2]


def use(texts: Sequence[str] | None, heads: Sequence[str]) -> None:
    """Take the changes of this command, whose paths begin with one of ``heads``.

    Raises:
        InputError: a path that begins otherwise, or a value that is no number.
    """
    _texts[:] = texts or []
    for path in changes():
        if path.partition(".")[0] not in heads:
            allowed = ", ".join(f"{head}.*" for head in heads)
            raise refuse("--set", path, f"a path that begins as one of {allowed}")


def texts() -> tuple[str, ...]:
    """The changes as they were given."""
    return tuple(_texts)


def changes(*heads: str) -> dict[str, Any]:
    """New values, or functions of the old ones, of paths that begin with one of ``heads``.

    Raises:
        InputError: a text that is not ``PATH=NUMBER`` or ``PATH=*FACTOR``.
    """
    made: dict[str, Any] = {}
    for text in _texts:
        path, sign, value = (part.strip() for part in text.partition("="))
        match = re.fullmatch(r"\*?([-+.0-9eE]+)", value)
        try:
            number = float(match[1]) if match and sign else np.nan
        except ValueError:
            number = np.nan
        if not np.isfinite(number):
            raise refuse("--set", text, "PATH=NUMBER, or PATH=*FACTOR")
        if not heads or path.partition(".")[0] in heads:
            made[path] = (lambda x, by=number: x * by) if value.startswith("*") else number
    return made


def changed(**parts: Any) -> Parts:
    """The named parts with what this command changes of them.

    Raises:
        InputError: a path that no number has, or a value out of its bounds, which for
            hardware and coefficients are a profile's.
    """
    asked = changes(*parts)
    if not asked:
        return Parts(**parts)
    from infer_jax.catalog.sense import sensible_changes
    from infer_jax.design.sensitivity import changed as with_changes
    from infer_jax.specs import leaves

    before = Parts(**parts)
    after = with_changes(before, asked, "--set")
    for part in ("hardware", "estimator"):
        old, new = (leaves(getattr(x, part)) for x in (before, after))
        pairs = zip(old, new, strict=True)
        moved = {path: np.ravel(y) for (path, _, x), (_, _, y) in pairs if np.any(x != y)}
        sensible_changes("--set", part, getattr(after, part), moved)
    return after
