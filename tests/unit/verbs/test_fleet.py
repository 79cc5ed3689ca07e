"""The verb ``fleet``: bad input in a sentence, and policies of a replica in closed form."""

import dataclasses
from typing import Any, NamedTuple, cast

import jax.numpy as jnp
import numpy as np
import pytest

import infer_jax as ij
from infer_jax.errors import InputError
from infer_jax.fleets import (
    Conditions,
    Horizontal,
    Lifecycle,
    Replica,
    ServiceLimits,
    outcome,
    ramp,
)
from infer_jax.planning import Layout
from infer_jax.sweeps import Axis
from infer_jax.verbs import fleet_policies
from infer_jax.verbs.fleet_policies import AUTOSCALERS, Fleet, why_broken
from tests.unit.fleets.toys import exponential_replica

TRAFFIC = """
period_s = 3600
rates_per_s = [{rate}]
[lengths]
prompt_tokens = [{tokens}]
output_tokens = [{tokens}]
"""


@pytest.fixture(autouse=True, scope="module")
def _few_parameters():
    """Of an autoscaler few are tried: the more are compiled for longer."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fleet_policies, "LANES", 6)
        yield


@pytest.fixture
def traffic(tmp_path):
    """A file of traffic at a rate."""

    def write(rate):
        place = tmp_path / "traffic.toml"
        place.write_text(TRAFFIC.format(rate=rate, tokens=", ".join(["100"] * 16)))
        return place

    return write


WRONG = {
    "traffic": ({"traffic": None}, "traffic"),
    "missing file": ({"traffic": "nowhere.csv"}, "nowhere.csv"),
    "two copies": ({"layout": "2 x TP1"}, 'layout="TP1"'),
    "goodput": ({"goodput": 1.5}, "goodput"),
    "picture": ({"out": "week.docx"}, ".png"),
    "no requests": ({"rate": 0.0}, "requests at some time"),
    "split": ({"tp": 3}, "tp"),
    "layouts": ({"layout": ["TP1", "TP2", "TP4"], "hardware": ["h100_sxm", "l40s"]}, "3 of them"),
    "GPUs of another system": ({"available": "l40s=4"}, "h100_sxm"),
    "fewer GPUs than a replica has": ({"tp": 2, "available": 1}, "at least the 2 GPUs"),
    "too few GPUs": ({"rate": 900.0, "available": 1}, "GPUs for 900 requests/s"),
}


@pytest.mark.parametrize("case", WRONG)
def test_bad_input_is_refused_in_one_sentence(case, traffic):
    options, words = WRONG[case]
    rate = options.get("rate", 2.0)
    rest = {k: v for k, v in options.items() if k not in ("rate", "hardware")}
    given = {"traffic": traffic(rate), **({} if "layout" in options else {"tp": 1}), **rest}
    with pytest.raises(InputError) as refused:
        ij.fleet("llama-3.1-8b", options.get("hardware", "h100_sxm"), **given)
    assert words in str(refused.value) and "\n" not in str(refused.value)


class Toys(NamedTuple):
    """A pool of toy replicas: what is read of ``FleetReplica``."""

    name: str
    replica: Replica
    life: Lifecycle
    gpus: float = np.inf
    system: str = "toys"
    layout: Layout = Layout(1.0, 1.0, 1.0, 1.0)


@pytest.fixture(scope="module")
def day():
    """Six hours in periods of ten minutes, up to 12 requests/s, for replicas of M/M/4."""
    rates = 6.5 - 5.5 * np.cos(np.arange(36) / 36 * 2 * np.pi)
    limits = ServiceLimits.of(ttft=4.0, tpot=1.0, goodput=0.95)
    one = jnp.asarray(1.0)
    given = Conditions(exponential_replica(), Lifecycle.of(), limits, ramp(jnp.asarray(rates), 40),
                       15.0 * one, one, one, 0.3 * one, 2.0 * one)  # fmt: skip
    fleet = Fleet(given, cast(Any, (Toys("", given.replica, given.life),)), rates, 600.0)
    return fleet, list(fleet.policies())


def test_no_policy_that_keeps_the_limits_costs_less_than_the_bound(day):
    fleet, policies = day
    bound = policies[0].outcome
    for policy in policies:
        if np.min(policy.outcome.shares) >= 0.95:
            # the bound keeps them in every step, which may cost a little more than in every period
            assert policy.outcome.cost.usd >= 0.98 * bound.cost.usd, policy.name
    names = [x.name for x in policies]
    assert names[:3] == ["perfect autoscaler", "static", "schedule"]
    assert {x.name for x in AUTOSCALERS} == set(names[3:])
    # by hand: 24 h of the rent, of as many as the busiest step needs
    each = float(fleet.given.replica.rate_within(fleet.given.limits))
    most = float(np.ceil(np.max(fleet.given.rates) / each))
    assert float(policies[1].outcome.cost.usd) == pytest.approx(24 * 3.6 * most)
    assert np.all(policies[1].outcome.shares >= 0.95)


def test_an_autoscaler_stands_above_the_base_of_another_pool_and_who_pays_off_is_said(traffic):
    """Two systems, of which one is cheap and few: its GPUs are the base, and never more."""
    given = {"traffic": traffic("80, 200, 300, 120"), "tp": 1, "ttft": 3.0}
    found = ij.fleet("llama-3.1-8b", ["l40s", "h100_sxm"], available="l40s=3", price="l40s=0.3",
                     **given)  # fmt: skip
    fleet, told = found.fleet, cast(Any, found.to_dict())
    base, at, *_ = fleet.scaling
    assert fleet.pools[at].name == "TP1 h100_sxm" and 1 <= base[0] <= 3 and base[1] == 0
    for policy in found.policies:
        assert policy.replicas.shape == (len(fleet.given.rates), 2)
        assert policy.replicas[:, 0].max() <= 3
    horizontal = next(x for x in found.policies if x.name == "Kubernetes HPA")
    assert np.all(horizontal.replicas[:, 0] == base[0]) and np.ptp(horizontal.replicas[:, 1])
    cheap, dear = told["pools"]
    assert (
        cheap["available_gpus"] == 3
        and cheap["rise_without"] > 0
        and dear["rise_without"] == "too few"
    )
    bound, schedule = (found.policies[i] for i in (0, 2))
    rents = [24.0 * float((x.replicas @ fleet.prices).mean()) for x in (bound, schedule)]
    # a bound pays nobody who finishes last requests
    assert float(bound.outcome.cost.usd) == pytest.approx(rents[0], rel=1e-9)
    assert rents[1] < float(schedule.outcome.cost.usd) < 1.1 * rents[1]
    assert len(told["reserved_replicas"]) == 2 and "TP1 l40s" in str(found)
    # a sweep of autoscalers has what each of them costs and keeps
    targets = np.geomspace(20.0, 2000.0, 6)
    usd, share, replicas = fleet.follow([Horizontal.of(target=x) for x in targets])
    swept = found.sweep(Horizontal.of().replace(target=Axis.values(*targets)))
    assert swept.index and 0 < sum(share >= 0.99) < len(targets)
    assert np.all(share[swept.index] >= 0.99)
    assert swept.columns["usd_per_day"] == pytest.approx(usd[swept.index], rel=1e-9)
    assert swept.columns["goodput"] == pytest.approx(share[swept.index], rel=1e-9)
    assert swept.columns["chips"] == pytest.approx(replicas.mean(1).sum(1)[swept.index], rel=1e-9)


def test_without_a_layout_the_cheapest_plan_of_the_peak_is_not_taken_where_a_fleet_of_another_is(
    traffic,
):
    found = ij.fleet("llama-3.1-8b", "h100_sxm", traffic=traffic("20, 100, 40"), ttft=0.1,
                     tpot=0.01)  # fmt: skip
    told, costs = cast(Any, found.to_dict()), [x.usd_of_schedule for x in found.fleets]
    bands = [x["ttft_band_s"] for x in told["periods"]]
    assert told["periods_near_limit"] == sum(low <= 0.1 <= high for low, high in bands)
    assert all(
        low < x["ttft_s"] < high for x, (low, high) in zip(told["periods"], bands, strict=True)
    )
    names = [str(x.pools[0].layout) for x in found.fleets]  # as a search for the peak has them
    assert len({*names}) == len(names) > 3 and costs[0] > 1.2 * min(costs)
    assert told["layout"] == names[int(np.argmin(costs))] == told["layouts"][0]["layout"]
    schedule = found.policies[2]
    assert np.min(schedule.outcome.shares) >= 0.99
    # the most are those of a step, as of the bound, and not the largest mean of a period
    most = [x["most_replicas"] for x in told["hours"]]
    assert max(most) == found.best.replicas.max() and [x["at"] for x in told["hours"]][1] == "1 h"
    peak = f"{float(np.max(found.fleet.given.rates)):.4g} in its busiest 15 s"
    assert peak in " ".join(str(found).split())
    assert min(costs) == pytest.approx(float(schedule.outcome.cost.usd), rel=0.02)
    assert f"{names[0]} {costs[0]:,.0f}" in str(found)


def test_layouts_of_one_system_have_its_gpus_between_them(traffic):
    # as many periods as above: programs of two pools over them are compiled once
    given: dict[str, Any] = {"traffic": traffic("10, 60, 25, 15"), "available": "h100_sxm=6"}
    found = ij.fleet("llama-3.1-8b", "h100_sxm", layout=["TP1", "TP2"], **given)
    for policy in found.policies:
        assert np.all(policy.replicas @ np.array([1.0, 2.0]) <= 6), policy.name


def test_without_two_pools_that_serve_all_no_autoscaler_is_compared(day):
    """Three pools of a replica each: schedules have all three in the busiest hour."""
    fleet, _ = day
    few = [Toys(x, fleet.given.replica, fleet.given.life, 1.0, x) for x in "abc"]
    rates = fleet.given.rates * (2.5 * fleet.serves[0] / np.max(fleet.given.rates))
    three = dataclasses.replace(
        fleet, given=fleet.given._replace(rates=rates), pools=cast(Any, tuple(few))
    )
    policies = list(three.policies())
    assert [x.name for x in policies] == ["perfect autoscaler", "static", "schedule"]
    assert policies[1].detail == "1 x a + 1 x b + 1 x c"
    assert all(float(np.min(x.outcome.shares)) >= 0.95 for x in policies)


def test_the_parameter_of_an_autoscaler_is_the_cheapest_of_a_grid_and_of_one_about_its_best(day):
    fleet, _ = day
    kind = AUTOSCALERS[0]
    ((best, wanted),), (low, high) = fleet.tune(kind).items(), kind.bounds(fleet.given)

    def usd(target: float) -> float:
        """Of one that keeps the limits."""
        policy = kind.make(target).with_(maximum=fleet.scaling.most)
        found = fleet.compute(outcome, policy, fleet.scaling.given)
        if target == best:  # a schedule of what it wants is the same
            same = fleet.run("", "", wanted).outcome
            np.testing.assert_allclose(same.ttft, found.ttft, rtol=1e-9)
            assert float(same.cost.usd) == pytest.approx(float(found.cost.usd), rel=1e-9)
        return float(found.cost.usd) if float(np.min(found.shares)) >= 0.95 else np.inf

    coarse = {x: usd(x) for x in np.geomspace(low, high, 6).tolist()}
    first = min(coarse, key=lambda x: coarse[x])
    step = (high / low) ** 0.2
    fine = [usd(x) for x in np.geomspace(first / step, first * step, 6).tolist()]
    assert usd(best) == min(*coarse.values(), *fine) < np.inf


def test_prompts_beyond_the_context_are_said(traffic):
    """Up to the level 0.95 they rise to 4,000 tokens, so that a twentieth is beyond."""
    from infer_jax.arrivals import read_traffic
    from infer_jax.verbs.fleet_replica import traffic_notes

    prompts = np.r_[np.full(11, 1000.0), 1000.0, 4000.0, 8000.0, 8000.0, 8000.0]
    some = read_traffic(traffic(1.0)).with_(prompts=prompts)
    assert "5 % of the prompts" in "".join(traffic_notes(some, 4000.0))
    assert not [*traffic_notes(some, 9000.0)]


def test_a_schedule_repeats_by_days_only_where_periods_make_one(day):
    fleet, _ = day
    for count, period, said in (
        (72, 3600.0, (24, "by hour of the day")),
        (48, 7000.0, (48, "by a forecast that is right")),  # four days, of 12.3 periods each
        (14, 86400.0, (7, "by hour of the week")),
    ):
        other = dataclasses.replace(fleet, rates=np.ones(count), period=period)
        assert other.cycle == said


def test_what_breaks_has_its_limit_and_its_reason(day):
    fleet, policies = day
    planner = next(x for x in policies if x.name == "Dynamo planner" and "default" in x.detail)
    at = int(np.argmin(planner.outcome.shares))
    assert planner.outcome.shares[at] < 0.95
    one = dataclasses.replace(fleet, most=1.0)
    few = one.run(planner.name, "", one.follow([AUTOSCALERS[2].make(1.0)])[2][0])
    assert why_broken(one, few, at) == "TTFT: too few, 1 at most"
    words = why_broken(fleet, planner, at)
    assert words.startswith("TTFT: ")
    assert "still start" in words or "too few" in words
