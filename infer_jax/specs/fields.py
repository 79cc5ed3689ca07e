"""How a number of a spec is declared: unit, kind, bounds and one line of doc, once.

Loaders, sweep axes, the contract, co-design bounds and the docs read these declarations;
there is no second list of field names anywhere.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, Self, TypeVar, cast, dataclass_transform

import jax
import numpy as np

from infer_jax.errors import InputError
from infer_jax.specs.declared_outputs import Output

KINDS = ("rate", "capacity", "time", "count", "fraction", "choice", "price", "size")

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Derived:
    """The default of a number that follows from other fields of its spec by a law.

    ``names``: what the law takes, in order: fields declared above, or dotted paths below them.
    """

    law: Callable[..., object]
    names: tuple[str, ...]

    @property
    def reads(self) -> set[str]:
        """The fields of the spec that the law takes, or takes parts of."""
        return {name.partition(".")[0] for name in self.names}

    def of(self, spec: object) -> object:
        """The number of one spec."""
        return self.law(*(attrgetter(name)(spec) for name in self.names))


def derive(spec: object) -> None:
    """Compute the numbers of a spec that were not given and follow from its others."""
    for name, value in vars(spec).items():
        if isinstance(value, Derived):
            object.__setattr__(spec, name, value.of(spec))


def number(
    doc: str,
    *,
    unit: str = "1",
    kind: str,
    low: float = 0.0,
    high: float = math.inf,
    default: object = dataclasses.MISSING,
    choices: tuple[str, ...] = (),
    output: Output | None = None,
) -> Any:
    """A leaf: one real number with its unit, kind, closed bounds and doc.

    ``default``: a number, or ``Derived``, the law by which it follows from the fields above it,
    in specs whose ``__post_init__`` calls ``derive``. ``choices`` names the codes 0, 1, 2 … of a
    field of kind ``choice``; ``output`` says how views name and write it, where it is an output
    of an estimate.
    """
    assert kind in KINDS, kind
    metadata = {"doc": doc, "unit": unit, "kind": kind, "low": low, "high": high}
    metadata |= {"choices": choices, "output": output}
    if isinstance(default, Derived):
        return dataclasses.field(default=default, metadata=metadata)
    if default is not dataclasses.MISSING:
        # an array of its own for every spec: JAX keeps a constant as wide as it was first traced
        array = partial(np.array, default, np.float64)
        return dataclasses.field(default_factory=array, metadata=metadata)
    return dataclasses.field(metadata=metadata)


def fresh(tree: T) -> T:
    """The same numbers in arrays of their own.

    JAX keeps a NumPy constant as wide as the trace that closed over it first: what a caller closed
    over in 32 bits cannot be computed with in 64.
    """
    return jax.tree.map(copy, tree)


def part(doc: str, *, default_factory: Callable[..., object] | None = None) -> Any:
    """A branch: another spec, or a tuple of specs."""
    metadata = {"doc": doc, "kind": "part"}
    if default_factory is None:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default_factory=default_factory, metadata=metadata)


def static(doc: str, *, default: object = dataclasses.MISSING) -> Any:
    """Structure, not a number: a law, a convention or a length. Changing it retraces."""
    metadata = {"doc": doc, "kind": "static"}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass_transform(
    kw_only_default=True, frozen_default=True, field_specifiers=(number, part, static)
)
def spec(cls: type[T]) -> type[T]:
    """A frozen keyword-only dataclass registered as a pytree, with ``replace`` and ``of``."""
    data: Any = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
    fixed = [f.name for f in dataclasses.fields(data) if f.metadata.get("kind") == "static"]
    numbers = [f.name for f in dataclasses.fields(data) if f.name not in fixed]
    return jax.tree_util.register_dataclass(data, numbers, fixed)


class Spec:
    """Base class of all specs: ``of`` checks and converts, ``replace`` changes fields.

    The constructor stores what it is given, so that axes, tracers and placeholders pass;
    ``of`` is for values from users: it checks bounds and makes every number a 0-d float64
    array, which costs one trace for all values and lets ``jax.grad`` reach every leaf.
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    @classmethod
    def of(cls, **values: object) -> Self:
        """Build from plain numbers, each checked against its declared bounds.

        Raises:
            InputError: an unknown or missing field, a number out of bounds or not finite.
        """
        checked = {name: value_of(cls, name, value) for name, value in values.items()}
        for f in dataclasses.fields(cls):
            required = f.default is f.default_factory is dataclasses.MISSING
            if required and f.name not in values:
                raise InputError(cls.__name__, f.name, "missing", f.metadata["doc"])
        return cls(**checked)

    def replace(self, **changes: object) -> Self:
        """A copy with some fields changed; nothing is checked or converted.

        Numbers that follow from changed ones (``Derived``) are computed anew.
        """
        for field in dataclasses.fields(self):
            law = field.default
            if isinstance(law, Derived) and field.name not in changes and law.reads & set(changes):
                changes[field.name] = law
        return dataclasses.replace(self, **changes)  # pyright: ignore[reportArgumentType]

    def with_(self, **changes: object) -> Self:
        """A copy with some fields changed, checked as ``of`` checks."""
        return self.replace(**{name: value_of(type(self), name, v) for name, v in changes.items()})

    def at(self, changes: Mapping[str, object]) -> Self:
        """A copy with numbers changed by dotted path, as sweeps name them.

        Numbers are checked against their bounds; tracers and arrays of JAX pass, so that a loss may
        be a function of what is put in.

        >>> from infer_jax.catalog import load_model
        >>> wide = load_model("llama-3.1-8b").architecture.at({"blocks.0.feedforward.width": 2e4})
        >>> float(wide.blocks[0].feedforward.width)
        20000.0

        Raises:
            InputError: no such path, or a number out of its bounds.
        """
        return cast(Self, _changed_at(self, changes, type(self).__name__))


