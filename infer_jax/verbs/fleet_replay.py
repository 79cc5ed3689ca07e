"""The worst periods of a fleet's policies, replayed request by request beside the law."""

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from infer_jax.arrivals import Traffic
from infer_jax.fleets.confirmation import ReplayedRequests, replay_course
from infer_jax.planning import Layout
from infer_jax.results import Column, Row, percent, scaled_format
from infer_jax.results.problems import refuse
from infer_jax.servers.instance import ReplayedInstance, Sizes, replayed_instance
from infer_jax.verbs import inputs
from infer_jax.verbs.fleet_policies import Fleet, Policy
from infer_jax.verbs.fleet_replica import FleetReplica
from infer_jax.verbs.plan_replay import UNSUPPORTED
from infer_jax.verbs.progress import busy

WARM = 1800.0  # s before a period from which on it is replayed, for copies start empty
MARGINS = (0.1, 0.25)  # traffic that schedules are made for beside, where they are replayed
REPLAYED = (
    Column("replayed", "", "at"),
    Column("requests", "", "requests", "{:,}".format),
    Column("TTFT", "ms, law", "law_ttft_s", scaled_format(1e3)),
    Column("", "replay", "ttft_s", scaled_format(1e3)),
    Column("mean TPOT", "ms, law", "law_tpot_s", scaled_format(1e3)),
    Column("", "replay", "tpot_s", scaled_format(1e3)),
    Column("good", "%, law", "law_goodput", percent),
    Column("", "replay", "goodput", percent),
    Column("each", "%", "goodput_of_each", percent, spare=True),
)


class Replayed(NamedTuple):
    """A policy and its worst periods, and in how many of these a replay keeps the limits."""

    policy: Policy
    rows: list[Row]
    kept: int

    @property
    def keeps(self) -> bool:
        """Whether all of them keep the limits."""
        return self.kept == len(self.rows)


def obstacle(layout: Layout) -> str:
    """What a layout has that is not replayed, in words, or ""."""
    return next((what for field, what in UNSUPPORTED if getattr(layout, field) > 1), "")


def replayed_server(replica: FleetReplica, name: str, traffic: Traffic) -> ReplayedInstance:
    """A replica as it is replayed.

    Raises:
        InputError: a layout whose instances are not replayed, or no room for a cache.
    """
    setup, layout = replica.setup, replica.layout
    if what := obstacle(layout):
        raise refuse("replay", str(layout), f"without {what}: they are not replayed")
    serving, arch = inputs.serving(name, setup), setup.model.architecture
    tokens = sum(float(np.asarray(traffic.lengths[x])) for x in ("isl", "osl"))
    degrees = {"tp": layout.tp, "ep": layout.ep}
    return replayed_instance(serving, arch, setup.hardware, degrees, Sizes(), tokens)


def confirm(
    servers: Sequence[ReplayedInstance], traffic: Traffic, fleet: Fleet,
    policies: Sequence[Policy], count: int, seed: int,
) -> list[Replayed]:  # fmt: skip
    """Policies that keep the limits by the law, the cheapest first, until a replay keeps them, too.

    Where none keeps them by the law, the nearest.
    """
    order, done = sorted(policies, key=fleet.rank, reverse=True), list[Replayed]()
    best = fleet.rank(order[0])[0]
    for policy in takewhile(lambda x: fleet.rank(x)[0] >= best, order):
        done.append(replay_worst(servers, traffic, fleet, policy, count, seed))
        if done[-1].keeps:
            break
    return done


def replay_worst(
    servers: Sequence[ReplayedInstance], traffic: Traffic, fleet: Fleet, policy: Policy,
    count: int, seed: int,
) -> Replayed:  # fmt: skip
    """The ``count`` periods with the fewest good requests, of these the longest TTFT first.

    ``servers``: one of each pool, which gets the requests that it has by the law.
    """
    found, limits = policy.outcome, fleet.given.limits
    order = np.lexsort((-np.asarray(found.ttft), np.asarray(found.shares)))[:count]
    seconds, steps = float(fleet.given.seconds), fleet.steps
    rates = np.stack([np.asarray(x.arriving) for x in policy.courses])
    tpots = np.stack([np.asarray(pool.replica.at(x.running).tpot)
                      for pool, x in zip(fleet.pools, policy.courses, strict=True)])  # fmt: skip
    rows = list[Row]()
    for at in order.tolist():
        own = slice(at * steps, (at + 1) * steps)
        before = max(own.start - round(WARM / seconds), 0)
        part = slice(before, own.stop)
        with busy("replaying the worst periods"):
            every = [
                replay_course(server, traffic, course, seconds, part, (seed, i))
                for i, (server, course) in enumerate(zip(servers, policy.courses, strict=True))
            ]
        both = ReplayedRequests(*(np.concatenate(x) for x in zip(*every, strict=True)))
        here = both.between((own.start - before) * seconds, np.inf)
        if not len(here.ttft):
            continue
        rows.append({
            "policy": policy.name,
            "detail": policy.detail,
            "period": at,
            "requests": len(here.ttft),
            "law_ttft_s": found.ttft[at],
            "ttft_s": here.ttft_within(float(limits.goodput)),
            "law_tpot_s": np.average(tpots[:, own], weights=rates[:, own]),
            "tpot_s": here.tpot.mean(),
            "law_goodput": found.shares[at],
            "goodput": here.share_good(limits, seconds),
            "goodput_of_each": here.share_each_good(limits),
        })  # fmt: skip
    return Replayed(policy, rows, sum(x["goodput"] >= limits.goodput for x in rows))
