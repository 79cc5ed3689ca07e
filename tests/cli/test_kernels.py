"""`infer-jax kernels`, `layout` and `offload`: what they answer; and a doctor."""

import dataclasses
import itertools
import json
import math

import jax
import numpy as np
import pytest

import infer_jax as ij
from infer_jax import doctor
from tests.cli.running import answer, answered_once, as_command, run


def test_a_pass_is_a_sum_of_kernels():
    words = ("kernels", "qwen3-30b-a3b", "--hardware", "h20_sxm", "--ep", "4", "--batch", "400")
    result = answer(*words, "--isl", "4096", "--osl", "2048")
    assert result["decode_tokens_per_s_per_gpu"] == pytest.approx(100 / result["tpot_ms"] * 1e3)
    for row in result["decode"] + result["prefill"]:
        balance = result["balance_flop_per_byte"]
        bound = row["intensity_flop_per_byte"] > min(balance.values())
        assert row["bound"] == "memory" or bound, row
        assert 0 < row["mfu"] <= 1
    kinds = {row["kernel"]: row["bound"] for row in result["prefill"]}
    assert kinds["attention"] == kinds["experts"] == "compute"
    assert result["feasible"] and result["largest_batch"] >= 400


@pytest.mark.parametrize("more", [(), ("--as-published",)])
def test_rows_of_a_pass_add_up_to_the_answer(more):
    output, said = answered_once("kernels", "qwen3-8b", "--hardware", "h800_sxm", *more)
    for stage, time in (("prefill", "ttft_ms"), ("decode", "tpot_ms")):
        terms = output["terms"][stage]
        assert sum(terms.values()) == pytest.approx(output[time], rel=1e-12)
        # kernels of all layers are the pass without the network and the scheduling
        if more == ("--as-published",):
            continue  # which counts the micro-batches of some kernels otherwise
        kernels = sum(row["layers"] * row["time_us"] for row in output[stage]) / 1e3
        outside = terms["scheduling_ms"] + terms.get("network_ms", 0.0)
        assert kernels == pytest.approx(output[time] - outside, rel=1e-9)
    assert "a pass is spent on" in said and "scheduling" in said


def test_a_batch_that_does_not_fit_is_said_first():
    words = ("kernels", "qwen3-8b", "--hardware", "h800_sxm", "--batch")
    assert run(*words, "1e5").out.split("\n")[1].startswith("Not feasible: memory needs")
    assert "Not feasible" not in run(*words, "8").out


PALM = ("layout", "palm-540b-padded", "--hardware", "tpu_v4", "--total-gpus", "64")


def test_layout_tells_the_winner_and_where_it_changes():
    output = answer(*PALM, "--batch", "512", "--phase", "prefill")
    assert (output["fastest"]["layout"], output["fastest"]["attention"]) == ("wg_xyz", "batch")
    times = [row["time_ms"] for row in output["layouts"] if row["feasible"]]
    assert times == sorted(times)
    runs = output["by_batch"]
    assert runs[0]["fastest"].startswith("ws_2d") and runs[-1]["fastest"].startswith("wg_")
    assert all(a["to"] < b["from"] for a, b in itertools.pairwise(runs))
    first = output["layouts"][0]
    assert max(first["terms"].values()) <= first["time_ms"] <= sum(first["terms"].values()) * 1.001
    assert first["memory_bytes"] <= first["memory_capacity_bytes"]


@pytest.mark.parametrize("wrong", ["1.001", "inf"])
def test_a_wrong_answer_is_seen(monkeypatch, wrong):
    row = next(row for row in doctor.table() if row["variant"] == "level2")
    changed = dict(row, seconds=str(float(row["seconds"]) * float(wrong)))
    monkeypatch.setattr(doctor, "table", lambda: [changed])
    verdicts = doctor.examine(jax.devices()[:1])
    assert not any(v.agrees for v in verdicts)
    assert row["model"] in verdicts[0].row
    if wrong == "inf":
        assert math.isinf(verdicts[0].worst)
    else:
        assert verdicts[1].worst == pytest.approx(1 - 1 / 1.001, rel=1e-6)


