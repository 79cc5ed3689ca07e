"""Fleets as others published them: the figures that are carried, and what the library answers."""

from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments._columns import printed_rows
from experiments._fleets import clusters, ragpulse
from experiments._report import GOLDEN
from experiments.fleet_claims import FILE, claims

ROWS = ragpulse.ROWS


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def test_the_hours_of_ragpulse_add_up_to_the_totals_that_its_authors_print():
    requests, prompts, outputs = (
        np.array([float(row[key]) for row in ROWS])
        for key in ("requests", "input_tokens", "output_tokens")
    )
    assert (sum(requests), sum(prompts), sum(outputs)) == (537_600, 1_476_413_952, 160_730_624)
    # shares of requests within both limits, and of prompt tokens that were cached
    for name, good, reuse in (("40", 78.51, 12.1279), ("72", 89.38, 20.9708)):
        assert 100 * requests @ ragpulse.printed(name).good / sum(requests) == pytest.approx(
            good, abs=0.03
        )
        share = prompts @ [float(row[f"reuse_{name}"]) for row in ROWS] / sum(prompts)
        assert 100 * share == pytest.approx(reuse, abs=1e-3)
    assert np.mean(ragpulse.printed("scaled").gpus) == pytest.approx(25.106, abs=0.01)


def test_waves_have_every_request_of_their_hour():
    count = np.array([2048.0, 24460.0])
    rates = ragpulse.waves(count, days=3)
    assert np.sum(rates, axis=2) * ragpulse.STEP == pytest.approx(count[:, None] * np.ones(3))
    # four requests in copies: one wave is 512 within a minute
    assert np.min(rates[0][rates[0] > 0]) == pytest.approx(512 / 60)
    # rates are those of waves that come anywhere: variance over mean of long counts is 512
    many = ragpulse.waves(np.full(1, 512.0 * 40), days=400)[0, :, :120].sum(axis=1) * ragpulse.STEP
    sent = 1.0 - 120 / 720  # of a fixed number of waves a share is in the window, up to its edges
    assert np.var(many) / np.mean(many) == pytest.approx(512 * sent, rel=0.2)


def test_a_table_of_pools_obeys_littles_law_and_waits_where_prompts_queue():
    lengths = (jnp.asarray(x) for x in (2650.0, 300.0, 330.0))
    table = ragpulse.replica_of(ragpulse.FLEETS["40"], *lengths)
    met = table.service
    spent = met.ttft + 299.0 * met.tpot
    assert np.asarray(met.in_flight) == pytest.approx(np.asarray(met.rate * spent))
    assert np.all(np.diff(np.asarray(met.tpot)) >= -1e-12)  # more requests decode together
    # one prefill queue of M/D/1: load^2 / (2 (1 - load)) passes wait in the mean
    load = 0.75
    waiting = float(table.at_rate(load * table.capacity).waiting)
    assert waiting == pytest.approx(load**2 / (2.0 * (1.0 - load)), rel=0.02)


def test_the_busiest_hour_breaks_limits_and_a_quiet_one_keeps_them(monkeypatch):
    monkeypatch.setattr(ragpulse, "ROWS", [ROWS[3], ROWS[19]])
    ours, theirs = ragpulse.hour_answers("40", days=8), ragpulse.printed("40")
    assert np.mean(ours.good, axis=1) == pytest.approx(theirs.good, abs=0.12)  # 0.57 and 1
    assert np.mean(ours.tpot, axis=1) == pytest.approx(theirs.tpot, rel=0.25)


def test_hits_of_blocks_are_those_of_a_simulated_cache():
    hot, wait, capacity = 0.3, 200.0, 10_000
    random, blocks = (
        np.random.default_rng(0),
        clusters.REQUESTS * (clusters.TOKENS / clusters.BLOCK + 0.5),
    )
    again = (clusters.ALL - hot) / (1.0 - hot)
    # blocks that are new come so often that with those that come again there are as many as asked
    begins = np.cumsum(random.exponential(1.0 / ((1.0 - hot) * (1.0 - again) * blocks), 150_000))
    uses = [(t, i) for i, t in enumerate(begins)]
    for i, time in enumerate(begins):
        while random.random() < again:
            uses.append((time := time + random.exponential(wait), i))
    kept, found, counted = OrderedDict[int, None](), 0, 0
    for time, i in sorted(uses):
        if 0.5 * begins[-1] < time < begins[-1]:
            counted, found = counted + 1, found + (i in kept)
        kept.pop(i, None)
        kept[i] = None
        if len(kept) > capacity:
            kept.popitem(last=False)
    simulated = hot + (1.0 - hot) * found / counted
    assert clusters.block_hits(capacity, hot, wait) == pytest.approx(simulated, abs=0.01)


# what others make of it otherwise, each with its reason in the file of claims
FAILING = {
    "ragpulse": {"good_72", "ttft_40", "ttft_72"},
    "mooncake": set(),
    "lmcache": set(),
    "splitwise": {"alone_tbt", "prompt_tokens", "prompt_pools"},
    "vidur": {"sku", "per_dollar"},
}


@pytest.mark.slow
@pytest.mark.parametrize("source", FAILING)
def test_claims_hold_but_those_that_are_explained(source):
    texts = {row["key"]: row["claim"] for row in printed_rows(FILE)}
    found = {claim.name: claim for claim in claims(source)}
    fail = {name for name, claim in found.items() if claim.verdict == "fail"}
    assert fail == {texts[key] for key in FAILING[source]}
    assert all(found[name].why for name in fail)


def test_the_page_has_a_row_for_every_claim():
    page = (GOLDEN.parents[1] / "docs" / "fleet.md").read_text(encoding="utf-8")
    rows = [line.split(" | ")[:2] for line in page.splitlines() if line.startswith("| ")]
    stated = [[f"| {row['claim']}", row["published"]] for row in printed_rows(FILE)]
    assert [row for row in rows if row in stated] == stated
