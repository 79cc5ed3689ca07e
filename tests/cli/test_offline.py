"""``offline``: plans in order of cost, deadlines, idle hours, rollout steps, and bad input."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import infer_jax as ij
from infer_jax.errors import InputError
from infer_jax.verbs import fleet_policies
from infer_jax.verbs.offline_jobs import job_lengths
from infer_jax.verbs.texts import Tokens

EXAMPLES = Path(__file__).parents[2] / "examples"
NAMES = ("llama-3.1-8b", "h100_sxm")
JOB: dict[str, Any] = {"prompts": 20_000, "isl": 512, "osl": "256±256", "tp": 1}


def offline(*names, **asked) -> Any:
    return ij.offline(*names or NAMES, **asked)


@pytest.fixture(scope="module")
def job():
    return offline(**JOB)


def test_dollars_are_rent_and_tokens_those_of_all_requests(job):
    [row], rent = job.rows(), float(ij.load_system("h100_sxm").hardware.price)
    assert row["usd"] == pytest.approx(rent * row["makespan_s"] / 3600.0)
    # 20,000 outputs of 256 tokens in the mean, the longest of which end at the context of the model
    assert job.to_dict()["output_tokens"] == pytest.approx(20_000 * 256, rel=0.01)
    assert row["tokens_per_s"] * row["makespan_s"] == pytest.approx(20_000 * 256, rel=0.01)
    assert 100.0 < row["joules"] / row["makespan_s"] < 700.0  # W of an H100
    assert 0.0 < row["tail_s"] < row["makespan_s"] and row["wasted_percent"] > 0.0
    left = [x["left_s"] for x in job.to_dict()["tail"]]
    assert left == sorted(left, reverse=True)


def test_plans_are_in_order_of_cost_on_every_system():
    rows = offline("llama-3.1-8b", ["h100_sxm", "h200_sxm"], **(JOB | {"tp": None})).rows()
    assert [x["usd"] for x in rows] == sorted(x["usd"] for x in rows)
    assert {x["plan"] for x in rows} >= {"TP1 h100_sxm", "TP4 h100_sxm", "TP2 h200_sxm"}


def test_the_fewest_replicas_are_done_in_time(job):
    hours = job.rows()[0]["makespan_s"] / 3600.0 / 2.5
    [row] = offline(**JOB, within=hours).rows()
    fewer = offline(**JOB, replicas=row["replicas"] - 1).rows()[0]
    assert row["makespan_s"] <= 3600.0 * hours < fewer["makespan_s"]


def test_idle_replicas_work_while_the_traffic_needs_fewer():
    from infer_jax.arrivals import read_traffic

    found = offline(**JOB, traffic=EXAMPLES / "traffic.toml", tpot=0.05).to_dict()
    more = offline(**JOB, traffic=EXAMPLES / "traffic.toml", tpot=0.05, replicas=5)
    rates = np.asarray(read_traffic(EXAMPLES / "traffic.toml").rates).reshape(-1, 24).mean(axis=0)
    idle = np.array([x["idle"] for x in found["idle_hours"]])
    order = np.argsort(rates)
    assert idle[order[0]] > idle[order[-1]]
    # two replicas more are idle all the time
    extra = more.to_dict()["requests_per_day"] - found["requests_per_day"]
    long = offline(**(JOB | {"prompts": 2e6})).rows()[0]["makespan_s"] / 2e6
    added = 5 - found["paid_replicas"]
    assert added > 0 and extra == pytest.approx(added * 86_400.0 / long, rel=0.01)
    # the busier the hour, the less of the replicas that serve is left
    assert all(0.0 < x["per_hour_beside_traffic"] < 4e5 for x in found["idle_hours"])
    # one that is idle for an hour ends as much as one of the long run, less one batch
    for hour in found["idle_hours"]:
        most = 3600.0 * hour["idle"] / long
        assert 0.9 * most <= hour["per_hour"] <= 1.01 * most


def test_replicas_that_serve_take_as_much_more_as_keeps_the_limits(tmp_path, monkeypatch):
    """Of equal requests: what replicas carry, as ``fleet`` says it, less what comes."""
    monkeypatch.setattr(fleet_policies, "LANES", 6)  # which policy is best is not asked
    place = tmp_path / "traffic.toml"
    tokens = ", ".join(["300"] * 16)
    place.write_text(
        f"period_s = 3600\nrates_per_s = [10, 30, 20]\n[lengths]\nprompt_tokens = [{tokens}]\n"
        f"output_tokens = [{tokens}]\n"
    )
    asked: dict[str, Any] = {"traffic": place, "ttft": 1.0, "tpot": 0.03, "tp": 1}
    found = offline(prompts=1e6, isl=300, osl=300, **asked).to_dict()
    fleet: Any = ij.fleet(*NAMES, **asked)
    each = fleet.to_dict()["replica_rate_per_s"]
    online = np.array([10.0, 30.0, 20.0])
    need = np.array([found["paid_replicas"] - x["idle"] for x in found["idle_hours"]])
    assert np.all(need >= online / each)
    beside = [x["per_hour_beside_traffic"] for x in found["idle_hours"]]
    assert beside == pytest.approx(3600.0 * (need * each - online), rel=0.02)


def test_a_step_that_stops_is_shorter_and_a_group_computes_its_prompt_once():
    asked = {**JOB, "prompts": 64, "isl": 4000, "osl": "1000±1000"}
    alone = offline(**(asked | {"prompts": 512}))
    group = offline(**asked, group=8, stop_at=0.7)
    assert group.to_dict()["requests"] == alone.to_dict()["requests"] == 512
    assert group.rows()[0]["makespan_s"] < alone.rows()[0]["makespan_s"]
    every, stops = group.to_dict()["steps"]
    assert stops["seconds"] < every["seconds"] and every["stale_percent"] == 0.0
    assert 0.0 < stops["stale_percent"] < 100.0


def test_lengths_of_a_trace_and_of_its_description_take_as_long(tmp_path):
    from infer_jax.arrivals import draw, read_traffic

    drawn = draw(read_traffic(EXAMPLES / "traffic.toml"), seed=1, periods=slice(0, 2))
    rows = zip(drawn.arrivals, drawn.isl, drawn.osl, strict=True)
    place = tmp_path / "trace.csv"
    lines = "".join(f"{t},{i:.0f},{o:.0f}\n" for t, i, o in rows)
    place.write_text("arrival_s,prompt_tokens,output_tokens\n" + lines)
    both = [
        offline(prompts=20_000, tp=1, trace=x).rows()[0]["makespan_s"]
        for x in (place, EXAMPLES / "traffic.toml")
    ]
    assert both[0] == pytest.approx(both[1], rel=0.03)


def test_requests_beyond_the_context_are_cut_one_by_one_and_counted(tmp_path):
    """Every other prompt of 3,000 has 200,000 tokens, where 131,072 fit with an output of one."""
    rows = "".join(f"{i},{200_000 if i % 2 else 1000},100\n" for i in range(3000))
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n" + rows)
    given = Tokens(1.0), Tokens(1.0), tmp_path / "t.csv", 131_072.0
    lengths, cut = job_lengths(*given)
    assert cut == pytest.approx(0.5)
    assert float(lengths.mean(lengths.prompt)) == pytest.approx((1000 + 131_071) / 2)
    assert float(lengths.squared) == pytest.approx((1000**2 + 131_071**2) / 2)
    assert float(lengths.mean(lengths.output)) == pytest.approx((100 + 1) / 2)
    found = str(offline(prompts=100, tp=1, trace=given[2]))
    assert "50.0 % of the requests are longer than the model's context" in " ".join(found.split())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prompts": None}, "How many prompts"),
        ({"prompts": 0}, "prompts"),
        ({"trace": "nowhere.csv"}, "or lengths, not both"),
        ({"trace": "nowhere.csv", "isl": None, "osl": None}, "nowhere.csv"),
        ({"tp": None, "layout": "2 x TP1"}, "one replica"),
        ({"tp": None, "layout": "TP2 PP2"}, "single stage"),
        ({"within": 1.0, "replicas": 2}, "without"),
        ({"within": 1e-5}, "more hours"),
        ({"isl": 200_000}, "longest context"),
        ({"stop_at": 0.0}, "a share of the responses"),
        ({"osl": 130_000, "set": "hardware.chip.memory=24e9"}, "holds the longest"),
        ({"traffic": EXAMPLES / "traffic.toml", "replicas": 1}, "busiest period"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(changes, said):
    with pytest.raises(InputError, match=said):
        offline(**(JOB | changes))
