"""A fleet in plain Python, by the published rules: what the laws are compared with."""

import math
from bisect import bisect_right


def interpolate(x, grid, values):
    """Linear between points, the ends beyond them."""
    if x <= grid[0]:
        return values[0]
    if x >= grid[-1]:
        return values[-1]
    i = bisect_right(grid, x)
    share = (x - grid[i - 1]) / (grid[i] - grid[i - 1])
    return values[i - 1] + share * (values[i] - values[i - 1])


class Server:
    """One replica: requests in flight and waiting at each of some rates, and its capacity."""

    def __init__(self, replica):
        service = replica.service
        self.rate, self.held, self.waiting = (
            [float(x) for x in getattr(service, name)] for name in ("rate", "in_flight", "waiting")
        )
        self.capacity = float(replica.capacity)

    def after(self, held, coming, seconds):
        """Bisection on what is there afterwards: held + coming - answered."""

        def answered(n):
            return interpolate(n, self.held, self.rate) if n < self.held[-1] else None

        total = held + seconds * coming
        if total >= self.held[-1] + seconds * self.capacity:
            return total - seconds * self.capacity
        if total >= self.held[-1] + seconds * self.rate[-1]:
            return self.held[-1]
        low, high = 0.0, self.held[-1]
        for _ in range(200):
            middle = 0.5 * (low + high)
            rate = answered(middle)
            if rate is None or middle + seconds * rate > total:
                high = middle
            else:
                low = middle
        return 0.5 * (low + high)


class Pods:
    """Kubernetes: replicas by a metric of pods (``queue`` False) or an external one (True)."""

    def __init__(self, policy, queue, wanted):
        self.queue = queue
        self.target, self.tolerance = float(policy.target), float(policy.tolerance)
        self.window, self.sync = float(policy.stabilization), float(policy.sync)
        self.pods, self.percent = float(policy.pods), float(policy.percent)
        self.low, self.high = float(policy.minimum), float(policy.maximum)
        self.past = [(-15.0 * k, wanted) for k in range(1, 99)]  # for as long as one looks back

    def wants(self, now, last, held, waiting, ready, replicas, rate):
        if math.floor(now / self.sync + 1e-9) == math.floor((now - last) / self.sync + 1e-9):
            return replicas
        if self.queue:
            ratio = waiting / (self.target * replicas)
            proposal = math.ceil(waiting / self.target)
            proposal = replicas if abs(1.0 - ratio) <= self.tolerance else proposal
        else:
            proposal = self.by_pods(held, ready, replicas)
        recent = [x for t, x in self.past if now - t < self.window - 1e-6]
        self.past.append((now, proposal))
        up, down = proposal, max([proposal, *recent])
        stable = replicas
        if stable < up:
            stable = up
        if stable > down:
            stable = down
        limit = max(replicas + self.pods, math.ceil(replicas * (1.0 + self.percent)))
        return max(min(stable, limit, self.high), self.low)

    def by_pods(self, held, ready, replicas):
        ratio = held / (self.target * ready)
        missing = replicas - ready
        if missing <= 0:
            close = abs(1.0 - ratio) <= self.tolerance
            return replicas if close else math.ceil(held / self.target)
        extra = missing if ratio < 1.0 else 0.0  # at the target, or idle
        again = (held / self.target + extra) / replicas
        turned = (ratio < 1.0 < again) or (ratio > 1.0 > again)
        if abs(1.0 - again) <= self.tolerance or turned:
            return replicas
        return math.ceil(held / self.target + extra)


class Planner:
    """Dynamo: the rate of the last interval, with its trend, over that of a replica."""

    def __init__(self, policy, each):
        self.interval, self.trend, self.each = float(policy.interval), float(policy.trend), each
        self.low, self.high = float(policy.minimum), float(policy.maximum)
        self.rates, self.last = [], None

    def wants(self, now, last, held, waiting, ready, replicas, rate):
        if now == 0:
            return replicas
        self.rates.append(rate)
        if math.floor(now / self.interval + 1e-9) == math.floor(
            (now - last) / self.interval + 1e-9
        ):
            return replicas
        seen = sum(self.rates) / len(self.rates)
        rise = 0.0 if self.last is None else seen - self.last
        self.rates, self.last = [], seen
        wanted = math.ceil(max(seen + self.trend * rise, 0.0) / self.each)
        return min(max(wanted, self.low), self.high)


def fleet(autoscaler, server, delay, away, rates, seconds, first):
    """Replicas wanted, replicas that serve, and requests in flight in all, of every step.

    ``away``: departures per hour. A wish of step j counts from j * seconds on.
    """
    up = 1.0 / (1.0 + away * delay / 3600.0)
    wishes, ready, last_rate = [], first * up, 0.0
    held = interpolate(rates[0] / ready, server.rate, server.held) * ready
    course = []
    for j, rate in enumerate(rates):
        full = server.held[-1] * ready
        waiting = interpolate(held / ready, server.held, server.waiting) * ready
        waiting += max(held - full, 0.0)
        replicas = wishes[-1] if wishes else first
        wanted = autoscaler.wants(j * seconds, seconds, held, waiting, ready, replicas, last_rate)
        wishes.append(wanted)
        serve = up * started(wishes, first, delay / seconds)
        held *= min(serve / ready, 1.0)
        held = server.after(held / serve, rate / serve, seconds) * serve
        ready, last_rate = serve, rate
        course.append((wanted, serve, held))
    return course


def started(wishes, first, late):
    """Replicas that have been wanted for ``late`` steps; a part of one starts within a step."""

    def least(steps):
        recent = [wishes[-1 - k] for k in range(min(steps, len(wishes)))]
        return min([*recent, first] if steps > len(wishes) else recent)

    whole = math.floor(late)
    return least(whole + 1) + (late - whole) * (least(whole + 2) - least(whole + 1))
