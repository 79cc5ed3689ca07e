"""Plans at a rate of arrivals, and plans whose limits hold with a probability, against loops."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax
import numpy as np
import pytest

from infer_jax.calibration.posterior import normal_scores, shipped_intervals, with_draws
from infer_jax.catalog import load_model, load_system
from infer_jax.catalog.published import facts, laws, unseen
from infer_jax.compiling import programs
from infer_jax.compiling.programs import BRISK
from infer_jax.estimators.serving import Serving
from infer_jax.physics.chance import Spread
from infer_jax.planning import MODES, OpenLoop, PlanSpace, Requirements, Side, layouts, search
from infer_jax.planning.bands import ErrorModel, Posterior, chances
from infer_jax.planning.cheapest import confident_plans, tighten_limits
from infer_jax.planning.instances import instance_rows
from infer_jax.planning.layout import LARGEST
from infer_jax.planning.pricing import first_of_each, priced
from infer_jax.specs import Arrivals, Workload

H100 = load_system("h100_sxm")
SERVER = Side("h100_sxm", H100.hardware, Serving.of())
MOST_GPUS = 64  # of the largest plan that the loop tries


def work_of(isl: float, osl: float, rate: float) -> Workload:
    return Workload.of(isl=isl, osl=osl, arrivals=Arrivals.of(rate=rate))


def brute_force(arch, work: Workload, rate: float):
    """Layout, GPUs, and the times of each plan of at most MOST_GPUS, whether it fits in or not."""
    legal = layouts(arch, int(LARGEST))
    loop = OpenLoop(PlanSpace((SERVER,), arch, work, Requirements(rate=rate)), legal)
    every = [
        (k, float(n)) for k, x in enumerate(legal) for n in range(1, MOST_GPUS // int(x.chips) + 1)
    ]
    return (
        np.array([legal[k].chips * n for k, n in every]),
        [legal[k] for k, _ in every],
        (loop.evaluated(every).estimates),
    )


def plans_of(arch, work: Workload, rate: float, **limits: Any):
    asked = replace(Requirements(rate=rate), **limits)
    found = search(PlanSpace((SERVER,), arch, work, asked, modes=("aggregated",)))
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
    arch, limit, gpus = load_model("llama-3.1-8b").architecture, 0.045, []
    for rate in (4.0, 20.0, 60.0):
        work = work_of(1000.0, 100.0, rate)
        chips, each, s = brute_force(arch, work, rate)
        fits = np.all([x.need <= x.capacity for x in s.decode.limits.values()], axis=0)
        least: dict[str, float] = {}
        for i in np.flatnonzero(fits & (s.ttft <= limit)):
            least[str(each[i])] = min(least.get(str(each[i]), np.inf), chips[i])
        found = {c.layout.split(" x ")[1]: c.chips for c in plans_of(arch, work, rate, ttft=limit)}
        assert all(least.get(name, c) == c for name, c in found.items() if c <= MOST_GPUS)
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


DRAWS, GPUS = 256, 2
ASKED = Requirements(chips=GPUS, ttft=0.4, tpot=0.012)


@pytest.fixture(scope="module")
def asking():
    """llama-3.1-8b on two H100, and what is uncertain of vLLM there."""
    with jax.enable_x64(True):
        system, serving = load_system("h100_sxm"), Serving.vllm_engine()
        known = shipped_intervals(serving)
        names = sorted({one.symbol for one in known.values()})
        scores = dict(zip(names, normal_scores(len(names), DRAWS).T, strict=True))
        work = Workload.of(isl=2000, osl=200)

        def errors(load, gaps=0.0, layout=None):
            within = unseen(facts(load, (2000.0, 200.0)))
            spreads = ((Spread.of(within[n]), laws()[n].common) for n in ("tpot", "ttft"))
            return tuple(ErrorModel(*x) for x in spreads)

        both: Any = dict.fromkeys(MODES, errors)
        offsets: dict[str, np.ndarray] = {mode: normal_scores(2, DRAWS, seed=1).T for mode in MODES}
        posterior = Posterior([with_draws(serving, known, scores, DRAWS)], both, offsets)
        arch = load_model("llama-3.1-8b").architecture
        sides = [Side("h100_sxm", system.hardware, serving, 8)]
        yield PlanSpace(sides, arch, work, ASKED, modes=("aggregated",)), posterior


def rows_of(space):
    """All rows of the small space as plans, cheapest first, whatever their limits."""
    asked = space.requirements
    table = instance_rows(space, layouts(space.arch, GPUS, size=8))(asked, 3)
    every = priced(table, asked)
    return every, np.lexsort((np.float32(table.estimates.tpot), np.float32(every.cost)))


def test_the_search_is_that_of_a_loop_over_all_rows(asking):
    """Every row is evaluated at every draw; the cheapest of each layout that hold are the plans."""
    (space, posterior), confidence = asking, 0.9
    answer = confident_plans(space, posterior, confidence)
    every, order = rows_of(space)
    plans = [every.choice(int(i)) for i in order]
    holds = np.asarray(chances(plans, space, posterior).holds)
    assert np.all((holds >= 0.0) & (holds <= 1.0)) and holds.min() == 0.0  # memory is too small
    sure = [int(i) for i, p in zip(order, holds, strict=True) if p >= confidence]
    best = first_of_each(every.table, sure, 3)
    assert [(c.layout, c.batch) for c in answer.met] == [
        (every.choice(i).layout, every.choice(i).batch) for i in best
    ]
    known = dict(zip(order.tolist(), holds, strict=True))
    for i, c in zip(best, answer.met, strict=True):
        assert c.holds == pytest.approx(float(known[i]))
    mean, first = answer.by_mean, answer.met[0]
    assert mean is not None and mean.holds is not None
    # what the mean chooses is cheaper, and its limits hold less probably
    assert mean.usd_per_mtok < first.usd_per_mtok and mean.holds < confidence


def test_the_probability_of_a_plan_is_the_share_of_simulated_servers_that_keep_it(asking):
    """Servers are drawn whole: coefficients, offsets, each plan's own error, through the band."""
    space, posterior = asking
    plan = confident_plans(space._replace(top=1), posterior, 0.9).met[0]
    random, many = np.random.default_rng(5), 200
    kept = []
    model = space.arch
    degrees = {name: np.float64(x) for name, x in plan.pools[0].layout.degrees.items()}
    deployed = space.common.replace(**degrees)
    work = space.work.replace(batch=np.float64(plan.batch))

    @jax.jit
    def times(serving):
        estimate = serving.estimate(model, space.sides[0].hardware, work, deployed)
        return estimate.tpot, estimate.ttft

    tpot, ttft = jax.vmap(times)(posterior.servings[0])
    for logs, limit, error, offset in zip(
        (np.log(tpot), np.log(ttft)),
        (ASKED.tpot, ASKED.ttft),
        posterior.errors["aggregated"](plan.batch),
        posterior.offsets["aggregated"],
        strict=True,
    ):
        scores, edges = error.spread
        moved = (logs[1:] - logs[0]) / ((edges[-2] - edges[1]) / (scores[-2] - scores[1]))
        part = float(np.var(moved))
        shared = (moved - moved.mean()) * min(1.0, np.sqrt(error.common / part))
        shared += np.sqrt(max(error.common - part, 0.0)) * offset
        own = np.sqrt(1.0 - error.common) * random.normal(size=(DRAWS, many))
        z = shared[:, None] + own
        slopes = [(edges[i + 1] - edges[i]) / (scores[i + 1] - scores[i]) for i in (0, -2)]
        beyond = np.minimum(z - scores[0], 0.0) * slopes[0]
        beyond += np.maximum(z - scores[-1], 0.0) * slopes[1]
        measured = logs[0] + np.interp(z, scores, edges) + beyond
        kept.append(measured <= np.log(limit))
    # errors of the two times are taken as independent: what coefficients move both by is small
    assert plan.holds == pytest.approx(float(np.mean(kept[0]) * np.mean(kept[1])), abs=0.01)
    assert plan.holds == pytest.approx(float(np.mean(kept[0] & kept[1])), abs=0.02)


def test_the_highest_probability_is_said_where_no_plan_holds(asking):
    space, posterior = asking
    tight = space._replace(requirements=replace(ASKED, ttft=0.06, tpot=0.0048))
    answer = confident_plans(tight, posterior, 0.9)
    every, order = rows_of(tight)
    holds = chances([every.choice(int(i)) for i in order], tight, posterior).holds
    assert not answer.met and 0.0 < float(holds.max()) < 0.9
    assert answer.missed[0].holds == answer.reached == pytest.approx(float(holds.max()))
    none = tighten_limits(Requirements(), Posterior([], {}, {}), MODES[0], 0.9, 0.9).factors(
        np.zeros(0)
    )
    assert [len(x) for x in none] == [0, 0]  # of a search that begins without a row
