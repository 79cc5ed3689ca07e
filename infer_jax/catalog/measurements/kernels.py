"""Reads timed kernels and collectives of every known format."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from infer_jax.catalog.foreign import json_lines
from infer_jax.catalog.kernel_tables import KernelTables, load_kernel_tables
from infer_jax.catalog.measurements import microbenchmarks, nccl_tests
from infer_jax.catalog.measurements.cells import MAX_BYTES, contents
from infer_jax.catalog.measurements.kernel import MeasuredKernel
from infer_jax.errors import InputError

FORMATS = (
    "the output of nccl-tests (text or JSON), a detailed.json of accelerator-microbenchmarks, "
    "or a folder of kernel tables with its device"
)
# columns of each family of kernel tables; "" is neither a size nor a time
GEMM = ("m", "k", "n", "seconds", "")
GROUPED = ("experts", "gpus", "local_experts", "top_k", "width", "inner", "tokens_per_gpu")
GROUPED += ("tokens_per_expert", "up_seconds", "", "down_seconds", "")
LINEAR = ("taps", "key_heads", "key_width", "value_heads", "value_width")
PREFILL = ("tokens", "seconds", "")
DECODE = ("cache_bytes", "batch_size", "context", "seconds", "")
COLUMNS = {
    "gemm": GEMM,
    "grouped.prefill": GROUPED,
    "grouped.decode": GROUPED,
    "mha.prefill": ("heads", "kv_heads", "head_width", *PREFILL),
    "mha.decode": ("heads", "kv_heads", "head_width", *DECODE),
    "mla.prefill": ("heads", "plain_width", "rotary_width", *PREFILL),
    "mla.decode": ("heads", "latent_width", "rotary_width", *DECODE),
    "gdn.prefill": (*LINEAR, "tokens", "seconds"),
    "gdn.decode": (*LINEAR, "batch_size", "seconds"),
}


def read_kernels(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    operation: str | None = None,
    device: str | None = None,
) -> tuple[MeasuredKernel, ...]:
    """The timed operations in files of any known format.

    Args:
        paths: files, or folders of kernel tables.
        operation: the collective, for nccl-tests output that does not name it.
        device: the device in a folder of kernel tables (h20, h800 ...).

    Raises:
        InputError: a file of the wrong kind, a malformed value, wrong results of a collective.
    """
    single = isinstance(paths, str | os.PathLike)
    given = [paths] if single else list(paths)
    return tuple(kernel for path in given for kernel in _read(Path(path), operation, device))


def _read(path: Path, operation: str | None, device: str | None) -> Iterator[MeasuredKernel]:
    if path.is_dir():
        if device is None:
            raise InputError(str(path), "device", "missing", "the name of a device's tables")
        yield from of_tables(load_kernel_tables(path, device))
        return
    file, text = str(path), contents(path)
    if nccl_tests.recognises(text):
        yield from nccl_tests.read(file, text, operation)
        return
    if text.lstrip()[:1] not in "{[":
        raise InputError(file, "", "unrecognised contents", FORMATS)
    for line, value in json_lines(file, text, MAX_BYTES):
        if nccl_tests.recognises_document(value):
            yield from nccl_tests.read_document(file, value, operation)
        elif microbenchmarks.recognises(value):
            yield from microbenchmarks.read(file, value)
        else:
            at = f"line {line}" if line else ""
            raise InputError(file, at, "unrecognised contents", FORMATS)


def of_tables(tables: KernelTables) -> Iterator[MeasuredKernel]:
    """The rows of a folder of kernel tables as kernels (those of gdn are in microseconds)."""
    for family, rows in tables.families.items():
        for values, (file, line) in zip(rows.values, rows.places, strict=True):
            yield from _of_row(
                family, dict(zip(COLUMNS[family], values, strict=True)), file, line, tables
            )


def _of_row(
    family: str, row: dict[str, np.float64], file: str, line: int, tables: KernelTables
) -> Iterator[MeasuredKernel]:
    times = [name for name in row if name.endswith("seconds")]
    sizes = {name: float(x) for name, x in row.items() if name and name not in times}
    for name in times:
        yield MeasuredKernel(
            file=file,
            line=line,
            source="kernel-tables",
            operation=family,
            variant=name.removesuffix("seconds").rstrip("_"),
            seconds=float(row[name]) * (1e-6 if family.startswith("gdn") else 1.0),
            sizes=sizes,
            device=tables.device,
        )
