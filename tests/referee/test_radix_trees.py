"""SGLang's radix tree in the compiled replay against a tree of dictionaries in plain Python."""

from typing import Any

import numpy as np
import pytest

from infer_jax.replays import PrefillFirst, Prefixes

from .radix_tree import RadixSglang
from .serving import Case
from .test_prefix_caches import LENGTH, agree, hashed, names
from .test_replay_events import FEW, drawn, fitting, paged, small

pytestmark = pytest.mark.usefixtures("x64")

PAGES = (1, 1, 4, 16, 64)
ALL = 2**20  # requests in flight that are no limit: all servers share a program


def check(case: Case, i: int, *, overlap: bool, capped: bool) -> tuple[float, int]:
    """Compare one server; the share of tokens that were cached, and preemptions."""
    case = case._replace(concurrency=case.concurrency or ALL)
    e = case.engine
    given: dict[str, Any] = {"budget": e.budget, "slots": e.slots, "blocks": e.blocks, "block": 16}
    sizes = paged(given, PAGES[i % 5])
    page = sizes["block"]
    d = fitting(drawn(case, FEW, 700 + i, capped=capped), sizes["blocks"] * page)
    d, rows = hashed(d, i)
    d = fitting(d, sizes["blocks"] * page)
    prefixes = Prefixes.of(rows, d.prompt, length=LENGTH, block=page)
    shares: dict[str, Any] = {"ratio": 0.7 if i % 2 else 0.2, "least": 0.05, "decay": 50.0}
    rules = PrefillFirst.of(**sizes, unit=page, **shares, overlap=float(overlap))
    engine = RadixSglang(
        **sizes, **shares, now_ratio=shares["ratio"], overlap=overlap,
        names=names(rows, d.prompt, page),
    )  # fmt: skip
    return agree(case, rules, engine, d, prefixes)


@pytest.mark.parametrize("overlap", [False, True])
def test_sglang_with_prefixes(overlap):
    """Small caches in which nodes are split, locked, given up and found after a retraction."""
    shares, preempted = zip(
        *(
            check(case, i, overlap=overlap, capped=i % 4 > 1)
            for i, case in enumerate(small(8, 720 + overlap, (0.5, 3.0)))
        ),
        strict=True,
    )
    assert 0.1 < np.mean(shares) < 0.9 and sum(preempted) > 5
