"""Files of a sweep: its rows as Parquet, CSV or JSON, with their units, and its checkpoint.

Each is written whole or not at all, and tied to its sweep by the sweep's fingerprint.
"""

import csv
import hashlib
import io
import json
import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np

from infer_jax.catalog.files import read_text, replace_file, takes_file, write_text
from infer_jax.catalog.foreign import json_of, read_arrays
from infer_jax.errors import InputError
from infer_jax.on_demand import load_optional

MAX_BYTES, HEAD = 2**31, 2**22  # of a result in JSON, of the first line of one in CSV
KINDS = (".parquet", ".csv", ".json")
FORMAT = "infer_jax sweep 2"  # of a checkpoint


def check(path: str | os.PathLike[str], mark: str) -> None:
    """Check that a result can be written there, before a long sweep.

    Raises:
        InputError: another ending, no such folder, no permission, no pyarrow for Parquet, or a
            file that is not of the sweep ``mark``.
    """
    path = Path(path)
    if path.suffix not in KINDS:
        raise InputError("sweep", "out", str(path), f"a name that ends in {', '.join(KINDS)}")
    if not takes_file(path):
        raise InputError("sweep", "out", str(path), "a file in a folder that can be written")
    if path.suffix == ".parquet":
        _pyarrow()
    if path.exists() and _mark(path) != mark:
        raise InputError("sweep", "out", str(path), "a new name: that file is not of this sweep")


def _pyarrow() -> ModuleType:
    otherwise = ", or a name that ends in .csv or .json"
    load_optional("sweep", "pyarrow.parquet", "parquet", otherwise)
    return import_module("pyarrow")


def _mark(path: Path) -> str:
    """The fingerprint of the sweep that wrote a result file; empty where it has none."""
    if not path.is_file():  # a pipe would wait for ever
        return ""
    try:
        if path.suffix == ".parquet":
            metadata: Mapping[bytes, bytes] = _pyarrow().parquet.read_schema(path).metadata or {}
            facts = json_of(str(path), metadata.get(b"infer_jax", b"{}").decode())
        elif path.suffix == ".csv":
            with path.open(encoding="utf-8") as stream:
                facts = json_of(str(path), stream.readline(HEAD).removeprefix("# "))
        else:
            facts = json_of(str(path), read_text(path, MAX_BYTES), MAX_BYTES)["provenance"]
        return str(facts["fingerprint"])
    except (OSError, ValueError, KeyError, TypeError):  # pyarrow's errors are ValueErrors
        return ""


def write(
    path: Path, columns: dict[str, np.ndarray], units: dict[str, str], facts: Mapping[str, object]
) -> None:
    """Write one file whole: columns, the unit of each, and the provenance."""
    heads = [f"{name} [{units[name]}]" if units[name] else name for name in columns]
    values = [column.tolist() for column in columns.values()]
    if path.suffix == ".json":
        parts = zip(columns, values, strict=True)
        body = {
            "schema": 1,
            "provenance": facts,
            "columns": {name: {"unit": units[name], "values": x} for name, x in parts},
        }
        write_text(path, json.dumps(body, indent=1) + "\n")
    elif path.suffix == ".csv":
        text = io.StringIO()
        text.write(f"# {json.dumps(facts)}\n")
        table = csv.writer(text, lineterminator="\n")
        table.writerow(heads)
        table.writerows(zip(*([_cell(x) for x in column] for column in values), strict=True))
        write_text(path, text.getvalue())
    else:
        arrow = _pyarrow()
        arrays = [arrow.array(x) for x in values]
        fields = [
            arrow.field(head, a.type, metadata={"unit": units[name], "name": name})
            for head, name, a in zip(heads, columns, arrays, strict=True)
        ]
        schema = arrow.schema(fields, metadata={"infer_jax": json.dumps(facts)})
        with replace_file(path) as temporary:
            table = arrow.Table.from_arrays(arrays, schema=schema)
            arrow.parquet.write_table(table, temporary)


def _cell(value: object) -> object:
    """A cell as it is; a text that a spreadsheet would run as a formula gets a quote before it."""
    formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{value}" if formula else value


class Checkpoint(NamedTuple):
    """The progress of a sweep: points absorbed, their counts, and the merged state.

    Of a frontier ``since`` is the point after which rows are undecided, ``decided`` the number of
    those that were.
    """

    position: int
    counts: dict[str, int]
    since: int
    decided: int
    leaves: list[np.ndarray]


def save(path: Path, mark: str, point: Checkpoint) -> None:
    """Write the complete file or none.

    Raises:
        OSError: the disk is full or the folder not writable; an older file is then untouched.
    """
    arrays = {f"leaf{i}": x for i, x in enumerate(point.leaves)}
    numbers = {k: str(getattr(point, k)) for k in ("position", "since", "decided")}
    facts = {"format": FORMAT, "fingerprint": mark, "counts": point.counts, **numbers}
    facts["sum"] = _checksum(facts, point.leaves)
    arrays["facts"] = np.array(json.dumps(facts))
    try:
        with replace_file(path) as temporary, temporary.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **arrays)
    except InputError as error:
        raise OSError(str(error.value)) from None


def load(path: Path, mark: str) -> Checkpoint | None:
    """The checkpoint of the sweep ``mark``; None where there is no file.

    Raises:
        InputError: not a checkpoint, a damaged one, or one of another sweep.
    """
    if not path.exists():
        return None
    try:
        arrays = read_arrays(path)
        facts = json_of(str(path), str(arrays["facts"]))
        leaves = [arrays[f"leaf{i}"] for i in range(len(arrays) - 1)]
        intact = facts["format"] == FORMAT and facts.pop("sum") == _checksum(facts, leaves)
        position, since, decided = (int(facts[k]) for k in ("position", "since", "decided"))
        checkpoint = Checkpoint(position, facts["counts"], since, decided, leaves)
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"a file that is damaged or no checkpoint ({type(error).__name__})"
        raise InputError(str(path), "checkpoint", reason, "delete it to start again") from None
    if not intact:
        raise InputError(str(path), "checkpoint", "damaged", "delete it to start again")
    if facts["fingerprint"] != mark:
        raise InputError(
            str(path), "checkpoint", "of another sweep (other points, program, or versions)",
            "the same sweep, another checkpoint file, or delete it to start anew",
        )  # fmt: skip
    return checkpoint


def _checksum(facts: Mapping[str, object], leaves: list[np.ndarray]) -> str:
    """A checksum of the file's content."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for x in leaves:
        digest.update(f"{x.dtype} {x.shape}".encode() + np.ascontiguousarray(x).tobytes())
    return digest.hexdigest()
