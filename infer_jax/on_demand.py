"""Public names of a package, each imported when it is asked for: a command loads what it uses."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def on_demand(
    package: str, files: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package whose public names are in ``files``.

    ``files``: by file its names, apart by spaces. Type checkers read the imports that stand beside
    it, which do not run.
    """
    homes = {name: file for file, names in files.items() for name in names.split()}
    here = vars(sys.modules[package])

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f"{package}.{homes[name]}"), name)
        return here.setdefault(name, found)

    return get, lambda: sorted({*here, *homes})
