"""An option of a verb, declared once: ``Annotated[type, Option(help, metavar, kind)]``.

What one verb alone has is ``Option.of(metavar, kind)``, and its line of help the one of the
docstring's ``Args``. From this come the check of a value in Python, the reading of a text on the
command line, the line of ``--help``, and the sentence about a wrong value.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from numbers import Real
from typing import Annotated, Any, TypeVar, get_args, get_origin

from infer_jax.results.problems import by_command
from infer_jax.verbs import texts
from infer_jax.verbs.texts import MAX_NUMBER

T = TypeVar("T")


class ValueKind:
    """What the values of an option are, beyond their type; ``allowed`` says it in words."""

    allowed: str

    def parse(self, text: str) -> object:
        """The value that a text of the command line means: the text, read as in Python."""
        return text

    def check(self, value: object) -> object:
        """``value`` as the verb gets it.

        Raises:
            ValueError: the option cannot have it.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Number(ValueKind):
    """Numbers from ``low`` to ``high``; with ``above``, greater than ``low``.

    ``what`` they are, and ``why`` they end at ``high``, are for the sentence about a wrong one.
    """

    low: float = 0.0
    high: float = MAX_NUMBER
    above: bool = False
    whole: bool = False
    what: str = ""
    why: str = ""

    @property
    def allowed(self) -> str:
        """What is allowed, in words.

        >>> Number(1.0, 64.0, whole=True).allowed, Number(above=True, what="a rate").allowed
        ('a whole number from 1 to 64', 'a rate above 0, of 1e+12 at most')
        """
        what = self.what or ("a whole number" if self.whole else "a number")
        if self.above:
            return f"{what} above {self.low:g}, of {self.high:.12g} at most{self.why}"
        return f"{what} from {self.low:g} to {self.high:.12g}{self.why}"

    def parse(self, text: str) -> float:
        """The number of a text."""
        return texts.number(text)

    def check(self, value: object) -> object:
        """The number, if it is one of these."""
        number = to_float(value)
        low = self.low < number if self.above else self.low <= number
        if not (low and number <= self.high and (number == math.floor(number) or not self.whole)):
            raise ValueError(self.allowed)
        return value


@dataclass(frozen=True)
class Time(ValueKind):
    """Seconds of a time such as "300ms"; a bare number is seconds in Python, ms in a command.

    There a bare number below 1 is refused: who means seconds, as in Python, writes them.
    ``unlimited``: the word "none" is a time without end.
    """

    unlimited: bool = False

    @property
    def allowed(self) -> str:
        """What is allowed, in words."""
        more = "; none for no limit" if self.unlimited else ""
        if by_command():
            return f"a time such as 300ms, 0.3s or 300 (ms){more}"
        return f'a number above 0, in seconds, or a time such as "300ms"{more}'

    def parse(self, text: str) -> object:
        """The seconds of a text; what has its unit keeps its text."""
        bare = texts.number(text)
        if 0.0 < bare < 1.0:
            spelt = f"{text.strip()}s or {text.strip()}ms"
            raise texts.MissingUnitError(f"a time with its unit: {spelt}")
        return text if math.isnan(bare) else 1e-3 * bare

    def check(self, value: object) -> float:
        """The time in seconds."""
        if self.unlimited and isinstance(value, str) and value.strip().casefold() == "none":
            return math.inf
        number = texts.seconds(value) if isinstance(value, str) else to_float(value)
        if not (0.0 < number <= MAX_NUMBER or (self.unlimited and number == math.inf)):
            raise ValueError(self.allowed)
        return number


@dataclass(frozen=True)
class SpreadTokens(ValueKind):
    """Tokens of a request, with their spread where a text says it: 2200±600."""

    allowed: str = "a whole number of at least 1, or one with a spread such as 2200±600"

    def check(self, value: object) -> texts.Tokens:
        """The tokens, and how far requests differ from them."""
        plain = isinstance(value, str | texts.Tokens)
        return texts.tokens(value if plain else to_float(value), 1)  # pyright: ignore


@dataclass(frozen=True)
class Rents(ValueKind):
    """Rents of all systems or of those that are named: 2.1, "h100_sxm=2.1", {"h100_sxm": 2.1}.

    Or other numbers, ``like`` this one.
    """

    one: Number
    like: str = "2.1"

    @property
    def allowed(self) -> str:
        """What is allowed, in words."""
        named = f"h100_sxm={self.like}" if by_command() else f'{{"h100_sxm": {self.like}}}'
        return f"{self.one.allowed}, or with a system: {named}"

    def check(self, value: object) -> dict[str, object]:
        """The rents by the names of systems; "" stands for every other one."""
        if isinstance(value, str):
            name, _, text = value.rpartition("=")
            value = {name.strip(): texts.number(text)}
        rents = value if isinstance(value, Mapping) else {"": value}
        return {str(name): self.one.check(rent) for name, rent in rents.items()}


