"""A textbook chapter on inference optimisation: its worked numbers beside ours."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NamedTuple

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax.numpy as jnp
import numpy as np
import typer

from experiments import _report
from experiments._chapter import pools
from experiments._claims import is_close
from infer_jax.physics import attention as att
from infer_jax.physics.speculation import bonus_yield, verified_yield
from infer_jax.specs import Format, GroupedQuery, Latent

app = _report.program(__doc__)

TWO_BYTES = Format.of(bytes=2, bits=16)
ONE = jnp.asarray(1.0)


class Claim(NamedTuple):
    """One number of the chapter, ours, and how far apart they may be (relative)."""

    name: str
    theirs: float
    ours: float
    allowed: float
    note: str = ""

    @property
    def agrees(self) -> bool:
        """Ours is within the tolerance of theirs."""
        return is_close(self.ours, self.theirs, self.allowed)


def cache_gb() -> float:
    """Example 4.1: GB of cache of 32 requests of 32,768 tokens, 80 layers of 8 heads of 128."""
    heads = GroupedQuery.of(query_heads=64, kv_heads=8, head_width=128, value_width=128)
    return 80 * 32 * float(att.of(heads).held_bytes(TWO_BYTES, jnp.asarray(32768.0))) / 1e9


def compression(rope_width: float) -> float:
    """Example 4.3: bytes of 128 heads of 128 over those of a latent of 512 and a rope key."""
    every = GroupedQuery.of(query_heads=128, kv_heads=128, head_width=128, value_width=128)
    latent = Latent.of(
        query_heads=128,
        nope_width=128,
        rope_width=rope_width,
        value_width=128,
        kv_rank=512,
        query_rank=1536,
    )
    ratio = att.of(every).held_bytes(TWO_BYTES, ONE) / att.of(latent).held_bytes(TWO_BYTES, ONE)
    return float(ratio)


def claims() -> tuple[list[Claim], list[Claim]]:
    """Numbers that agree, and numbers that do not agree with the chapter's own formula."""
    acceptance, drafts = jnp.asarray(0.8), jnp.asarray(5.0)
    right = [
        Claim("4.1 cache exceeding the model, GB", 344.0, cache_gb(), 0.002),
        Claim("4.3 MLA, the latent alone, times", 64.0, compression(0.0), 1e-9),
        Claim(
            "4.3 formula at 0.8 and 5 drafts", 3.68928, float(bonus_yield(acceptance, drafts)), 1e-5
        ),
    ]
    wrong = [
        Claim("4.3 MLA as it is cached, times", 64.0, compression(64.0), 0.0,
              "the 64-wide rope key is cached, too: 32,768 / (512 + 64)"),
        Claim("4.3 text at 0.8 and 5 drafts", 4.0, float(bonus_yield(acceptance, drafts)), 0.0,
              "(1 - 0.8^6) / (1 - 0.8) is 3.69; without the token of the target's own "
              f"{float(verified_yield(acceptance, drafts)):.2f}"),
    ]  # fmt: skip
    return right, wrong


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


@app.command()
def main(
    as_json: _report.Json = False,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the pools' curves into this file.")
    ] = None,
) -> None:
    """Print the chapter's worked numbers beside ours, and search for its thirty times."""
    right, wrong = claims()
    columns = ("number", "chapter", "ours", "verdict")
    rows = [(c.name, f"{c.theirs:g}", f"{c.ours:.4g}", _report.verdict(c.agrees)) for c in right]
    _report.show("Numbers of the chapter", columns, rows)
    rows = [(c.name, f"{c.theirs:g}", f"{c.ours:.4g}", c.note) for c in wrong]
    _report.show("Where ours differ", ("number", "chapter", "ours", "why"), rows)
    result = pools.curves()
    most = show_pools(result)
    if picture is not None:
        print(f"Picture: {pools.draw(result, picture)}")
    headline = {c.name: {"chapter": c.theirs, "ours": c.ours} for c in (*right, *wrong)}
    agrees = all(c.agrees for c in right)
    _report.finish(agrees, {"numbers": headline, "pools over": most, "agrees": agrees}, as_json)


if __name__ == "__main__":
    app()
