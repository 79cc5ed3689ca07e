"""Prefix caches in the compiled replay against blocks and trees in plain Python, one by one."""

from collections.abc import Hashable

import numpy as np
import pytest

from infer_jax.errors import InputError
from infer_jax.replays import GuaranteedNoEvict, Preempting, Prefixes, Requests
from infer_jax.replays.loops import checked

from .block_pool import PooledTrtllm, PooledVllm
from .radix_tree import RadixSglang
from .servers import (
    FEW,
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
from .serving import Case

pytestmark = pytest.mark.usefixtures("x64")

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


def of_vllm(case: Case, i: int, **more):
    options = {"entire": i % 3 > 0, "watermark": 2 * (i % 2)}
    return vllm(case, PooledVllm, **options, **host(case, i), **more)


def of_sglang(case: Case, i: int, **more):
    ratio = 0.7 if i % 2 else 0.2
    return sglang(case, RadixSglang, page=(1, 1, 4, 16, 64)[i % 5], ratio=ratio, **more)


def of_trtllm(case: Case, i: int, **more):
    """Every fifth feeds whole prompts."""
    whole = {} if i % 5 else {"budget": max(case.engine.budget, 8 * case.engine.blocks)}
    return trtllm(case, PooledTrtllm, chunked=i % 5 > 0, **whole, **host(case, i), **more)


@pytest.mark.parametrize(
    ("make", "count", "back", "fetched"),
    [(of_vllm, 28, 30, 200), (of_sglang, 14, 5, 0), (of_trtllm, 14, 0, 20)],
)
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
