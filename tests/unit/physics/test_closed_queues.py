"""Requests that go around one queue or two, against simulation and mean-value analysis."""

import heapq
from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.physics.scheduling import queueing
from tests.unit.physics.derivatives import agree_at, finite_at, numbers

pytestmark = pytest.mark.usefixtures("x64")


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
