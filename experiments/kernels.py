"""Prediction from measured kernel efficiency (InferSim, Alibaba 2025): ours beside theirs."""

import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax
import numpy as np
import typer

from experiments import _check, _report
from experiments._columns import printed_rows
from experiments._kernels import points
from experiments._kernels.columns import KIND
from experiments._kernels.fits import packaged, tabulated
from experiments._kernels.points import columns, kernels_hardware, kernels_model
from infer_jax.catalog import list_systems, load_system
from infer_jax.catalog.kernel_tables import load_kernel_tables
from infer_jax.catalog.published import kernels_constants
from infer_jax.catalog.systems import entry
from infer_jax.errors import InputError
from infer_jax.estimators.kernels import Curves, Kernels, Tables
from infer_jax.estimators.kernels.efficiency import FAMILIES, Kernel
from infer_jax.kernel_timing import FittedFamily, fitted
from infer_jax.kernel_timing.families import spread
from infer_jax.kernel_timing.profile import SUFFIX, errors, filled
from infer_jax.specs import Chip, leaves

app = _report.program(__doc__, no_args_is_help=True)
TablesFolder = Annotated[
    Path | None, typer.Option("--tables", help="Kernel tables, authors' layout.")
]
ConfigsFolder = Annotated[
    Path | None, typer.Option("--configs", help="Folder of NAME_config.json.")
]
MAX_CURVE_ERROR = 0.10  # curves within this of the look-up tables, in the authors' assembly


DEFAULTS = {"target_isl": 4096.0, "target_osl": 2048.0, "num_nodes": 1.0, "tp_size": 1.0}
DEFAULTS |= {"enable_deepep": 0.0, "enable_tbo": 0.0, "world_size": 1.0, "batch": 1.0}
DEFAULTS |= {"max_prefill_tokens": 4096.0, "sm_ratio": kernels_constants()["sm_share"]}


class Cell(NamedTuple):
    """Tokens per second and GPU of one cell of Table 2, by tables and by curves.

    ``row``: its settings, what was measured, what the paper simulates and the authors' program of
    May 2026 (``tool``) returns. ``bounds``: by kernel GFLOP, MB, FLOP per byte, the balance of the
    data sheet, and what bounds.
    """

    row: dict[str, str]
    tables: float
    curves: float
    bounds: dict[str, tuple[float, float, float, float, str]]

    @property
    def label(self) -> str:
        """Model, device and phase."""
        return " ".join(self.row[name] for name in ("model", "device", "stage"))


def table_2(folder: Path, configs: Path) -> Iterator[Cell]:
    """Every cell, in the authors' assembly.

    Two micro-batches of 8K tokens and of 64 requests make the paper's 16K and 128.
    """
    for row in printed_rows("kernels_table_2.csv"):
        device, stage = row["device"], row["stage"]
        chip = kernels_hardware(device)
        arch = kernels_model(configs / f"{row['config']}_config.json", fp8_gemm=row["fp8"] == "1")
        pairs = (pair.split("=") for pair in row["given"].split())
        given = DEFAULTS | {name: float(value) for name, value in pairs}
        missing = kernels_constants()["missing_prefill"]
        looked_up = Tables.load(folder, device.lower(), chip.default_mfu, missing)
        inputs = (arch, chip.hardware, given, stage)
        tables, kernels = _run(Kernels.as_published(looked_up), *inputs)
        curves, _ = _run(Kernels.as_published(curves_of(device)), *inputs)
        sheet = load_system(f"{device.lower()}_sxm").hardware.chip
        with jax.enable_x64(True):
            bounds = {name: _bound(x, sheet) for name, x in kernels.items() if float(x.flops) > 0}
        yield Cell(row, tables, curves, bounds)


def _bound(kernel: Kernel, chip: Chip) -> tuple[float, float, float, float, str]:
    """By FLOP per byte against the peak over bandwidth of the data sheet."""
    balance = float(kernel.peak / chip.memory_bandwidth)
    bound = "compute" if kernel.compute_bound(chip) else "memory"
    flops, moved = float(kernel.flops) / 1e9, float(kernel.bytes) / 1e6
    return flops, moved, float(kernel.intensity), balance, bound


