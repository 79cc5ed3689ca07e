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


def described(tree: object) -> object:
    """A tree as data: types and static values in full, of every number its shape and dtype."""
    if tree is None:
        return None
    if isinstance(tree, type):
        raise UndescribableError(repr(tree))
    if isinstance(tree, dict):
        if not all(isinstance(name, str) for name in tree):
            raise UndescribableError("a key that is no text")
        return {"dict": {name: described(tree[name]) for name in sorted(tree)}}
    if isinstance(tree, tuple | list):
        items = [described(x) for x in tree]
        if type(tree) in (tuple, list):
            return {type(tree).__name__: items}
        return {"named": name_of(type(tree)), "items": items}
    if dataclasses.is_dataclass(tree):
        parts, static = {}, {}
        for f in dataclasses.fields(tree):
            value = getattr(tree, f.name)
            if f.metadata.get("kind") == "static":
                static[f.name] = plain(value)
            else:
                parts[f.name] = described(value)
        return {"spec": name_of(type(tree)), "parts": parts, "static": static}
    aval = jax.typeof(tree)  # TypeError where it is no number
    return {LEAF: [list(aval.shape), str(aval.dtype), aval.weak_type]}


def rebuilt(data: Any) -> Any:
    """The tree of ``described`` with 0.0 for every number."""
    if data is None:
        return None
    if LEAF in data:
        return 0.0
    if "dict" in data:
        return {name: rebuilt(x) for name, x in data["dict"].items()}
    if "tuple" in data:
        return tuple(rebuilt(x) for x in data["tuple"])
    if "list" in data:
        return [rebuilt(x) for x in data["list"]]
    if "named" in data:
        return _class(data["named"], tuple)(*(rebuilt(x) for x in data["items"]))
    static = {name: _static_of(x) for name, x in data["static"].items()}
    parts = {name: rebuilt(x) for name, x in data["parts"].items()}
    return _class(data["spec"], object)(**parts, **static)


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


def plain(value: object) -> object:
    """A static value as data: plain ones, functions of this package, tuples and records of them."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, tuple):
        kind = None if type(value) is tuple else name_of(type(value))
        return {"tuple": [plain(x) for x in value], "kind": kind}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"fields": fields, "kind": name_of(type(value))}
    return {"name": name_of(value)}


def _static_of(data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    if "name" in data:
        return _resolve(data["name"])
    if "fields" in data:
        return _class(data["kind"], object)(**{n: _static_of(x) for n, x in data["fields"].items()})
    items = [_static_of(x) for x in data["tuple"]]
    return tuple(items) if data["kind"] is None else _class(data["kind"], tuple)(*items)
