"""What two pools of TensorRT-LLM were started with, by the published recipes of InferenceX.

Rows of these runs state requests in flight, but neither how many of them a decode instance runs at
once, which often are fewer, so that first tokens wait for a place, nor how many tokens it drafts.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from infer_jax.catalog.published.tables import tables
from infer_jax.estimators.disaggregated import Pools
from infer_jax.estimators.serving import Deployment

KEY = re.compile(r"(\d+)p (\d+)d (t|te|de|d)p(\d+) batch(\d+) drafts(\d)")


class PoolRun(NamedTuple):
    """A run as its row and its recipe know it: instances and the layout of one that decodes."""

    prefill_copies: float
    decode_copies: float
    groups: float  # of attention, in a decode instance
    gpus: float  # of a decode instance
    drafting: bool
    requests: float


class Recipe(NamedTuple):
    """What a decode instance was started with.

    ``sequences``: requests that an attention group runs at most; ``drafts``: tokens of a pass.
    """

    sequences: float
    drafts: float


def started_as(
    pools: Pools, system: str, model: str, precision: str, lengths: tuple[float, float], load: float
) -> Pools:
    """The pools with the settings of their recipe, or as they are where none is known."""
    decode = pools.decode
    assert isinstance(decode, Deployment)
    key = f"{system} {model} {precision} {lengths[0]:g} {lengths[1]:g}"
    groups, gpus = float(decode.attention_dp), float(decode.instance)
    copies = float(pools.prefill_copies), float(pools.decode_copies)
    found = _recipes(key).get(PoolRun(*copies, groups, gpus, float(decode.drafts) > 0.0, load))
    if found is None:
        return pools
    return pools.replace(decode=decode.with_(max_sequences=found.sequences, drafts=found.drafts))


@cache
def _recipes(key: str) -> dict[PoolRun, Recipe]:
    """Recipes of a table by run; of two with one run the one with more room."""
    table = tables("pool_recipes").get(key, {})
    every = sorted(_runs(table), key=lambda run: run[1].sequences)
    return dict(every)


def _runs(table: dict[str, list[float]]) -> Iterator[tuple[PoolRun, Recipe]]:
    for name, loads in table.items():
        match = KEY.fullmatch(name)
        assert match is not None, name
        prefill, decode, form, degree, batch, drafts = match.groups()
        groups = float(degree) if form.startswith("d") else 1.0
        for load in loads:
            run = PoolRun(float(prefill), float(decode), groups, float(degree), drafts != "0", load)
            yield run, Recipe(float(batch), float(drafts))
