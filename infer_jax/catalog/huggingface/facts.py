"""The keys of a config.json, every value checked when it is read."""

from collections.abc import Mapping, Sequence
from typing import Never, TypeVar, cast

from infer_jax.errors import InputError

REQUIRED = cast(Never, object())  # no default: a missing key is an error
LAYERS = 1000  # more layers than any model has; each is looked at once
LISTED = 2**18  # entries of a list: DeepSeek exclusions name 50,000 modules
T = TypeVar("T")


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

    def __init__(
        self,
        values: Mapping[str, object],
        where: str,
        prefix: str = "",
        notes: list[str] | None = None,
    ):
        self.values, self.where, self.prefix = values, where, prefix
        self.notes: list[str] = [] if notes is None else notes

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def error(self, key: str, value: object, allowed: str) -> InputError:
        """The error to raise about ``key``."""
        return InputError(self.where, self.prefix + key, value, allowed)

    def note(self, sentence: str) -> None:
        """Note once what was assumed or left out."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def _find(self, keys: Sequence[str], default: object, allowed: str) -> tuple[str, object]:
        for key in keys:
            if key in self:
                return key, self.values[key]
        if default is REQUIRED:
            raise self.error(keys[0], "missing", allowed)
        return keys[0], None

    def number(
        self, *keys: str, default: T = REQUIRED, low: float = 0.0, high: float = 2.0**40
    ) -> float | T:
        """A finite number from ``low`` to ``high``."""
        allowed = f"a number from {low:g} to {high:g}"
        key, value = self._find(keys, default, allowed)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, value, allowed)
        if not low <= value <= high:  # also refuses NaN
            raise self.error(key, value, allowed)
        return float(value)

    def count(
        self,
        *keys: str,
        default: T = REQUIRED,
        low: int = 1,
        high: int = 2**40,
        silent: bool = False,
    ) -> int | T:
        """A whole number from ``low`` to ``high``; a default taken is noted unless ``silent``."""
        allowed = f"a whole number from {low} to {high}"
        key, value = self._find(keys, default, allowed)
        if value is None:
            if not silent:
                self.note(f"{key} is missing: {default}, the default of transformers, is taken")
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, value, allowed)
        if not low <= value <= high or value != int(value):  # also refuses NaN
            raise self.error(key, value, allowed)
        return int(value)

    def flag(self, *keys: str, default: bool) -> bool:
        """True or false."""
        key, value = self._find(keys, default, "true or false")
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.error(key, value, "true or false")
        return value

    def text(self, *keys: str, default: T = REQUIRED, allowed: Sequence[str] = ()) -> str | T:
        """A string, one of ``allowed`` where given."""
        wanted = " or ".join(allowed) if allowed else "a string"
        key, value = self._find(keys, default, wanted)
        if value is None:
            return default
        if not isinstance(value, str) or (allowed and value not in allowed):
            raise self.error(key, value, wanted)
        return value

    def items(
        self, *keys: str, length: int | None = None, allowed: Sequence[T] = ()
    ) -> list[T] | None:
        """A list, or None where it is missing; of ``length`` items, each of ``allowed``."""
        wanted = "a list" if length is None else f"a list of {length}"
        key, value = self._find(keys, None, wanted)
        if value is None:
            return None
        if not isinstance(value, list) or (length is not None and len(value) != length):
            raise self.error(key, value, wanted)
        most = len(allowed) if isinstance(allowed, range) else LISTED
        if len(value) > most:
            raise self.error(key, f"a list of {len(value)}", f"a list of at most {most}")
        for item in value:
            if allowed and item not in allowed:
                whole = f"a whole number from 0 to {most - 1}"
                several = " or ".join(str(a) for a in allowed)
                raise self.error(key, item, whole if isinstance(allowed, range) else several)
        return value

    def names(self, *keys: str) -> list[str]:
        """A list of strings, empty where it is missing."""
        strings: list[str] = []
        for item in self.items(*keys) or []:
            if not isinstance(item, str):
                raise self.error(keys[0], item, "a list of strings")
            strings.append(item)
        return strings

    def section(self, key: str) -> "Facts | None":
        """The object under ``key``, or None where it is missing."""
        if key not in self:
            return None
        return self.of(key, self.values[key])

    def of(self, key: str, value: object) -> "Facts":
        """``value`` as a sub-object called ``key``."""
        if not isinstance(value, dict):
            raise self.error(key, value, "a JSON object")
        return Facts(value, self.where, f"{self.prefix}{key}.", self.notes)

    def divided(self, total: str, dividend: int, parts: str, divisor: int) -> int:
        """``dividend`` over ``divisor``, which must leave no remainder."""
        if dividend % divisor:
            raise self.error(
                parts, divisor, f"a divisor of {self.prefix}{total}, which is {dividend}"
            )
        return dividend // divisor
