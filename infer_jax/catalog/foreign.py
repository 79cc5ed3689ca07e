"""Parses JSON, TOML, YAML, CSV and arrays of users, bounded in size and depth.

Every user's file is parsed here, by one function for each format. The result nests at most
``MAX_DEPTH`` deep, holds no more values than fit into memory, and no integer that a float cannot
hold. Types and ranges of values are checked where they are used (``cells.py`` and
``huggingface/facts.py``).

Arrays are never unpickled. A file of NumPy's names the size of every array twice, in the directory
of the archive and in the head of the array; both are compared with what the file holds before
memory is taken for it.
"""

import csv
import io
import json
import math
import os
import re
import struct
import tokenize
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from infer_jax.catalog.files import LARGEST, read_bytes, read_text
from infer_jax.errors import InputError
from infer_jax.on_demand import load_optional

Parsed = dict[str, Any]  # a file by its keys, of values that are checked where they are read
MAX_DEPTH = 64  # tables within tables: configs nest 8 deep, results of benchmarks 6
MIN_BYTES = 16  # bytes a value, of the largest file: a smaller value takes ten times that in memory
MAX_DIGITS = 300
MAX_INTEGER = 10**MAX_DIGITS  # larger than any quantity, and near the largest float
MAX_CELL = 131_072  # characters of one cell
MAX_TABLE = 4 * 2**20  # bytes of TOML or YAML: both are written by hand and read slowly
LARGEST_ARRAYS = 4 * 2**30  # bytes
MAX_MEMBERS = 4096  # of an archive
HEADS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
DAMAGE = (OSError, ValueError, KeyError, TypeError, EOFError, RuntimeError, NotImplementedError,
          IndexError, SyntaxError, zipfile.BadZipFile, zlib.error, OverflowError, AttributeError,
          MemoryError, struct.error, tokenize.TokenError)  # fmt: skip
MAX_PARTS = 32  # of a dotted key of TOML, which is looked up part by part at every line below it


def read_json(path: str | os.PathLike[str], largest: int = LARGEST) -> Parsed:
    """The JSON object in a file; NaN and infinity, which JSON has not, are refused.

    Raises:
        InputError: unreadable, not JSON, not an object, too deep or of too many values.
    """
    where, text = str(path), read_text(path, largest)

    def refuse(constant: str) -> NoReturn:
        raise InputError(where, "a number", constant, "a finite number")

    value = json_of(where, text, largest, constant=refuse)
    if not isinstance(value, dict):
        raise InputError(where, "top level", type(value).__name__, "a JSON object")
    return value


def read_toml(path: str | os.PathLike[str]) -> dict[str, object]:
    """The TOML table in a file.

    Raises:
        InputError: unreadable, not TOML, too deep or of too many values.
    """
    where, text = str(path), read_text(path, MAX_TABLE)
    for number, line in enumerate(text.split("\n"), 1):
        key = line.partition("=")[0] if "=" in line or line.lstrip()[:1] == "[" else ""
        if key.count(".") > MAX_PARTS and not re.match(r"[\s\[\]0-9.,+-]*$", key):
            value = f"a key of over {MAX_PARTS} parts"
            raise InputError(where, f"line {number}", value, f"at most {MAX_PARTS} parts")
    table: Any = _parsed(where, text, tomllib.loads, "TOML")
    return table


