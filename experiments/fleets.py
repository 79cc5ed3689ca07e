"""Random days of a fleet: p99 of every hour by the law, beside a replay of the whole day.

A day has rates by the hour, surges, bursts, lengths, a model on a system and a policy, all drawn.
Its law gives the course of replicas and p99 of TTFT of every hour; the replay draws the requests at
the rates of the course's steps, and serves them by the engine's scheduler in copies that come and
go with it. Two replays with other seeds say how far p99 of an hour is known at all.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
import typer

from experiments import _report

app = _report.program(__doc__)
NEAR = 0.15  # of p99
REPLICAS = (
    ("llama-3.1-8b", "h100_sxm", 1),
    ("qwen3-32b", "h200_sxm", 2),
    ("gpt-oss-120b", "h200_sxm", 1),
    ("qwen3-30b-a3b", "h100_sxm", 2),
)
POLICIES = ("static", "schedule", "Kubernetes HPA", "Dynamo planner")
HOURS, HOUR = 24, 3600.0  # of a day


class Hours(NamedTuple):
    """p99 of TTFT (s) of each hour but the first, in which copies start empty."""

    law: np.ndarray
    replay: np.ndarray
    again: np.ndarray  # with another seed
    low: np.ndarray  # end of the law's band
    high: np.ndarray  # the other one
    limit: float
    load: np.ndarray  # most requests/s of a step over what the replicas that serve carry
    words: str


def traffic_of(random: np.random.Generator, hours: int = HOURS, period: float = HOUR) -> Any:
    """A day with one peak, noise, surges and lognormal lengths; its mean rate is 1."""
    from jax.scipy.special import ndtri

    from infer_jax.arrivals import LEVELS, Traffic

    angle = 2.0 * np.pi * (np.arange(hours) / hours + random.random())
    shape = 1.0 + random.uniform(0.2, 0.8) * np.cos(angle)
    rates = shape * random.lognormal(0.0, 0.1, hours)
    scores = np.asarray(ndtri(np.clip(LEVELS, 1e-3, 1.0 - 1e-3)))
    tokens = [
        np.clip(random.uniform(*middle) * np.exp(random.uniform(0.3, 0.8) * scores), 4, most)
        for middle, most in (((1000, 5000), 24_000), ((100, 600), 4000))
    ]
    return Traffic.of(
        rates=rates / rates.mean(), period=period, prompts=tokens[0], outputs=tokens[1],
        surge=random.uniform(0.0, 0.3), sojourn=random.uniform(30.0, 120.0),
        variability=random.uniform(1.0, 2.0),
    )  # fmt: skip


def day(seed: int, hours: int = HOURS, period: float = HOUR) -> Hours:
    """One day by law and by replay."""
    import jax.numpy as jnp

    from infer_jax.fleets import Lifecycle, ServiceLimits
    from infer_jax.fleets.confirmation import replay_course
    from infer_jax.planning import Layout
    from infer_jax.verbs import fleet_replica, inputs
    from infer_jax.verbs.fleet_policies import AUTOSCALERS, Fleet
    from infer_jax.verbs.fleet_replay import replayed_server

    random = np.random.default_rng(seed)
    model, system, tp = REPLICAS[random.integers(len(REPLICAS))]
    name, policy = "serving", str(random.choice(POLICIES))
    traffic = traffic_of(random, hours, period)
    setup = inputs.setup(model, system, None, None, None, None, None)
    limits = ServiceLimits.of(ttft=2.0, tpot=1e6, goodput=0.99)
    layout, life = Layout(float(tp), 1.0, 1.0, 1.0), Lifecycle.of(start_delay=120.0)
    one = fleet_replica.find_replica(setup, name, layout, traffic, limits, life)
    carries = float(one.replica.rate_within(limits))
    rates = np.asarray(traffic.rates)
    traffic = traffic.with_(rates=rates / rates.max() * carries * random.uniform(1.3, 3.5))
    steps = fleet_replica.steps_of_traffic(traffic, seed)
    fleet = Fleet.of(traffic, (one,), limits, None, 1.0, 0.3, steps)
    if policy in POLICIES[:2]:
        found = next(x for x in fleet.policies() if x.name == policy)
    else:
        kind = next(x for x in AUTOSCALERS if x.name == policy)
        held = float(one.replica.at_rate(jnp.asarray(carries)).in_flight)
        parameter = 0.5 * held if policy == "Kubernetes HPA" else random.uniform(1.2, 1.6)
        found = fleet.run(policy, "", fleet.follow([kind.make(parameter)])[2][0])
    course, seconds = found.courses[0], float(fleet.given.seconds)
    server = replayed_server(one, name, traffic)
    replays, count = list[np.ndarray](), 0
    for other in (0, 1):
        run = replay_course(server, traffic, course, seconds, slice(None), (seed, other))
        count = len(run.ttft)
        each = (run.between(i * period, (i + 1) * period) for i in range(1, hours))
        replays.append(np.array([x.ttft_within(0.99) for x in each]))
    share = np.asarray(course.rate) / np.asarray(course.ready) / carries
    load = share.reshape(hours, -1).max(axis=1)[1:]
    words = f"{model}, {policy}, {count:,} requests"
    law, (low, high) = (
        np.asarray(x)[..., 1:] for x in (found.outcome.ttft, found.outcome.ttft_band)
    )
    replay, again = replays
    return Hours(law, replay, again, low, high, float(limits.ttft), load, words)


def figures_of(days: list[Hours]) -> dict[str, Any]:
    """Shares of hours, and how wrong a limit is judged."""
    law, replay, again, low, high, load = (
        np.concatenate([getattr(x, name) for x in days])
        for name in ("law", "replay", "again", "low", "high", "load")
    )
    limit, off = days[0].limit, law / replay - 1.0
    wrong, other = ((law <= limit) != (x <= limit) for x in (replay, again))
    calm, left_open = load <= 1.0, (low <= limit) & (limit <= high)

    def near(errors: np.ndarray) -> float:
        return float(np.mean(np.abs(errors) <= NEAR)) if len(errors) else float("nan")

    def quantile(values: np.ndarray, share: float) -> float:
        return float(np.quantile(values, share)) if len(values) else float("nan")

    return {
        "days": len(days),
        "hours": len(law),
        f"share within {100 * NEAR:g} %": near(off),
        "the same of two replays": near(again / replay - 1.0),
        "hours that no step overloads": int(calm.sum()),
        "of these, share within": near(off[calm]),
        "of these, the same of two replays": near((again / replay - 1.0)[calm]),
        "of these, law over replay in 95 of 100, from": quantile(1.0 + off[calm], 0.025),
        "to": quantile(1.0 + off[calm], 0.975),
        "of the others, share within": near(off[~calm]),
        "of the others, the same of two replays": near((again / replay - 1.0)[~calm]),
        "hours on the wrong side of the limit": int(wrong.sum()),
        "of these, law breaks it": int((wrong & (law > limit)).sum()),
        "of these, no step overloads": int((wrong & calm).sum()),
        "hours of which the band has the limit": int(left_open.sum()),
        "of the others, on the wrong side": int((wrong & ~left_open).sum()),
        "of the others, the other replay on the wrong side": int((other & ~left_open).sum()),
        "share of replays in the band": float(
            np.mean([(low <= x) & (x <= high) for x in (replay, again)])
        ),
        "end of the band over its begin, median": quantile(high / low, 0.5),
        "the same, of nine in ten hours at most": quantile(high / low, 0.9),
        "the same between two replays": int(((again <= limit) != (replay <= limit)).sum()),
        "hours that break it by replay": int((replay > limit).sum()),
    }


def days_of(count: int, first: int, period: float) -> Iterator[Hours]:
    """Days of successive seeds, each in a line."""
    for seed in range(first, first + count):
        one = day(seed, period=period)
        off = np.abs(one.law / one.replay - 1.0)
        near, calm = np.mean(off <= NEAR), one.load <= 1.0
        words = (
            f"{100 * near:3.0f} % near, worst {one.replay.max():.3g} s (law {one.law.max():.3g})"
        )
        print(f"{seed}: {words}, {calm.sum()} calm hours; {one.words}", file=sys.stderr, flush=True)
        yield one


@_report.command(app, x64=True)
def fleets(
    days: Annotated[int, typer.Option(help="Days that are drawn.")] = 50,
    seed: Annotated[int, typer.Option(help="Of the first.")] = 0,
    period: Annotated[float, typer.Option(help="Seconds of an hour of a day.")] = HOUR,
) -> dict[str, Any]:
    """p99 of TTFT by hour, law beside replay."""
    found = figures_of(list(days_of(days, seed, period)))
    for name, value in found.items():
        print(f"{name} {value:,.4g}")
    return found


if __name__ == "__main__":
    from infer_jax.compiling.settings import ONE_PIECE

    os.environ.setdefault("XLA_FLAGS", ONE_PIECE)
    app()
