"""The compiled replay against schedulers in plain Python: every time of every request.

``events.py`` is one referee (whole lives reserved, decodes first), the package's ``reference`` the
other, with the rules of vLLM, TensorRT-LLM and SGLang, and blocks and trees of kept
prompts. Times are compared to 1e-9 of themselves.
"""

import zlib
from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest

from infer_jax.errors import InputError
from infer_jax.replays import (
    GuaranteedNoEvict,
    Preempting,
    PrefillFirst,
    Prefixes,
    Requests,
    drawn_drafts,
    reference,
)
from infer_jax.replays.loops import checked

from . import events, serving
from .block_pool import PooledTrtllm, PooledVllm
from .radix_tree import RadixSglang
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
from .serving import Case, step_time

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


def of_vllm(case, i, plain=reference.Vllm, **more):
    """With and without the room of the whole prompt, blocks left free, looks at the queue."""
    return vllm(case, plain, entire=i % 3 > 0, watermark=2 * (i % 2), **more)


def of_sglang(case, i, plain=reference.Sglang, **more):
    """Pages of several sizes, room by hopeful and by careful estimates."""
    return sglang(case, plain, page=(1, 1, 4, 16, 64)[i % 5], ratio=0.7 if i % 2 else 0.2, **more)


# engine: the server of a case, how many servers, how many requests go back of all of them
ENGINES = {
    "vllm": (lambda case, i: of_vllm(case, i, poll=1 + 2 * (i % 4 == 3)), 60, 150),
    "vllm that overlaps": (lambda case, i: of_vllm(case, i, overlap=True), 60, 150),
    "trtllm that evicts": (lambda case, _: trtllm(case, evicts=True), 40, 100),
    "trtllm": (lambda case, i: trtllm(case, overlap=i % 3 > 0), 60, 0),
    "sglang": (of_sglang, 48, 40),
    "sglang that overlaps": (lambda case, i: of_sglang(case, i, overlap=True), 48, 40),
}


def seed_of(row: str) -> int:
    """A seed of its own for each row of a table, whatever rows stand before it."""
    return zlib.crc32(row.encode())


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
    seed, count = seed_of(engine), round(count * share)
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


LENGTH = 48  # tokens of a hash
DEPTH, PARTS = 32, 512  # parts of a prompt and of all, at most


