"""Prefix caches in the compiled replay against blocks one by one in plain Python."""

from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest

from infer_jax.errors import InputError
from infer_jax.replays import GuaranteedNoEvict, Preempting, Prefixes, Requests
from infer_jax.replays.loops import checked

from . import schedulers
from .block_pool import PooledVllm
from .serving import Case, step_time
from .test_replay_events import FEW, Drawn, compare, drawn, fitting, replayed_with, small

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


def agree(case: Case, rules, engine, d: Drawn, prefixes: Prefixes) -> tuple[float, int]:
    """Compare every time; the share of tokens that were cached, and preemptions."""
    lengths = zip(d.arrival.tolist(), d.prompt.astype(int), d.output.astype(int), strict=True)
    done = schedulers.serve(
        lambda b, c, n, p: step_time(case.machine, b, c, n, p), engine, lengths, case.concurrency
    )
    fields = ("arrival", "admitted", "first", "last", "preempted", "cached")
    theirs = {name: np.array([getattr(r, name) for r in done]) for name in fields}
    requests = Requests.of(*d[:3], prefixes=roomy(prefixes))
    compare(replayed_with(case, rules, requests, width=32, turns=8192), theirs, f"{rules}: ")
    return theirs["cached"].sum() / d.prompt.sum(), int(theirs["preempted"].sum())


def check(
    case: Case, i: int, *, overlap: bool, capped: bool, host: float = 0.0
) -> tuple[float, int, int]:
    """Compare one server; the share of tokens that were cached, preemptions, blocks brought back.

    ``host``: blocks of host memory over those of the cache.
    """
    e = case.engine
    entire = i % 3 > 0
    sizes: dict[str, Any] = {"budget": e.budget, "slots": e.slots, "blocks": e.blocks}
    sizes |= {"block": e.block, "watermark": 2 * (i % 2)}
    sizes |= {"host": int(host * e.blocks), "fetch": 1e-4}
    d = fitting(drawn(case, FEW, 300 + i, capped=capped), (e.blocks - 2) * e.block)
    d, rows = hashed(d, i)
    prefixes = Prefixes.of(rows, d.prompt, length=LENGTH, block=e.block)
    rules = Preempting.of(**sizes, entire=float(entire), overlap=float(overlap))
    engine = PooledVllm(
        **sizes,
        entire=entire,
        overlap=overlap,
        names=names(rows, d.prompt, e.block),
    )
    return *agree(case, rules, engine, d, prefixes), engine.fetched


@pytest.mark.parametrize("overlap", [False, True])
def test_vllm_with_prefixes(overlap):
    """Small caches in which prefixes are shared, kept, evicted, found again after a preemption."""
    shares, preempted, _ = zip(
        *(
            check(case, i, overlap=overlap, capped=i % 4 > 1)
            for i, case in enumerate(small(20, 120 + overlap, (0.5, 3.0)))
        ),
        strict=True,
    )
    assert 0.1 < np.mean(shares) < 0.9 and sum(preempted) > 50


def test_host_memory():
    """What leaves the cache is brought back while it is among the last to have left."""
    fetched = 0
    for i, case in enumerate(small(20, 140, (0.5, 3.0))):
        given = {"overlap": i % 2 > 0, "capped": i % 4 > 1}
        fetched += check(case, i, **given, host=(0.1, 0.5, 2.0, 20.0)[i % 4])[2]
    assert fetched > 1000


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
    sizes: dict[str, Any] = {"budget": 64, "slots": 4, "blocks": 64}
    checked(Preempting.of(**sizes), given, None)
    for rules in (GuaranteedNoEvict.of(**sizes), Preempting.of(**sizes, hold=1)):
        with pytest.raises(InputError, match="keep no prompts"):
            checked(rules, given, None)
    with pytest.raises(InputError, match="block of prefixes is 16; allowed: the 32"):
        checked(Preempting.of(**sizes, block=32), given, None)
    with pytest.raises(InputError, match="a row of hashes"):
        Prefixes.of([[1]], [50, 50], length=LENGTH, block=16)
