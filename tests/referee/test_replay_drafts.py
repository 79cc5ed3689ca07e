"""Drafts by the rules of the engines against schedulers in plain Python.

With an acceptance of 0 or 1 every time of every request is the referee's, to 1e-9 of itself.
"""

from functools import partial

import numpy as np
import pytest

from infer_jax.replays import Drafts, drawn_drafts

from .servers import FEW, compare, drawn, replayed, served, small
from .test_ranks import ENGINES

pytestmark = pytest.mark.usefixtures("x64")


@pytest.mark.parametrize(("engine", "least"), [("vllm", 40), ("sglang", 15), ("trtllm", 0)])
def test_drafts_that_are_all_accepted_or_none(engine, least):
    """Passes of k + 1 tokens a request that yield as many, or one: blocks, budget and the end.

    SGLang: room for drafts, who goes back, the share of what is to come, in both versions.
    TensorRT-LLM: a pass more of a request that may have ended.
    """
    back = 0
    for i, case in enumerate(small(16, 120, (1.0, 4.0))):
        drafts, share = 1 + i % 3, i // 4 % 2
        server = ENGINES[engine](case, i, drafts=drafts, overlap=i // 2 % 2 > 0)
        d = server.fitting(drawn(case, FEW, 120 + i, capped=i % 8 > 3))
        theirs = served(case, server.engine(), d, lambda _, n=1 + share * drafts: lambda: n)
        built = drawn_drafts(d.output, float(share), drafts, np.random.default_rng(0))
        log = replayed(case, server.rules, d._replace(drafts=built))
        back += compare(log, theirs, f"{i}, {server.rules}: ")
    assert back > least if least else back == 0


def passing(g: np.random.Generator, drafts: int, share: float = 0.7) -> int:
    """Tokens of a pass: drafts until one is refused, and one more."""
    accepted = 0
    while accepted < drafts and g.random() < share:
        accepted += 1
    return accepted + 1


def passes_of(output: int, g: np.random.Generator, drafts: int) -> tuple[int, float, int]:
    """Passes after the first token, tokens a pass before the last, and those it is wanted for."""
    left, passes, rate, rest = output - 1, 0, 1.0, 1
    while left > 0:
        rate, rest = (output - 1 - left) / max(passes, 1), left
        left -= passing(g, drafts)
        passes += 1
    return passes, rate, rest


@pytest.mark.parametrize("engine", ENGINES)
def test_passes_that_yield_tokens_at_random(engine):
    """The same passes of each request: what is replayed otherwise is how its context grows."""
    for i, case in enumerate(small(2, 180, (30.0, 40.0))):
        drafts = 1 + i % 3
        server = ENGINES[engine](case, i, drafts=drafts, overlap=i > 0)
        d = server.fitting(drawn(case, FEW, 180 + i))
        ours, its = ([np.random.default_rng((i, j)) for j in range(FEW)] for _ in range(2))
        each = [passes_of(int(n), g, drafts) for n, g in zip(d.output, ours, strict=True)]
        built = Drafts._make(np.array(x) for x in zip(*each, strict=True))
        yields = [partial(passing, g, drafts) for g in its].__getitem__
        theirs = served(case, server.engine(), d, yields)
        log = replayed(case, server.rules, d._replace(drafts=built))
        for name in ("first", "last", "arrival"):
            mean = np.asarray(getattr(log, name))[:FEW].mean()
            expected = np.mean([getattr(r, name) for r in theirs])
            np.testing.assert_allclose(mean, expected, rtol=2e-4)
