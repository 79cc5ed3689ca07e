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
        self.rate, self.waiting, self.latency, in_flight = (
            [float(x) for x in getattr(service, name)]
            for name in ("rate", "waiting", "latency", "in_flight")
        )
        self.running = [x - y for x, y in zip(in_flight, self.waiting, strict=True)]
        self.capacity, self.prompts = float(replica.capacity), float(replica.prompts)
        self.stages = [float(x) for x in replica.stages]

    def step(self, running, coming, seconds):
        """Requests that still run, by stage; parts of one that is admitted; the most that are."""
        full, count, fastest = self.running[-1], sum(running), 0.9 * self.prompts * seconds
        after = self.settled(count + min(coming, fastest), seconds)
        near = min(after, full)
        rate = interpolate(near, self.running, self.rate) if after < full else self.capacity
        time = near / rate if rate > 0.0 else self.latency[0]
        most = min(fastest, max(full - count, 0.0) + seconds * rate)
        admitted = min(coming, most) / seconds
        slowed = (1.0 - min(admitted / self.prompts, 0.9)) / (1.0 - min(rate / self.prompts, 0.9))
        turns = [seconds / (time * share) * slowed for share in self.stages]

        def pass_on(moving, counts):
            left = []
            for n, turn in zip(counts, turns, strict=True):
                left.append((n + moving) / (1.0 + turn))
                moving = turn * left[-1]
            return left

        left, parts = pass_on(0.0, running), pass_on(1.0, [0.0] * len(running))
        return left, parts, min(most, max(full - sum(left), 0.0) / sum(parts))

    def settled(self, total, seconds):
        """Bisection on what would run, were all answered as in the long run."""
        full = self.running[-1]
        if total >= full + seconds * self.capacity:
            return total - seconds * self.capacity
        if total >= full + seconds * self.rate[-1]:
            return full
        low, high = 0.0, full
        for _ in range(200):
            middle = 0.5 * (low + high)
            if middle + seconds * interpolate(middle, self.running, self.rate) > total:
                high = middle
            else:
                low = middle
        return 0.5 * (low + high)


class Cohort:
    """Replicas that hold alike: how many, requests of each by stage, and those that wait at it."""

    def __init__(self, server, count, running):
        self.server, self.count, self.running, self.queue = server, count, running, 0.0
        self.busy = 0.0

    @property
    def each(self):
        return sum(self.running) + self.queue

    @property
    def total(self):
        return self.count * self.each

    def scale(self, count):
        """Those that leave take along what they hold; those that begin hold nothing."""
        share = min(self.count / count, 1.0) if count > 0.0 else 0.0
        self.running, self.queue = [x * share for x in self.running], self.queue * share
        self.count = count

    def waiting(self):
        """By chance, growing in time beyond what 0.9 of the capacity has, and in the queue."""
        server = self.server
        most = interpolate(0.9 * server.capacity, server.rate, server.waiting)
        most *= max(0.1 * max(server.capacity * self.busy, 1.0) ** 0.5, 1.0)
        chance = interpolate(sum(self.running), server.running, server.waiting)
        return self.count * (min(chance, most) + self.queue)

    def grow_older(self, seconds):
        server = self.server
        full = interpolate(0.9 * server.capacity, server.rate, server.running)
        self.busy = self.busy + seconds if sum(self.running) >= full else 0.0


def shortest(old, young, held, part, coming):
    """Requests to the young: bisection on when replicas of both hold alike."""
    if young.count == 0.0:
        return 0.0
    if old.count == 0.0:
        return coming

    def more(x):
        at = held[1] + part[1] * x / young.count, held[0] + part[0] * (coming - x) / old.count
        return at[0] > at[1]

    if more(0.0) or not more(coming):
        return 0.0 if more(0.0) else coming
    low, high = 0.0, coming
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if more(middle) else (middle, high)
    return 0.5 * (low + high)


def serve(server, old, young, coming, seconds):
    """A step of both cohorts, in which so many requests come."""
    both = old, young
    first = shortest(old, young, [x.each for x in both], [1.0, 1.0], coming)
    guesses = (coming - first, first)
    steps = []
    for cohort, guess in zip(both, guesses, strict=True):
        more = guess / cohort.count if cohort.count else 0.0
        steps.append(server.step(cohort.running, cohort.queue + more, seconds))
    held = [sum(step[0]) + x.queue for step, x in zip(steps, both, strict=True)]
    got = shortest(old, young, held, [sum(step[1]) for step in steps], coming)
    for cohort, (left, parts, most), come in zip(both, steps, (coming - got, got), strict=True):
        waiting = cohort.queue + (come / cohort.count if cohort.count else 0.0)
        admitted = min(waiting, most)
        cohort.running = [x + admitted * y for x, y in zip(left, parts, strict=True)]
        cohort.queue = waiting - admitted


def merge(old, young):
    """One cohort, once a young replica holds what an old one does."""
    if young.count and young.each >= (1.0 - 1e-6) * old.each:
        count = old.count + young.count
        shares = old.count / count, young.count / count
        old.running = [shares[0] * x + shares[1] * y
                       for x, y in zip(old.running, young.running, strict=True)]  # fmt: skip
        old.queue = shares[0] * old.queue + shares[1] * young.queue
        old.count, young.count, young.queue = count, 0.0, 0.0
        young.running = [0.0] * len(young.running)


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
    """Replicas wanted, replicas that serve, and requests that they hold, of every step.

    ``away``: departures per hour. A wish of step j counts from j * seconds on.
    """
    up = 1.0 / (1.0 + away * delay / 3600.0)
    wishes, last_rate, nothing = [], 0.0, [0.0] * len(server.stages)
    running = interpolate(rates[0] / (first * up), server.rate, server.running)
    old = Cohort(server, first * up, [running * x for x in server.stages])
    young = Cohort(server, 0.0, nothing)
    course = []
    for j, rate in enumerate(rates):
        waiting, ready = old.waiting() + young.waiting(), old.count + young.count
        held = waiting + sum(x.count * sum(x.running) for x in (old, young))
        replicas = wishes[-1] if wishes else first
        wanted = autoscaler.wants(j * seconds, seconds, held, waiting, ready, replicas, last_rate)
        wishes.append(wanted)
        count = up * started(wishes, first, delay / seconds)
        young.scale(max(count - old.count, 0.0))
        old.scale(min(old.count, count))
        serve(server, old, young, rate * seconds, seconds)
        course.append((wanted, count, old.total + young.total))
        old.grow_older(seconds)
        young.grow_older(seconds)
        merge(old, young)
        last_rate = rate
    return course


def started(wishes, first, late):
    """Replicas that have been wanted for ``late`` steps; a part of one starts within a step."""

    def least(steps):
        recent = [wishes[-1 - k] for k in range(min(steps, len(wishes)))]
        return min([*recent, first] if steps > len(wishes) else recent)

    whole = math.floor(late)
    return least(whole + 1) + (late - whole) * (least(whole + 2) - least(whole + 1))
