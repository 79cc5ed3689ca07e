"""`infer-jax offload` answers what the search answers, and refuses in one sentence."""

import numpy as np
import pytest

import infer_jax as ij
from tests.cli.running import answer, answered_once, as_command, run

WORDS = ("offload", "opt-6.7b", "--isl", "512", "--osl", "32", "--no-picture")


@pytest.fixture(scope="module")
def said():
    """(JSON, text) of one answer."""
    return answered_once(*WORDS)


@pytest.fixture
def output(said):
    return said[0]


def test_the_verb_is_what_the_command_prints(said):
    output, text = said
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
