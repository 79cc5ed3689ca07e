"""``ij.chip``: area, power, bill and data sheet of a chip from what it is made of."""

from typing import Annotated

from infer_jax import verbs
from infer_jax.results.problems import by_command, refuse
from infer_jax.verbs import options as opt
from infer_jax.verbs.asking import verb
from infer_jax.verbs.option import Option


@verb
def chip(
    silicon: Annotated[opt.Place, Option.of("NAME|FILE", by_place=True)],
    *,
    seed: Annotated[int, Option.of("N", opt.SEED)] = 0,
) -> "verbs.ChipResult":
    """What is a chip of this silicon: die area, power, bill of materials and data sheet?

    Beside what is published of a chip that exists. 80 % of draws of the laws' coefficients lie
    between the ends that stand behind a figure.

    Args:
        silicon: A chip by name, such as h100_sxm, or a file that describes one.
        seed: Of the draws.

    Raises:
        InputError: no such chip; a description with an unknown key, a number out of bounds, or of
            a chip that cannot be made or cooled.

    >>> import infer_jax as ij
    >>> found = ij.chip("h100_sxm")
    >>> round(found.die_mm2), round(found.bill_usd / 100)
    (757, 31)
    """
    from infer_jax.errors import InputError
    from infer_jax.silicon.chips import load_silicon
    from infer_jax.silicon.figures import chip_figures

    try:
        system = load_silicon(silicon)
    except InputError as error:
        if error.where != "silicon" or error.field != "accelerator":
            raise
        raise refuse("NAME" if by_command() else "silicon", error.value, error.allowed) from None
    return verbs.ChipResult(system, *chip_figures(system, seed))
