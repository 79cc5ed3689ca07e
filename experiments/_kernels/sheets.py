"""How well do fitted curves do, and which ``[kernels]`` table of a profile do they make?"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from experiments._columns import printed_rows
from experiments._kernels import fits, points
from experiments._kernels.printed import curves_of
from infer_jax.catalog import list_systems, load_system
from infer_jax.catalog.kernel_tables import load_kernel_tables
from infer_jax.catalog.systems import entry
from infer_jax.errors import InputError
from infer_jax.estimators.kernels import Kernels
from infer_jax.estimators.kernels.curves import FAMILIES
from infer_jax.kernel_timing import FittedFamily, fitted
from infer_jax.kernel_timing.families import spread
from infer_jax.kernel_timing.profile import SUFFIX, errors, filled
from infer_jax.specs import leaves

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
    for row in printed_rows(Path(__file__).with_name("earlier.csv"))
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
            families = fits.tabulated(load_kernel_tables(folder, name), chip, folder)
        elif name in list_systems():
            families = fits.packaged(name, load_system(name).hardware)
        else:
            allowed = ", ".join([*DEVICES, *SYSTEMS])
            raise InputError("command line", "system", name, allowed)
        return {family.name: fitted(family) for family in families}


def stored(folder: Path) -> Iterable[Line]:
    """Errors of the profiles' own curves on the authors' tables, without fitting anything.

    Raises:
        InputError: a folder without the tables, or a damaged one.
    """
    for device, profile in DEVICES.items():
        system, curves = load_system(profile), curves_of(device)
        with jax.enable_x64(True):
            for one in fits.tabulated(load_kernel_tables(folder, device), system.hardware.chip):
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
