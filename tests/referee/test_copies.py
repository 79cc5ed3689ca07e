"""Copies behind a router and two pools, each with clocks of its own, against plain Python."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from infer_jax.errors import InputError
from infer_jax.replays import (
    Pool,
    Preempting,
    Prefixes,
    Requests,
    RoutedLog,
    drawn_drafts,
    reference,
    replay_copies,
    serve_copies,
    serve_pools,
    sglang as sglang_rules,
    vllm as vllm_rules,
)
from infer_jax.replays.cluster import BY_PREFIX, Beginnings, QueueLoad, Windows, chosen

from . import copies as referee
from .block_pool import PooledVllm
from .servers import (
    FEW,
    TIMES,
    Drawn,
    Server,
    compare,
    drawn,
    loop_of,
    machine_of,
    sglang,
    small,
    vllm,
)
from .serving import SHORT, Case, Machine, step_time
from .test_replay_events import LENGTH, hashed, names, roomy

pytestmark = pytest.mark.usefixtures("x64")


@partial(jax.jit, static_argnames=("copies", "router"), compiler_options=SHORT)
def replayed(
    machine, rules, requests, concurrency, begins, windows=None, *, copies, router
) -> RoutedLog:
    how = {"copies": copies, "router": router, "width": 32, "entries": 2048}
    step = Partial(step_time, machine)
    return replay_copies(step, rules, requests, concurrency, begins, windows, **how)


def requests_of(case: Case, server: Server, seed: int, copies: int) -> Drawn:
    """Requests for all copies, none larger than the cache of one."""
    d = drawn(case, FEW, seed, capped=seed % 4 > 1)
    return server.fitting(d._replace(arrival=d.arrival / copies))


def check(
    case: Case, server: Server, d: Drawn, copies: int, router: str, named: Any = ()
) -> list[Any]:
    """Hold each request's copy, and all times, to the referee's."""
    loop = None if case.concurrency is None else copies * case.concurrency
    requests = Requests.of(*d)
    begins = Beginnings.of(requests.prefixes, requests.prompt) if requests.prefixes else None
    homes = [] if begins is None else begins.home.tolist()
    begins = jax.tree.map(jnp.asarray, begins if router in BY_PREFIX else None)
    how = {"copies": copies, "router": router}
    log = replayed(machine_of(case), server.rules, requests, loop_of(loop), begins, **how)
    front, more = referee.Router(router, named, homes), {"names": named} if named else {}
    theirs = referee.serve(
        lambda b, c, n, p: float(step_time(case.machine, b, c, n, p)),
        [server.engine(**more) for _ in range(copies)], d.lengths(), front, loop,
    )  # fmt: skip
    assert np.asarray(log.server)[:FEW].tolist() == front.copy
    compare(log.log, theirs, f"{server.rules}: ", (*TIMES, "cached") if named else TIMES)
    return theirs


@pytest.mark.slow
def test_sglangs_copies():
    """SGLang's rules, short caches, open, capped and closed loops; tokens of passes that run."""
    for i, case in enumerate(small(12, 10)):
        server = sglang(case, overlap=i % 2 > 0)
        check(case, server, requests_of(case, server, 10 + i, 2), 2, "minimum_tokens")


SLOW = [pytest.param(x, marks=pytest.mark.slow) for x in ("weighted_queue", *BY_PREFIX)]


@pytest.mark.parametrize("router", ["minimum_tokens", *SLOW])
def test_vllms_copies(router):
    """Three copies with small prefix caches, with and without overlap, open and closed loops."""
    shares, preempted = [], 0
    for i, case in enumerate(small(8, 120)):
        server = vllm(case, PooledVllm, overlap=i % 2 > 0)
        d, rows = hashed(requests_of(case, server, 300 + i, 3), i)
        d, block = server.fitting(d), case.engine.block
        named = names(rows, d.prompt, block)
        prefixes = roomy(Prefixes.of(rows, d.prompt, length=LENGTH, block=block))
        theirs = check(case, server, d._replace(prefixes=prefixes), 3, router, named)
        shares.append(sum(r.cached for r in theirs) / d.prompt.sum())
        preempted += sum(r.preempted for r in theirs)
    assert 0.1 < np.mean(shares) < 0.9 and preempted > 10


