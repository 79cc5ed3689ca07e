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
from infer_jax.catalog.measurements.run import MeasuredKernel
from infer_jax.errors import InputError

HEADER = re.compile(r"^#\s+size\s+count\s+type", re.MULTILINE)
RANK = re.compile(r"^#\s+Rank\s+\d+\s.*?device\s+\S+\s+(?:\[[^]]*\]\s*)?(.*)$", re.MULTILINE)
NAME = re.compile(r"Collective test (?:starting|concluded):\s*(\S+)")
COLUMNS = ("size", "count", "type", "redop", "root")
MEASURED = ("time", "algbw", "busbw", "#wrong")
# where the columns of each side begin in a printed row
SIDES = {"out_of_place": len(COLUMNS), "in_place": len(COLUMNS) + len(MEASURED)}
CELLS = len(COLUMNS) + 2 * len(MEASURED)
KEYS = {"algbw": "alg_bw", "busbw": "bus_bw", "#wrong": "nwrong"}  # of a JSON result
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
    match, devices = NAME.search(text), RANK.findall(text)
    operation = operation or (_operation(match[1]) if match else None)
    for line, words in enumerate(text.splitlines(), 1):
        row = words.split()
        if not row or not row[0].isdigit():
            continue
        if len(row) != CELLS:
            allowed = f"{CELLS}: size to root, then 4 and 4"
            raise Cells(file, line, {}).error("number of cells", len(row), allowed)
        for side, start in SIDES.items():
            cells = row[: len(COLUMNS)] + row[start : start + len(MEASURED)]
            values = dict[str, object](zip((*COLUMNS, *MEASURED), cells, strict=True))
            yield from _kernel(Cells(file, line, values), side, operation, devices)


def read_document(
    file: str, value: Mapping[str, object], operation: str | None = None
) -> Iterator[MeasuredKernel]:
    """The measurements in a JSON result.

    Raises:
        InputError: as ``read``.
    """
    document, arguments = Cells(file, 0, value), value.get("args")
    program = arguments[0] if isinstance(arguments, list) and arguments else None
    operation = operation or (_operation(program) if isinstance(program, str) else None)
    described = document.part("config").parts("devices") or document.parts("devices")
    devices = [device.text("device_info") or "" for device in described]
    for index, result in enumerate(document.parts("results"), 1):
        for side in SIDES:
            inside = result.part(side).values
            values = {name: result.values.get(name) for name in COLUMNS}
            values |= {name: inside.get(key) for name, key in KEYS.items()}
            values["time"] = inside.get("time", inside.get("cpu_time"))
            yield from _kernel(Cells(file, index, values, "entry"), side, operation, devices)


def _kernel(
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
