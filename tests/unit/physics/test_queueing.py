"""Laws of waiting, of a cache of prefixes and of requests that go around, against exact results."""

import heapq
import math
from collections import deque
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.special import gammainc

from infer_jax.physics import scheduling
from infer_jax.physics.root import crossing
from infer_jax.physics.scheduling import prefix_cache, queueing
from infer_jax.physics.scheduling.occupancy import number_in_system
from infer_jax.specs import Arrivals
from tests.unit.physics.derivatives import agree_at, finite_at, numbers

pytestmark = pytest.mark.usefixtures("x64")


def erlang_c(load: float, servers: int) -> float:
    """The probability of waiting in M/M/m, from its sum."""
    offered = load * servers
    last = offered**servers / math.factorial(servers) / (1.0 - load)
    return last / (sum(offered**k / math.factorial(k) for k in range(servers)) + last)


@jax.jit
@jax.vmap
def waiting(load, servers, variability):
    """Mean number that wait before exponential servers of one second, and the chance to wait."""
    n = jnp.arange(1.0, 401.0)
    served = jnp.minimum(n, servers)
    p = number_in_system(Arrivals(rate=load * servers, variability=variability), served)
    beyond = jnp.maximum(n - servers, 0.0)
    full = jnp.where(n > servers, served, 0.0)  # those whom an arrival joined that had to wait
    return p.mean(beyond, 1.0), p.mean(full) / (load * servers)


def grid(*axes):
    """Every combination of the axes' values, a column each."""
    return np.array([*product(*axes)], float).T


def test_those_who_wait_for_one_of_many_are_erlangs():
    load, servers = grid((0.3, 0.7, 0.95), (1, 2, 8, 64))
    queue, chance = waiting(load, servers, np.ones(12))
    expected = np.array([erlang_c(*x) for x in zip(load, servers.astype(int), strict=True)])
    assert chance == pytest.approx(expected, rel=1e-6, abs=1e-12)
    assert queue == pytest.approx(expected * load / (1.0 - load), rel=1e-6, abs=1e-12)


bursts = jax.jit(jax.vmap(queueing.bursts))


def test_bursts_before_one_server_are_those_of_gamma_gaps():
    """Three moments of a gap decide the wait where it matters; in light traffic it is too short."""
    for load, error in ((0.2, 0.6), (0.6, 0.06), (0.95, 1e-3)):
        given = load * np.ones(3), np.array([2.0, 4.0, 8.0])
        queue, _ = waiting(given[0], np.ones(3), given[1])
        exact = load**2 / (1.0 - load) * bursts(*given)
        assert np.all((1.0 - error) * exact <= queue) and np.all(queue <= exact)


def test_as_many_leave_as_come_and_slopes_are_right():
    n = jnp.arange(1.0, 41.0)

    def mean(rate, variability, growth):
        served = 9.0 * (1.0 - jnp.exp(-growth * n))
        p = number_in_system(Arrivals(rate=rate, variability=variability), served)
        return p.mean(n, 1.0), p.mean(served)

    assert float(mean(*numbers(7.0, 3.0, 0.3))[1]) == pytest.approx(7.0, rel=1e-9)
    agree_at(lambda *x: mean(*x)[0], (7.0, 3.0, 0.3))
    bad = (1e-9, 3.0, 0.3), (7.0, 1.0, 0.3), (9.0, 1.0, 3.0), (50.0, 4.0, 0.3)
    finite_at(lambda *x: mean(*x)[0], *bad)


def test_waits_with_service_of_one_length_are_cosmetatos():
    """M/D/1 is half of M/M/1 at any load; many servers come near to all of it in light traffic."""
    for servers in (1.0, 4.0, 20.0):
        ratios = [
            float(queueing.unlike_exponential(*numbers(0.5, u, servers))) for u in (0.99, 0.5, 0.01)
        ]
        assert ratios[0] == pytest.approx(0.5, rel=0.02)
        assert ratios == sorted(ratios) and ratios[-1] <= 1.0
        assert ratios[-1] == pytest.approx(0.5 if servers == 1.0 else 1.0, rel=0.02)


def test_a_single_server_is_that_of_pollaczek_and_khinchine():
    """M/M/1 and M/D/1 at a load of 0.8, service of 1 s: the wait is 4 s and 2 s."""
    waits = [queueing.single_server_wait(*numbers(0.8, 1.0, x, 0.8, 1.0)) for x in (2.0, 1.0)]
    assert [float(x) for x in waits] == pytest.approx([4.0, 2.0])