def curves_of(device: str) -> Curves:
    """The curves of one of the two devices, from its profile."""
    coefficients = load_system(f"{device.lower()}_sxm").coefficients["kernels"]
    fitted = Kernels.corrected().fitted(coefficients).efficiency
    assert isinstance(fitted, Curves)
    return fitted


def _run(
    model: Kernels, arch: Any, hardware: Any, given: Any, stage: str
) -> tuple[float, dict[str, Kernel]]:
    """Tokens per second and GPU, and the kernels, of one phase."""
    result = columns(model, [arch], hardware, [given])
    values, kernels = jax.tree.map(lambda x: x[0], result)
    ordered = {name: kernels[stage][name] for name in KIND if name in kernels[stage]}
    return float(values[stage][f"{stage}_tgs"]), ordered


class Balance(NamedTuple):
    """The sizes at which reading and computing take equally long, at 8 bits, halves rounded up.

    ``rounded``: group size, MLA heads, MoE batch and EP; ``agrees``: where the paper's constants
    are taken, whether they are the paper's.
    """

    device: str
    whose: str
    ratio: float
    rounded: tuple[int, ...]
    agrees: bool


SPARSITY, LOAD = 8 / 256, {"H800": 128.0, "H20": 64.0}
PRINTED = {"H800": (296, 148, 9456, 74), "H20": (37, 19, 1184, 19)}


def balances() -> Iterator[Balance]:
    """Group size R/2, MLA heads R/4, MoE batch R/(2 S) and EP, by two bandwidths each.

    R is the 8-bit peak over bandwidth; the paper rounds it first.
    """
    for device, load in LOAD.items():
        paper = load_system(f"{device.lower()}_sxm").hardware.chip
        for whose, chip in (("paper", paper), ("tool", kernels_hardware(device).hardware.chip)):
            ratio = float(chip.flops_8 / chip.memory_bandwidth)
            ratio = round(ratio) if whose == "paper" else ratio
            batch = ratio / (2 * SPARSITY)
            sizes = (ratio / 2, ratio / 4, batch, batch / load)
            rounded = tuple(math.floor(x + 0.5) for x in sizes)
            agrees = whose == "tool" or rounded == PRINTED[device]
            yield Balance(device, whose, ratio, rounded, agrees)


DEVICES = {"h20": "h20_sxm", "h800": "h800_sxm"}  # of the authors' tables, and their profiles
SYSTEMS = ("h100_sxm", "h200_sxm", "b200_sxm")  # of the optional package
FILLS = {
    "grouped_decode": ("grouped",),
    "grouped_prefill": ("grouped",),
    "gqa_prefill": ("mla_prefill",),
    "mla_prefill": ("gqa_prefill",),
}
BORROWED, SOURCE = "linear_", "kernels-fit"
# what there is to beat: median and p90 in sample, median on unseen shapes, of an earlier fit by
# least squares of the same forms on the same rows
EARLIER = {
    (row["system"], row["family"]): [float(row[k] or "inf") for k in ("median", "p90", "unseen")]
    for row in printed_rows(Path(__file__).parent / "_kernels" / "earlier.csv")
}


class Line(NamedTuple):
    """The errors of one fitted family, percent; ``worse``: than the earlier fit's medians."""

    system: str
    family: str
    rows: int
    shapes: int
    seen: tuple[float, float]
    unseen: tuple[float, float] | None
    worse: bool


def fitted_system(name: str, folder: Path | None) -> dict[str, FittedFamily]:
    """Every family of a device of the authors' tables, or of the optional package's, fitted.

    Raises:
        InputError: another name; no folder for a device of the authors' tables, or one without
            them; the package is not installed.
    """
    with jax.enable_x64(True):
        if name in DEVICES:
            folder = points.measured(folder, "--tables")
            chip = load_system(DEVICES[name]).hardware.chip
            families = tabulated(load_kernel_tables(folder, name), chip, folder)
        elif name in list_systems():
            families = packaged(name, load_system(name).hardware)
        else:
            allowed = ", ".join([*DEVICES, *SYSTEMS])
            raise InputError("command line", "system", name, allowed)
        return {family.name: fitted(family) for family in families}


