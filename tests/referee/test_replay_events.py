"""The compiled replay against schedulers in plain Python: every time of every request.

``events.py`` is one referee (whole lives reserved, decodes first), the package's ``reference`` the
other, with the rules of vLLM, TensorRT-LLM and SGLang. Times are compared to 1e-9 of themselves.
"""

from typing import Any

import numpy as np
import pytest

from infer_jax.replays import GuaranteedNoEvict, PrefillFirst, drawn_drafts, reference

from . import events, serving
from .servers import (
    FEW,
    ROOMY,
    TIMES,
    Drawn,
    compare,
    drawn,
    replayed,
    served,
    sglang,
    small,
    trtllm,
    vllm,
)
from .serving import step_time

pytestmark = pytest.mark.usefixtures("x64")

# a third of the servers every time, all of them on each release
SHARES = pytest.mark.parametrize("share", [1 / 3, pytest.param(1, marks=pytest.mark.slow)])


@SHARES
def test_whole_lives_as_the_referee_has_them(share):
    """Half of the servers are closed loops: arrivals, first and last tokens."""
    for i, case in enumerate(small(round(90 * share), 90)):
        e, server = case.engine, trtllm(case)
        d = server.fitting(drawn(case, FEW, i))
        rules = GuaranteedNoEvict.of(budget=e.budget, slots=e.slots, blocks=e.blocks, block=e.block)
        theirs = events.serve(
            lambda b, c, n, p, m=case.machine: step_time(m, b, c, n, p),
            e, events.Requests(*d[:3]), case.concurrency,
        )  # fmt: skip
        log = replayed(case, rules, d)
        for name in ("arrival", "first", "last"):
            ours = np.asarray(getattr(log, name))[:FEW]
            np.testing.assert_allclose(ours, getattr(theirs, name), rtol=1e-9, err_msg=f"{case}")


def of_vllm(case, i, **more):
    """With and without the room of the whole prompt, blocks left free, looks at the queue."""
    return vllm(case, entire=i % 3 > 0, watermark=2 * (i % 2), **more)


def of_sglang(case, i, **more):
    """Pages of several sizes, room by hopeful and by careful estimates."""
    return sglang(case, page=(1, 1, 4, 16, 64)[i % 5], ratio=0.7 if i % 2 else 0.2, **more)


# engine: the server of a case, how many servers, how many requests go back of all of them
ENGINES = {
    "vllm": (lambda case, i: of_vllm(case, i, poll=1 + 2 * (i % 4 == 3)), 60, 150),
    "vllm that overlaps": (lambda case, i: of_vllm(case, i, overlap=True), 60, 150),
    "trtllm that evicts": (lambda case, _: trtllm(case, evicts=True), 40, 100),
    "trtllm": (lambda case, i: trtllm(case, overlap=i % 3 > 0), 60, 0),
    "sglang": (of_sglang, 48, 40),
    "sglang that overlaps": (lambda case, i: of_sglang(case, i, overlap=True), 48, 40),
}


@SHARES
@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine(engine, share):
    """Small caches, and a fourth of the servers with room for all; open, capped, closed loops.

    vLLM: blocks as tokens come, the last one preempted; of every third server some prompts are in
    the cache, not computed, and count as context, pairs and blocks. TensorRT-LLM: the last one
    paused, or whole lives, which stay taken for a pass where passes overlap. SGLang: prompts first,
    room by estimate, requests taken back when that was too hopeful; who finishes decodes once more
    where passes overlap.
    """
    make, count, least = ENGINES[engine]
    seed, count = 10 * list(ENGINES).index(engine), round(count * share)
    cases = [*small(count - count // 4, seed), *small(count // 4, seed + 1, ROOMY)]
    back = 0
    for i, case in enumerate(cases):
        server = make(case, i)
        d = server.fitting(drawn(case, FEW, seed + i, capped=i % 4 > 1))
        if "vllm" in engine and i % 3 == 2:
            found = np.random.default_rng(i).choice([0.0, 0.3, 1.0], FEW)
            d = d._replace(cached=np.floor(found * (d.prompt - 1)))
        theirs = served(case, server.engine(), d)
        back += compare(replayed(case, server.rules, d), theirs, f"{i}, {server.rules}: ")
    assert back > least * share**2 if least else back == 0


def test_passes_are_drawn_by_the_law_of_acceptance():
    """How many passes 11 tokens take: shares of 40,000 draws, and the law by recursion."""
    curve = np.array([0.8, 0.5, 0.9])
    reached = np.concatenate([[1.0], np.cumprod(curve), [0.0]])
    yields = reached[:-1] - reached[1:]  # of 1, 2, ... tokens
    law = np.zeros((12, 12))  # passes, tokens
    law[0, 0] = 1.0
    for passes in range(11):
        for tokens in range(10):
            for more, share in enumerate(yields, 1):
                law[passes + 1, min(tokens + more, 10)] += share * law[passes, tokens]
    built = drawn_drafts(np.full(40_000, 11), curve, 3, np.random.default_rng(0))
    shares = np.bincount(built.passes, minlength=12) / 40_000
    np.testing.assert_allclose(shares, law[:, 10], atol=5 * np.sqrt(0.25 / 40_000))
    several = built.passes > 1
    before = np.where(several, built.rate * (built.passes - 1), 0.0)
    np.testing.assert_allclose(before + built.rest, 10, rtol=1e-12)
    alone = drawn_drafts([1, 2], 0.5, 2, np.random.default_rng(0))
    assert (alone.passes.tolist(), alone.rest.tolist()) == ([0, 1], [1, 1])


def test_sglang_refuses_at_a_tie():
    """The fifth request wants 80 tokens where 608 - 81 - 81 - 183 - 183 are left: not fewer."""
    case = serving.cases(2)[1]._replace(concurrency=None)
    sizes: dict[str, Any] = {"budget": 1024, "slots": 27, "blocks": 608, "block": 1}
    share = 0.6309999999999997  # of which the digits of a sum once made 80.00000000000001
    d = Drawn(np.zeros(5), np.array([21, 21, 123, 123, 21]), np.full(5, 59))
    rules = PrefillFirst.of(**sizes, ratio=share, least=share)
    engine = reference.Sglang(**sizes, ratio=share, least=share, now_ratio=share)
    theirs = served(case, engine, d)
    assert theirs[4].admitted > 0.0
    compare(replayed(case, rules, d), theirs, "a tie: ", TIMES)