def test_bursts_come_as_a_renewal_process_of_gamma_gaps_has_them():
    expected, variability = grid((0.003, 0.03, 0.3, 3.0, 20.0), (0.5, 1.5, 2.0, 4.0, 8.0))
    counts = np.arange(1.0, 481.0)[:, None]
    seen = gammainc(counts / variability, expected / variability).sum(axis=0)
    ours = jax.vmap(queueing.burst_share)(expected, variability)
    assert ours == pytest.approx((seen - expected) / (0.5 * (variability - 1.0)), abs=0.08)


def test_bursts_before_an_exponential_server_are_exact():
    """The root of s = A*(mu (1 - s)) by bisection: an arrival waits s / (1 - s) services."""
    load, variability = grid((0.01, 0.2, 0.6, 0.95), (0.25, 1.0, 2.0, 4.0, 8.0))
    low, high = np.zeros(20), np.full(20, 1.0 - 1e-9)
    for _ in range(100):
        busy = 0.5 * (low + high)
        over = (1.0 + variability * (1.0 - busy) / load) ** (-1.0 / variability) > busy
        low, high = np.where(over, busy, low), np.where(over, high, busy)
    expected = low / (1.0 - low) * (1.0 - load) / load
    assert bursts(load, variability) == pytest.approx(expected, rel=1e-6)


def test_a_cache_holds_whole_requests_and_half_empty_blocks():
    """Alike, 10.5 of them are ten; unlike ones leave E[h^2] / (2 E[h]); 16 tokens waste eight."""
    kinds = scheduling.Kinds(*(jnp.asarray([x]) for x in (1.0, 60.0, 0.0, 40.0)))
    server = scheduling.ServerLimits(*numbers(512, 64, 1050))
    assert float(scheduling.memory(kinds, server).limit) == pytest.approx(10.0, abs=0.02)
    paged = server._replace(cache=jnp.asarray(1150.0), block=jnp.asarray(16.0))
    assert float(scheduling.memory(kinds, paged).limit) == pytest.approx(10.0, abs=0.1)

    sizes = np.array([20.0, 100.0, 500.0])
    kinds = scheduling.Kinds(
        jnp.full(3, 1 / 3), jnp.asarray(sizes - 10.0), jnp.zeros(3), jnp.full(3, 10.0)
    )
    found = scheduling.memory(kinds, server._replace(cache=jnp.asarray(1e5)))
    left = (sizes**2).mean() / (2.0 * sizes.mean())
    assert float(found.limit) == pytest.approx((1e5 - left) / sizes.mean(), rel=1e-6)


@given(st.floats(0.01, 10), st.floats(0.05, 5))
@settings(max_examples=30)
def test_a_tail_has_the_moments_that_made_it(mean, deviation):
    w = queueing.exponential_tail(jnp.asarray(mean), jnp.asarray(deviation**2))
    least, share, scale = (float(x[0]) for x in (w.least, w.share, w.scale))
    assert least + share * scale == pytest.approx(mean)
    second = least**2 + 2 * least * share * scale + 2 * share * scale**2
    assert second - mean**2 == pytest.approx(deviation**2, rel=1e-6)


def test_a_percentile_of_an_exponential_time_is_the_logarithm():
    w = queueing.exponential_tail(jnp.asarray(1.0), jnp.asarray(1.0))
    for level in (0.5, 0.9, 0.99):
        (t,) = queueing.percentiles((level,), jnp.zeros(1), jnp.ones(1), w)
        assert float(t) == pytest.approx(-math.log(1 - level), rel=1e-6)


def test_a_percentile_has_the_derivative_of_what_it_is_made_of():
    """Also of a wait that nobody meets: one request in flight has one of a rounding error."""

    def ninety(mean, variance):
        offsets, weights = jnp.asarray([0.02, 0.12, 1.2]), jnp.asarray([0.2, 0.75, 0.05])
        w = queueing.exponential_tail(mean, variance)
        return queueing.percentiles((0.9,), offsets, weights, w)[0]

    unmet = [(mean, 1e-14) for mean in (0.0, 1e-213, 1e-12)]
    for point in unmet:
        assert 0.12 <= float(ninety(*numbers(*point))) < 0.125
    finite_at(ninety, *unmet)

    def of_two(mean, variance, offset):
        w = queueing.exponential_tail(mean, variance)
        return queueing.percentiles((0.9,), jnp.stack([offset, 3 * offset]), jnp.ones(2) / 2, w)[0]

    agree_at(of_two, (1.0, 4.0, 0.3), (1.0, 0.2, 0.3))
    finite_at(of_two, (1.0, 1.0, 0.3), (0.0, 0.0, 0.3), (1.0, 0.0, 1e-3))


