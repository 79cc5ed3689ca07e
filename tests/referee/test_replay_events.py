"""The compiled replay against schedulers in plain Python: every time of every request.

``events.py`` is one referee (whole lives reserved, decodes first), ``schedulers.py`` the other,
with the rules of vLLM, TensorRT-LLM and SGLang. Times are compared to 1e-9 of themselves.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from infer_jax.replays import (
    Drafts,
    GuaranteedNoEvict,
    Log,
    Preempting,
    PrefillFirst,
    Requests,
    drawn_drafts,
    replay,
)

from . import events, schedulers, serving
from .serving import SHAPES, SHORT, Case, Machine, step_time

pytestmark = pytest.mark.usefixtures("x64")

MANY, FEW = 128, 90  # requests of a run
CLOSE = 1e-9


@partial(jax.jit, static_argnames=("width", "turns"), compiler_options=SHORT)
def replayed(machine, rules, requests, concurrency, *, width=256, turns=8192) -> Log:
    step = Partial(step_time, machine)
    if requests.drafts is not None:
        step = Partial(_verifying, rules.drafts, machine)
    return replay(step, rules, requests, concurrency, width=width, turns=turns)


def _verifying(drafts, machine, decoding, *rest):
    """A pass feeds every request that decodes a token and its drafts."""
    return step_time(machine, decoding * (1.0 + drafts), *rest)


class Drawn(NamedTuple):
    """Requests of a case: seconds and tokens."""

    arrival: np.ndarray
    prompt: np.ndarray
    output: np.ndarray
    cached: np.ndarray | None = None
    drafts: Drafts | None = None


def drawn(case: Case, count: int, seed: int, *, capped: bool = False) -> Drawn:
    """Requests of a case, arriving at its share of a crude estimate of what it serves.

    Those of a closed loop come at 0; ``capped``: as others, of which some are held back.
    """
    rng = np.random.default_rng(seed)
    lengths = []
    for shape, mean in zip(case.shapes, (case.prompt, case.output), strict=True):
        points = (np.arange(4000) + 0.5) / 4000
        whole = SHAPES[shape](points).mean()
        values = SHAPES[shape](rng.uniform(1e-4, 1 - 1e-4, count)) * mean / whole
        lengths.append(np.maximum(np.round(values), 1))
    m, (prompt, output) = case.machine, lengths
    batch = min(case.engine.slots, case.engine.blocks * 16 / (prompt.mean() + output.mean()))
    seconds = m.fed * prompt.mean() + output.mean() * (m.host + m.weights) / max(batch, 1.0)
    gaps = rng.gamma(1 / case.variability, case.variability * seconds / case.load, count)
    waits = case.concurrency is None or capped
    arrival = np.cumsum(gaps) if waits else np.zeros(count)
    return Drawn(arrival, *lengths)


def run(case: Case, rules, d: Drawn, **how) -> Log:
    return replayed_with(case, rules, Requests.of(*d), **how)


def replayed_with(case: Case, rules, requests: Requests, **how) -> Log:
    concurrency = None if case.concurrency is None else jnp.asarray(case.concurrency, jnp.int32)
    machine = Machine(*map(jnp.asarray, case.machine))
    log = jax.device_get(replayed(machine, rules, requests, concurrency, **how))
    assert log.complete
    return log


def compare(log: Log, theirs: dict[str, np.ndarray], where: str) -> None:
    for name, expected in theirs.items():
        ours = np.asarray(getattr(log, name))[: len(expected)]
        np.testing.assert_allclose(ours, expected, rtol=CLOSE, atol=1e-12, err_msg=where + name)


# a third of the servers every time, all of them on each release; at least so many preemptions
SHARES = pytest.mark.parametrize("share", [1 / 3, pytest.param(1, marks=pytest.mark.slow)])


@SHARES
def test_whole_lives_as_the_referee_has_them(share):
    """Two hundred servers, half of them closed loops: arrivals, first and last tokens."""
    for i, case in enumerate(serving.cases(round(200 * share))):
        e, d = case.engine, drawn(case, MANY, i)
        rules = GuaranteedNoEvict.of(budget=e.budget, slots=e.slots, blocks=e.blocks, block=e.block)
        theirs = events.serve(
            lambda b, c, n, p, m=case.machine: step_time(m, b, c, n, p),
            e, events.Requests(d[0], d[1], d[2]), case.concurrency,
        )  # fmt: skip
        names = ("arrival", "first", "last")
        compare(run(case, rules, d), {n: getattr(theirs, n) for n in names}, f"{case}: ")


def small(count: int, seed: int, blocks: tuple[float, float]) -> list[Case]:
    """Cases whose cache holds a few requests, so that blocks run short."""
    rng, cases = np.random.default_rng(seed), []
    for case in serving.cases(count, seed):
        prompt, output = case.prompt / 8, case.output / 4 + 8
        slots = int(rng.integers(2, 33))
        held = rng.uniform(*blocks) * (prompt + output) / 16
        engine = case.engine._replace(
            slots=slots, blocks=int(held + 4 * (prompt + output) / 16) + 8,
            budget=int(rng.choice([64, 256, 1024])),
        )  # fmt: skip
        loop = None if case.concurrency is None else int(rng.integers(1, 2 * slots))
        cases.append(case._replace(engine=engine, prompt=prompt, output=output, concurrency=loop))
    return cases


def fitting(d: Drawn, tokens: int) -> Drawn:
    """The same requests, none larger than the cache."""
    prompt = np.minimum(d.prompt, tokens // 2)
    return d._replace(prompt=prompt, output=np.minimum(d.output, tokens - prompt - 2))


def serve(engine: schedulers.Engine, case: Case, d: Drawn, yields=None) -> dict[str, np.ndarray]:
    m, fed = case.machine, 1 + getattr(engine, "drafts", 0)
    result = np.zeros(len(d.prompt)) if d.cached is None else d.cached
    sizes = (x.astype(int) for x in (d.prompt, d.output, result))
    lengths = zip(d.arrival.tolist(), *sizes, strict=True)
    done = schedulers.serve(
        lambda b, c, n, p: step_time(m, fed * b, c, n, p), engine, lengths, case.concurrency,
        yields or (lambda index: schedulers.one_token),
    )  # fmt: skip
    names = ("arrival", "admitted", "first", "last", "preempted")
    return {name: np.array([getattr(r, name) for r in done]) for name in names}


def check(seed: int, count: int, make, blocks=(0.5, 3.0), hits: bool = False) -> int:
    """Compare on ``count`` servers; how many requests were preempted."""
    preempted = 0
    for i, case in enumerate(small(count, seed, blocks)):
        e = case.engine
        sizes = {"budget": e.budget, "slots": e.slots, "blocks": e.blocks, "block": e.block}
        rules, engine, tokens = make(i, sizes)
        d = fitting(drawn(case, FEW, seed + i, capped=i % 4 > 1), tokens)
        if hits:
            share = np.random.default_rng(i).choice([0.0, 0.3, 1.0], FEW)
            d = d._replace(cached=np.floor(share * (d.prompt - 1)))
        theirs = serve(engine, case, d)
        preempted += theirs["preempted"].sum()
        compare(run(case, rules, d, width=32, turns=8192), theirs, f"{seed + i}, {rules}: ")
    return preempted


@SHARES
def test_vllm(share):
    """Blocks as tokens come, the last one preempted: with and without the whole prompt's room."""

    def make(i, sizes):
        entire, mark, poll = i % 3 > 0, 2 * (i % 2), 1 + 2 * (i % 4 == 3)
        rules = Preempting.of(**sizes, entire=float(entire), watermark=mark, poll=poll)
        engine = schedulers.Vllm(**sizes, entire=entire, watermark=mark, poll=poll)
        return rules, engine, (sizes["blocks"] - 2) * sizes["block"]

    assert check(10, round(60 * share), make) > 200 * share**2


