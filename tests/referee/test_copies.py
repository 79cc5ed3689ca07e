"""Copies behind a router, each with a clock of its own, against engines in plain Python."""

from collections.abc import Callable, Sequence
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
    Prefixes,
    Requests,
    RoutedLog,
    Rules,
    replay_copies,
    serve_copies,
    sglang,
    vllm,
)
from infer_jax.replays.routers import BY_PREFIX, Beginnings, QueueLoad, chosen

from . import copies as referee, schedulers
from .block_pool import PooledVllm
from .serving import SHORT, Case, Machine, step_time
from .test_prefix_caches import LENGTH, hashed, names, roomy
from .test_replay_events import CLOSE, FEW, Drawn, drawn, fitting, small

pytestmark = pytest.mark.usefixtures("x64")


@partial(jax.jit, static_argnames=("copies", "router"), compiler_options=SHORT)
def replayed(machine, rules, requests, concurrency, begins, *, copies, router) -> RoutedLog:
    how = {"copies": copies, "router": router, "width": 32, "turns": 2048}
    step = Partial(step_time, machine)
    return replay_copies(step, rules, requests, concurrency, begins, **how)


def requests_of(case: Case, seed: int, tokens: int, copies: int, *, capped: bool) -> Drawn:
    """Requests for all copies, none larger than the cache of one."""
    d = drawn(case, FEW, seed, capped=capped)
    return fitting(d._replace(arrival=d.arrival / copies), tokens)


def compare(
    case: Case,
    rules: Rules,
    make: Callable[[], schedulers.Engine],
    requests: Requests,
    copies: int,
    router: str,
    named: Sequence[Sequence[Any]] = (),
) -> list[schedulers.Request]:
    """Check that each request goes to the referee's copy, and that all times are its."""
    loop = None if case.concurrency is None else copies * case.concurrency
    begins = Beginnings.of(requests.prefixes, requests.prompt) if requests.prefixes else None
    homes = [] if begins is None else begins.home.tolist()
    begins = jax.tree.map(jnp.asarray, begins if router in BY_PREFIX else None)
    machine = Machine(*map(jnp.asarray, case.machine))
    asked = None if loop is None else jnp.asarray(loop, jnp.int32)
    log = replayed(machine, rules, requests, asked, begins, copies=copies, router=router)
    assert log.complete
    count = int(requests.count)
    columns = (requests.arrival, requests.prompt, requests.output, requests.cached)
    lengths = list(zip(*(np.asarray(x)[:count].tolist() for x in columns), strict=True))
    front = referee.Router(router, named, homes)
    theirs = referee.serve(
        lambda b, c, n, p: float(step_time(case.machine, b, c, n, p)),
        [make() for _ in range(copies)], lengths, front, loop,
    )  # fmt: skip
    assert np.asarray(log.rank)[:count].tolist() == front.copy
    fields = ["arrival", "admitted", "first", "last", "preempted"]
    for name in fields + ["cached"] * (requests.prefixes is not None):
        expected = np.array([getattr(r, name) for r in theirs])
        ours = np.asarray(log.of(name))[:count]
        np.testing.assert_allclose(ours, expected, rtol=CLOSE, atol=1e-12, err_msg=name)
    return theirs


@pytest.mark.slow
def test_sglangs_copies():
    """SGLang's rules, short caches, open, capped and closed loops; tokens of passes that run."""
    for i, case in enumerate(small(12, 10, (0.5, 3.0))):
        e = case.engine
        sizes: dict[str, Any] = {"budget": e.budget, "slots": e.slots, "blocks": e.blocks * 16}
        share = {"ratio": 0.3, "least": 0.05, "decay": 50.0}
        overlap = i % 2 > 0
        rules = PrefillFirst.of(**sizes, block=1, **share, overlap=float(overlap))
        d = requests_of(case, 10 + i, sizes["blocks"] - 2, 2, capped=i % 4 > 1)

        def make(sizes=sizes, share=share, overlap=overlap):
            return schedulers.Sglang(**sizes, **share, now_ratio=0.3, overlap=overlap)

        compare(case, rules, make, Requests.of(d.arrival, d.prompt, d.output), 2, "minimum_tokens")