@dataclass(frozen=True)
class OneOf(ValueKind):
    """One of some names, which a function looks up."""

    names: Callable[[], tuple[str, ...]]

    @property
    def allowed(self) -> str:
        """What is allowed, in words."""
        return f"one of {', '.join(self.names())}"

    def check(self, value: object) -> object:
        """The name, if it is one of these."""
        name = value.lower() if isinstance(value, str) else ""
        if name not in self.names():
            raise ValueError(self.allowed)
        return name


@dataclass(frozen=True)
class AnyCase(ValueKind):
    """Texts of which capitals say nothing."""

    allowed: str = "a text"

    def check(self, value: object) -> str:
        """The text in small letters."""
        if not isinstance(value, str):
            raise ValueError(self.allowed)
        return value.lower()


def look_up(module: str, name: str) -> Callable[[], tuple[str, ...]]:
    """The names that a module of the package lists, which is imported when they are wanted.

    >>> look_up("planning", "MODES")()
    ('aggregated', 'disaggregated')
    """

    def names() -> tuple[str, ...]:
        values: Any = getattr(import_module(f"infer_jax.{module}"), name)
        return tuple(values() if callable(values) else values)  # pyright: ignore[reportArgumentType]

    return names


def count(low: float = 1.0, high: float = MAX_NUMBER, why: str = "") -> Number:
    """Whole numbers from ``low`` to ``high``; ``why`` they end there."""
    return Number(low, high, whole=True, why=why)


def above_zero(what: str = "", high: float = MAX_NUMBER, why: str = "") -> Number:
    """Numbers above 0, of ``high`` at most; ``why`` they end there."""
    return Number(0.0, high, above=True, what=what, why=why)


SHARE = above_zero("a share", 1.0)
PROBABILITY = Number(0.0, 1.0, what="a probability")


@dataclass(frozen=True)
class Option:
    """How a verb's parameter is given, and what ``--help`` says of it.

    Args:
        help: a line of help.
        metavar: what stands for its value there.
        kind: what its values are, where the type does not say it all.
        flags: its spellings on the command line, where they are not ``--its-name``.
        by_place: it is an argument there, and no option.
        many: it may be repeated there.
        required: it must be given there.
        default: its value there, where nothing is given.
        names: completes its value in the shell.
    """

    help: str
    metavar: str = ""
    kind: ValueKind | None = None
    flags: tuple[str, ...] = ()
    by_place: bool = False
    many: bool = False
    required: bool = False
    default: str | None = None
    names: Callable[[], Iterable[str]] | None = None

    @classmethod
    def of(cls, metavar: str = "", kind: ValueKind | None = None, **more: Any) -> "Option":
        """One whose line of help stands in the ``Args`` of its verb's docstring."""
        return cls("", metavar, kind, **more)


def option_of(annotation: object) -> Option | None:
    """The option that an annotation declares; a parameter without one is for Python alone."""
    if get_origin(annotation) is not Annotated:
        return None
    return next((x for x in get_args(annotation)[1:] if isinstance(x, Option)), None)


def type_and_kind(annotation: object) -> tuple[object, ValueKind | None]:
    """The type of an annotation, and the kind of value that it declares, if any."""
    if get_origin(annotation) is not Annotated:
        return annotation, None
    own, declared, *_ = get_args(annotation)
    return own, declared.kind if isinstance(declared, Option) else declared


def to_float(value: object) -> float:
    """A number as a float; NaN for anything else, such as a text or a bool."""
    single = isinstance(value, Real) or getattr(value, "ndim", None) == 0
    truth = isinstance(value, bool) or str(getattr(value, "dtype", "")) == "bool"
    if truth or not single:
        return math.nan
    try:
        return float(value)  # pyright: ignore[reportArgumentType]
    except (OverflowError, TypeError, ValueError):
        return math.nan


def either(value: T | None, otherwise: T) -> T:
    """``value``, also where it is 0; ``otherwise`` where it is None."""
    return otherwise if value is None else value


def without_none(**values: T | None) -> dict[str, T]:
    """The values that are given."""
    return {name: x for name, x in values.items() if x is not None}


def unique_texts(value: str | Sequence[str] | None) -> list[str]:
    """One text or several, each once; none where nothing is given.

    >>> unique_texts("fp8"), unique_texts(["fp8", "bf16", "fp8"]), unique_texts(None)
    (['fp8'], ['fp8', 'bf16'], [])
    """
    return list(dict.fromkeys((value,) if isinstance(value, str) else value or ()))


def seconds_of(limit: float | str | None) -> float | None:
    """Seconds of a limit, whose text ``@verb`` has already read."""
    assert not isinstance(limit, str)
    return limit
