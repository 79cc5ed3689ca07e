"""How much power does a chip draw, and what energy does a token take?"""

import jax.numpy as jnp
from jax import Array

from infer_jax.specs import Spec, number, spec


@spec
class Draw(Spec):
    """What a chip draws, as shares of its board power, and what its building adds.

    Sources: 80 W of 700 W idle (H200, measured, Serial Alice GPU energy benchmark, 2026);
    decoding that saturates memory draws up to 300 W of 700 W (H200; Ma et al. 2026, arXiv
    2605.11999, abstract); compute-bound work reaches the board power (680 W and 943 W of 700 W
    and 1000 W, H100 and B200, the same benchmark). 1.56: mean power usage effectiveness of the
    largest sites in the Uptime Institute's survey of 2024.
    """

    idle: Array = number("drawn by a chip at rest", kind="fraction", high=1, default=80.0 / 700.0)
    memory: Array = number(
        "drawn while memory is saturated and nothing is computed",
        kind="fraction",
        high=1,
        default=300.0 / 700.0,
    )
    compute: Array = number(
        "drawn while computing is saturated", kind="fraction", high=1, default=1.0
    )
    pue: Array = number(
        "power of the building over power of its machines", kind="size", low=1, default=1.56
    )


def power(board: Array, reading: Array, computing: Array, draw: Draw) -> Array:
    """Watts of a chip whose memory and arithmetic are busy for these shares of the time.

    P (idle + (memory - idle) u_m + (compute - idle) u_c), at most P compute: linear in each.
    """
    drawn = draw.idle + (draw.memory - draw.idle) * reading
    drawn = drawn + (draw.compute - draw.idle) * computing
    return board * jnp.minimum(drawn, draw.compute)


def joules_per_million_tokens(chips: Array, watts: Array, time: Array, tokens: Array) -> Array:
    """Joules per million tokens when ``chips`` chips draw ``watts`` each for ``time`` seconds.

    1e6 * chips * watts * time / tokens.
    """
    return 1e6 * chips * watts * time / tokens
