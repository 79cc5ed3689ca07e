"""A textbook chapter on inference optimisation: its worked numbers beside ours."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax.numpy as jnp
import numpy as np
import typer

from experiments import _report
from experiments._chapter import pools
from experiments._claims import Claim, beside, show
from infer_jax.physics import attention as att
from infer_jax.physics.speculation import bonus_yield, verified_yield
from infer_jax.specs import Format, GroupedQuery, Latent

app = _report.program(__doc__)

TWO_BYTES = Format.of(bytes=2, bits=16)


def compression(rope_width: float) -> float:
    """Example 4.3: bytes of 128 heads of 128 over those of a latent of 512 and a rope key."""
    every = GroupedQuery.of(query_heads=128, kv_heads=128, head_width=128, value_width=128)
    latent = Latent.of(
        query_heads=128, nope_width=128, rope_width=rope_width, value_width=128, kv_rank=512,
        query_rank=1536,
    )  # fmt: skip
    one = jnp.asarray(1.0)
    both = [float(att.of(x).held_bytes(TWO_BYTES, one)) for x in (every, latent)]
    return both[0] / both[1]


def claims() -> list[Claim]:
    """The numbers of the chapter; two do not agree with its own formulas."""
    acceptance, drafts = jnp.asarray(0.8), jnp.asarray(5.0)
    tokens, verified = (float(law(acceptance, drafts)) for law in (bonus_yield, verified_yield))
    # 32 requests of 32,768 tokens, 80 layers of 8 heads of 128
    heads = GroupedQuery.of(query_heads=64, kv_heads=8, head_width=128, value_width=128)
    gb = 80 * 32 * float(att.of(heads).held_bytes(TWO_BYTES, jnp.asarray(32768.0))) / 1e9
    ours = {"cache": gb, "latent": compression(0.0), "cached": compression(64.0)}
    ours |= {"formula": tokens, "text": (tokens, verified)}
    return beside(Path(pools.__file__).with_name("claims.csv"), ours)


def show_pools(result: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Print throughput over interactivity; by baseline, the most that pools are over it."""
    ratios = pools.times(result)
    columns = ("tokens/s of a request", *result, *(f"over: {name}" for name in ratios))
    rows = [
        (
            f"{speed:g}",
            *(f"{values[i]:.4g}" if values[i] > 0 else "-" for values in result.values()),
            *("-" if np.isnan(x[i]) else f"{x[i]:.3g}" for x in ratios.values()),
        )
        for i, speed in enumerate(pools.SPEEDS)
    ]
    _report.show("4.2 DeepSeek-R1, output tokens per second and GPU", columns, rows)
    return {name: float(np.nanmax(x)) for name, x in ratios.items()}


@_report.command(app)
def main(
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the pools' curves into this file.")
    ] = None,
) -> dict[str, Any]:
    """Print the chapter's worked numbers beside ours, and search for its thirty times."""
    figures = show("Numbers of the chapter", claims())
    result = pools.curves()
    figures["pools over"] = show_pools(result)
    if picture is not None:
        print(f"Picture: {pools.draw(result, picture)}")
    return figures


if __name__ == "__main__":
    app()
