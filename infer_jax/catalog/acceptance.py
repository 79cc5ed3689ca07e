"""Acceptance of drafted tokens: published curves, and vLLM's counts.

An acceptance curve gives the mean tokens per verification (acceptance length: accepted drafts
and the one the model samples itself) for each number of drafts. InferenceX publishes them as
YAML: model, then a mode (thinking_on ...), then drafts: length.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from infer_jax.catalog.foreign import read_yaml
from infer_jax.errors import InputError
from infer_jax.results.problems import refuse

if TYPE_CHECKING:
    from infer_jax.catalog.measurements.run import Speculation

MAX_DRAFTS = 1000  # more than any engine tries at once


@dataclass(frozen=True)
class AcceptanceCurve:
    """Mean tokens per pass by number of drafts, of one model in one mode.

    ``lengths`` holds (drafts, tokens per pass) in ascending order.
    """

    model: str
    mode: str
    lengths: tuple[tuple[int, float], ...]

    @property
    def per_position(self) -> tuple[float, ...]:
        """Share of passes that accept at least j drafts, for j = 1, 2 ...: the curve's steps.

        length(j) - length(j - 1), with length(0) = 1: exact where a draft's acceptance does not
        depend on how many follow it. Published curves are measured anew for each j, so noise may
        make a step negative or larger than the one before; the steps are then those of the nearest
        curve with falling steps, by pools of adjacent violators.

        Raises:
            InputError: the curve does not hold every number of drafts from 1 up.
        """
        counts = [drafts for drafts, _ in self.lengths]
        if counts != list(range(1, len(counts) + 1)):
            allowed = "every number of drafts from 1 up"
            raise InputError(f"acceptance of {self.model}", "drafts", counts, allowed)
        from scipy.optimize import isotonic_regression  # of jax's own requirements

        lengths = np.array([1.0, *(tokens for _, tokens in self.lengths)])
        falling = isotonic_regression(np.diff(lengths), increasing=False).x
        return tuple(np.clip(falling, 0.0, 1.0).tolist())


def read_acceptance(path: str | os.PathLike[str]) -> tuple[AcceptanceCurve, ...]:
    """The curves of a YAML file of acceptance lengths.

    Raises:
        InputError: PyYAML is not installed, not YAML, not a file of curves, or a length outside
            of 1 to drafts + 1.
    """
    where, curves = str(path), []
    for model, modes in _mapping(where, "top level", read_yaml(path)).items():
        for mode, points in _mapping(where, model, modes).items():
            at = f"{model}.{mode}"
            table = _mapping(where, at, points)
            lengths = sorted(_point(where, at, drafts, x) for drafts, x in table.items())
            curves.append(AcceptanceCurve(model, mode, tuple(lengths)))
    return tuple(curves)


def named_curve(text: str, model: str) -> AcceptanceCurve:
    """The curve in a file, or the one that FILE:MODEL.MODE names; of several that of the model.

    Raises:
        InputError: no such file, or none or several curves in it that are meant.
    """
    path, _, wanted = text.partition(":") if not os.path.exists(text) else (text, "", "")
    if not os.path.exists(path):
        raise refuse("acceptance", text, "a probability from 0 to 1, or a file of curves")
    curves = {f"{c.model}.{c.mode}": c for c in read_acceptance(path)}

    def plain(name: str) -> str:
        return "".join(c for c in name.casefold() if c.isalnum())

    if wanted:
        names = [name for name in curves if name == wanted]
    elif len(curves) == 1:
        names = [*curves]
    else:
        names = [n for n in curves if plain(n.rpartition(".")[0]) == plain(model)]
    if len(names) != 1:
        allowed = f"one curve: {path}:{next(iter(curves))}, of {', '.join(curves)}"
        raise refuse("acceptance", text, allowed)
    return curves[names[0]]


def curve_of(run: "Speculation", model: str = "") -> AcceptanceCurve:
    """The curve that follows from vLLM's acceptance rates by position.

    length(j) = 1 + the sum of the rates up to position j.

    Raises:
        InputError: no rates by position, or one outside of 0 to 1.
    """
    if not run.per_position:
        raise InputError("speculation", "per_position", "missing", "acceptance rates by position")
    for i, rate in enumerate(run.per_position):
        if not 0.0 <= rate <= 1.0:
            raise InputError("speculation", f"per_position[{i}]", rate, "0 to 1")
    lengths = list(accumulate(run.per_position, initial=1.0))[1:]
    return AcceptanceCurve(model, "measured", tuple(enumerate(lengths, 1)))


def _mapping(where: str, at: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping) or not value or not all(isinstance(x, str) for x in value):
        allowed = "a table: model, then mode, then drafts: acceptance length"
        raise InputError(where, at, value, allowed)
    return value


def _point(where: str, at: str, drafts: str, length: object) -> tuple[int, float]:
    count = int(drafts) if drafts.isdecimal() and len(drafts) <= len(str(MAX_DRAFTS)) else 0
    if not 1 <= count <= MAX_DRAFTS:
        raise InputError(where, at, drafts, f"a whole number of drafts, from 1 to {MAX_DRAFTS}")
    try:
        tokens = float(str(length))
    except ValueError:
        tokens = 0.0
    if not 1.0 <= tokens <= count + 1.0:
        raise InputError(where, f"{at}.{drafts}", length, f"1 to {count + 1} tokens per pass")
    return count, tokens
