"""Offline work: by hand, beside lists of requests on slots, and its slopes."""

import heapq

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from infer_jax.physics.scheduling.kinds import ServerLimits
from infer_jax.physics.scheduling.offline import Lengths, course, offline, rollouts, typical
from infer_jax.specs.lengths import lognormal
from tests.unit.estimators.compiled import quickly

FREE = 1e9
U = np.r_[np.linspace(0.0, 0.98, 300), 1.0 - np.geomspace(0.02, 1e-7, 200)[1:], 1.0]
PASS, TOKEN = 0.01, 1e-5  # s


def lengths(mean, variation=0.0, prompt=1.0, longest=1e9):
    """Log-normal outputs."""
    middle = (U[1:] + U[:-1]) / 2.0
    output = mean * lognormal(variation)(middle) / np.sqrt(1.0 + variation**2)
    prompts = jnp.full(len(middle), prompt)
    numbers = jnp.asarray(np.diff(U)), prompts, jnp.asarray(np.clip(output, 1.0, longest))
    return Lengths(*numbers, squared=jnp.asarray(prompt**2), own=jnp.asarray(1.0))


def server(slots=16.0, budget=FREE, cache=FREE, **more):
    return ServerLimits(*map(jnp.asarray, (budget, slots, cache)), **{"reserved": 0.0, **more})


def plain(decoding, context, new, pairs):
    """Every pass takes as long, and prompts take their tokens."""
    return PASS + TOKEN * new + 0.0 * decoding


def constant(decoding, context, new, pairs):
    """Every pass takes as long."""
    return PASS + 0.0 * decoding


def job_seconds(some, limits, count, step=plain, **more):
    done = course(some, limits, jnp.asarray(count), **more)[0]
    return jnp.sum(offline(done, step, some, limits).seconds)


makespan = quickly(job_seconds, static_argnames="step")
begin = quickly(lambda *asked: course(*asked)[0])


def drawn(random, mean, variation, count, longest=1e9):
    sigma = np.sqrt(np.log1p(variation**2))
    values = mean * np.exp(sigma * random.standard_normal(count) - sigma**2 / 2.0)
    return np.clip(values, 1.0, longest)


def slots_of(outputs, slots):
    """Steps until the last of a list of outputs ends, each taken by the slot that is free first."""
    free = [0.0] * slots
    for output in outputs:
        heapq.heapreplace(free, free[0] + output)
    return max(free)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("count", "waves"),
    [(1, 1), (7, 1), (16, 1), (17, 2), (32, 2), (40, 3), (1600, 100), (1609, 101)],
)
def test_equal_outputs_go_in_waves(count, waves):
    """By hand: 100 steps of 10 ms a wave, and 10 us for each prompt token."""
    found = float(makespan(lengths(100.0), server(), float(count)))
    assert found == pytest.approx(waves * 1.0 + 1e-5 * count, rel=0.011)


@pytest.mark.usefixtures("x64")
def test_equal_outputs_that_the_cache_limits_by_hand():
    """Prompts and outputs of 1,000 tokens in a cache of 6,900, all held from the start: three run.

    Twelve are four waves of 1,000 steps.
    """
    held = server(cache=6_900.0, reserved=1.0)
    found = float(makespan(lengths(1000.0, prompt=1000.0), held, 12.0))
    assert found == pytest.approx(4 * 1000 * PASS + 12 * 1000 * TOKEN, rel=0.04)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("first", [0.0, 1.0])