def read_yaml(path: str | os.PathLike[str]) -> object:
    """The content of a YAML file, every scalar as its text.

    Aliases are refused: with them a few lines stand for any number of values.

    Raises:
        InputError: PyYAML is not installed, unreadable, not YAML, an alias, too deep.
    """
    where, text = str(path), read_text(path, MAX_TABLE // 4)
    yaml = load_optional(where, "yaml", "yaml")
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # makes texts, and no other object

    def load(text: str) -> object:
        depth = 0
        try:
            for event in yaml.parse(text, Loader=loader):
                if isinstance(event, yaml.AliasEvent):
                    line = event.start_mark.line + 1
                    raise InputError(where, f"line {line}", "an alias", "YAML without aliases")
                depth += isinstance(event, yaml.CollectionStartEvent)
                depth -= isinstance(event, yaml.CollectionEndEvent)
                if depth > MAX_DEPTH:
                    raise RecursionError
            return yaml.load(text, Loader=loader)
        except yaml.YAMLError as error:
            if "nesting depth" in str(error):  # libyaml's own limit, from PyYAML 6.0.4 on
                raise RecursionError from None
            raise ValueError(" ".join(str(error).split())[:200]) from None

    return _parsed(where, text, load, "YAML")


def json_of(
    where: str, text: str, largest: int = LARGEST, constant: Callable[[str], object] | None = None
) -> Any:
    """The JSON value in a text; ``constant`` converts NaN, Infinity and -Infinity.

    Raises:
        InputError: not JSON, too deep, of too many values, or a whole number without end.
    """
    count = largest // MIN_BYTES
    if text.count(",") + text.count("[") + text.count("{") > count:
        raise InputError(where, "number of values", f"over {count}", f"at most {count}")
    return _parsed(where, text, lambda x: json.loads(x, parse_constant=constant), "JSON")


def json_lines(where: str, text: str, largest: int = LARGEST) -> list[tuple[int, object]]:
    """The JSON documents of a text with their lines: one (line 0), or one to a line.

    Raises:
        InputError: not JSON, with the line; too deep or of too many values.
    """
    try:
        return [(0, json_of(where, text, largest))]
    except MalformedError:
        objects = []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            if line.strip():
                objects.append((number, json_of(where, line, largest)))
        except MalformedError as error:
            allowed = "JSON, or one object to a line"
            raise InputError(where, f"line {number}", error.value, allowed) from None
    return objects


def csv_rows(where: str, text: str, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of every row of a CSV that is not empty, the header first.

    Raises:
        InputError: not CSV, or a cell of over ``MAX_CELL`` characters, with the line; no row.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter)
    empty = True
    try:
        for row in reader:
            cells = [cell.strip() for cell in row]
            if any(cells):
                if (longest := max(map(len, cells))) > MAX_CELL:
                    raise csv.Error(f"a cell of {longest} characters")
                empty = False
                yield reader.line_num, cells
    except csv.Error as error:
        at = f"line {reader.line_num}"
        raise InputError(where, at, str(error), "comma-separated values") from None
    if empty:
        raise InputError(where, "line 1", "an empty file", "comma-separated values below a header")


def read_arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays by name of a file that ``numpy.savez`` wrote, uncompressed.

    Raises:
        InputError: unreadable, damaged, compressed, or of members that are larger than the file.
    """
    where, data = str(path), read_bytes(path, LARGEST_ARRAYS)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) > MAX_MEMBERS or sum(x.file_size for x in members) > len(data):
                raise ValueError("members larger than the file")
            return {Path(x.filename).stem: _array(x, archive) for x in members}
    except InputError:
        raise
    except DAMAGE as error:
        reason = f"a damaged archive ({type(error).__name__})"
        raise InputError(where, "", reason, "arrays as numpy.savez writes them") from None


def parquet_columns(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """The names of the columns of a Parquet file.

    Raises:
        InputError: as ``read_parquet``.
    """
    with _parquet(path) as parquet:
        return tuple(parquet.read_schema(path).names)


def read_parquet(
    path: str | os.PathLike[str], names: Sequence[str] | None = None
) -> dict[str, np.ndarray]:
    """The columns of a Parquet file; only those of ``names``, where they are given.

    Raises:
        InputError: pyarrow is not installed; unreadable, damaged, or larger than
            ``LARGEST_ARRAYS`` when unpacked, as its own foot says.
    """
    with _parquet(path) as parquet:
        foot = parquet.read_metadata(path)
        groups = (foot.row_group(i) for i in range(foot.num_row_groups))
        if (size := sum(group.total_byte_size for group in groups)) > LARGEST_ARRAYS:
            unpacked = f"{size} bytes unpacked"
            raise InputError(str(path), "size", unpacked, f"at most {LARGEST_ARRAYS} bytes")
        table = parquet.read_table(path, columns=names)
        return {name: table[name].to_numpy() for name in table.column_names}


@contextmanager
def _parquet(path: str | os.PathLike[str]) -> Iterator[Any]:
    """pyarrow's Parquet reader as a context, whose errors become an InputError."""
    where = str(path)
    pyarrow = load_optional(where, "pyarrow", "parquet")
    parquet = load_optional(where, "pyarrow.parquet", "parquet")
    if not Path(path).is_file():  # a pipe would wait for ever
        raise InputError(where, "", "no file", "a Parquet file")
    try:
        yield parquet
    except InputError:
        raise
    except (pyarrow.ArrowException, *DAMAGE) as error:
        reason = f"a damaged table ({type(error).__name__})"
        raise InputError(where, "", reason, "a Parquet file") from None


class MalformedError(InputError):
    """A text that is not of its format."""


def _parsed(where: str, text: str, parse: Callable[[str], object], kind: str) -> object:
    try:
        value = parse(text)
        _check_depth(where, value)
    except InputError:
        raise
    except RecursionError:
        allowed = f"{kind} of at most {MAX_DEPTH} levels"
        raise InputError(where, "", "nested too deeply", allowed) from None
    except ValueError as error:
        message = str(error).splitlines()[0]
        if isinstance(error, json.JSONDecodeError):
            message = f"line {error.lineno}: {error.msg}"
        raise MalformedError(where, "", f"not {kind} ({message})", f"valid {kind}") from None
    return value


def _check_depth(where: str, value: object) -> None:
    """Raise if a structure is too deep or a number in it too large; one pass, no recursion."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        below = []
        for container in level:
            for x in container.values() if type(container) is dict else container:
                kind = type(x)
                if kind is dict or kind is list:
                    below.append(x)
                elif kind is int and not -MAX_INTEGER < x < MAX_INTEGER:
                    reason = f"too large: over {MAX_DIGITS} digits"
                    raise InputError(where, _path_of(value, x), reason, "a number below 1e300")
        if not below:
            return
        level = below
    raise RecursionError


def _path_of(value: object, item: object) -> str:
    """Where in a structure an object stands."""
    level = [("", value)]
    while level:
        path, inner = level.pop()
        if inner is item:
            break
        if isinstance(inner, dict | list):
            pairs = inner.items() if isinstance(inner, dict) else enumerate(inner)
            level += [(f"{path}.{key}".removeprefix("."), x) for key, x in pairs]
    return path


def _array(member: zipfile.ZipInfo, archive: zipfile.ZipFile) -> np.ndarray:
    if member.compress_type != zipfile.ZIP_STORED or not member.filename.endswith(".npy"):
        raise ValueError("not an uncompressed array")
    data = archive.read(member)
    stream = io.BytesIO(data)
    shape, _, dtype = HEADS[np.lib.format.read_magic(stream)](stream)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(data) - stream.tell():
        raise ValueError("an array of another size than its head says")
    stream.seek(0)
    return np.lib.format.read_array(stream, allow_pickle=False)
