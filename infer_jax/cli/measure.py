"""`infer-jax measure`: time this machine's own kernels and write them down as a profile."""

from pathlib import Path
from typing import Annotated, Any

import jax
import typer

from infer_jax.catalog import load_system
from infer_jax.catalog.files import write_text
from infer_jax.cli import options as opt, show
from infer_jax.cli.runtime import prepare
from infer_jax.errors import InputError
from infer_jax.results import numbers
from infer_jax.verbs.progress import busy


def measure(
    out: Annotated[Path, typer.Option(metavar="FILE.toml", help="Profile to write.")],
    base: Annotated[
        str | None,
        typer.Option(metavar="HARDWARE", help="Profile with this device's data sheet."),
    ] = None,
    toy: Annotated[bool, typer.Option("--toy", help="Small shapes: a minute on a CPU.")] = False,
    price: opt.Price = None,
    as_json: opt.Json = False,
) -> None:
    """How fast are this device's kernels? Times them through JAX, fits curves, writes a profile."""
    from infer_jax.kernel_timing import FULL, TOY, fitted, profile, timed
    from infer_jax.kernel_timing.fitting import spread

    if out.suffix != ".toml" or not out.parent.is_dir():
        raise InputError("command line", "--out", str(out), "a .toml file in a folder that exists")
    known = load_system(base) if base else None
    prepare(every_device=True)
    with busy("timing kernels"):
        rows = list(timed(TOY if toy else FULL))
    lost = sum(row.seconds != row.seconds for row in rows)
    chip = known.hardware.chip if known else profile.chip_of(rows, profile.usable_memory())
    with busy("fitting curves"):
        # a toy is told nothing of shapes it has not seen: there are too few
        how: dict[str, Any] = {"unseen": False, "restarts": 1} if toy else {}
        curves = [fitted(family, **how) for family in profile.families_of(rows, chip)]
    link = profile.link_of(rows)
    device = profile.Device(chip, link, price or 0.0, base or "")
    write_text(out, profile.text(curves, device))
    report: dict[str, Any] = {
        "device": jax.devices()[0].device_kind,
        "devices": jax.device_count(),
        "file": str(out),
        "flops_16": chip.flops_16,
        "memory_bandwidth": chip.memory_bandwidth,
        "link_bandwidth": link,
        "out_of_memory": lost,
        "curves": [
            {
                "family": one.family.name,
                "rows": len(one.seen),
                "median_error": spread(one.seen)[0] / 100,
                "p90_error": spread(one.seen)[1] / 100,
                "median_error_unseen": spread(one.unseen)[0] / 100 if len(one.unseen) else None,
                "intervals": {name: list(ends) for name, ends in one.intervals.items()},
            }
            for one in curves
        ],
    }
    notes = [
        f"Efficiencies are shares of {float(chip.flops_16) / 1e12:.3g} TFLOP/s and "
        f"{float(chip.memory_bandwidth) / 1e9:.3g} GB/s: "
        + (f"the data sheet of {base}." if base else "the fastest product and copy timed."),
        "XLA compiled these kernels; a serving engine's own are others, mostly faster.",
        *([f"{lost} shapes did not fit into memory and were left out."] if lost else []),
        f"Use it: infer-jax kernels MODEL --hardware {out}",
    ]
    if as_json:
        show.as_json({**report, "notes": notes})
        return
    _print(report, notes)


def _print(report: dict[str, Any], notes: list[str]) -> None:
    show.say(f"{report['devices']} x {report['device']}: {report['file']}", "")
    columns = (
        show.Column("kernels", left=True),
        show.Column("rows"),
        show.Column("median error", "%"),
        show.Column("p90", "%"),
        show.Column("on unseen shapes", "%"),
    )
    rows = []
    for one in report["curves"]:
        unseen = one["median_error_unseen"]
        errors = [numbers.digits(100 * one[key]) for key in ("median_error", "p90_error")]
        last = "-" if unseen is None else numbers.digits(100 * unseen)
        rows.append([one["family"], str(one["rows"]), *errors, last])
    show.table(columns, rows)
    show.notes(notes)