def test_long_prompts_of_one_token_fill_every_pass(first):
    """By hand: 100 prompts of 4,096 tokens in passes of 8,192 are 50 passes of 91.92 ms."""
    limits = server(slots=256.0, budget=8192.0, prompts_first=first)
    found = float(makespan(lengths(1.0, prompt=4096.0), limits, 100.0))
    # what decodes has passes of its own where prompts come first
    assert found == pytest.approx(50 * (PASS + 8192 * TOKEN) + first * PASS, rel=0.03)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("mean", "variation", "count", "slots"),
    [(500.0, 2.0, 3000, 16), (244.0, 0.3, 15, 256), (229.0, 1.0, 12, 1024), (200.0, 1.0, 100, 16),
     (200.0, 0.3, 40, 16), (24.0, 2.0, 3000, 64), (100.0, 0.0, 37, 8)],
)  # fmt: skip
def test_they_take_as_long_as_lists_on_slots(mean, variation, count, slots):
    """Beside 400 lists drawn at random: within 2 % and three standard errors."""
    random, longest = np.random.default_rng(0), 20_000.0
    lists = [slots_of(drawn(random, mean, variation, count, longest), slots) for _ in range(400)]
    some = lengths(mean, variation, longest=longest)
    law = float(makespan(some, server(float(slots)), float(count), constant)) / PASS
    error = 3.0 * np.std(lists) / np.sqrt(len(lists))
    assert abs(law - np.mean(lists)) < 0.02 * np.mean(lists) + error


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("variation", [0.0, 0.7, 2.0])
@pytest.mark.parametrize("cache", [3e4, 3e5, FREE])
@pytest.mark.parametrize("count", [30.0, 4000.0, 1e6])
def test_every_token_of_every_request_is_generated(variation, cache, count):
    """A running request has one in a step, also where all start at once and outgrow the cache."""
    some = lengths(4000.0, variation, prompt=20.0, longest=25_000.0)
    done = begin(some, server(256.0, cache=cache), jnp.asarray(count))
    tokens = float(jnp.sum(done.steps * done.weight * done.running))
    assert tokens == pytest.approx(count * float(some.mean(some.output)), rel=0.02)


@pytest.mark.usefixtures("x64")
def test_outputs_that_outgrow_the_cache_take_as_long_as_what_it_holds_lets_them():
    """Equal outputs of 4,000 in a cache of 100,000: those that run have 2,000 each in the mean."""
    some, limits = lengths(4000.0), server(1024.0, cache=100_000.0)
    found = float(makespan(some, limits, 20_000.0, constant)) / PASS
    # 50 run where ages are even; some steps are lost, for a pass makes room for all of the next
    assert 20_000 * 4000 / 50 < found < 1.5 * 20_000 * 4000 / 50


def steps_of(random, mean, variation, count, share, slots, longest):
    """Mean steps of forty rollout steps, and the share of tokens that were carried over."""
    carried, times, stale = [], [], []
    for _ in range(60):
        new = drawn(random, mean, variation, round(count / share) - len(carried), longest)
        jobs = carried + [(output, 0.0) for output in new]
        stale.append(sum(age for _, age in carried))
        queue, running, now = list(reversed(jobs)), [], 0.0
        for _ in range(count):
            while queue and len(running) < slots:
                output, age = queue.pop()
                heapq.heappush(running, (now + output - age, output, age, now))
            now = heapq.heappop(running)[0]
        times.append(now)
        begun = [(output, age + now - begin) for _, output, age, begin in running]
        carried = begun + [x for x in queue if x[1] > 0.0]
    return np.mean(times[20:]), np.mean(stale[20:]) / (count * mean), np.std(times[20:]) / 40**0.5


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("share", [0.5, 0.8, 0.95])
def test_steps_that_stop_carry_over_what_a_simulation_does(share):
    mean, count, slots, longest = 400.0, 300, 200, 4000.0
    some = lengths(mean, 1.0, longest=longest)
    mean = float(some.mean(some.output))
    time, stale, error = steps_of(
        np.random.default_rng(1), 400.0, 1.0, count, share, slots, longest
    )
    numbers = jnp.asarray(float(count)), jnp.asarray(share)
    done, carried_over = rollouts(some, server(float(slots)), *numbers)
    law = float(jnp.sum(offline(done, constant, some, server(float(slots))).seconds)) / PASS
    assert abs(law - time) < 0.03 * time + 3.0 * error
    assert float(carried_over) == pytest.approx(stale, abs=0.03)
    # as many end in a step as are asked for, and all steps are shorter than one that waits for all
    assert float(jnp.sum(done.weight * done.ended)) == pytest.approx(count, rel=1e-6)
    assert law < float(makespan(some, server(float(slots)), float(count), constant)) / PASS