@SHARES
def test_vllm_that_overlaps(share):
    """A pass put together while the one before runs: with room for all, and with too little."""

    def make(i, sizes):
        entire, mark = i % 3 > 0, 2 * (i % 2)
        rules = Preempting.of(**sizes, entire=float(entire), watermark=mark, overlap=1)
        engine = schedulers.Vllm(**sizes, entire=entire, watermark=mark, overlap=True)
        return rules, engine, (sizes["blocks"] - 2) * sizes["block"]

    assert check(50, round(40 * share), make) > 100 * share**2
    assert check(60, round(40 * share), make, blocks=(30.0, 40.0)) == 0


@SHARES
def test_vllm_with_cached_prompts(share):
    """Tokens in the cache are not computed, but count as context, pairs and blocks."""

    def make(i, sizes):
        overlap, entire = i % 2 > 0, i % 3 > 0
        rules = Preempting.of(**sizes, entire=float(entire), overlap=float(overlap))
        engine = schedulers.Vllm(**sizes, entire=entire, overlap=overlap)
        return rules, engine, (sizes["blocks"] - 2) * sizes["block"]

    assert check(70, round(30 * share), make, hits=True) > 50 * share**2


@SHARES
def test_trtllm_that_evicts(share):
    def make(i, sizes):
        rules = Preempting.of(**sizes, hold=1, unit=sizes["block"])
        return rules, schedulers.Trtllm(**sizes, evicts=True), sizes["blocks"] * sizes["block"]

    assert check(20, round(40 * share), make) > 100 * share**2


