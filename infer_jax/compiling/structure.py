"""The structure of a tree of specs as plain data, to compare and rebuild elsewhere.

Specs, named tuples, tuples, lists and dictionaries of numbers; what is static in a spec must be
plain or have a name in this package. Data names classes and functions and holds no code.
"""

import dataclasses
from importlib import import_module
from typing import Any

import jax

LEAF = "leaf"
PLAIN = (bool, int, float, str, type(None))


class UndescribableError(ValueError):
    """A tree holds what has no name in this package: a lambda, a closure, a user's class."""


def described(tree: object, *, static: bool = False) -> object:
    """A tree as data: types in full, of every number its shape and dtype.

    ``static`` values are written in full: plain ones, functions of this package, and tuples and
    records of them.
    """
    if tree is None or (static and isinstance(tree, PLAIN)):
        return tree
    if isinstance(tree, dict):
        if not all(isinstance(name, str) for name in tree):
            raise UndescribableError("a key that is no text")
        return {"dict": {name: described(tree[name], static=static) for name in sorted(tree)}}
    if isinstance(tree, tuple | list):
        items = [described(x, static=static) for x in tree]
        if type(tree) in (tuple, list):
            return {type(tree).__name__: items}
        return {"named": name_of(type(tree)), "items": items}
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields: dict[str, object] = {}
        for f in dataclasses.fields(tree):
            in_full = static or f.metadata.get("kind") == "static"
            fields[f.name] = described(getattr(tree, f.name), static=in_full)
        return {"record": name_of(type(tree)), "fields": fields}
    if static:
        return {"name": name_of(tree)}
    if isinstance(tree, type):
        raise UndescribableError(repr(tree))
    aval = jax.typeof(tree)  # TypeError where it is no number
    return {LEAF: [list(aval.shape), str(aval.dtype), aval.weak_type]}


def rebuilt(data: Any) -> Any:
    """The tree of ``described`` with 0.0 for every number."""
    if not isinstance(data, dict):  # None, and what is static
        return data
    if LEAF in data:
        return 0.0
    if "name" in data:
        return _resolve(data["name"])
    if "dict" in data:
        return {name: rebuilt(x) for name, x in data["dict"].items()}
    if "tuple" in data:
        return tuple(rebuilt(x) for x in data["tuple"])
    if "list" in data:
        return [rebuilt(x) for x in data["list"]]
    if "named" in data:
        return _class(data["named"], tuple)(*(rebuilt(x) for x in data["items"]))
    record = _class(data["record"], object)
    return record(**{name: rebuilt(x) for name, x in data["fields"].items()})


def name_of(thing: object) -> str:
    """``module:name`` of a class or function of this package."""
    module, name = getattr(thing, "__module__", ""), getattr(thing, "__qualname__", "")
    if not name or not str(module).startswith("infer_jax."):
        raise UndescribableError(f"{thing!r} is not of this package")
    if _resolve(f"{module}:{name}") is not thing:
        raise UndescribableError(f"{thing!r} has no name")
    return f"{module}:{name}"


def _resolve(text: str) -> object:
    module, name = text.split(":")
    if not module.startswith("infer_jax."):
        raise UndescribableError(f"{text!r} is not of this package")
    here: object = import_module(module)
    for part in name.split("."):
        here = getattr(here, part, None)
    return here


def _class(text: str, base: type) -> Any:
    kind = _resolve(text)
    if not isinstance(kind, type) or not issubclass(kind, base):
        raise UndescribableError(f"{text!r} is no {base.__name__}")
    if not dataclasses.is_dataclass(kind) and not hasattr(kind, "_fields"):
        raise UndescribableError(f"{text!r} is neither a spec nor a named tuple")
    return kind
