"""An estimator whose hardware is silicon: a chip's numbers are free, its limits are limits."""

import jax.numpy as jnp
from jax import Array

from infer_jax.estimators import Estimate, Estimator, Phase
from infer_jax.estimators.estimator import AnyPlan, Wrapper
from infer_jax.physics.numerics import Smoothing
from infer_jax.silicon.accelerator import Accelerator, chip_limits, embodied_emissions
from infer_jax.silicon.bill import HOURS, KWH
from infer_jax.specs import (
    Architecture,
    ForwardPass,
    Hardware,
    Workload,
    number,
    part,
    spec,
    static,
)

COUNTED = ("USD", "J", "kg")  # what an hour of a chip is counted in
HOUR = 3600.0
Silicon = Hardware | Accelerator  # a data sheet is taken as it is


def hourly_energy(chip: Accelerator) -> Array:
    """Joules of an hour of a chip that is in use, at its limit, with its building: 3600 P PUE."""
    return HOUR * chip.limit * chip.owner.pue


def hourly_emissions(chip: Accelerator, smoothing: Smoothing = None) -> Array:
    """Emissions in kg of an hour that is sold: CI E + embodied / hours sold (ACT, eq. 1 and 2).

    Embodied are those of the accelerator: of server and network no source has a share.
    """
    sold = jnp.maximum(chip.owner.years * HOURS * chip.owner.used, 1e-6)
    running = chip.owner.grid / KWH * hourly_energy(chip)
    return running + embodied_emissions(chip, smoothing) / sold


def scaled_dies(chip: Accelerator, factor: Array) -> Accelerator:
    """The chip with so many times the cores, buffer and ends of memory and links on each die."""
    die = chip.die
    own = {name: getattr(die, name) * factor for name in ("cores", "buffer", "memories", "links")}
    return chip.replace(active=chip.active * factor, die=die.replace(**own))


@spec
class OnSilicon(Wrapper):
    """An estimator that takes an ``Accelerator`` where others take its data sheet.

    Axes, elasticities and designs then name what a chip is made of, such as
    ``hardware.die.cores``. Reticle, edge, power, cooling, cores and stacks are limits of every
    pass, so that what cannot be made is infeasible. ``counted``: in what an hour is counted, and
    with it ``cost`` and ``input_cost``: USD of rent, joules at the power limit, or kg of CO2
    equivalents, embodied and of electricity. A smoothing of the target, or ``smooth``, joins
    steps of buffers by lines. With ``chiplets`` cores (made and switched on), buffer and ends of
    memory and links are those of the package, divided equally among its ``dies``.

    >>> from infer_jax.estimators import make
    >>> from infer_jax.silicon.chips import load_accelerator
    >>> from infer_jax.catalog import load_model
    >>> from infer_jax.specs import Plan, Workload
    >>> chip, arch = load_accelerator("h100_sxm"), load_model("llama-3.1-8b").architecture
    >>> ideal = OnSilicon.of(target=make("economics.planned"))
    >>> found = ideal.estimate(arch, chip, Workload.of(isl=1024, osl=128, batch=8), Plan.of())
    >>> sorted(found.decode.limits)
    ['cooling', 'cores', 'edge', 'memory', 'pipeline', 'reticle', 'stacks', 'watts']
    """

    target: Estimator = part("the estimator")
    smooth: Array = number("above 0: no steps in areas", kind="size", default=1.0)
    counted: str = static("USD, J or kg", default="USD")
    chiplets: bool = static("whether its dies share the numbers of the package", default=False)

    def divided(self, chip: Accelerator) -> Accelerator:
        """The chip with the numbers of one die in place of those of the package."""
        return scaled_dies(chip, 1.0 / chip.dies) if self.chiplets else chip

    def lowered(self, chip: Accelerator) -> Hardware:
        """The data sheet, with an hour counted in USD, joules or kg."""
        chip = self.divided(chip)
        sheet = chip.hardware(self.smooth)
        if self.counted == "J":
            return sheet.replace(price=hourly_energy(chip))
        if self.counted == "kg":
            return sheet.replace(price=hourly_emissions(chip, self.smooth))
        return sheet

    def step(
        self,
        arch: Architecture,
        hardware: Silicon,
        forward: ForwardPass,
        plan: AnyPlan,
    ) -> Phase:
        """One pass on the chip, within what can be made and cooled."""
        if not isinstance(hardware, Accelerator):
            return self.target.step(arch, hardware, forward, plan)
        phase = self.target.step(arch, self.lowered(hardware), forward, plan)
        return phase.replace(limits=phase.limits | chip_limits(self.divided(hardware), self.smooth))

    def estimate(
        self,
        arch: Architecture,
        hardware: Silicon,
        workload: Workload,
        plan: AnyPlan,
    ) -> Estimate:
        """Requests on the chip, within what can be made and cooled."""
        if not isinstance(hardware, Accelerator):
            return self.target.estimate(arch, hardware, workload, plan)
        found = self.target.estimate(arch, self.lowered(hardware), workload, plan)
        own = chip_limits(self.divided(hardware), self.smooth)
        phases = {"prefill": found.prefill, "decode": found.decode}
        within = {k: x.replace(limits=x.limits | own) for k, x in phases.items()}
        return found.replace(**within)
