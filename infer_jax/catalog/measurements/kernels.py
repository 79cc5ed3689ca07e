"""Reads timed kernels and collectives: nccl-tests, microbenchmarks and tables of kernels.

Text of nccl-tests and rccl-tests is what the programs print, where a time that was not measured
is ``N/A``; JSON is what ``-J`` writes. The collective is named by the program's path, or by
"Collective test starting"; where neither is there it must be given.

``detailed.json`` of accelerator-microbenchmarks (JAX, TPU) holds objects of ``metadata``
(benchmark_name, test_name, params, device_info) and ``metrics`` (p50_ms, p90_ms, avg_ms, std_ms,
throughput).
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from infer_jax.catalog.cells import MAX_BYTES, MAX_NUMBER, Cells, contents
from infer_jax.catalog.foreign import json_lines
from infer_jax.catalog.kernel_tables import KernelTables, load_kernel_tables, names_of
from infer_jax.catalog.measurements.run import MeasuredKernel
from infer_jax.errors import InputError

HEADER = re.compile(r"^#\s+size\s+count\s+type", re.MULTILINE)
RANK = re.compile(r"^#\s+Rank\s+\d+\s.*?device\s+\S+\s+(?:\[[^]]*\]\s*)?(.*)$", re.MULTILINE)
NAME = re.compile(r"Collective test (?:starting|concluded):\s*(\S+)")
COLUMNS = ("size", "count", "type", "redop", "root")
# what was measured, by its names in a printed table and in a JSON result
MEASURED = {"time": "time", "algbw": "alg_bw", "busbw": "bus_bw", "#wrong": "nwrong"}
SIDES = ("out_of_place", "in_place")  # in the order of their columns in a printed row
CELLS = len(COLUMNS) + len(SIDES) * len(MEASURED)
ROUNDING = 0.011  # GB/s: bandwidths are printed with two decimals
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
    return tuple(kernel for path in files for kernel in _of_file(Path(path), operation, device))


def _of_file(path: Path, operation: str | None, device: str | None) -> Iterator[MeasuredKernel]:
    if path.is_dir():
        if device is None:
            raise InputError(str(path), "device", "missing", "the name of a device's tables")
        yield from _of_tables(load_kernel_tables(path, device))
        return
    file, text = str(path), contents(path)
    if is_nccl_tests(text):
        yield from _of_printed(file, text, operation)
        return
    documents = json_lines(file, text, MAX_BYTES) if text.lstrip()[:1] in "{[" else [(0, None)]
    for line, value in documents:
        first = value[0] if isinstance(value, list) and value else value
        cells = Cells(file, 0, first if isinstance(first, dict) else {})
        if first is value and {"results", "nccl_version"} <= set(cells.values):
            yield from _of_document(cells, operation)
        elif "benchmark_name" in cells.part("metadata").values and "metrics" in cells.values:
            entries = value if isinstance(value, list) else [value]
            yield from _of_benchmarks(Cells(file, 0, {"entries": entries}))
        else:
            at = f"line {line}" if line else ""
            raise InputError(file, at, "unrecognised contents", FORMATS)


def is_nccl_tests(text: str) -> bool:
    """True for the printed output of nccl-tests."""
    return HEADER.search(text) is not None


def _of_printed(file: str, text: str, operation: str | None) -> Iterator[MeasuredKernel]:
    """The measurements in a printed table, in place and out of place apart.

    Raises:
        InputError: a malformed row, wrong results, bandwidths that do not fit the times, or a
            collective that is nowhere named.
    """
    match, devices = NAME.search(text), RANK.findall(text)
    operation = operation or (_operation(match[1]) if match else None)
    for line, words in enumerate(text.splitlines(), 1):
        row = words.split()
        if not row or not row[0].isdigit():
            continue
        if len(row) != CELLS:
            allowed = f"{CELLS}: size to root, then 4 and 4"
            raise Cells(file, line, {}).error("number of cells", len(row), allowed)
        for i, side in enumerate(SIDES):
            start = len(COLUMNS) + i * len(MEASURED)
            cells = row[: len(COLUMNS)] + row[start : start + len(MEASURED)]
            values = dict[str, object](zip((*COLUMNS, *MEASURED), cells, strict=True))
            yield from _collective(Cells(file, line, values), side, operation, devices)


def _of_document(document: Cells, operation: str | None) -> Iterator[MeasuredKernel]:
    """The measurements in a JSON result of nccl-tests; as ``_of_printed``."""
    arguments = document.value("args")
    program = arguments[0] if isinstance(arguments, list) and arguments else None
    operation = operation or (_operation(program) if isinstance(program, str) else None)
    described = document.parts("config.devices") or document.parts("devices")
    devices = [device.text("device_info") or "" for device in described]
    for index, result in enumerate(document.parts("results"), 1):
        for side in SIDES:
            inside = result.part(side).values
            values = {name: result.values.get(name) for name in COLUMNS}
            values |= {name: inside.get(key) for name, key in MEASURED.items()}
            values["time"] = inside.get("time", inside.get("cpu_time"))
            cells = Cells(document.file, index, values, "entry")
            yield from _collective(cells, side, operation, devices)


def _collective(
    cells: Cells, side: str, operation: str | None, devices: list[str]
) -> Iterator[MeasuredKernel]:
    """One side of a row; nothing where it was not measured."""
    values = {name: None if cell == "N/A" else cell for name, cell in cells.values.items()}
    cells = Cells(cells.file, cells.line, values, cells.unit)
    micro, size = cells.number("time"), cells.number("size")
    if micro is None or not size:
        return  # not measured, or an empty message
    if micro == 0.0:
        raise cells.error(f"{side} time", 0, "a number above 0")
    if cells.number("#wrong"):
        raise cells.error(f"{side} #wrong", cells.values["#wrong"], "0: the results were wrong")
    bandwidth = cells.number("algbw")
    if bandwidth is not None and abs(bandwidth - size / micro / 1e3) > ROUNDING + 0.02 * bandwidth:
        allowed = f"size / time = {size / micro / 1e3:.4g} GB/s: are the units right?"
        raise cells.error(f"{side} algbw", bandwidth, allowed)
    if not operation:
        raise InputError(cells.file, "collective", "not named", "an operation (all_reduce ...)")
    yield MeasuredKernel(
        file=cells.file,
        line=cells.line,
        source="nccl-tests",
        operation=operation,
        variant=side,
        seconds=micro * 1e-6,
        sizes={"bytes": size, "elements": cells.number("count") or 0.0},
        dtype=cells.text("type") or "",
        chips=float(len(devices)) or None,
        device=devices[0].strip() if devices else "",
    )


def _operation(program: str) -> str:
    """``all_reduce`` of ``./build/all_reduce_perf``."""
    return PurePosixPath(program).name.removesuffix("_mpi").removesuffix("_perf")


def _of_benchmarks(document: Cells) -> Iterator[MeasuredKernel]:
    """The entries of a detailed result of microbenchmarks.

    Raises:
        InputError: an entry without a time, or a malformed value.
    """
    for index, entry in enumerate(document.parts("entries"), 1):
        cells = Cells(document.file, index, entry.values, "entry")
        metadata, times = cells.part("metadata"), cells.part("metrics").statistic({"{}_ms": 1e-3})
        seconds = times.mean if times.at(50.0) is None else times.at(50.0)
        if not seconds:
            raise cells.error("metrics.p50_ms", seconds, "a time above 0")
        params, device = metadata.part("params").values, metadata.value("device_info") or ""
        if isinstance(device, Mapping):
            device = device.get("device_kind") or device.get("type") or ""
        yield MeasuredKernel(
            file=cells.file,
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


def _of_tables(tables: KernelTables) -> Iterator[MeasuredKernel]:
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