SLOW = [pytest.param(x, marks=pytest.mark.slow) for x in ("weighted_queue", *BY_PREFIX)]


@pytest.mark.parametrize("router", ["minimum_tokens", *SLOW])
def test_vllms_copies(router):
    """Three copies with small prefix caches, with and without overlap, open and closed loops."""
    shares, preempted = [], 0
    for i, case in enumerate(small(8, 120, (0.5, 3.0))):
        e, overlap = case.engine, i % 2 > 0
        sizes: dict[str, Any] = {"budget": e.budget, "slots": e.slots, "blocks": e.blocks}
        sizes |= {"block": e.block}
        rules = Preempting.of(**sizes, overlap=float(overlap))
        d = requests_of(case, 300 + i, (e.blocks - 2) * e.block, 3, capped=i % 4 > 1)
        d, rows = hashed(d, i)
        prefixes = roomy(Prefixes.of(rows, d.prompt, length=LENGTH, block=e.block))
        named = names(rows, d.prompt, e.block)

        def make(sizes=sizes, overlap=overlap, named=named):
            return PooledVllm(**sizes, overlap=overlap, names=named)

        given = Requests.of(d.arrival, d.prompt, d.output, prefixes=prefixes)
        theirs = compare(case, rules, make, given, 3, router, named)
        shares.append(sum(r.cached for r in theirs) / d.prompt.sum())
        preempted += sum(r.preempted for r in theirs)
    assert 0.1 < np.mean(shares) < 0.9 and preempted > 10


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


def test_routers_by_prefix():
    """A server keeps its prompts until it has too many; else the shortest queue gets them."""
    choose = jax.jit(chosen, static_argnames="router")
    b = Beginnings(np.array([0, 0]), np.array([0.0, 0.31]), np.array([0.6, 0.6]))
    less = b._replace(share=np.array([0.0, 0.29]))
    cases = [("prefix_hash", b, queue, copy) for queue, copy in (
        ((4, 5, 2, 4), 2), ((2, 3, 4, 1), 3), ((4, 0, 5, 6), 2), ((0, 0, 1, 0), 0))]  # fmt: skip
    cases += [("cache_aware", b, queue, copy) for queue, copy in (
        ((0, 70, 0, 0), 0), ((0, 64, 0, 0), 1), ((200, 280, 290, 290), 1))]  # fmt: skip
    for router, begins, queue, copy in (*cases, ("cache_aware", less, (9, 8, 7, 6), 3)):
        load = QueueLoad(jnp.asarray(queue), *2 * [jnp.zeros(4, int)])
        assert choose(router, load, np.asarray(1), begins, np.array([1, 0])) == copy


def test_what_copies_refuse():
    step, requests = partial(step_time, Machine(*5 * [1e-3])), Requests.of([0.0], [10], [2])
    fits = vllm(blocks=10, slots=4)
    for given, says in (
        ((fits, requests, 2, "least"), "router is 'least'; allowed: one of round_robin, "),
        ((fits, requests, 2, "cache_aware"), "allowed: one by load: requests have no prefixes"),
        ((fits, requests, 0, "round_robin"), "copies is 0"),
        ((sglang(tokens=100, slots=4, poll=4, overlap=False), requests, 2, "round_robin"), "poll"),
        ((vllm(blocks=1, slots=4, block=8), requests, 2, "round_robin"), "blocks hold alone"),
    ):
        with pytest.raises(InputError, match=says):
            serve_copies(step, *given)
    with pytest.raises(InputError, match="begins is None; allowed: those of prompts"):
        replay_copies(step, fits, requests, copies=2, router="cache_aware", width=4, turns=8)