def _changed_at(tree: object, changes: Mapping[str, object], where: str) -> object:
    """A spec, or a tuple of specs, with the numbers below it changed by dotted path."""
    below: dict[str, dict[str, object]] = {}
    for path, value in changes.items():
        head, _, rest = path.partition(".")
        below.setdefault(head, {})[rest] = value
    if isinstance(tree, tuple):
        items = list(cast(tuple[object, ...], tree))
        for head, inner in below.items():
            if not (head.isdigit() and int(head) < len(items)):
                raise InputError(where, "index", head, f"0 to {len(items) - 1}")
            items[int(head)] = _changed_at(items[int(head)], inner, f"{where}.{head}")
        return tuple(items)
    if not isinstance(tree, Spec):
        raise InputError(where, next(iter(below)), "not a field of it", "a path that ends here")
    values: dict[str, object] = {}
    for head, inner in below.items():
        if "" in inner:  # the path ends here
            values[head] = value_of(type(tree), head, inner[""])
        else:
            here = getattr(tree, head, None)
            values[head] = _changed_at(here, inner, f"{where}.{head}")
    return tree.replace(**values)


def value_of(cls: type[Spec], name: str, value: object, where: str | None = None) -> Any:
    """``value`` as field ``name`` of ``cls`` stores it: a checked 0-d float64 array.

    Raises:
        InputError: no such field, or the value is not a number within its bounds.
    """
    where = where or cls.__name__
    known = {f.name: f for f in dataclasses.fields(cls)}
    if name not in known:
        raise InputError(where, name, "not a field of it", ", ".join(known))
    meta = known[name].metadata
    if meta["kind"] in ("part", "static"):
        return value
    if isinstance(value, jax.Array):
        return value
    if isinstance(value, str) and value in meta["choices"]:
        value = meta["choices"].index(value)
    try:
        result = np.asarray(np.nan if isinstance(value, str) else value, np.float64)
    except (TypeError, ValueError, OverflowError):
        result = np.asarray(np.nan)
    if not np.all(np.isfinite(result) & (result >= meta["low"]) & (result <= meta["high"])):
        raise InputError(where, name, value, _bounds(meta))
    return result


def _bounds(meta: Mapping[str, Any]) -> str:
    if meta["choices"]:
        return " or ".join(f"{i} ({c})" for i, c in enumerate(meta["choices"]))
    unit = "" if meta["unit"] == "1" else f" {meta['unit']}"
    if math.isinf(meta["high"]):
        return f"a number of at least {meta['low']:g}{unit}"
    return f"a number from {meta['low']:g} to {meta['high']:g}{unit}"


def leaves(tree: object, path: str = "") -> Iterator[tuple[str, Mapping[str, Any], Any]]:
    """Every number below ``tree`` as (dotted path, metadata, value).

    >>> from infer_jax.specs import Format
    >>> [(path, meta["unit"]) for path, meta, _ in leaves(Format.of(bytes=1, bits=8))]
    [('bytes', 'bytes'), ('bits', 'bits'), ('rows', '1'), ('columns', '1')]
    """
    if isinstance(tree, tuple | list):
        for i, item in enumerate(cast(Sequence[object], tree)):
            yield from leaves(item, f"{path}.{i}" if path else str(i))
        return
    if not dataclasses.is_dataclass(tree):
        return
    for f in dataclasses.fields(tree):
        value, here = getattr(tree, f.name), f"{path}.{f.name}" if path else f.name
        kind = f.metadata.get("kind")
        if kind == "part":
            yield from leaves(value, here)
        elif kind != "static":
            yield here, f.metadata, value