def test_verb_names_the_device_and_exits_1(monkeypatch):
    good = doctor.Verdict("cpu:0 cpu", "float32", 1e-7, "a row", 24)
    bad = dataclasses.replace(good, device="gpu:1 broken", worst=0.5)
    monkeypatch.setattr("infer_jax.doctor.examine", lambda: [good])
    assert run("doctor").code == 0
    monkeypatch.setattr("infer_jax.doctor.examine", lambda: [good, bad])
    ran = run("doctor")
    assert ran.code == 1 and "gpu:1 broken is wrong in float32" in ran.out
    output = json.loads(run("doctor", "--json").out)
    assert [row["agrees"] for row in output["devices"]] == [True, False] and not output["agrees"]


WORDS = ("offload", "opt-6.7b", "--isl", "512", "--osl", "32", "--no-picture")


@pytest.fixture(scope="module")
def offloaded():
    """(JSON, text) of one answer."""
    return answered_once(*WORDS)


@pytest.fixture
def output(offloaded):
    return offloaded[0]


def test_the_verb_is_what_the_command_prints(offloaded):
    output, text = offloaded
    best = ij.offload("opt-6.7b", "t4_host")
    assert {"schema": output["schema"], **as_command(best)[0]} == output
    assert as_command(best)[1].split() == text.split()
    assert [row["latency_s"] for row in best.rows()] == [x["latency_s"] for x in output["frontier"]]
    pytest.importorskip("matplotlib")
    figure = best.plot()
    caption = " ".join(figure.texts[-1].get_text().split())
    assert "512 tokens in, 32 out" in caption and "a block of requests with its" in caption
    none = ij.offload("opt-6.7b", "t4_host", latency=1e-3)
    assert none.block is None and not none.to_dict()["feasible"]
    why = str(none.to_dict()["why"])
    assert "No block takes at most 0.001 s" in why and why in str(none)
    with pytest.raises(ij.InputError, match="no block is left"):
        none.plot()
    with pytest.raises(ij.InputError, match=r"^offload: compress is 'all'"):
        ij.offload("opt-6.7b", "t4_host", compress="all")


def test_shares_of_every_place_add_up(output):
    assert output["feasible"]
    for place in output["placement"].values():
        np.testing.assert_allclose(sum(place.values()), 1.0, rtol=1e-9)
    flags = output["flexgen"]
    assert flags["flags"].startswith("--percent ")
    assert -1e-6 <= flags["lost_to_rounding"] < 0.5
    assert any("FlexGen" in note for note in output["notes"])  # whose account of memory it is


def test_a_latency_limit_is_kept(output):
    least = min(x["latency_s"] for x in output["frontier"])
    most = max(x["latency_s"] for x in output["frontier"])
    limit = (least + most) / 2
    assert answer(*WORDS, "--latency", f"{limit}s")["latency_s"] <= limit


def test_what_fits_nowhere_names_the_memory():
    tiers = ("chip.memory", "host.memory", "host.disk")
    little = [word for tier in tiers for word in ("--set", f"hardware.{tier}=1e9")]
    output = answer(*WORDS, *little)
    assert not output["feasible"]
    assert "GPU and CPU and disk memory" in output["why"]


def test_a_tier_without_bandwidth_is_one_sentence(tmp_path):
    profile = ij.__path__[0] + "/../hw_profiles/t4_host.toml"
    with open(profile) as file:
        text = file.read().replace("disk_read_gb_per_s = { value = 2,",
                                   "disk_read_gb_per_s = { value = 0,")  # fmt: skip
    broken = tmp_path / "broken.toml"
    broken.write_text(text)
    ran = run("offload", "opt-6.7b", "--hardware", str(broken), "--no-picture")
    assert ran.code == 2
    assert "disk_read" in ran.err
    assert len(ran.err.strip().splitlines()) == 1
