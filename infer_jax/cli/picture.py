"""Where does the picture of a frontier go, and what if it cannot be drawn?"""

from typing import TYPE_CHECKING

from infer_jax.verbs.pictures import KINDS as KINDS, check as check, missing as missing

if TYPE_CHECKING:
    from infer_jax.sweeps import Grid

DEFAULT = "frontier.png"


def draw(
    front: "Grid", chosen: int, out: str, title: str, label: str, caption: str, said: str
) -> tuple[str | None, str]:
    """Save the picture of a frontier: (its path or None, a sentence about it).

    ``said``: what the chosen row is, beside its mark.

    Raises:
        InputError: the place cannot be written.
    """
    if missing():
        return None, missing()
    from infer_jax.plots import Curve, plot_frontier
    from infer_jax.plots.style import words

    curve = {words(label): Curve(front, chosen, words(said))}
    plot_frontier(curve, out, title=words(title), caption=words(caption))
    return out, f"Picture: {out}."
