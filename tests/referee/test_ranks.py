"""Ranks with queues of their own on one clock, and drafts, against plain Python and random play."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from infer_jax.errors import InputError
from infer_jax.physics import speculation as law
from infer_jax.replays import (
    Drafts,
    Requests,
    RoutedLog,
    SharedStep,
    drawn_drafts,
    replay_ranks,
    serve_ranks,
    sglang as sglang_rules,
    vllm as vllm_rules,
)

from . import copies as referee
from .servers import (
    FEW,
    FULL,
    ROOMY,
    compare,
    drawn,
    loop_of,
    machine_of,
    replayed,
    served,
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
def replayed_together(machine, rules, requests, concurrency, *, ranks, router) -> RoutedLog:
    def own(decoding, *rest):
        return step_time(machine, decoding * (1.0 + rules.drafts), *rest)

    how = {"ranks": ranks, "router": router, "width": 32, "entries": 4096}
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
    log = replayed_together(
        machine_of(case), server.rules, Requests.of(*d), loop, ranks=ranks, router=router
    )
    theirs, routed = referee.serve_ranks(
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
        replay_ranks(step, rules, requests, ranks=0, router="round_robin", width=4, entries=8)


WORDS, ROUNDS, DRAFTS = 9, 200_000, 5


def play(p: np.ndarray, q: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draft, accept, resample, ``ROUNDS`` times: the first token of each, and tokens yielded."""
    drafts = rng.choice(WORDS, (ROUNDS, DRAFTS), p=q)
    accepted = rng.random((ROUNDS, DRAFTS)) < np.minimum(1.0, p[drafts] / q[drafts])
    count = np.cumprod(accepted, axis=1).sum(axis=1)
    resampled = rng.choice(
        WORDS, ROUNDS, p=np.asarray(law.residual(jnp.asarray(p), jnp.asarray(q)))
    )
    first = np.where(accepted[:, 0], drafts[:, 0], resampled)
    return first, count + 1


@pytest.mark.parametrize("seed", range(5))
def test_the_output_is_the_targets_and_the_yield_is_the_law(seed):
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.full(WORDS, 0.7), 2)
    first, tokens = play(p, q, rng)
    error = 5.0 * np.sqrt(0.25 / ROUNDS)  # five deviations of a share of ROUNDS draws
    np.testing.assert_allclose(np.bincount(first, minlength=WORDS) / ROUNDS, p, atol=error)

    acceptance = 1.0 - 0.5 * np.abs(p - q).sum()
    assert float(law.overlap(jnp.asarray(p), jnp.asarray(q))) == pytest.approx(acceptance)
    assert np.mean(tokens > 1) == pytest.approx(acceptance, abs=error)
    drawn = rng.choice(WORDS, ROUNDS, p=q)
    measured = law.acceptance_rate(jnp.log(p[drawn]), jnp.log(q[drawn]))
    assert float(measured) == pytest.approx(acceptance, abs=error)

    expected = float(law.bonus_yield(jnp.asarray(acceptance), jnp.asarray(1.0 * DRAFTS)))
    assert tokens.mean() == pytest.approx(expected, abs=5 * tokens.std() / np.sqrt(ROUNDS))


def test_a_curve_is_what_positions_measure():
    """Acceptance that falls with the position: the yield, and back from yields."""
    curve = np.array([0.9, 0.7, 0.5, 0.3])
    rng = np.random.default_rng(0)
    tokens = 1 + np.cumprod(rng.random((ROUNDS, 4)) < curve, axis=1).sum(axis=1)
    ours = [float(law.curve_yield(jnp.asarray(curve), jnp.asarray(1.0 * g))) for g in range(1, 5)]
    assert tokens.mean() == pytest.approx(ours[-1], abs=5 * tokens.std() / np.sqrt(ROUNDS))
    reached = jnp.asarray(np.diff([1.0, *ours]))
    np.testing.assert_allclose(law.acceptance_by_position(reached), curve, rtol=1e-12)


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
