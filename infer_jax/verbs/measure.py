"""``ij.measure``: times this machine's kernels, fits their curves, writes a profile."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from infer_jax import verbs
from infer_jax.results.problems import refuse
from infer_jax.verbs import options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import Option, either


@verb
def measure(
    out: Annotated[opt.Place | None, Option.of("FILE.toml", required=True)] = None,
    *,
    base: Annotated[str | None, Option.of("HARDWARE")] = None,
    toy: Annotated[bool, Option.of()] = False,
    price: opt.Price = None,
) -> "verbs.MeasureResult":
    """How fast are this device's kernels? Times them through JAX, fits curves, writes a profile.

    Args:
        out: Profile to write.
        base: Profile with this device's data sheet.
        toy: Small shapes: a minute on a CPU.
        price: rent of the device, USD per hour.

    Raises:
        InputError: a place that cannot be written, an unknown profile, a device without memory
            for any product.
    """
    from infer_jax.catalog import load_system
    from infer_jax.catalog.files import takes_file, write_text
    from infer_jax.verbs.measure_result import measured_curves

    if out is not None and (Path(out).suffix != ".toml" or not takes_file(out)):
        raise refuse("out", str(out), "a .toml file in a folder that can be written")
    chip = load_system(base).hardware.chip if base else None
    result = measured_curves(chip, base or "", either(price, 0.0), toy=toy)
    if out is not None:
        result = replace(result, out=os.fspath(out))
        write_text(out, result.text())
    return result