def stored(folder: Path) -> Iterable[Line]:
    """Errors of the profiles' own curves on the authors' tables, without fitting anything."""
    for device, profile in DEVICES.items():
        system, curves = load_system(profile), curves_of(device)
        with jax.enable_x64(True):
            for one in tabulated(load_kernel_tables(folder, device), system.hardware.chip):
                own = getattr(curves, one.name)
                predicted = jax.jit(one.predicted)(own)  # one program, not one an operation
                seen = spread(np.asarray(predicted) / one.seconds - 1.0)
                shapes = len(set(one.shapes))
                yield Line(device, one.name, len(one.seconds), shapes, seen, None, False)


def lines(name: str, results: dict[str, FittedFamily]) -> Iterable[Line]:
    """The error table of one device or system."""
    for family, one in results.items():
        seen = spread(one.seen)
        unseen = spread(one.unseen) if len(one.unseen) else None
        median, _, left_out = EARLIER.get((name, family), (np.inf, np.inf, np.inf))
        worse = round(seen[0], 1) > median
        worse |= unseen is not None and round(unseen[0], 1) > left_out
        yield Line(name, family, len(one.seen), len(set(one.family.shapes)), seen, unseen, worse)


def sheet(results: dict[str, FittedFamily]) -> list[str]:
    """The ``[kernels]`` table: measured families, then what they stand for, then the H20's."""
    out = list(filled(results, FAMILIES, FILLS, SOURCE))
    if "all_reduce" in results:
        one = results["all_reduce"]
        assert isinstance(one.coefficients, Kernels)
        note = f"NCCL all-reduce on 2 to 8 GPUs: {errors(one)}"
        out.append(entry("link_share", float(one.coefficients.link_share), SOURCE, note))
    if not any(name.startswith(BORROWED) for name in results):
        out += borrowed()
    return ["[kernels]", *out]


def borrowed() -> Iterable[str]:
    """Linear attention, which was measured on the H20 alone."""
    curves = curves_of("h20")
    for family in FAMILIES:
        if family.startswith(BORROWED):
            for i, (path, meta, value) in enumerate(leaves(getattr(curves, family))):
                suffix, factor = SUFFIX.get(meta["unit"], ("", 1.0))
                note = "" if i else "not measured here: the H20's"
                yield entry(f"{family}_{path}{suffix}", float(value) * factor, SOURCE, note)


@_report.command(app)
def check(
    file: Annotated[
        Path | None,
        typer.Argument(help="CSV of runs, columns in any order; the stored ones if none."),
    ] = None,
    tables: TablesFolder = None,
    configs: ConfigsFolder = None,
) -> dict[str, Any]:
    """Compare a file of the tool's runs with ours as published, in float64, within 1e-9.

    Rows in which the tool crashed must be refused here, too; what was refused and which
    defaults were taken is listed. An empty cell is a value the tool does not give. Without a file:
    all stored runs, or, where only the checkout is at hand, those it carries.
    """
    file, tables, configs = points.stored(file, tables, configs)
    recipe, evaluation = points.recipe(tables, configs)
    headline = _check.check(file, recipe)
    if evaluation.refused:
        _report.show("Refused", ("what", "rows"), sorted(evaluation.refused.items()))
    if evaluation.defaults:
        taken = [
            (what, sum(kernels.values()), ", ".join(sorted(kernels)))
            for what, kernels in sorted(evaluation.defaults.items())
        ]
        _report.show("Defaults taken", ("what", "times", "kernels"), taken)
    return headline | {"refused": dict(evaluation.refused)}


@_report.command(app)
def tables(tables: TablesFolder = None, configs: ConfigsFolder = None) -> dict[str, Any]:
    """Print Table 2, the balance points, the bounds of all its kernels and the curves' errors."""
    tables = points.measured(tables, "--tables")
    cells = list(table_2(tables, points.measured(configs, "--configs")))
    found, curves = list(balances()), list(stored(tables))
    headline = _print_table_2(cells) | {"bounds": _print_bounds(cells)}
    headline["balance"] = _print_balances(found)
    headline["agrees"] = headline["agrees"] and all(b.agrees for b in found)
    rows = [(f"{x.system} {x.family}", x.rows, _percent(x.seen)) for x in curves]
    note = "Errors of the profiles' curves on every row; 'fits' tells those on unseen shapes."
    _report.show("Stored curves", ("kernels", "rows", "median / p90 error, %"), rows, note)
    return headline | {"curve_errors": {f"{x.system} {x.family}": list(x.seen) for x in curves}}


