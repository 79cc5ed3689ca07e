"""The kinds of measured files, each told by its columns, and who reads it."""

import csv
import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from experiments._report import SHARED
from experiments._validation import (
    gpt_oss,
    inferencex,
    ml_energy,
    mlperf,
    open_loop,
    per_request,
    rocm,
    silicon,
    trtllm,
    wide_experts,
)
from experiments._validation.row import Read
from infer_jax.catalog.files import read_text
from infer_jax.errors import InputError

MEASURED = SHARED / "data" / "measured"
NO_SILICON = "aiconfigurator-core is not installed: pip install 'infer_jax[silicon]'"
Lines = list[dict[str, str | None]]


class Kind(NamedTuple):
    """A kind of table: its name, the columns by which it is told, and its reader."""

    name: str
    columns: tuple[str, ...]
    read: Callable[[Lines], Read]


def _kind(name: str, module: ModuleType) -> Kind:
    return Kind(name, module.COLUMNS, module.read)


TABLES = (
    _kind("InferenceX", inferencex),
    _kind("TensorRT-LLM maximum throughput", trtllm),
    _kind("ROCm vLLM", rocm),
    _kind("gpt-oss on H200", gpt_oss),
    _kind("ML.ENERGY", ml_energy),
    _kind("MLPerf", mlperf),
    _kind("rates on H100", open_loop),
    _kind("wide experts", wide_experts),
)


def read(path: Path) -> Read:
    """The rows of a table, or of a folder with the requests of one server.

    Raises:
        InputError: unreadable, or of no kind that is known.
    """
    if path.is_dir():
        if not (path / per_request.FILE).is_file():
            allowed = f"a folder with {per_request.FILE}, config.json and requests.jsonl"
            raise InputError(str(path), "folder", "no measured server", allowed)
        return per_request.read(path)
    header, lines = _table(path)
    for kind in TABLES:
        if set(kind.columns) <= set(header):
            return kind.read(lines)
    allowed = "; or ".join(f"{k.name}: {', '.join(k.columns)}" for k in TABLES)
    raise InputError(str(path), "columns", ", ".join(header[:8]) or "none", f"those of {allowed}")


def everything(folder: Path = MEASURED) -> dict[str, Callable[[], Read]]:
    """Readers of all that is beside the checkout, and of the rows that were fitted, by name.

    Raises:
        InputError: no such folder.
    """
    if not folder.is_dir():
        raise InputError("validation", str(folder), "missing", "files of measured rows by path")
    paths = [
        *sorted(p for p in folder.glob("*.csv") if p.name != "llmfit_local.csv"),
        *sorted(folder.glob("h200_gpt_oss/*.tsv")),
        *sorted(p.parent for p in folder.glob(f"*/*/{per_request.FILE}")),
    ]
    found: dict[str, Callable[[], Read]] = {
        str(p.relative_to(folder)): partial(read, p) for p in paths
    }
    found[wide_experts.FILE.name] = partial(read, wide_experts.FILE)
    if silicon.there():
        found["silicon_sample.csv of aiconfigurator-core"] = silicon.read
    return found


def _table(path: Path) -> tuple[list[str], Lines]:
    """The header of a table and its lines; cells that a line is cut before are empty."""
    text = read_text(path)
    tabs = "\t" in text.partition("\n")[0]
    try:
        reader = csv.DictReader(io.StringIO(text), restval="", delimiter="\t" if tabs else ",")
        lines = list(reader)
    except csv.Error as error:
        raise InputError(str(path), "text", str(error), "comma-separated values") from None
    return [str(name) for name in reader.fieldnames or []], lines
