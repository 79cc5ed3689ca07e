"""Plans at a rate of arrivals against a loop over every layout and every number of replicas."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from infer_jax.catalog import load_model, load_system
from infer_jax.compiling import programs
from infer_jax.compiling.programs import BRISK
from infer_jax.estimators.serving import Serving
from infer_jax.planning import OpenLoop, PlanSpace, Requirements, Side, layouts, search
from infer_jax.planning.layout import LARGEST
from infer_jax.specs import Arrivals, Workload

SYSTEM = load_system("h100_sxm")
SIDE = Side("h100_sxm", SYSTEM.hardware, Serving.of())
GPUS = 64  # of the largest plan that the loop tries


def work_of(isl: float, osl: float, rate: float) -> Workload:
    return Workload.of(isl=isl, osl=osl, arrivals=Arrivals.of(rate=rate))


def brute_force(arch, work: Workload, rate: float):
    """Layout, GPUs, and the times of each plan of at most GPUS, whether it fits in or not."""
    legal = layouts(arch, int(LARGEST))
    loop = OpenLoop(PlanSpace((SIDE,), arch, work, Requirements(rate=rate)), legal)
    every = [(k, float(n)) for k, x in enumerate(legal) for n in range(1, GPUS // int(x.chips) + 1)]
    return (
        np.array([legal[k].chips * n for k, n in every]),
        [legal[k] for k, _ in every],
        (loop.evaluated(every).estimates),
    )


def plans_of(arch, work: Workload, rate: float, **limits: Any):
    asked = replace(Requirements(rate=rate), **limits)
    found = search(PlanSpace((SIDE,), arch, work, asked, modes=("aggregated",)))
    return sorted(found.met, key=lambda c: c.rank)


def asked_at_random(random, each, s):
    """Limits that a plan of a random layout keeps by a little, and the plans that keep them."""
    room = np.all([x.need <= x.capacity for x in s.decode.limits.values()], axis=0)
    if not room.any():
        return None
    layout = random.choice(sorted({str(each[i]) for i in np.flatnonzero(room)}))
    i = random.choice([i for i in np.flatnonzero(room) if str(each[i]) == layout])
    names = random.choice(
        ["ttft", "tpot", "p95_ttft", "p99_ttft"], random.integers(1, 4), replace=False
    )
    times = {"ttft": s.ttft, "tpot": s.tpot, "p95_ttft": s.percentiles["p95"]}
    times["p99_ttft"] = s.percentiles["p99"]
    limits = {n: float(times[n][i]) * random.uniform(1.0, 1.03) for n in names}
    return limits, room & np.all([times[n] <= x for n, x in limits.items()], axis=0)


def no_plan_is_dearer(name: str, count: int) -> None:
    random, arch, answered = np.random.default_rng(21), load_model(name).architecture, 0
    while answered < count:
        isl, osl = np.round(np.exp(random.uniform(np.log([100, 20]), np.log([6000, 800]))))
        rate = float(np.exp(random.uniform(np.log(0.5), np.log(60.0))))
        work = work_of(float(isl), float(osl), rate)
        gpus, each, s = brute_force(arch, work, rate)
        question = asked_at_random(random, each, s)
        if question is None:
            continue
        limits, fits = question
        answered += 1
        first = plans_of(arch, work, rate, **limits)[0]
        assert first.chips == gpus[fits].min(), (isl, osl, rate, limits, first)


def test_no_plan_is_dearer_than_one_within_limits():
    """Random rates, lengths and limits of a dense model."""
    no_plan_is_dearer("llama-3.1-8b", 2)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [("llama-3.1-8b", 200), ("qwen3-30b-a3b", 100)])
def test_no_plan_is_dearer_than_one_within_limits_300(name, count, monkeypatch):
    """The same of 300 questions, a third of them of a mixture."""
    monkeypatch.setattr(programs, "BRISK", BRISK)
    no_plan_is_dearer(name, count)


def test_a_higher_rate_never_needs_fewer_gpus_and_loses_no_layout():
    """The layouts of a plan are those that a loop over all plans needs the fewest GPUs for."""
    arch, limit, gpus = load_model("llama-3.1-8b").architecture, 0.0306, []
    for rate in (4.0, 20.0, 60.0):
        work = work_of(1000.0, 100.0, rate)
        chips, each, s = brute_force(arch, work, rate)
        fits = np.all([x.need <= x.capacity for x in s.decode.limits.values()], axis=0)
        least: dict[str, float] = {}
        for i in np.flatnonzero(fits & (s.ttft <= limit)):
            least[str(each[i])] = min(least.get(str(each[i]), np.inf), chips[i])
        found = {c.layout.split(" x ")[1]: c.chips for c in plans_of(arch, work, rate, ttft=limit)}
        assert all(least.get(name, c) == c for name, c in found.items() if c <= GPUS)
        cheapest = sorted(least.values())[: len(found)]
        assert list(found.values())[: len(cheapest)] == cheapest
        gpus.append(next(iter(found.values())))
    assert all(a <= b for a, b in pairwise(gpus)) and gpus[-1] > gpus[0]


def test_a_load_of_nothing_takes_one_instance():
    arch = load_model("llama-3.1-8b").architecture
    met = plans_of(arch, work_of(1000.0, 100.0, 1e-7), 1e-7)
    assert met[0].layout == "1 x TP1" and len(met) == 3


def test_a_frontier_has_no_more_than_three_times_the_replicas_it_needs():
    """The search tries many more; of each layout a frontier shows what somebody might rent."""
    arch, rate = load_model("llama-3.1-8b").architecture, 20.0
    work, fewest = work_of(1000.0, 100.0, rate), dict[str, float]()
    chips, each, s = brute_force(arch, work, rate)
    for gpus, layout, ttft, tpot in zip(chips, each, s.ttft, s.tpot, strict=True):
        if ttft <= 0.1 and tpot <= 0.02:
            fewest[str(layout)] = min(fewest.get(str(layout), np.inf), gpus)
    met = plans_of(arch, work, rate, ttft=0.1, tpot=0.02, frontier=True)
    assert min(c.chips for c in met) == min(fewest.values())
    for c in met:
        assert c.chips <= 3 * fewest.get(c.layout.split(" x ")[1], np.inf)
