"""The keys of a config.json, every value checked when it is read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Never, TypeVar, cast

from infer_jax.errors import InputError

REQUIRED = cast(Never, object())  # no default: a missing key is an error
LAYERS = 1000  # more layers than any model has; each is looked at once
MAX_ITEMS = 2**18  # entries of a list: DeepSeek exclusions name 50,000 modules
T = TypeVar("T")


@dataclass(eq=False)
class Facts:
    """A JSON object whose values are read by key, type and bounds.

    ``null`` counts as missing, as it does in transformers. A key may have older spellings:
    the first one present is read. Defaults that were taken are in ``notes``.

    Args:
        values: the object.
        where: the file, named in every error.
        prefix: the path of the object inside the file.
        notes: sentences about what was assumed or ignored, shared with sub-objects.
    """

    values: Mapping[str, object]
    where: str
    prefix: str = ""
    notes: list[str] = field(default_factory=list[str])

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def error(self, key: str, value: object, allowed: str) -> InputError:
        """The error to raise about ``key``."""
        return InputError(self.where, self.prefix + key, value, allowed)

    def note(self, sentence: str) -> None:
        """Note once what was assumed or left out."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def _read(
        self, keys: Sequence[str], default: object, allowed: str, holds: Callable[..., bool]
    ) -> Any:
        """The value of the first key that is present, which must hold, or the default."""
        for key in keys:
            if key in self:
                if not holds(self.values[key]):
                    raise self.error(key, self.values[key], allowed)
                return self.values[key]
        if default is REQUIRED:
            raise self.error(keys[0], "missing", allowed)
        return default

    def number(self, key: str, *, low: float = 0.0, high: float) -> float:
        """A number from ``low`` to ``high``, which is required."""
        allowed = f"a number from {low:g} to {high:g}"
        return float(self._read((key,), REQUIRED, allowed, lambda x: _is_between(x, low, high)))

    def count(
        self,
        *keys: str,
        default: T = REQUIRED,
        low: int = 1,
        high: int = 2**40,
        silent: bool = False,
    ) -> int | T:
        """A whole number from ``low`` to ``high``; a default taken is noted unless ``silent``."""
        allowed = f"a whole number from {low} to {high}" if low < high else f"{low}"
        value = self._read(
            keys, default, allowed, lambda x: _is_between(x, low, high) and x == int(x)
        )
        if any(key in self for key in keys):
            return int(value)
        if not silent:
            self.note(f"{keys[0]} is missing: {default}, the default of transformers, is taken")
        return value

    def counts(self, keys: Mapping[str, str]) -> SimpleNamespace:
        """Whole numbers above 0 by name, each under its key: ``vars`` are arguments of a spec."""
        return SimpleNamespace(**{name: self.count(key) for name, key in keys.items()})

    def flag(self, *keys: str, default: bool) -> bool:
        """True or false."""
        return self._read(keys, default, "true or false", lambda x: isinstance(x, bool))

    def text(self, *keys: str, default: T = REQUIRED, allowed: Sequence[str] = ()) -> str | T:
        """A string, one of ``allowed`` where given."""
        words = " or ".join(allowed) if allowed else "a string"
        return self._read(
            keys, default, words, lambda x: isinstance(x, str) and (not allowed or x in allowed)
        )

    def items(
        self, *keys: str, length: int | None = None, allowed: Sequence[T] = ()
    ) -> list[T] | None:
        """A list, or None where it is missing; of ``length`` items, each of ``allowed``."""
        words = "a list" if length is None else f"a list of {length}"
        values = self._read(
            keys, None, words, lambda x: isinstance(x, list) and length in (None, len(x))
        )
        if values is None:
            return None
        key = next(key for key in keys if key in self)
        largest = len(allowed) if isinstance(allowed, range) else MAX_ITEMS
        if len(values) > largest:
            raise self.error(key, f"a list of {len(values)}", f"a list of at most {largest}")
        for item in values:
            if allowed and item not in allowed:
                words = " or ".join(map(str, allowed))
                if isinstance(allowed, range):
                    words = f"a whole number from 0 to {largest - 1}"
                raise self.error(key, item, words)
        return values

    def names(self, *keys: str) -> list[str]:
        """A list of strings, empty where it is missing."""
        values = self.items(*keys) or []
        for item in values:
            if not isinstance(item, str):
                raise self.error(keys[0], item, "a list of strings")
        return cast(list[str], values)

    def section(self, key: str) -> "Facts | None":
        """The object under ``key``, or None where it is missing."""
        return self.of(key, self.values[key]) if key in self else None

    def require(self, key: str) -> "Facts":
        """The object under ``key``."""
        if key not in self:
            raise self.error(key, "missing", "a JSON object")
        return self.of(key, self.values[key])

    def of(self, key: str, value: object) -> "Facts":
        """``value`` as a sub-object called ``key``."""
        if not isinstance(value, dict):
            raise self.error(key, value, "a JSON object")
        return Facts(value, self.where, f"{self.prefix}{key}.", self.notes)

    def divided(self, total: str, dividend: int, parts: str, divisor: int) -> int:
        """``dividend`` over ``divisor``, which must leave no remainder."""
        if dividend % divisor:
            allowed = f"a divisor of {self.prefix}{total}, which is {dividend}"
            raise self.error(parts, divisor, allowed)
        return dividend // divisor


def _is_between(value: object, low: float, high: float) -> bool:
    """A number within bounds, which neither NaN nor a bool is."""
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