def hashed(d: Drawn, seed: int) -> tuple[Drawn, list[list[int]]]:
    """Prompts that begin as earlier ones did, and the hashes of their tokens.

    Some repeat an earlier prompt, some go on from a part of one, some are new. Lengths change with
    them, and some end with a whole block.
    """
    rng = np.random.default_rng(seed)
    rows: list[list[int]] = []
    prompt = d.prompt.astype(int).copy()
    fresh = 0
    for i in range(len(prompt)):
        row: list[int] = []
        kind = rng.uniform()
        if rows and kind < 0.75:
            other = int(rng.integers(max(0, i - 12), i))
            row = list(rows[other])
            if kind < 0.2:
                prompt[i] = prompt[other]
            else:
                row = row[: int(rng.integers(0, len(row) + 1))]
        if kind >= 0.2 and rng.uniform() < 0.3:
            prompt[i] = max(prompt[i] // 16 * 16, 16)
        wanted = -(-prompt[i] // LENGTH)
        for _ in range(wanted - len(row)):
            fresh += 1
            row.append(fresh)
        rows.append(row[:wanted])
    return d._replace(prompt=prompt.astype(float)), rows


def names(rows: list[list[int]], prompt: np.ndarray, block: int) -> list[list[Hashable]]:
    """The name of every full block of each prompt: the hash that its last token is in."""
    named: list[list[Hashable]] = []
    for row, tokens in zip(rows, prompt.astype(int), strict=True):
        full = min(tokens // block, len(row) * LENGTH // block)
        named.append([(row[((k + 1) * block - 1) // LENGTH], k) for k in range(full)])
    return named


def roomy(p: Prefixes) -> Prefixes:
    """The same in arrays of one size, so that all servers share a program."""
    (_, depth), count = p.parts.shape, len(p.blocks)
    parts = np.pad(p.parts, ((0, 0), (0, DEPTH - depth)), constant_values=count - 1)
    return p._replace(parts=parts, blocks=np.pad(p.blocks, (0, PARTS - count)))


ALL = 2**20  # requests in flight that are no limit: all servers of an engine share a program


def host(case: Case, i: int) -> dict[str, float]:
    """Blocks of host memory of every other server, and the seconds to bring one back."""
    return {"host": int((0.0, 0.1, 0.0, 20.0)[i % 4] * case.engine.blocks), "fetch": 1e-4}


def kept_by_trtllm(case: Case, i: int, **more):
    """Every fifth feeds whole prompts."""
    whole = {} if i % 5 else {"budget": max(case.engine.budget, 8 * case.engine.blocks)}
    return trtllm(case, PooledTrtllm, chunked=i % 5 > 0, **whole, **host(case, i), **more)


# engine: the server of a case, how many, least counts of what goes back and of what is fetched
KEEP = {
    "vllm": (
        lambda case, i, **more: of_vllm(case, i, PooledVllm, **host(case, i), **more),
        28,
        30,
        200,
    ),
    "sglang": (lambda case, i, **more: of_sglang(case, i, RadixSglang, **more), 14, 5, 0),
    "trtllm": (kept_by_trtllm, 14, 0, 20),
}


@pytest.mark.parametrize(("make", "count", "back", "fetched"), KEEP.values(), ids=KEEP)
def test_prompts_that_are_kept(make, count, back, fetched):
    """Small caches; requests that go back and blocks that come back from host memory at least.

    vLLM: prefixes are shared, kept, evicted, found again after a preemption. SGLang: nodes are
    split, locked, given up and found after a retraction. TensorRT-LLM: whole lives, waits for what
    others compute. What leaves the cache is brought back while it is among the last to have left.
    """
    shares, taken_back, brought = [], 0, 0
    for i, case in enumerate(small(count, 120)):
        case = case._replace(concurrency=case.concurrency or ALL)
        server = make(case, i, overlap=i // 2 % 2 > 0)
        d = server.fitting(drawn(case, FEW, 300 + i, capped=i % 8 > 3))
        d, rows = hashed(d, i)
        d, block = server.fitting(d), int(server.rules.block)
        prefixes = roomy(Prefixes.of(rows, d.prompt, length=LENGTH, block=block))
        engine = server.engine(names=names(rows, d.prompt, block))
        theirs = served(case, engine, d)
        log = replayed(case, server.rules, d._replace(prefixes=prefixes))
        taken_back += compare(log, theirs, f"{i}, {server.rules}: ", (*TIMES, "cached"))
        shares.append(sum(r.cached for r in theirs) / d.prompt.sum())
        brought += getattr(engine, "fetched", 0)
    assert 0.1 < np.mean(shares) < 0.9 and taken_back >= back and brought >= fetched


def test_parts_are_what_the_same_prompts_share():
    """Whole blocks of equal hashes; the last of a prompt that it fills is a part by itself."""
    rows = [[1, 2, 3], [1, 2, 4], [1, 2, 3], [5], [1, 2]]
    # of the second, 9 blocks and 8 tokens; the first and third fill 9 blocks, the last one 6
    p = Prefixes.of(rows, [144, 152, 144, 40, 96], length=LENGTH, block=16)
    lists = [p.blocks[row[:n]].tolist() for row, n in zip(p.parts, p.depth, strict=True)]
    assert lists == [[5, 1, 2, 1], [5, 1], [5, 1, 2, 1], [], [5, 1]]
    assert p.ends.tolist() == [1, 0, 1, 0, 1] and p.covered.tolist() == [9, 6, 9, 0, 6]
    assert p.parts[0, :2].tolist() == p.parts[1, :2].tolist() == p.parts[4, :2].tolist()


def test_prefixes_that_rules_do_not_keep_are_refused():
    p = Prefixes.of([[1], [1]], [50, 50], length=LENGTH, block=16)
    given = Requests.of([0.0, 0.0], [50, 50], [2, 2], prefixes=p)
    sizes = {"budget": 64, "slots": 4, "blocks": 64}
    checked(Preempting.of(**sizes), given, None)
    for rules in (GuaranteedNoEvict.of(**sizes), Preempting.of(**sizes, hold=1)):
        with pytest.raises(InputError, match="keep no prompts"):
            checked(rules, given, None)
    with pytest.raises(InputError, match="block of prefixes is 16; allowed: the 32"):
        checked(Preempting.of(**sizes, block=32), given, None)
    with pytest.raises(InputError, match="a row of hashes"):
        Prefixes.of([[1]], [50, 50], length=LENGTH, block=16)
