"""Ranks with queues of their own on one clock, against engines in plain Python: every time."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from infer_jax.errors import InputError
from infer_jax.replays import (
    Preempting,
    PrefillFirst,
    Requests,
    RoutedLog,
    Rules,
    SharedStep,
    replay_ranks,
    serve_ranks,
    sglang,
    vllm,
)

from . import ranks as referee, schedulers
from .serving import SHORT, Case, Machine, step_time
from .test_replay_events import CLOSE, FEW, Drawn, drawn, fitting, small

pytestmark = pytest.mark.usefixtures("x64")

FIXED, EACH = 2e-3, 1e-5  # seconds of the experts: of a pass, and of a token of any rank


def common(tokens):
    return FIXED + EACH * jnp.sum(tokens)


@partial(jax.jit, static_argnames=("ranks", "router"), compiler_options=SHORT)
def replayed(machine, rules, requests, concurrency, *, ranks, router) -> RoutedLog:
    step = SharedStep(Partial(step_time, machine), common)
    return replay_ranks(
        step, rules, requests, concurrency, ranks=ranks, router=router, width=32, turns=4096
    )


def compare(case: Case, rules: Rules, make, d: Drawn, ranks: int, router: str, where: str) -> int:
    """Check that all times are the referee's; how many requests were preempted."""
    loop = None if case.concurrency is None else jnp.asarray(case.concurrency, jnp.int32)
    machine = Machine(*map(jnp.asarray, case.machine))
    log = replayed(machine, rules, Requests.of(*d), loop, ranks=ranks, router=router)
    assert log.complete
    sizes = (x.astype(int).tolist() for x in (d.prompt, d.output, np.zeros(len(d.prompt))))
    lengths = list(zip(d.arrival.tolist(), *sizes, strict=True))
    theirs, routed = referee.serve(
        lambda b, c, n, p: float(step_time(case.machine, b, c, n, p)),
        lambda tokens: FIXED + EACH * sum(tokens),
        [make() for _ in range(ranks)], lengths, router, case.concurrency,
    )  # fmt: skip
    rank = {r.index: k for k, line in enumerate(routed.sent) for r in line}
    assert [rank[i] for i in range(len(lengths))] == np.asarray(log.rank)[: len(lengths)].tolist()
    for name in ("arrival", "admitted", "first", "last", "preempted"):
        expected = np.array([getattr(r, name) for r in theirs])
        ours = np.asarray(log.of(name))[: len(expected)]
        np.testing.assert_allclose(ours, expected, rtol=CLOSE, atol=1e-12, err_msg=where + name)
    return sum(r.preempted for r in theirs)


def test_vllms_ranks():
    """Short caches, with and without passes put together ahead, open, capped and closed loops."""
    preempted = 0
    for i, case in enumerate(small(12, 10, (0.5, 3.0))):
        e, overlap = case.engine, i % 2 > 0
        sizes: dict[str, Any] = {"budget": e.budget, "slots": e.slots, "blocks": e.blocks}
        sizes |= {"block": e.block}
        rules = Preempting.of(**sizes, overlap=float(overlap))
        d = fitting(drawn(case, FEW, 10 + i, capped=i % 4 > 1), (e.blocks - 2) * e.block)

        def make(sizes=sizes, overlap=overlap):
            return schedulers.Vllm(**sizes, overlap=overlap)

        preempted += compare(case, rules, make, d, 3, "weighted_queue", f"{i}: ")
    assert preempted > 20, preempted


@pytest.mark.parametrize("blocks", [(30.0, 40.0), (0.5, 3.0)])
def test_sglangs_ranks(blocks):
    """A rank prefills while others decode; one that runs along looks when the others do.

    With room, and with short caches, where requests are refused and taken back.
    """
    preempted = 0
    for i, case in enumerate(small(12, 10, blocks)):
        e, overlap = case.engine, i % 2 > 0 or blocks[0] < 1.0
        sizes: dict[str, Any] = {"budget": e.budget, "slots": e.slots, "blocks": e.blocks * 16}
        share = {"ratio": 0.3, "least": 0.05, "decay": 50.0}
        rules = PrefillFirst.of(**sizes, block=1, **share, overlap=float(overlap))
        d = fitting(drawn(case, FEW, 10 + i, capped=i % 4 > 1), sizes["blocks"] - 2)

        def make(sizes=sizes, share=share, overlap=overlap):
            return schedulers.Sglang(**sizes, **share, now_ratio=0.3, overlap=overlap)

        preempted += compare(case, rules, make, d, 2, "minimum_tokens", f"{i}: ")
    assert preempted > 5 or blocks[0] > 1.0, preempted


def test_what_ranks_refuse():
    step = SharedStep(lambda *batch: 0.01 + 0.0 * batch[0], common)
    requests = Requests.of([0.0], [10], [2])
    for given, says in (
        ((vllm(blocks=10, slots=4), requests, 2, "by_prefix"), "router is 'by_prefix'"),
        ((vllm(blocks=10, slots=4), requests, 2, "cache_aware"), "allowed: one of round_robin"),
        ((vllm(blocks=10, slots=4), requests, 0, "round_robin"), "ranks is 0"),
        ((sglang(tokens=100, slots=4, poll=4, overlap=False), requests, 2, "round_robin"), "poll"),
        ((vllm(blocks=1, slots=4, block=8), requests, 2, "round_robin"), "blocks hold alone"),
    ):
        with pytest.raises(InputError, match=says):
            serve_ranks(step, *given)
    rules = vllm(blocks=10, slots=4)
    with pytest.raises(InputError, match="step is 'function'; allowed: a SharedStep"):
        serve_ranks(step.own, rules, requests, 2, "round_robin")  # pyright: ignore
    with pytest.raises(InputError, match="replay_ranks: ranks is 0"):
        replay_ranks(step, rules, requests, ranks=0, router="round_robin", width=4, turns=8)
