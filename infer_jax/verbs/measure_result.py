"""The answer of ``measure``: curves fitted to the times of this machine's kernels."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import jax

from infer_jax.compiling import host_device
from infer_jax.kernel_timing import FULL, TOY, FittedFamily, fitted, profile, timed
from infer_jax.kernel_timing.families import USELESS, spread, useless
from infer_jax.plots.bars import Panel, plot_bars
from infer_jax.plots.rendering import FigureResult, date_caption
from infer_jax.plots.style import Figure
from infer_jax.results import Column, Notes, Rows, Section, percent
from infer_jax.specs import Chip
from infer_jax.verbs.progress import busy

CURVES = (
    Column("kernels", "", "family"),
    Column("rows", "", "rows"),
    Column("median error", "%", "median_error", percent),
    Column("p90", "%", "p90_error", percent),
    Column(
        "on unseen shapes",
        "%",
        lambda row: "-" if row["median_error_unseen"] is None else 100 * row["median_error_unseen"],
        left=False,
    ),
)


@dataclass(frozen=True, repr=False)
class MeasureResult(FigureResult):
    """The curves of this machine's kernels, and the device they were timed on.

    ``lost`` is how many shapes did not fit into memory, ``out`` the profile that was written.
    """

    curves: Sequence[FittedFamily]
    device: profile.Device
    lost: int
    out: str = ""
    rows_key = "curves"

    def sections(self) -> Iterator[Section]:
        """The errors of every family's curve; rates in FLOP/s and bytes/s."""
        device, chip = jax.devices()[0].device_kind, self.device.chip
        yield f"{jax.device_count()} x {device}{f': {self.out}' if self.out else ''}"
        yield {
            "device": device,
            "devices": jax.device_count(),
            "file": self.out or None,
            "flops_16": chip.flops_16,
            "memory_bandwidth": chip.memory_bandwidth,
            "link_bandwidth": self.device.link,
            "out_of_memory": self.lost,
        }
        rows = [
            {
                "family": one.family.name,
                "rows": len(one.seen),
                "median_error": spread(one.seen)[0] / 100,
                "p90_error": spread(one.seen)[1] / 100,
                "median_error_unseen": spread(one.unseen)[0] / 100 if len(one.unseen) else None,
                "intervals": {name: list(ends) for name, ends in one.intervals.items()},
            }
            for one in self.curves
        ]
        yield Rows("curves", rows, CURVES)
        yield Notes(self.notes)

    def _figure(self) -> Figure:
        """The errors of every family's curve, in per cent."""

        def panel(title: str, errors: Mapping[str, tuple[float, float]]) -> Panel:
            bars = {name: {"median error": x} for name, (x, _) in errors.items()}
            return Panel(title, "%", bars, ends={name: x for name, (_, x) in errors.items()})

        panels = [
            panel("on the shapes timed", {x.family.name: spread(x.seen) for x in self.curves})
        ]
        folded = [one for one in self.curves if len(one.unseen)]
        if folded:
            left = {one.family.name: spread(one.unseen) for one in folded}
            panels.append(panel("on shapes left out of the fit", left))
        end = "90 % of the errors are below"
        title = f"{jax.devices()[0].device_kind}: errors of the curves of its kernels"
        shapes = sum(len(one.seen) for one in self.curves)
        caption = date_caption(f"{shapes} times of kernels that XLA compiled. {self.notes[0]}")
        return plot_bars(panels, end=end, title=title, caption=caption)

    def text(self) -> str:
        """The TOML text of the profile."""
        return profile.text(self.curves, self.device)

    @property
    def notes(self) -> list[str]:
        """What efficiencies are shares of, whose kernels these are, how the profile is used."""
        chip, base = self.device.chip, self.device.base
        rates = f"{float(chip.flops_16) / 1e12:.3g} TFLOP/s and "
        rates += f"{float(chip.memory_bandwidth) / 1e9:.3g} GB/s"
        source = f"the data sheet of {base}" if base else "the fastest product and copy timed"
        notes = [
            f"Efficiencies are shares of {rates}: {source}.",
            "XLA compiled these kernels; a serving engine's own are others, mostly faster.",
        ]
        if names := useless(self.curves):
            few = f"Errors of {', '.join(names)} are above {USELESS} % in the median"
            notes.append(f"{few}: time them again on a device that nothing else uses.")
        if self.lost:
            notes.append(f"{self.lost} shapes did not fit into memory and were left out.")
        if self.out:
            notes.append(f"Use it: `infer-jax kernels MODEL --hardware {self.out}`.")
        return notes


def measured_curves(chip: Chip | None, base: str, price: float, *, toy: bool) -> MeasureResult:
    """Time this machine's kernels and fit their curves.

    Args:
        chip: the data sheet of the device, from the profile ``base``; measured rates without one.
        base: its profile, or "".
        price: rent of the device, USD per hour.
        toy: of small shapes alone.
    """
    with busy("timing kernels"):
        rows = list(timed(TOY if toy else FULL))
    chip = chip or profile.chip_of(rows, profile.usable_memory())
    with busy("fitting curves"), jax.default_device(host_device()):
        curves = [
            # of so few shapes none can be left out to be predicted
            fitted(family, unseen=False, restarts=1) if toy else fitted(family)
            for family in profile.families_of(rows, chip)
        ]
    lost = sum(row.seconds != row.seconds for row in rows)
    return MeasureResult(curves, profile.Device(chip, profile.link_of(rows), price, base), lost)
