"""Ranks with queues of their own on one clock, against engines in plain Python: every time."""

from functools import partial
from typing import Any

import jax
import numpy as np
import pytest
from jax.tree_util import Partial

from infer_jax.errors import InputError
from infer_jax.replays import (
    Requests,
    RoutedLog,
    SharedStep,
    drawn_drafts,
    replay_ranks,
    serve_ranks,
    sglang as sglang_rules,
    vllm as vllm_rules,
)

from . import ranks as referee
from .servers import (
    FEW,
    FULL,
    ROOMY,
    compare,
    drawn,
    loop_of,
    machine_of,
    sglang,
    small,
    trtllm,
    vllm,
)
from .serving import SHORT, step_time

pytestmark = pytest.mark.usefixtures("x64")

# engine: the server of a case, of drafts or none
ENGINES = {
    "vllm": lambda case, i, **more: vllm(case, **more),
    "sglang": lambda case, i, **more: sglang(
        case, page=(1, 4, 16)[i % 3], ratio=0.7 if i % 2 else 0.2, **more
    ),
    "trtllm": lambda case, i, **more: trtllm(case, **more),
}


def common(tokens: Any, *verified: Any) -> Any:
    """Seconds of the experts: of a pass, a token of any rank, and heads that go through again."""
    return 2e-3 + 1e-5 * sum(tokens) + sum(3e-6 * sum(x) for x in verified)


@partial(jax.jit, static_argnames=("ranks", "router"), compiler_options=SHORT)
def replayed(machine, rules, requests, concurrency, *, ranks, router) -> RoutedLog:
    def own(decoding, *rest):
        return step_time(machine, decoding * (1.0 + rules.drafts), *rest)

    how = {"ranks": ranks, "router": router, "width": 32, "turns": 4096}
    return replay_ranks(SharedStep(Partial(own), common), rules, requests, concurrency, **how)


def check(case, server, seed: int, ranks: int, router: str, share: int | None = None) -> int:
    """Hold all times of a server to the referee's; requests taken back.

    ``share`` of drafts is accepted, all or none; None where there are none.
    """
    d = server.fitting(drawn(case, FEW, seed, capped=seed % 4 > 1))
    drafts, loop = int(server.rules.drafts), loop_of(case.concurrency)
    if share is not None:
        built = drawn_drafts(d.output, float(share), drafts, np.random.default_rng(0))
        d = d._replace(drafts=built)
    log = replayed(
        machine_of(case), server.rules, Requests.of(*d), loop, ranks=ranks, router=router
    )
    theirs, routed = referee.serve(
        lambda b, *rest: float(step_time(case.machine, b * (1 + drafts), *rest)),
        common, [server.engine() for _ in range(ranks)], d.lengths(), router, case.concurrency,
        drafts, lambda: 1 + (share or 0) * drafts,
    )  # fmt: skip
    rank = {r.index: k for k, line in enumerate(routed.sent) for r in line}
    assert [rank[i] for i in range(FEW)] == np.asarray(log.server)[:FEW].tolist()
    return compare(log.log, theirs, f"{seed}, {server.rules}: ")


def test_vllms_ranks():
    """Short caches, with and without passes put together ahead, open, capped and closed loops."""
    cases = enumerate(small(12, 10))
    back = [check(c, vllm(c, overlap=i % 2 > 0), i, 3, "weighted_queue") for i, c in cases]
    assert sum(back) > 20


@pytest.mark.parametrize("blocks", [ROOMY, FULL])
def test_sglangs_ranks(blocks):
    """A rank prefills while others decode; one that runs along looks when the others do.

    With room, and with short caches, where requests are refused and taken back.
    """
    back = 0
    for i, case in enumerate(small(10, 10, blocks)):
        server = sglang(case, overlap=i % 2 > 0 or blocks == FULL)
        back += check(case, server, i, 2, "minimum_tokens")
    assert back > 5 or blocks == ROOMY


@pytest.mark.parametrize(
    ("engine", "router"),
    [
        ("vllm", "weighted_queue"),
        pytest.param("sglang", "round_robin", marks=pytest.mark.slow),
        pytest.param("trtllm", "minimum_tokens", marks=pytest.mark.slow),
    ],
)
def test_ranks_that_draft(engine, router):
    """Drafts of the ranks' own requests in passes of all."""
    back = 0
    for i, case in enumerate(small(4, 220, (0.3, 1.0))):
        server = ENGINES[engine](case, i, drafts=1 + i % 3, overlap=i % 2 > 0)
        back += check(case, server, 200 + i, 2, router, i // 2)
    assert back > 10 or engine == "trtllm"


def test_what_ranks_refuse():
    step = SharedStep(lambda *batch: 0.01 + 0.0 * batch[0], common)
    requests, rules = Requests.of([0.0], [10], [2]), vllm_rules(blocks=10, slots=4)
    polls = sglang_rules(tokens=100, slots=4, poll=4, overlap=False)
    for of, ranks, router, says in (
        (rules, 2, "by_prefix", "router is 'by_prefix'"),
        (rules, 2, "cache_aware", "allowed: one of round_robin"),
        (rules, 0, "round_robin", "ranks is 0"),
        (polls, 2, "round_robin", "poll"),
        (vllm_rules(blocks=1, slots=4, block=8), 2, "round_robin", "blocks hold alone"),
    ):
        with pytest.raises(InputError, match=says):
            serve_ranks(step, of, requests, ranks, router)
    with pytest.raises(InputError, match="step is 'function'; allowed: a SharedStep"):
        serve_ranks(step.own, rules, requests, 2, "round_robin")  # pyright: ignore
    with pytest.raises(InputError, match="replay_ranks: ranks is 0"):
        replay_ranks(step, rules, requests, ranks=0, router="round_robin", width=4, turns=8)
