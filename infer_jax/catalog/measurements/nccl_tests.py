"""Reads times of collectives: the output of nccl-tests and rccl-tests, text or JSON.

Text is what the programs print; a time that was not measured is ``N/A``. JSON is what ``-J``
writes. The collective is named by the program's path, or by "Collective test starting"; where
neither is there it must be given.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import TypeGuard

from infer_jax.catalog.measurements.cells import Cells
from infer_jax.catalog.measurements.kernel import MeasuredKernel
from infer_jax.errors import InputError

HEADER = re.compile(r"^#\s+size\s+count\s+type", re.MULTILINE)
RANK = re.compile(r"^#\s+Rank\s+\d+\s.*?device\s+\S+\s+(?:\[[^]]*\]\s*)?(.*)$", re.MULTILINE)
NAME = re.compile(r"Collective test (?:starting|concluded):\s*(\S+)")
SIDES = ("out_of_place", "in_place")
COLUMNS = ("size", "count", "type", "redop", "root")
MEASURED = ("time", "algbw", "busbw", "#wrong")
ROUNDING = 0.011  # GB/s: bandwidths are printed with two decimals


def recognises(text: str) -> bool:
    """True for the printed output of the programs."""
    return HEADER.search(text) is not None


def recognises_document(value: object) -> TypeGuard[Mapping[str, object]]:
    """True for the JSON that ``-J`` writes."""
    return isinstance(value, dict) and "results" in value and "nccl_version" in value


def read(file: str, text: str, operation: str | None = None) -> Iterator[MeasuredKernel]:
    """The measurements in a printed table, in place and out of place apart.

    Raises:
        InputError: a malformed row, wrong results, bandwidths that do not fit the times, or a
            collective that is nowhere named.
    """
    named = NAME.search(text)
    operation = operation or (_operation(named[1]) if named else None)
    devices = RANK.findall(text)
    for line, words in enumerate(text.splitlines(), 1):
        cells = words.split()
        if not cells or not cells[0].isdigit():
            continue
        row = Cells(file, line, {})
        if len(cells) != len(COLUMNS) + 2 * len(MEASURED):
            raise row.error("number of cells", len(cells), "13: size to root, then 4 and 4")
        for index, side in enumerate(SIDES):
            start = len(COLUMNS) + index * len(MEASURED)
            values = dict(zip(COLUMNS, cells, strict=False))
            values |= dict(zip(MEASURED, cells[start : start + len(MEASURED)], strict=True))
            values = {name: None if cell == "N/A" else cell for name, cell in values.items()}
            entry = Cells(file, line, values)
            yield from _kernel(entry, side, operation, devices)


def read_document(
    file: str, value: Mapping[str, object], operation: str | None = None
) -> Iterator[MeasuredKernel]:
    """The measurements in a JSON result.

    Raises:
        InputError: as ``read``.
    """
    document = Cells(file, 0, value)
    arguments = value.get("args")
    program = arguments[0] if isinstance(arguments, list) and arguments else None
    named = _operation(program) if isinstance(program, str) else None
    operation = operation or named or None
    described = document.part("config").parts("devices") or document.parts("devices")
    devices = [device.text("device_info") or "" for device in described]
    for index, result in enumerate(document.parts("results"), 1):
        for side in SIDES:
            inside = result.part(side).values
            given = {
                **{name: result.values.get(name) for name in COLUMNS},
                "time": inside.get("time", inside.get("cpu_time")),
                "algbw": inside.get("alg_bw"),
                "busbw": inside.get("bus_bw"),
                "#wrong": inside.get("nwrong"),
            }
            given = {name: None if cell == "N/A" else cell for name, cell in given.items()}
            yield from _kernel(Cells(file, index, given, "entry"), side, operation, devices)


def _kernel(
    cells: Cells, side: str, operation: str | None, devices: list[str]
) -> Iterator[MeasuredKernel]:
    """One side of a row; nothing where it was not measured."""
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