@SHARES
def test_trtllm_that_guarantees(share):
    def make(i, sizes):
        rules = GuaranteedNoEvict.of(**sizes, unit=sizes["block"])
        return rules, schedulers.Trtllm(**sizes), sizes["blocks"] * sizes["block"]

    assert check(30, round(40 * share), make) == 0


@SHARES
def test_trtllm_that_guarantees_and_overlaps(share):
    """Slots and whole lives stay taken for a pass; with room for few, and for all."""

    def make(i, sizes):
        rules = GuaranteedNoEvict.of(**sizes, unit=sizes["block"], overlap=1)
        engine = schedulers.Trtllm(**sizes, overlap=True)
        return rules, engine, sizes["blocks"] * sizes["block"]

    assert check(80, round(20 * share), make) == 0
    assert check(90, round(20 * share), make, blocks=(30.0, 40.0)) == 0


def paged(sizes: dict[str, Any], page: int) -> dict[str, Any]:
    """The same cache in pages, of which there are some, and a budget of whole ones."""
    blocks = max(sizes["blocks"] * 16 // page, 4)
    budget = max(sizes["budget"] // page * page, page)
    return sizes | {"block": page, "blocks": blocks, "budget": budget}


@SHARES
def test_sglang(share):
    """Prompts first, room by estimate, and requests taken back when that was too hopeful."""

    def make(i, sizes):
        sizes = paged(sizes, (1, 1, 4, 16, 64)[i % 5])
        ratio, least, decay = 0.7 if i % 2 else 0.2, 0.05, 50.0
        engine = schedulers.Sglang(**sizes, ratio=ratio, least=least, decay=decay, now_ratio=ratio)
        unit = sizes["block"]
        rules = PrefillFirst.of(**sizes, unit=unit, ratio=ratio, least=least, decay=decay)
        return rules, engine, sizes["blocks"] * sizes["block"]

    assert check(40, round(60 * share), make) > 50 * share**2


@SHARES
def test_sglang_that_overlaps(share):
    """Who finishes decodes once more, and room is what was read: for few requests, and for all."""

    def make(i, sizes):
        sizes = paged(sizes, (1, 1, 4, 16, 64)[i % 5])
        ratio, least, decay = 0.7 if i % 2 else 0.2, 0.05, 50.0
        engine = schedulers.Sglang(
            **sizes, ratio=ratio, least=least, decay=decay, now_ratio=ratio, overlap=True
        )
        shares = {"ratio": ratio, "least": least, "decay": decay}
        rules = PrefillFirst.of(**sizes, unit=sizes["block"], **shares, overlap=1)
        return rules, engine, sizes["blocks"] * sizes["block"]

    assert check(100, round(30 * share), make) > 50 * share**2
    assert check(110, round(10 * share), make, blocks=(30.0, 40.0)) == 0


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
    engine = schedulers.Sglang(**sizes, ratio=share, least=share, now_ratio=share)
    theirs = serve(engine, case, d)
    assert theirs["admitted"][4] > 0.0
    compare(run(case, rules, d, width=32, turns=8192), theirs, "a tie: ")
