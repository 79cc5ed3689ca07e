"""Settings of two pools that rows do not state, by the recipes that ran them."""

import pytest

from infer_jax.calibration.pooled.readers.inferencex import KEY, started_as
from infer_jax.catalog.published.tables import tables
from infer_jax.estimators.disaggregated import Pools
from infer_jax.estimators.serving import Deployment

UNBOUNDED = float(Deployment.of().max_sequences)


def pools(prefill: float, decode: float, drafts: float = 0.0) -> Pools:
    """Decode instances of 8 GPUs with tensor parallel attention and shared experts."""
    return Pools.of(
        prefill=Deployment.of(tp=1, attention_dp=4, ep=4),
        decode=Deployment.of(tp=8, ep=8, drafts=drafts),
        prefill_copies=prefill,
        decode_copies=decode,
    )


def settings(found: Pools, **changes) -> tuple[float, float]:
    row = {"system": "b200_sxm", "model": "deepseek-r1", "precision": "fp4", "load": 450.0}
    row |= {"lengths": (1024.0, 1024.0), **changes}
    decode = started_as(found, **row).decode
    assert isinstance(decode, Deployment)
    return float(decode.max_sequences), float(decode.drafts)


def test_a_run_has_the_limit_and_the_drafts_of_its_recipe():
    # recipes/trtllm/b200-fp4/1k1k: stp/ctx1_gen6_tep8_batch64, mtp/ctx1_gen5_tep8_batch32_..._mtp3
    assert settings(pools(1.0, 6.0)) == (64.0, 0.0)
    assert settings(pools(1.0, 5.0, drafts=1.0), load=180.0) == (32.0, 3.0)
    # of two versions of one recipe that with more room: GB200, 4 bits, batch 8 and 32
    drafting = pools(1.0, 4.0, drafts=1.0)
    assert settings(drafting, system="gb200_nvl72", load=8.0) == (32.0, 3.0)


@pytest.mark.parametrize(
    "other", [{"load": 451.0}, {"system": "h100_sxm"}, {"model": "llama-3.1-8b"}]
)
def test_a_run_without_a_recipe_is_as_its_row_says(other):
    assert settings(pools(1.0, 6.0), **other) == (UNBOUNDED, 0.0)
    assert settings(pools(2.0, 6.0)) == (UNBOUNDED, 0.0)


def test_every_recipe_is_of_known_form():
    every = tables("pool_recipes")
    assert len(every) > 20
    for table in every.values():
        for key, loads in table.items():
            assert KEY.fullmatch(key), key
            assert loads == sorted(set(loads)) and loads[0] >= 1
