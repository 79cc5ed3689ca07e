"""``set``: changes to numbers of the model, the hardware and the estimator."""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np

from infer_jax.results import option
from infer_jax.results.problems import refuse
from infer_jax.specs import leaves

HEADS = ("arch", "hardware", "estimator")
Scaled = Callable[[float], float]  # from the old value to the new


class Parts(NamedTuple):
    """The specs that a path may begin with, by their names."""

    arch: Any = None  # Any: None unless the caller names it
    hardware: Any = None
    estimator: Any = None


class Changes(NamedTuple):
    """Changes as texts such as ``hardware.chip.memory_bandwidth=8e12``, or ``...=*1.5``.

    ``numbers``: by path the new value, or a function of the old one.
    """

    texts: tuple[str, ...] = ()
    numbers: Mapping[str, float | Scaled] = {}

    @classmethod
    def of(cls, texts: str | Sequence[str], heads: Sequence[str] = HEADS) -> Self:
        """The changes of one call, whose paths must begin with one of ``heads``.

        Raises:
            InputError: a text that is not ``PATH=NUMBER`` or ``PATH=*FACTOR``, or a path that
                begins otherwise.
        """
        texts = (texts,) if isinstance(texts, str) else tuple(texts)
        new: dict[str, float | Scaled] = {}
        for text in texts:
            path, sign, value = (part.strip() for part in text.partition("="))
            match = re.fullmatch(r"\*?([-+.0-9eE]+)", value)
            try:
                number = float(match[1]) if match and sign else np.nan
            except ValueError:
                number = np.nan
            if not np.isfinite(number):
                raise refuse("set", text, "PATH=NUMBER, or PATH=*FACTOR")
            # not a lambda: answers can be pickled
            new[path] = partial(operator.mul, number) if value.startswith("*") else number
        for path in new:
            if path.partition(".")[0] not in heads:
                allowed = ", ".join(f"{head}.*" for head in heads)
                raise refuse("set", path, f"a path that begins as one of {allowed}")
        return cls(texts, new)

    def values(self, *heads: str) -> dict[str, float | Scaled]:
        """``numbers`` of the paths that begin with one of ``heads``."""
        return {path: x for path, x in self.numbers.items() if path.partition(".")[0] in heads}

    def changed(self, **parts: object) -> Parts:
        """The named parts with these changes.

        Raises:
            InputError: a path that no number has, or a value out of its bounds, which for
                hardware and coefficients are a profile's.
        """
        from infer_jax.catalog.sheets import sensible_changes
        from infer_jax.design.sensitivity import changed as with_changes

        before = Parts(**parts)
        after = with_changes(before, self.values(*parts), option("set"))
        for part in ("hardware", "estimator"):
            old, new = (leaves(getattr(x, part)) for x in (before, after))
            pairs = zip(old, new, strict=True)
            moved = {path: np.ravel(y) for (path, _, x), (_, _, y) in pairs if np.any(x != y)}
            sensible_changes(option("set"), part, getattr(after, part), moved)
        return after
