"""``sessions``: tiers of cache add up, are priced, and bad ones are refused in a sentence."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import infer_jax as ij
from infer_jax.arrivals import Sessions, Traffic
from infer_jax.arrivals.description import read_traffic
from infer_jax.errors import InputError
from infer_jax.physics.scheduling.session_cache import tier_hits
from infer_jax.verbs.sessions_result import _found, turns_of

EXAMPLES = Path(__file__).parents[2] / "examples"
ASKED = {"tp": 1, "traffic": EXAMPLES / "agents.toml"}


@pytest.fixture(scope="module")
def agents():
    tiers = ["host=1024,55,0.5", "disk=8000,6,0.6"]
    return ij.sessions("llama-3.1-8b", "h100_sxm", request_rate=0.75, tier=tiers, **ASKED)


def test_every_tier_more_finds_more_and_computes_less(agents):
    rows = agents.rows()
    assert [x["tier"] for x in rows] == ["none", "device", "host", "disk"]
    found = [x["found_percent"] for x in rows]
    computed = [x["computed_percent"] for x in rows]
    assert found == sorted(found) and found[0] == 0.0 and found[-1] > 99.0
    assert computed == sorted(computed, reverse=True) and computed[0] == 100.0
    # what is kept on a device is within its memory: 80 GB less 16 of weights, 131,072 bytes a token
    context = agents.to_dict()["returning_tokens"]
    kept = rows[1]["stays_s"] * 0.75 / 20 * context
    assert kept < 64e9 / 131_072


def test_dollars_are_rents_over_what_is_served(agents):
    rent = float(ij.load_system("h100_sxm").hardware.price)
    for row, tiers in zip(agents.rows(), (0.0, 0.0, 0.5, 1.1), strict=True):
        dollars = (rent + tiers) / 3600.0 / row["capacity_per_s"] * 20.0
        assert row["usd_per_session"] == pytest.approx(dollars, rel=2e-3)
    pays = [x["pays"] for x in agents.rows()]
    assert pays[:2] == [None, True] and pays[3] is False
    # 131,072 bytes a token come as fast as they are computed
    told = agents.to_dict()
    link = told["returning_tokens"] * 131_072 / (1e-3 * told["compute_ms"])
    assert told["break_even_link_gb_per_s"] == pytest.approx(link / 1e9, rel=1e-6)
    fetched = told["returning_tokens"] * 131_072 / 55e9
    assert agents.rows()[2]["fetch_ms"] == pytest.approx(1e3 * fetched, rel=1e-3)


def test_branches_share_what_was_said_and_fill_the_cache(tmp_path, agents):
    text = ASKED["traffic"].read_text()
    (tmp_path / "branches.toml").write_text(text.replace("turns = 20", "turns = 20\nbranches = 2"))
    asked = ASKED | {"traffic": tmp_path / "branches.toml", "request_rate": 0.75}
    forked: Any = ij.sessions("llama-3.1-8b", "h100_sxm", **asked)
    assert "each of which forks 2" in str(forked) and forked.to_dict()["branches"] == 2.0
    device, alone = forked.rows()[1], agents.rows()[1]
    # at so many requests/s a third of the turns come, which the device keeps for longer; two of
    # three requests find all that was said whatever it keeps
    assert device["stays_s"] > alone["stays_s"]
    assert device["computed_percent"] < 100.0 / 3.0
    # a session has three times the requests
    rent = float(ij.load_system("h100_sxm").hardware.price)
    dollars = rent / 3600.0 / device["capacity_per_s"] * 60.0
    assert device["usd_per_session"] == pytest.approx(dollars, rel=2e-3)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tier": "host=1024"}, "NAME=GB,GB/s"),
        ({"tier": "host=-1,5"}, "NAME=GB,GB/s"),
        ({"tier": ["=1,5"]}, "NAME=GB,GB/s"),
        ({"traffic": EXAMPLES / "traffic.toml"}, "numbers conversations"),
        ({"request_rate": 0.0}, "a rate above 0"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(changes, said):
    with pytest.raises(InputError, match=said):
        ij.sessions("llama-3.1-8b", "h100_sxm", **(ASKED | changes))


def test_prompts_are_as_long_as_they_are_whatever_turns_add():
    """Of a hundred turns of 100 + 100 tokens, in prompts of 1,000 in the mean."""
    one = [np.full(16, x) for x in (1000.0, 100.0)]
    gaps, news = np.full(16, 10.0), np.full(16, 100.0)
    for turns, depth in ((100.0, 0.0), (3.0, 0.0), (3.0, 1.0)):
        sessions = Sessions.of(turns=turns, gaps=gaps, news=news, depth=depth)
        kind = Traffic.of(rates=[1.0], period=60.0, prompts=one[0], outputs=one[1],
                          sessions=sessions)  # fmt: skip
        found, _ = turns_of(kind, 2.0)
        assert float(found.prompts) == pytest.approx(2.0 * 1000.0, rel=1e-6)
        assert float(found.followed) < float(found.prompts)
    # three turns each: 800, 1,000 and 1,200
    assert float(found.first) == pytest.approx(800.0) and float(found.context) == pytest.approx(
        1000
    )


def test_what_runs_has_its_part_of_the_device_at_what_is_found():
    """A replica that takes 1 s where contexts are found, and 100 s where they are not."""
    kind = read_traffic(ASKED["traffic"])
    turns, _ = turns_of(kind, 1.0)
    isl, osl = (float(np.asarray(kind.lengths[x])) for x in ("isl", "osl"))
    request = isl + osl / 2

    def served(got, rate):
        return 0.0, 1.0 if got > 0.5 * float(turns.context) else 100.0, 10.0

    # room for what runs for 1 s, and for contexts of a minute; of 100 s nothing is left
    room = request + 60.0 * float(turns.left)
    hits, got = _found(served, kind, turns, 1.0, [room])
    alone = tier_hits(turns, jnp.asarray([room - request]))
    assert got == pytest.approx(float(alone.tokens[0]), rel=1e-4) and got > 0
    assert float(hits.turns[0]) == pytest.approx(float(alone.turns[0]), rel=1e-4)
    assert 100.0 * request > room
