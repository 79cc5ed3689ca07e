"""Imports on first use: public names of a package, and packages that an extra installs."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from infer_jax.errors import InputError


def attach_stub(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package whose public names its stub imports.

    The stub, ``__init__.pyi`` beside ``__init__.py``, is what type checkers read (SPEC 1 of
    Scientific Python). The package's own parts that it imports from are attributes, too.
    """
    here = vars(sys.modules[package])
    stub = ast.parse(Path(here["__file__"]).with_suffix(".pyi").read_text(encoding="utf-8"))
    homes = {
        alias.name: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    declared = {ast.unparse(x.target) for x in stub.body if isinstance(x, ast.AnnAssign)}
    own = [home for home in homes.values() if home.startswith(f"{package}.")]
    parts = {home.removeprefix(f"{package}.").partition(".")[0] for home in own}

    def get(name: str) -> Any:
        if name in homes:
            return here.setdefault(name, getattr(import_module(homes[name]), name))
        if name in parts:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return get, lambda: sorted({*homes, *parts, *declared})


def load_optional(where: str, module: str, extra: str, otherwise: str = "") -> ModuleType:
    """A module of an optional package; ``otherwise``: what can be done without it.

    Raises:
        InputError: it is not installed; names the ``extra`` of infer_jax that installs it.
    """
    try:
        return import_module(module)
    except ImportError as error:
        allowed = f"pip install 'infer_jax[{extra}]'{otherwise}"
        name = (error.name or module).partition(".")[0]
        raise InputError(where, name, "not installed", allowed) from None
