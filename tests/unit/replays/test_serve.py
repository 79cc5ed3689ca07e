"""Servers from plain numbers: what is refused, what compiles, what single precision keeps."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from infer_jax.errors import InputError
from infer_jax.footprint import EngineSettings, default_numbers
from infer_jax.replays import (
    GuaranteedNoEvict,
    Preempting,
    PrefillFirst,
    Prefixes,
    Requests,
    lanes,
    path_gradient,
    replay,
    serve,
    sglang,
    side_by_side,
    trtllm,
    vllm,
)
from infer_jax.replays.decode_run import LONGEST, decode_run, run_time, steps_until

COEFFICIENTS = (5e-3, 1e-5, 1e-8)
TRACED = []


def step(c, decoding, context, new, pairs):
    TRACED.append(1)
    return c[0] + c[1] * (decoding + new) + c[2] * context


def requests(count: int = 100, seed: int = 0) -> Requests:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(10, 300, count), rng.integers(1, 80, count)
    return Requests.of(np.cumsum(rng.exponential(0.05, count)), *lengths)


ENGINES = {
    "vllm": vllm(blocks=120, slots=16, budget=512),
    "sglang": sglang(tokens=1920, slots=16, budget=512),
    "trtllm": trtllm(blocks=60, slots=16, budget=512),
    "trtllm that evicts": trtllm(blocks=60, slots=16, budget=512, evicts=True),
}


def test_vllms_defaults():
    """EngineArgs.get_batch_defaults on GPUs of 70 GiB and more, as a server: 8192 and 1024.

    vllm/engine/arg_utils.py at v0.11; blocks of 16 tokens in vllm/config/cache.py.
    """
    rules, server = vllm(blocks=100), default_numbers(EngineSettings)
    assert (float(rules.slots), float(rules.budget), float(rules.block)) == (1024, 8192, 16)
    assert (float(server.sequences), float(server.batched_tokens)) == (1024, 8192)


def test_new_numbers_do_not_compile_anew():
    """Coefficients, sizes, arrivals, lengths and rules of the same kind."""
    serve(Partial(step, COEFFICIENTS), ENGINES["vllm"], requests())
    other = vllm(blocks=100, slots=13, budget=400, block=8, entire=False, watermark=0.02)
    before = len(TRACED)
    serve(Partial(step, (4e-3, 2e-5, 3e-8)), other, requests(90, seed=1))
    assert len(TRACED) == before > 0


def test_single_precision(x64):
    """Times drift by roundings of the clock: within 1e-4 of the latency, of one second."""
    given = requests()
    exact = serve(Partial(step, COEFFICIENTS), ENGINES["trtllm"], given)
    narrow = given._replace(arrival=jnp.asarray(given.arrival, jnp.float32))
    coefficients = tuple(jnp.asarray(c, jnp.float32) for c in COEFFICIENTS)
    rough = serve(Partial(step, coefficients), ENGINES["trtllm"], narrow)
    assert rough.last.dtype == jnp.float32
    assert float(rough.mean(rough.ttft)) == pytest.approx(float(exact.mean(exact.ttft)), rel=1e-3)
    error = np.abs(np.asarray(rough.last)[:100] - np.asarray(exact.last)[:100])
    assert np.quantile(error, 0.9) < 1e-3


@pytest.mark.parametrize("count", [8, 7])
def test_lanes_are_the_same_on_all_devices(count):
    """In equal parts, or all on one where their number allows none; with four devices, too."""
    x, devices = np.arange(float(count)), jax.devices()
    law = partial(lanes, lambda a, b: (a * b, a + b), devices=devices)
    product, total = jax.jit(law)(x, x[::-1])
    assert product.tolist() == (x * x[::-1]).tolist() and total.tolist() == [count - 1.0] * count
    assert len(product.sharding.device_set) == (1 if count % len(devices) else len(devices))


def test_entries_are_still_turns():
    def run(given):
        return replay(Partial(step, COEFFICIENTS), ENGINES["vllm"], given, width=16, turns=64)  # pyright: ignore

    with pytest.warns(DeprecationWarning, match="turns is now entries"):
        log = jax.eval_shape(run, requests(8))
    assert log.path.jump.shape == (64,) and log.turns.shape == ()


def test_lanes_are_servers():
    """Seeds and rates side by side, by ``lanes`` and by ``vmap``, each as if alone."""
    many, costs = [requests(100, seed) for seed in range(3)], jnp.asarray([4e-3, 5e-3, 6e-3])
    stacked = jax.tree.map(lambda *x: jnp.stack([jnp.asarray(each) for each in x]), *many)

    def one(cost, given):
        c = (cost, COEFFICIENTS[1], COEFFICIENTS[2])
        return replay(Partial(step, c), ENGINES["vllm"], given, width=16, entries=1024).last

    alone = np.stack([
        serve(Partial(step, (float(c), *COEFFICIENTS[1:])), ENGINES["vllm"], r).last
        for c, r in zip(costs, many, strict=True)
    ])  # fmt: skip
    np.testing.assert_allclose(jax.jit(lambda *x: lanes(one, *x))(costs, stacked), alone)
    np.testing.assert_allclose(jax.jit(jax.vmap(one))(costs, stacked), alone)
    same = [jnp.full(3, c) for c in COEFFICIENTS[1:]]
    rules = jax.tree.map(lambda x: jnp.full(3, x), ENGINES["vllm"])
    step_of = Partial(step, (costs, *same))
    beside = jax.jit(lambda *x: side_by_side(*x, width=16, entries=1024))(step_of, rules, stacked)
    assert np.all(beside.complete)
    np.testing.assert_allclose(beside.last, alone)


def test_a_tree_without_room_for_a_part_is_replayed_in_larger_arrays():
    """40 prompts of 20 parts each, all kept: more parts than the first arrays have room for."""
    count, prompt, chunk = 40, 1280, 64
    rules, tokens = sglang(tokens=100_000, budget=chunk, slots=4), [prompt] * count
    prefixes = Prefixes.of([[i // 2] for i in range(count)], tokens, length=chunk, block=1)
    # one at a time: the second of each two finds what they share, and all is kept
    given = Requests.of(np.arange(count), tokens, [4] * count, prefixes=prefixes)
    one = serve(Partial(step, COEFFICIENTS), rules, given)
    assert one.complete and one.path.kept is not None and one.cached is not None
    np.testing.assert_array_equal(one.cached[:count], np.tile([0, chunk], count // 2))
    # of all but the last, which still runs: 3 tokens decoded and one once more, shared parts once
    kept = (count - 1) * (prompt + 4) - count // 2 * chunk
    assert int(one.path.kept[int(one.entries) - 1]) == kept


@pytest.mark.parametrize(
    ("rules", "lengths", "word"),
    [
        (vllm(blocks=4), ([100], [10]), "4 blocks"),
        (trtllm(blocks=1000, budget=64, slots=8), ([100], [10]), "whole prompts"),
        (vllm(blocks=400, budget=64, slots=128), ([100], [10]), "slots"),
        (sglang(tokens=960, budget=100, page=32), ([100], [10]), "a multiple of a block, 32"),
        (sglang(tokens=4000, poll=3), ([100], [10]), "overlap"),
        (vllm(blocks=400).with_(poll=3), ([100], [10]), "overlap"),
    ],
)
def test_what_never_could_be_served_is_refused(rules, lengths, word):
    with pytest.raises(InputError, match=word):
        serve(Partial(step, COEFFICIENTS), rules, Requests.of([0.0], *lengths))


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (([0.0, -1.0], [1, 1], [1, 1]), "never decrease"),
        (([0.0], [1, 1], [1]), "one length"),
        (([0.0], [0], [1]), "prompt"),
        (([0.0], [1], [1.5]), "output"),
        (([float("nan")], [1], [1]), "arrival"),
        (([0.0], [100], [1], [100]), "cached"),
        (([0.0], [100], [1], [-16]), "cached"),
        (([0.0], [100], [1], [1, 2]), "one length"),
    ],
)
def test_requests_that_are_none(given, word):
    with pytest.raises(InputError, match=word):
        Requests.of(*given)


MEMORY = (4e-3, 2e-8)  # seconds, and per token read
COUNTS = (1, 2, 3, 7, 40, 511, LONGEST)


def pass_seconds(decoding, context, new, pairs):
    memory, compute = MEMORY[0] + MEMORY[1] * context, 2e-5 * (decoding + new) + 1e-9 * pairs
    return 1e-4 + (memory**3 + compute**3) ** (1.0 / 3.0)


@jax.jit
def summed(decoding, context, count, seconds):
    """Seconds of all steps, and the pass_seconds at which ``seconds`` have passed."""
    zero = jnp.zeros_like(decoding)
    passes = decode_run(pass_seconds, decoding, context, zero, seconds * 0.0, count)
    return run_time(passes, count.astype(seconds.dtype)), steps_until(passes, seconds)


def by_steps(decoding, context, count):
    return np.cumsum(
        pass_seconds(decoding, context + decoding * np.arange(count, dtype=float), 0, 0.0)
    )


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize(("decoding", "context"), [(1, 2), (60, 60 * 100), (250, 250 * 3000)])
def test_the_sum_over_steps(x64, decoding, context, count):
    exact = by_steps(decoding, context, count)
    given = (jnp.asarray(x, jnp.int32) for x in (decoding, context, count))
    whole, _ = summed(*given, jnp.asarray(0.0))
    assert float(whole) == pytest.approx(exact[-1], rel=1e-12)


def test_the_step_at_which_time_has_passed(x64):
    """A hundred moments between the first and the last end, and those ends themselves."""
    ends = by_steps(40, 40 * 500, 300)
    moments = np.concatenate([np.linspace(0.0, ends[-1], 100), ends[[0, 17, 150]]])
    given = [jnp.asarray(x, jnp.int32) for x in (40, 40 * 500, 300)]
    for moment in moments:
        expected = np.searchsorted(ends * (1 + 1e-13), moment) + 1
        assert int(summed(*given, jnp.asarray(moment))[1]) == min(expected, 300)


SIZES = {"budget": 256, "slots": 8, "blocks": 60, "block": 16}
RULES = {
    "whole lives": GuaranteedNoEvict.of(**SIZES),
    "preempting": Preempting.of(**SIZES),
    "preempting, passes ahead": Preempting.of(**SIZES, overlap=1),
    "prefill first": PrefillFirst.of(**SIZES | {"block": 1, "blocks": 960}),
}
MACHINE = np.array([1e-3, 8e-3, 4e-8, 5e-5, 2e-9])


def smooth(c, decoding, context, new, pairs):
    memory, compute = c[1] + c[2] * context, c[3] * (decoding + new) + c[4] * pairs
    return c[0] + jnp.sqrt(memory**2 + compute**2)


def arriving(rate, seed: int = 0, count: int = 60) -> Requests:
    """Arrivals of unit gaps over ``rate``; lengths drawn once."""
    rng = np.random.default_rng(seed)
    drawn = Requests.of(
        np.cumsum(rng.exponential(1.0, count)),
        rng.integers(20, 200, count),
        rng.integers(1, 60, count),
    )
    return drawn._replace(arrival=jnp.asarray(drawn.arrival) / rate)


def means(log):
    return jnp.stack([log.mean(log.ttft), log.mean(log.tpot), log.mean(log.latency)])


@partial(jax.jit, static_argnames="closed")
def played(coefficients, rate, rules, closed=False):
    concurrency = jnp.asarray(5, jnp.int32) if closed else None
    given = arriving(rate)
    log = replay(Partial(smooth, coefficients), rules, given, concurrency, width=8, entries=1024)
    return log, means(log)


@partial(jax.jit, static_argnames="closed")
def slopes(coefficients, rate, log, closed=False):
    concurrency = jnp.asarray(5, jnp.int32) if closed else None

    def again(c, r):
        return means(path_gradient(Partial(smooth, c), log, arriving(r), concurrency))

    reverse = jax.jacrev(again, (0, 1))(coefficients, rate)
    return again(coefficients, rate), reverse, jax.jacfwd(again, (0, 1))(coefficients, rate)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("name", "closed"),
    [("preempting", True), ("preempting, passes ahead", False), ("prefill first", True)],
)
def test_slopes_where_the_path_does_not_change(name, closed):
    """Differences over 1e-7 of a number, where both sides go through the same events."""
    rules, rate = RULES[name], jnp.asarray(12.0)
    log, exact = played(MACHINE, rate, rules, closed)
    assert log.complete
    same, reverse, forward = slopes(MACHINE, rate, log, closed)
    np.testing.assert_allclose(same, exact, rtol=1e-10)
    for a, b in zip(reverse, forward, strict=True):
        assert np.all(np.isfinite(a))
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-12)
    for i in range(len(MACHINE) + 1):
        up = np.zeros(len(MACHINE) + 1)
        up[i] = 1e-7
        sides = [
            played(MACHINE * (1 + side * up[:-1]), rate * (1 + side * up[-1]), rules, closed)
            for side in (-1, 1)
        ]
        for held in ("count", "decoding", "fed", "woken_by"):
            for other, _ in sides:
                np.testing.assert_array_equal(getattr(other.path, held), getattr(log.path, held))
        x = float(rate) if i == len(MACHINE) else float(MACHINE[i])
        difference = (sides[1][1] - sides[0][1]) / (2e-7 * x)
        ours = reverse[1] if i == len(MACHINE) else reverse[0][:, i]
        scale = np.abs(exact) / x
        np.testing.assert_allclose(ours / scale, difference / scale, rtol=1e-4, atol=1e-6)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ["whole lives", "preempting, passes ahead"])
def test_slopes_in_phase(name):
    """All coefficients times k are all waits times k (Euler): sum of c dT/dc is T."""
    log, exact = played(MACHINE, jnp.asarray(12.0), RULES[name])
    log = log._replace(cached=jnp.arange(len(log.output)))  # which stays with the same events

    def again(c):
        log_again = path_gradient(Partial(smooth, c), log, arriving(12.0), phase=True)
        return means(log_again), log_again.cached

    same, cached = again(MACHINE)
    slope, _ = jax.jit(jax.jacfwd(again))(jnp.asarray(MACHINE))
    np.testing.assert_allclose(same, exact, rtol=1e-10)
    np.testing.assert_allclose(slope @ MACHINE, exact, rtol=1e-9)
    np.testing.assert_array_equal(cached, log.cached)


@pytest.mark.usefixtures("x64")
def test_a_step_without_a_slope_at_nothing():
    """A root of what is fed: infinite slope at 0, which no pass of a replay feeds."""

    def rooted(c, decoding, context, new, pairs):
        return jnp.sqrt(c[0] * (decoding + new)) + c[1] * context

    log, _ = played(MACHINE, jnp.asarray(12.0), RULES["whole lives"])

    @jax.jit
    def both(coefficients):
        def again(c):
            return means(path_gradient(Partial(rooted, c), log, arriving(12.0)))

        return jax.jacrev(again)(coefficients), jax.jacfwd(again)(coefficients)

    for slope in both(jnp.asarray([1e-6, 1e-7])):
        assert np.all(np.isfinite(slope)) and np.all(slope[0] > 0.0)
