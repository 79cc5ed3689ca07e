"""Two pools, replayed, against the referee that runs all instances on one clock."""

from functools import partial
from typing import Any

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
    drawn_drafts,
    reference,
    serve_pools,
)

from . import pools
from .serving import Machine, step_time

pytestmark = pytest.mark.usefixtures("x64")

MANY, CLOSE = 48, 1e-9
COPIES, ROUTER = (2, 3), 0.004


def machine(rng) -> Machine:
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
        first, second = machine(rng), machine(rng)
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
        theirs = pools.serve(ones, twos, lengths, crossing, ROUTER, loop, lambda: 1 + drafts)
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


def test_what_is_refused():
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