def test_a_crossing_is_found_and_moves_as_it_should():
    def root(a):
        return crossing(lambda x: x**3 - a, jnp.asarray(0.0), jnp.asarray(10.0))

    assert float(root(jnp.asarray(27.0))) == pytest.approx(3.0, rel=1e-12)
    agree_at(root, (27.0,))
    assert float(root(jnp.asarray(-1.0))) == 0.0 and float(root(jnp.asarray(1e9))) == 10.0


def test_a_cache_for_everything_finds_all_and_host_memory_what_the_device_gave_up():
    asked, told, gap = numbers(100.0, 300.0, 20.0)
    chat = prefix_cache.conversation(jnp.asarray(0.5), 4, asked, told, gap)
    found = prefix_cache.hits(chat, jnp.asarray(1e9))
    # turns 2, 3 and 4 find 400, 800 and 1200 tokens
    assert float(found.device) == pytest.approx(0.5 * 2400, rel=1e-6)
    room = jnp.asarray(3000.0)
    two, one = prefix_cache.hits(chat, room, 2 * room), prefix_cache.hits(chat, 3 * room)
    assert float(two.device + two.host) == pytest.approx(float(one.device), rel=1e-9)
    assert float(two.host) > 0


def test_shared_prompts_are_found_as_che_says():
    """Equal popularity and room for half: e^(-T / z) = 1/2 solves the equation of Che."""
    rates, tokens = jnp.full((10,), 0.2), jnp.full((10,), 1000.0)
    uses = prefix_cache.system_prompts(rates, tokens, jnp.asarray(0.0))
    found = prefix_cache.hits(uses, jnp.asarray(5000.0))
    assert float(found.device) == pytest.approx(0.5 * 2000.0, rel=1e-6)
    assert float(found.stays) == pytest.approx(5.0 * math.log(2.0), rel=1e-6)


def test_more_room_finds_more_and_slopes_are_right():
    def found(rate, gap, room):
        chat = prefix_cache.conversation(rate, 4, jnp.asarray(100.0), jnp.asarray(300.0), gap)
        tree = prefix_cache.tree(rate, 2, jnp.asarray(3.0), jnp.asarray(500.0), gap)
        return prefix_cache.hits(prefix_cache.join_uses(chat, tree), room).device

    agree_at(found, (0.5, 20.0, 9000.0))
    ratios = [float(found(*numbers(0.5, 20.0, r))) for r in np.geomspace(100, 1e6, 9)]
    assert ratios == sorted(ratios)
    finite_at(found, (0.5, 20.0, 0.0), (0.5, 20.0, 1e12))


