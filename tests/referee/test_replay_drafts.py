"""Drafts by the rules of the engines against schedulers in plain Python.

With an acceptance of 0 or 1 every time of every request is the referee's, to 1e-9 of itself.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from infer_jax.replays import (
    Drafts,
    GuaranteedNoEvict,
    Preempting,
    PrefillFirst,
    Requests,
    Rules,
    SharedStep,
    drawn_drafts,
    replay_ranks,
)

from . import ranks as referee, schedulers
from .serving import SHORT, Case, Machine, step_time
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
    share: dict[str, Any] = {"ratio": 0.7 if i % 2 else 0.2, "least": 0.05, "decay": 50.0}
    engine = schedulers.Sglang(
        **sizes, **share, now_ratio=share["ratio"], overlap=overlap, drafts=drafts
    )
    unit, ahead = sizes["block"], 2 * (1 + drafts)
    rules = PrefillFirst.of(**sizes, **share, unit=unit, overlap=float(overlap), drafts=drafts)
    return rules, engine, sizes["blocks"] * sizes["block"] - ahead


def trtllm(i: int, sizes: dict, drafts: int, *, overlap: bool):
    """The same of TensorRT-LLM."""
    sizes["slots"] = min(sizes["slots"], sizes["budget"] // (2 + 2 * drafts))
    rules = GuaranteedNoEvict.of(
        **sizes, unit=sizes["block"], overlap=float(overlap), drafts=drafts
    )
    engine = schedulers.Trtllm(**sizes, overlap=overlap, drafts=drafts)
    return rules, engine, sizes["blocks"] * sizes["block"]


def vllm(i: int, sizes: dict, drafts: int, *, overlap: bool):
    """The same of vLLM."""
    sizes["slots"] = min(sizes["slots"], sizes["budget"] // (2 + 2 * drafts))
    rules = Preempting.of(**sizes, overlap=float(overlap), drafts=drafts)
    engine = schedulers.Vllm(**sizes, overlap=overlap, drafts=drafts)
    return rules, engine, (sizes["blocks"] - 2) * sizes["block"] - 3 * drafts


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
def test_vllm_whose_drafts_are_all_accepted_or_none(overlap):
    """Passes of k + 1 tokens a request that yield as many, or one: blocks, budget and the end."""
    assert sum(check(vllm, 120, 8, share, overlap=overlap) for share in (0.0, 1.0)) > 60


@pytest.mark.parametrize("overlap", [False, True])
def test_sglang_whose_drafts_are_all_accepted_or_none(overlap):
    """Room for drafts, who goes back, the share of what is to come: both versions."""
    assert sum(check(sglang, 140, 10, share, overlap=overlap) for share in (0.0, 1.0)) > 20


@pytest.mark.parametrize("overlap", [False, True])
def test_trtllm_whose_drafts_are_all_accepted_or_none(overlap):
    """Tokens of a pass, and a pass more of a request that may have ended."""
    assert sum(check(trtllm, 160, 8, share, overlap=overlap) for share in (0.0, 1.0)) == 0


@pytest.mark.parametrize("make", [vllm, sglang, trtllm])
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


def common(tokens, verified):
    """Seconds of the experts, and of heads that go through some again."""
    return 2e-3 + 1e-5 * sum(tokens) + 3e-6 * sum(verified)


@partial(jax.jit, static_argnames=("ranks", "router"), compiler_options=SHORT)
def on_ranks(machine: Machine, rules: Rules, requests: Requests, loop, *, ranks: int, router: str):
    def own(decoding, *rest):
        return step_time(machine, decoding * (1.0 + rules.drafts), *rest)

    step = SharedStep(Partial(own), Partial(common))
    how = {"ranks": ranks, "router": router, "width": 32, "turns": 4096}
    return replay_ranks(step, rules, requests, loop, **how)


def with_ranks(make, case: Case, i: int, share: float, router: str) -> int:
    """Compare all times of a case on two ranks; how many requests were taken back."""
    e, drafts, overlap = case.engine, 1 + i % 3, i % 2 > 0
    sizes = {"budget": e.budget, "slots": e.slots, "blocks": e.blocks, "block": e.block}
    rules, _, tokens = make(i, dict(sizes), drafts, overlap=overlap)
    engines = [make(i, dict(sizes), drafts, overlap=overlap)[1] for _ in range(2)]
    d = fitting(drawn(case, FEW, 200 + i, capped=i % 4 > 1), tokens)
    built = drawn_drafts(d.output, share, drafts, np.random.default_rng(0))
    loop = None if case.concurrency is None else jnp.asarray(case.concurrency, jnp.int32)
    machine, asked = (
        Machine(*map(jnp.asarray, case.machine)),
        Requests.of(*d._replace(drafts=built)),
    )
    log = on_ranks(machine, rules, asked, loop, ranks=2, router=router)
    assert log.complete
    lengths = zip(
        *(x.astype(int).tolist() for x in (d.prompt, d.output, 0 * d.prompt)), strict=True
    )
    given = [(t, *one) for t, one in zip(d.arrival.tolist(), lengths, strict=True)]
    theirs, _ = referee.serve(
        lambda b, *rest: float(step_time(case.machine, b * (1 + drafts), *rest)),
        common, engines, given, router, case.concurrency, drafts, lambda: 1 + int(share * drafts),
    )  # fmt: skip
    for name in ("arrival", "admitted", "first", "last", "preempted"):
        expected = [getattr(r, name) for r in theirs]
        ours = np.asarray(log.of(name))[:FEW]
        np.testing.assert_allclose(ours, expected, rtol=1e-9, atol=1e-12, err_msg=f"{i}: {name}")
    return sum(r.preempted for r in theirs)


@pytest.mark.parametrize(
    ("make", "router"),
    [
        (vllm, "weighted_queue"),
        pytest.param(sglang, "round_robin", marks=pytest.mark.slow),
        pytest.param(trtllm, "minimum_tokens", marks=pytest.mark.slow),
    ],
)
def test_attention_ranks_draft(make, router):
    """Drafts of the ranks' own requests in passes of all."""
    cases = small(4, 220, (0.3, 1.0))
    taken = sum(with_ranks(make, case, i, float(i // 2), router) for i, case in enumerate(cases))
    assert taken > 10 or make is trtllm