def test_a_request_without_a_copy_is_refused():
    with pytest.raises(InputError, match="none open at 2 s"):
        requests = Requests.of([0.0, 2.0], [10, 10], [2, 2])
        gone = Windows(*map(jnp.asarray, ([0.0, 0.0], [1.0, 1.0])))
        step = Partial(lambda c, decoding, context, new, pairs: c, 0.01)
        serve_copies(step, vllm_rules(blocks=9, slots=2), requests, 2, "round_robin", windows=gone)


def test_beginnings_are_those_of_the_blocks():
    """The longest equal beginning, its first prompt, and one hash for equal first 256 tokens."""
    d, rows = hashed(Drawn(np.zeros(60), np.full(60, 400.0), np.full(60, 2.0)), 3)
    tokens = d.prompt.astype(int)
    named = names(rows, d.prompt, 16)
    b = Beginnings.of(Prefixes.of(rows, tokens, length=LENGTH, block=16), tokens)
    front = referee.Router("cache_aware", named)
    for i in range(1, 60):
        alike = [front._alike(i, k) for k in range(i)]
        assert b.share[i] * tokens[i] == pytest.approx(16 * max(alike))
        if max(alike):
            assert b.like[i] == alike.index(max(alike))
        for k in range(i):
            if min(tokens[i], tokens[k]) >= 256:
                assert (b.home[i] == b.home[k]) == (alike[k] >= 16)
    assert 0.1 < b.share.mean() < 0.9


def test_routers_by_prefix_and_in_turn():
    """A server keeps its prompts until it has too many; else the shortest queue gets them."""
    choose = jax.jit(chosen, static_argnames="router")
    b = Beginnings(np.array([0, 0]), np.array([0.0, 0.31]), np.array([0.6, 0.6]))
    less = b._replace(share=np.array([0.0, 0.29]))
    cases = [("prefix_hash", b, queue, copy) for queue, copy in (
        ((4, 5, 2, 4), 2), ((2, 3, 4, 1), 3), ((4, 0, 5, 6), 2), ((0, 0, 1, 0), 0))]  # fmt: skip
    cases += [("cache_aware", b, queue, copy) for queue, copy in (
        ((0, 70, 0, 0), 0), ((0, 64, 0, 0), 1), ((200, 280, 290, 290), 1))]  # fmt: skip
    cases += [("cache_aware", less, (9, 8, 7, 6), 3), ("round_robin", b, (0, 9, 9, 9), 1)]
    for router, begins, queue, copy in cases:
        load = QueueLoad(jnp.asarray(queue), *2 * [jnp.zeros(4, int)])
        assert choose(router, load, np.asarray(1), begins, np.array([1, 0])) == copy


def test_what_copies_refuse():
    """What else they refuse, as a server does, ``tests/unit/verbs/test_replay.py`` asks."""
    step, requests = partial(step_time, Machine(*5 * [1e-3])), Requests.of([0.0], [10], [2])
    fits, polls = (sglang_rules(tokens=100, slots=4, poll=x, overlap=False) for x in (1, 4))
    for rules, copies, router, says in (
        (fits, 2, "cache_aware", "allowed: one by load: requests have no prefixes"),
        (fits, 0, "round_robin", "copies is 0"),
        (polls, 2, "round_robin", "poll"),
    ):
        with pytest.raises(InputError, match=says):
            serve_copies(step, rules, requests, copies, router)
    with pytest.raises(InputError, match="begins is None; allowed: those of prompts"):
        replay_copies(step, fits, requests, copies=2, router="cache_aware", width=4, entries=8)


MANY, CLOSE = 48, 1e-9
COPIES, ROUTER = (2, 3), 0.004


