"""Speculative sampling played at random as its laws say; drafts in engines of plain Python."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.physics import speculation as law
from infer_jax.replays import Drafts, drawn_drafts

from .servers import FEW, compare, drawn, replayed, served, small
from .test_ranks import ENGINES

pytestmark = pytest.mark.usefixtures("x64")

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