def goes_around(requests, servers, elsewhere, count, seed=0):
    """Mean wait before ``servers`` of one second, exponential times elsewhere: event by event."""
    random, events, queue, waits = np.random.default_rng(seed), [], deque(), []
    for _ in range(requests):
        heapq.heappush(events, (random.exponential(elsewhere), True))
    free = servers
    while len(waits) < count:
        now, comes = heapq.heappop(events)
        if comes:
            queue.append(now)
        else:
            free += 1
            heapq.heappush(events, (now + random.exponential(elsewhere), True))
        while free and queue:
            free -= 1
            waits.append(now - queue.popleft())
            heapq.heappush(events, (now + 1.0, False))
    return np.mean(waits[count // 4 :])


@pytest.mark.parametrize(
    ("requests", "servers", "load", "off"),
    [(2, 1, 0.7, 0.02), (8, 1, 0.3, 0.02), (64, 1, 0.6, 0.05), (64, 1, 1.4, 0.02),
     (16, 4, 0.7, 0.12), (8, 2, 1.4, 0.12), (256, 2, 1.3, 0.06)],
)  # fmt: skip
def test_who_goes_around_waits_as_replayed(requests, servers, load, off):
    """Of wait and service together; of several servers the law's queue is too long by a little."""
    elsewhere = requests / servers / load
    around = elsewhere + 1.0 - 1.0 / servers
    law = queueing.closed_wait(*map(jnp.asarray, (1.0 * requests, 1.0 / servers, around)))
    expected = 1.0 + goes_around(requests, servers, elsewhere, 12000)
    assert 1.0 + float(law) == pytest.approx(expected, rel=off)


def test_a_full_server_makes_wait_whom_it_cannot_serve():
    """C D - Z - D, within half a service; and slopes at one request, none and no time."""
    law = queueing.closed_wait(*numbers(500.0, 0.2, 30.0))
    assert float(law) == pytest.approx(500 * 0.2 - 30.0 - 0.2, abs=0.2)
    edges = (1.0, 0.1, 1.0), (0.5, 0.1, 1.0), (3.0, 0.0, 1.0), (1.0, 0.0, 0.0)
    finite_at(queueing.closed_wait, *edges)
    assert np.all(np.asarray(jax.vmap(queueing.closed_wait)(*np.array(edges).T)) == 0.0)
    agree_at(queueing.closed_wait, (40.0, 0.2, 9.0))


def one_more_at_a_time(requests, unhindered, demands):
    """Rate by mean-value analysis from one request up, services of one length: Reiser 1979."""
    queue, busy = np.zeros(len(demands)), np.zeros(len(demands))
    for n in range(1, requests + 1):
        waits = demands * (queue - busy / 2)
        rate = n / (unhindered + sum(waits))
        queue, busy = rate * (demands + waits), rate * demands
    return rate


def goes_around_two(requests, services, elsewhere, count):
    """Rate of two queues in a row with services of one length, exponential times elsewhere."""
    random, free = np.random.default_rng(0), [0.0, 0.0]
    comes = [(random.exponential(elsewhere), 0) for _ in range(requests)]
    heapq.heapify(comes)
    done = 0
    while done < count:
        now, at = heapq.heappop(comes)
        free[at] = max(now, free[at]) + services[at]
        done += at
        later = 0.0 if at == 0 else random.exponential(elsewhere)
        heapq.heappush(comes, (free[at] + later, 1 - at))
    return done / max(free)


@pytest.mark.parametrize(
    ("requests", "demands", "elsewhere", "off"),
    [(2, (1.0, 0.5), 2.0, 0.025), (8, (1.0, 0.3), 9.0, 0.02), (64, (1.0, 0.9), 70.0, 0.025),
     (8, (1.0, 1.0), 4.0, 0.11)],
)  # fmt: skip
def test_the_rate_around_two_queues(requests, demands, elsewhere, off):
    """Furthest off where two full queues are equal, for one then feeds the other evenly."""
    law = queueing.closed_rate(*numbers(requests, elsewhere + sum(demands)), numbers(*demands))  # pyright: ignore[reportCallIssue]
    exact = one_more_at_a_time(requests, elsewhere + sum(demands), np.asarray(demands))
    assert float(law) == pytest.approx(exact, rel=min(off, 0.065))  # Schweitzer's approximation
    assert float(law) == pytest.approx(goes_around_two(requests, demands, elsewhere, 9000), rel=off)


def test_rates_at_their_asymptotes_and_of_one_queue():
    """C / cycle, 1 / D of the slowest queue, and ``closed_wait`` where the other asks nothing."""
    few, many = (queueing.closed_rate(*numbers(n, 100.0), numbers(0.5, 0.1)) for n in (2.0, 1e4))  # pyright: ignore[reportCallIssue]
    assert float(few) == pytest.approx(2.0 / 100.0, rel=1e-3)
    assert float(many) == pytest.approx(1.0 / 0.5, rel=1e-3)
    for n in (1.0, 8.0, 60.0):
        rate = queueing.closed_rate(*numbers(n, 30.0), numbers(0.5, 0.0))  # pyright: ignore[reportCallIssue]
        wait = queueing.closed_wait(*numbers(n, 0.5, 29.5))
        assert float(rate) == pytest.approx(n / (30.0 + float(wait)), rel=1e-12)


def test_slopes_of_the_rate_at_ties_at_one_request_and_when_full():
    def rate(requests, unhindered, first, second):
        return queueing.closed_rate(requests, unhindered, (first, second))

    agree_at(rate, (20.0, 30.0, 1.0, 0.4), (20.0, 30.0, 1.0, 1.0), (500.0, 30.0, 1.0, 1.0))
    finite_at(rate, (1.0, 30.0, 1.0, 1.0), (0.2, 30.0, 1.0, 0.0), (1e6, 30.0, 1.0, 1.0))