def _print_table_2(cells: list[Cell]) -> dict[str, Any]:
    rows, agrees, result = [], True, {}
    for cell in cells:
        moved = cell.curves / cell.tables - 1
        # the program's figures are known to the digit printed
        good = round(cell.tables) == int(cell.row["tool"]) and abs(moved) <= MAX_CURVE_ERROR
        agrees &= good
        figures = (*(cell.row[name] for name in ("measured", "paper", "tool")), round(cell.tables))
        beside = (f"{x:+.1%}" for x in (moved, cell.curves / float(cell.row["measured"]) - 1))
        rows.append((cell.label, *figures, round(cell.curves), *beside, _report.verdict(good)))
        result[cell.label] = {"tables": cell.tables, "curves": cell.curves}
    columns = ("tokens/s per GPU", "measured", "paper", "tool", "as published", "curves")
    columns += ("curves / tables - 1", "curves / measured - 1", "verdict")
    note = "tool: the authors' program of May 2026. as published: ours, on the authors' tables."
    _report.show("Table 2", columns, rows, note)
    return {"table_2": result, "agrees": agrees}


def _print_balances(found: list[Balance]) -> dict[str, Any]:
    columns = ("FLOP per byte", "constants", "R", "group", "heads", "MoE batch", "EP", "verdict")
    rows = [
        (b.device, b.whose, f"{b.ratio:.1f}", *b.rounded, _report.verdict(b.agrees)) for b in found
    ]
    note = "R / 2, R / 4, R / (2 S) at S = 8/256; EP at 128 (H800) and 64 (H20) requests a GPU."
    _report.show("Balance points at 8 bits", columns, rows, note)
    return {f"{b.device} {b.whose}": [b.ratio, *b.rounded] for b in found}


def _print_bounds(cells: list[Cell]) -> dict[str, dict[str, str]]:
    result: dict[str, dict[str, str]] = {}
    for cell in cells:
        rows = [
            (name, f"{flops:.3g}", f"{moved:.3g}", f"{ratio:.4g}", f"{balance:.4g}", bound)
            for name, (flops, moved, ratio, balance, bound) in cell.bounds.items()
        ]
        columns = (cell.label, "GFLOP", "MB", "FLOP / byte", "balance", "bound")
        _report.show("", columns, rows)
        result[cell.label] = {name: row[-1] for name, row in cell.bounds.items()}
    return result


@_report.command(app)
def fits(
    names: Annotated[
        list[str] | None, typer.Argument(help="h20, h800, h100_sxm, h200_sxm ...; all if none.")
    ] = None,
    tables: TablesFolder = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for a [kernels] table of each profile.")
    ] = None,
) -> dict[str, Any]:
    """Fit the curves anew, with errors in sample and on unseen shapes. Takes minutes a system.

    h20 and h800 from the authors' tables, other systems from the optional package
    aiconfigurator-core. Fails where a median error is above that of the earlier fit.
    """
    headline, agrees = {}, True
    for name in names or [*DEVICES, *SYSTEMS]:
        results = fitted_system(name, tables)
        printed = list(lines(name, results))
        agrees &= not any(x.worse for x in printed)
        rows = [
            (x.family, x.rows, x.shapes, *map(_percent, (x.seen, x.unseen)),
             _report.verdict(not x.worse))
            for x in printed
        ]  # fmt: skip
        columns = (name, "rows", "shapes", "in sample, %", "unseen shapes, %", "verdict")
        _report.show("Median / p90 error", columns, rows)
        headline[name] = {x.family: [*x.seen, *(x.unseen or ())] for x in printed}
        if out is not None:
            path = out / f"{name}.kernels.toml"
            out.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(sheet(results)) + "\n", encoding="utf-8")
            print(path)
    return headline | {"agrees": agrees}


def _percent(pair: tuple[float, float] | None) -> str:
    return "one shape" if pair is None else f"{pair[0]:.1f} / {pair[1]:.1f}"


if __name__ == "__main__":
    app()
