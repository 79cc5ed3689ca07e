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
    """One replica: what it has at each of some rates, its capacity, that of prompts alone."""

    def __init__(self, replica):
        service = replica.service
        self.rate, self.held, self.waiting, self.latency = (
            [float(x) for x in getattr(service, name)]
            for name in ("rate", "in_flight", "waiting", "latency")
        )
        self.capacity, self.prompts = float(replica.capacity), float(replica.prompts)

    def after(self, stages, queue, coming, seconds):
        """Requests in three stages of their answer, and those that no replica has begun.

        A number ``come`` and leave stage by stage, each a share 1 - 1 / (1 + turns) of what is in
        it, those that come in the same step, too.
        """
        most = self.held[-1]
        total = self.settled(sum(stages) + queue, coming, seconds)
        near = min(total, most)
        rate = interpolate(near, self.held, self.rate) if total < most else self.capacity
        latency = near / rate if rate > 0.0 else self.latency[0]
        coming = queue + seconds * coming
        fed = min(coming, 0.9 * self.prompts * seconds, most - sum(stages) + seconds * rate)
        slowed = (1.0 - min(fed / seconds / self.prompts, 0.9)) / (
            1.0 - min(rate / self.prompts, 0.9)
        )
        turns = 3.0 * seconds / latency * slowed

        def pass_on(first):
            before, left = first, []
            for stage in stages if first == 0.0 else [0.0] * 3:
                before = (stage + (turns if left or first == 0.0 else 1.0) * before) / (1.0 + turns)
                left.append(before)
            return left

        kept, one = pass_on(0.0), pass_on(1.0)
        fed = min(fed, max(most - sum(kept), 0.0) / sum(one))
        return [x + fed * y for x, y in zip(kept, one, strict=True)], coming - fed

    def settled(self, held, coming, seconds):
        """Bisection on what would be there, were all answered as in the long run."""

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
    wishes, ready, last_rate, queue = [], first * up, 0.0, 0.0
    stages = [interpolate(rates[0] / ready, server.rate, server.held) * ready / 3.0] * 3
    course = []
    for j, rate in enumerate(rates):
        waiting = interpolate(sum(stages) / ready, server.held, server.waiting) * ready + queue
        replicas, held = wishes[-1] if wishes else first, sum(stages) + queue
        wanted = autoscaler.wants(j * seconds, seconds, held, waiting, ready, replicas, last_rate)
        wishes.append(wanted)
        serve = up * started(wishes, first, delay / seconds)
        stages = [x * min(serve / ready, 1.0) / serve for x in stages]
        stages, queue = server.after(stages, queue / serve, rate / serve, seconds)
        stages, queue = [x * serve for x in stages], queue * serve
        ready, last_rate = serve, rate
        course.append((wanted, serve, sum(stages) + queue))
    return course


def started(wishes, first, late):
    """Replicas that have been wanted for ``late`` steps; a part of one starts within a step."""

    def least(steps):
        recent = [wishes[-1 - k] for k in range(min(steps, len(wishes)))]
        return min([*recent, first] if steps > len(wishes) else recent)

    whole = math.floor(late)
    return least(whole + 1) + (late - whole) * (least(whole + 2) - least(whole + 1))