@settings(derandomize=True, max_examples=8, deadline=None)
@given(st.floats(1.0, 3e4), st.floats(20.0, 600.0), st.sampled_from([0.0, 0.5, 2.0]),
       st.integers(1, 300))  # fmt: skip
def test_more_requests_take_longer_and_more_slots_less(count, mean, variation, slots):
    with jax.enable_x64(True):
        some = lengths(mean, variation, longest=8000.0)
        base, more, wider = (
            float(makespan(some, server(float(s)), n))
            for s, n in ((slots, count), (slots, 1.5 * count), (2 * slots, count))
        )
    # cells are 1/64 of a mean output at most
    assert more >= base * (1.0 - 0.01) and wider <= base * (1.0 + 0.01)
    ideal = count * PASS * float(some.mean(some.output)) / slots
    assert base >= ideal * (1.0 - 0.01)  # no slot does more than a token a step


@pytest.mark.usefixtures("x64")
def test_every_request_ends_and_replicas_wait_for_the_last():
    some, limits = lengths(300.0, 1.0, 500.0, 4000.0), server(64.0, 8192.0, 60_000.0)
    for count in (3.0, 200.0, 1e6):
        done = begin(some, limits, jnp.asarray(count))
        assert float(jnp.sum(done.weight * done.ended)) == pytest.approx(count, rel=0.01)
    one, four = (jnp.sum(offline(done, plain, some, limits, n).seconds) for n in (1.0, 4.0))
    assert float(one) < float(four)
    # of 8,000 tokens 500 + E[O^2] / (2 E[O]), nearly 800, are one's: ten run, less what the first
    # that waits leaves unused, half a request
    running, unused = typical(some, limits._replace(cache=jnp.asarray(8000.0)))
    assert 9.4 < float(running) < 10.2 and 0.0 < float(unused) < 800.0


@jax.jit
def seconds_of(some, count, each, slots, cache):
    """Seconds of a job, ``each`` those of a pass without tokens."""
    limits = server(slots, 2048.0, cache)
    return job_seconds(some, limits, count, lambda n, c, new, p: each + 1e-7 * c + TOKEN * new)


slopes_of = jax.jit(jax.grad(seconds_of, argnums=(1, 2, 3, 4)))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("variation", "count", "slots", "cache"),
    [
        (1.0, 700.0, 16.0, FREE),  # ordinary
        (1.0, 700.0, 64.0, 20_000.0),  # short of cache
        (1.0, 1.0, 16.0, FREE),  # one request
        (1.0, 5.0, 16.0, FREE),  # fewer than slots
        (0.0, 40.0, 16.0, FREE),  # equal outputs
        (0.0, 16.0, 16.0, FREE),  # as many as slots
    ],
)
def test_slopes(variation, count, slots, cache):
    """By requests, seconds of a pass, slots and cache: finite, and those of differences."""
    some = lengths(200.0, variation, 100.0, 4000.0)

    point = [jnp.asarray(x) for x in (count, PASS, slots, cache)]
    slopes = slopes_of(some, *point)
    assert all(bool(jnp.isfinite(x)) for x in slopes)
    assert float(slopes[1]) > 0.0
    for i, slope in enumerate(slopes):
        if i != 1 and (variation == 0.0 or count < slots):
            continue  # a jump from wave to wave, or a slot too many: the slope is of one side
        step = 1e-6 * float(point[i])
        ends = [float(seconds_of(some, *(x + s * step * (j == i) for j, x in enumerate(point))))
                for s in (1, -1)]  # fmt: skip
        difference = (ends[0] - ends[1]) / (2 * step)
        assert float(slope) == pytest.approx(difference, rel=1e-3, abs=1e-6 * ends[0] / step * 1e-3)


def test_float32_says_the_same():
    found = []
    for double in (False, True):
        with jax.enable_x64(double):
            some, limits = lengths(300.0, 1.0, 500.0, 4000.0), server(64.0, 8192.0, 60_000.0)
            found.append(makespan(some, limits, 2000.0))
    assert found[0].dtype == jnp.float32
    assert float(found[0]) == pytest.approx(float(found[1]), rel=1e-3)