def machine_drawn(rng) -> Machine:
    return Machine(*map(float, rng.uniform(0.5, 2.0, 5) * (1e-3, 5e-3, 2e-8, 3e-5, 1e-9)))


def crossing(prompt, seconds):
    """A fixed time, the bytes of the prompt, and a part of the time that it was computed."""
    return 0.013 + 1.1e-6 * prompt + 0.07 * seconds


def verifying(drafts, own, decoding, *rest):
    """A pass feeds every request that decodes a token and its drafts."""
    return step_time(own, decoding * (1 + drafts), *rest)


@pytest.mark.parametrize(("loop", "drafts"), [(None, 0), (3, 0), (20, 0), (20, 2)])
def test_as_the_referee_has_them(loop, drafts):
    """Arrivals, prompts, hand-overs, first and last tokens; prefill the slower pool, or decode.

    With drafts, all of which are accepted, in the pool that decodes.
    """
    preempted = 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        first, second = machine_drawn(rng), machine_drawn(rng)
        prompt, output = rng.integers(100, 900, MANY), rng.integers(20, 90, MANY)
        cached = np.floor(rng.choice([0.0, 0.5], MANY) * prompt).astype(int)
        arrival = np.zeros(MANY) if loop else np.cumsum(rng.exponential(0.05, MANY))
        common: dict[str, Any] = {"slots": 16, "blocks": 180, "block": 16}
        sides = []
        for own, budget, k, many in ((first, 512, 0, COPIES[0]), (second, 256, drafts, COPIES[1])):
            rules = Preempting.of(**common, budget=budget, drafts=k)
            engines = [reference.Vllm(**common, budget=budget, drafts=k) for _ in range(many)]
            pool = Pool(Partial(verifying, float(k), Machine(*map(jnp.asarray, own))), rules, many)
            step = partial(verifying, k, own)
            sides.append((pool, [reference.ReferenceServer(step, e) for e in engines]))
        passes = drawn_drafts(output, 1.0, drafts, rng) if drafts else None
        asked = Requests.of(arrival, prompt, output, cached, passes)
        (one, ones), (two, twos) = sides
        ours = serve_pools(one, two, asked, crossing, router=ROUTER, concurrency=loop)
        lengths = list(zip(*(x.tolist() for x in (arrival, prompt, output, cached)), strict=True))
        theirs = referee.serve_pools(
            ones, twos, lengths, crossing, ROUTER, loop, lambda: 1 + drafts
        )
        expected = {
            "arrival": [p.arrival - ROUTER for p, _ in theirs],
            "admitted": [p.admitted for p, _ in theirs],
            "fed": [p.last for p, _ in theirs],
            "handed": [d.arrival for _, d in theirs],
            "first": [d.first for _, d in theirs],
            "last": [d.last for _, d in theirs],
            "preempted": [p.preempted + d.preempted for p, d in theirs],
        }
        for name, values in expected.items():
            np.testing.assert_allclose(getattr(ours, name), values, rtol=CLOSE, err_msg=name)
        assert ours.rounds == 1 if loop is None else ours.rounds < MANY
        preempted += int(ours.preempted.sum())
    assert preempted > 0 or loop == 3


def test_what_pools_refuse():
    pool = Pool(Partial(lambda c, *_: c, 0.01), Preempting.of(budget=64, slots=4, blocks=4))
    asked = Requests.of([0.0], [100], [5])
    with pytest.raises(InputError, match="request 0"):
        serve_pools(pool, pool, asked, lambda p, s: 0.0)
    with pytest.raises(InputError, match="concurrency"):
        serve_pools(pool, pool, asked, lambda p, s: 0.0, concurrency=0)
    prefixes = Prefixes.of([[1]], [40], length=48, block=16)
    given = Requests.of([0.0], [40], [5], prefixes=prefixes)
    with pytest.raises(InputError, match="prefixes is given"):
        serve_pools(pool, pool, given, lambda p, s: 0.0)
