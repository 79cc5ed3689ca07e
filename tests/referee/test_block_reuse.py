"""TensorRT-LLM's reuse of blocks in the compiled replay against blocks one by one."""

from typing import Any

import numpy as np
import pytest

from infer_jax.replays import Prefixes, trtllm

from .block_pool import PooledTrtllm
from .serving import Case
from .test_prefix_caches import LENGTH, agree, hashed, names
from .test_radix_trees import ALL
from .test_replay_events import FEW, drawn, fitting, small

pytestmark = pytest.mark.usefixtures("x64")


def check(case: Case, i: int, *, overlap: bool, capped: bool) -> tuple[float, int]:
    """Compare one server; the share of tokens that were cached, blocks brought back.

    Every fourth has host memory; every fifth feeds whole prompts.
    """
    case = case._replace(concurrency=case.concurrency or ALL)
    e, chunked = case.engine, i % 5 > 0
    host = int((0.0, 0.5, 0.0, 20.0)[i % 4] * e.blocks)
    d = fitting(drawn(case, FEW, 800 + i, capped=capped), e.blocks * e.block)
    d, rows = hashed(d, i)
    d = fitting(d, e.blocks * e.block)
    budget = e.budget if chunked else max(e.budget, int(d.prompt.max()))
    sizes: dict[str, Any] = {"budget": budget, "slots": e.slots, "blocks": e.blocks}
    sizes |= {"block": e.block, "chunked": chunked}
    prefixes = Prefixes.of(rows, d.prompt, length=LENGTH, block=e.block)
    rules = trtllm(**sizes, overlap=overlap, reuse=True).replace(host=host, fetch=1e-4)
    engine = PooledTrtllm(
        **sizes, overlap=overlap, host=host, fetch=1e-4, names=names(rows, d.prompt, e.block)
    )
    return agree(case, rules, engine, d, prefixes)[0], engine.fetched


@pytest.mark.parametrize("overlap", [False, True])
def test_trtllm_with_prefixes(overlap):
    """Small caches: whole lives, waits for what others compute, sharing, host memory."""
    shares, fetched = zip(
        *(
            check(case, i, overlap=overlap, capped=i % 4 > 1)
            for i, case in enumerate(small(8, 820 + overlap, (0.5, 3.0)))
        ),
        strict=True,
    )
    assert 0.1 < np.mean(shares) < 0.9 and sum(fetched) > 20
