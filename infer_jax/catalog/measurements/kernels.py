"""Reads timed kernels and collectives of every known format.

``detailed.json`` of accelerator-microbenchmarks (JAX, TPU) holds objects of ``metadata``
(benchmark_name, test_name, params, device_info) and ``metrics`` (p50_ms, p90_ms, avg_ms, std_ms,
throughput).
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from infer_jax.catalog.foreign import json_lines
from infer_jax.catalog.kernel_tables import KernelTables, load_kernel_tables, names_of
from infer_jax.catalog.measurements import nccl_tests
from infer_jax.catalog.measurements.cells import (
    MAX_BYTES,
    MAX_NUMBER,
    Cells,
    contents,
    statistic_of,
)
from infer_jax.catalog.measurements.run import MeasuredKernel
from infer_jax.errors import InputError


def is_microbenchmark(value: object) -> bool:
    """True for a result, or a list of them."""
    first = value[0] if isinstance(value, list) and value else value
    return (
        isinstance(first, dict)
        and isinstance(first.get("metrics"), dict)
        and isinstance(first.get("metadata"), dict)
        and "benchmark_name" in first["metadata"]
    )


def read_microbenchmarks(file: str, value: object) -> Iterator[MeasuredKernel]:
    """The measurements in a detailed result.

    Raises:
        InputError: an entry without a time, or a malformed value.
    """
    entries = Cells(file, 0, {"entries": value if isinstance(value, list) else [value]})
    for index, entry in enumerate(entries.parts("entries"), 1):
        cells = Cells(file, index, entry.values, "entry")
        metadata, metrics = cells.part("metadata"), cells.part("metrics")
        keys = [key for key in metrics.values if key.endswith("_ms")]
        times = statistic_of({key.removesuffix("_ms"): metrics.number(key, 1e-3) for key in keys})
        seconds = times.mean if times.at(50.0) is None else times.at(50.0)
        if not seconds:
            raise cells.error("metrics.p50_ms", seconds, "a time above 0")
        params, device = metadata.part("params").values, metadata.values.get("device_info") or ""
        if isinstance(device, Mapping):
            device = device.get("device_kind") or device.get("type") or ""
        yield MeasuredKernel(
            file=file,
            line=index,
            source="microbenchmarks",
            operation=metadata.text("benchmark_name") or "",
            variant=metadata.text("test_name") or "",
            seconds=seconds,
            # other parameters (dtype, sharding) are no sizes
            sizes={
                name: float(x)
                for name, x in params.items()
                if isinstance(x, int | float) and not isinstance(x, bool) and abs(x) < MAX_NUMBER
            },
            dtype=str(params.get("dtype", "")),
            device=str(device),
            percentiles=times.percentiles,
        )


FORMATS = (
    "the output of nccl-tests (text or JSON), a detailed.json of accelerator-microbenchmarks, "
    "or a folder of kernel tables with its device"
)


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
    files = [paths] if isinstance(paths, str | os.PathLike) else paths
    return tuple(kernel for path in files for kernel in _read(Path(path), operation, device))


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
        elif is_microbenchmark(value):
            yield from read_microbenchmarks(file, value)
        else:
            at = f"line {line}" if line else ""
            raise InputError(file, at, "unrecognised contents", FORMATS)


def of_tables(tables: KernelTables) -> Iterator[MeasuredKernel]:
    """The rows of a folder of kernel tables as kernels (those of gdn are in microseconds)."""
    for family, rows in tables.families.items():
        names, scale = names_of(family), 1e-6 if family.startswith("gdn") else 1.0
        times = [name for name in names if name.endswith("seconds")]
        for values, (file, line) in zip(rows.values, rows.places, strict=True):
            row = dict(zip(names, map(float, values), strict=True))
            sizes = {name: x for name, x in row.items() if name and name not in times}
            for name in times:
                yield MeasuredKernel(
                    file=file,
                    line=line,
                    source="kernel-tables",
                    operation=family,
                    variant=name.removesuffix("seconds").rstrip("_"),
                    seconds=row[name] * scale,
                    sizes=sizes,
                    device=tables.device,
                )
