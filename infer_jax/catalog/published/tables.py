"""The bundled TOML tables of constants, one file for each published model."""

from functools import cache
from importlib.resources import files

from infer_jax.catalog.foreign import Parsed, read_toml
from infer_jax.errors import InputError


@cache
def tables(source: str) -> Parsed:
    """The tables of a file of this folder, by the file's name without its ending."""
    return read_toml(str(files("infer_jax.catalog.published").joinpath(f"{source}.toml")))


def row_of(source: str, kind: str, name: str) -> Parsed:
    """One row of a table: a model or a chip, by its name.

    Raises:
        InputError: no row of that name.
    """
    table = tables(source)[kind]
    if name not in table:
        raise InputError(f"{source} paper", kind, name, ", ".join(table))
    return table[name]
