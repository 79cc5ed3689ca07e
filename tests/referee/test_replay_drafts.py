"""Drafts by the rules of SGLang and TensorRT-LLM against schedulers in plain Python.

With an acceptance of 0 or 1 every time of every request is the referee's, to 1e-9 of itself.
"""

from functools import partial

import numpy as np
import pytest

from infer_jax.replays import Drafts, PrefillFirst, WholeLife, drawn_drafts

from . import schedulers
from .test_replay_events import (
    FEW,
    compare,
    drawn,
    fitting,
    paged,
    passes_of,
    passing,
    run,
    serve,
    small,
)

pytestmark = pytest.mark.usefixtures("x64")


def sglang(i: int, sizes: dict, drafts: int, *, overlap: bool):
    """Rules, the referee's engine and the tokens that a request may have."""
    sizes = paged(sizes, (1, 4, 16)[i % 3])
    share = {"ratio": 0.7 if i % 2 else 0.2, "least": 0.05, "decay": 50.0}
    engine = schedulers.Sglang(
        **sizes, **share, now_ratio=share["ratio"], overlap=overlap, drafts=drafts
    )
    unit, ahead = sizes["block"], 2 * (1 + drafts)
    rules = PrefillFirst.of(**sizes, **share, unit=unit, overlap=float(overlap), drafts=drafts)
    return rules, engine, sizes["blocks"] * sizes["block"] - ahead


def trtllm(i: int, sizes: dict, drafts: int, *, overlap: bool):
    """The same of TensorRT-LLM."""
    sizes["slots"] = min(sizes["slots"], sizes["budget"] // (2 + 2 * drafts))
    rules = WholeLife.of(**sizes, unit=sizes["block"], overlap=float(overlap), drafts=drafts)
    engine = schedulers.Trtllm(**sizes, overlap=overlap, drafts=drafts)
    return rules, engine, sizes["blocks"] * sizes["block"]


def check(make, seed: int, count: int, share: float, *, overlap: bool) -> int:
    """Compare on ``count`` servers with an acceptance of 0 or 1; how many were taken back."""
    preempted = 0
    for i, case in enumerate(small(count, seed, (1.0, 4.0))):
        e, drafts = case.engine, 1 + i % 3
        sizes = {"budget": e.budget, "slots": e.slots, "blocks": e.blocks, "block": e.block}
        rules, engine, tokens = make(i, sizes, drafts, overlap=overlap)
        d = fitting(drawn(case, FEW, seed + i, capped=i % 4 > 1), tokens)
        built = drawn_drafts(d.output, share, drafts, np.random.default_rng(0))
        theirs = serve(engine, case, d, lambda index, n=drafts: lambda: 1 + int(share * n))
        preempted += theirs["preempted"].sum()
        log = run(case, rules, d._replace(drafts=built), width=32, turns=8192)
        compare(log, theirs, f"{seed + i}, {rules}: ")
    return preempted


@pytest.mark.parametrize("overlap", [False, True])
def test_sglang_whose_drafts_are_all_accepted_or_none(overlap):
    """Room for drafts, who goes back, the share of what is to come: both versions."""
    assert sum(check(sglang, 140, 10, share, overlap=overlap) for share in (0.0, 1.0)) > 20


@pytest.mark.parametrize("overlap", [False, True])
def test_trtllm_whose_drafts_are_all_accepted_or_none(overlap):
    """Tokens of a pass, and a pass more of a request that may have ended."""
    assert sum(check(trtllm, 160, 8, share, overlap=overlap) for share in (0.0, 1.0)) == 0


@pytest.mark.parametrize("make", [sglang, trtllm])
def test_passes_that_yield_tokens_at_random(make):
    """The same passes of each request: what is replayed otherwise is how its context grows."""
    for i, case in enumerate(small(2, 180, (30.0, 40.0))):
        e, drafts = case.engine, 1 + i % 3
        sizes = {"budget": e.budget, "slots": e.slots, "blocks": e.blocks, "block": e.block}
        rules, engine, tokens = make(i, sizes, drafts, overlap=i > 0)
        d = fitting(drawn(case, FEW, 180 + i, capped=i % 4 > 1), tokens)
        ours, its = ([np.random.default_rng((i, j)) for j in range(FEW)] for _ in range(2))
        each = [passes_of(int(n), g, drafts) for n, g in zip(d.output, ours, strict=True)]
        built = Drafts._make(np.array(x) for x in zip(*each, strict=True))
        theirs = serve(engine, case, d, [partial(passing, g, drafts) for g in its].__getitem__)
        log = run(case, rules, d._replace(drafts=built), width=32, turns=8192)
        for name in ("first", "last", "arrival"):
            mean = np.asarray(getattr(log, name))[:FEW].mean()
            np.testing.assert_allclose(mean, theirs[name].mean(), rtol=2e-4)
