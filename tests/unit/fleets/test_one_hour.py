"""Arithmetic of public traces by hand, beside what is read of them and what a fleet makes of it.

Requests are the first 24 of Azure's conversations of 2023 (Azure/AzurePublicDataset at 7909210,
data/AzureLLMInferenceTrace_conv.csv, CC-BY 4.0). The hour is the busiest of a day of RAGPulse, of
52,509 requests, as ai-dynamo/aisimulate publishes it (tests/golden/ragpulse_hours.csv).
"""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.arrivals import describe
from infer_jax.catalog.traces import read_trace
from infer_jax.fleets import Conditions, Lifecycle, Schedule, ServiceLimits, Supply, mixes, outcome
from tests.unit.fleets.toys import exponential_replica

HEAD = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2224670,879,55
2023-11-16 18:15:51.3910170,91,16
2023-11-16 18:15:52.5732450,91,16
2023-11-16 18:15:52.9921190,381,84
2023-11-16 18:15:54.4260870,1313,142
2023-11-16 18:15:54.9320210,388,84
2023-11-16 18:15:55.0176690,242,14
2023-11-16 18:15:55.1455750,209,152
2023-11-16 18:15:55.3808030,394,124
2023-11-16 18:15:56.1080580,394,59
2023-11-16 18:15:56.2631480,1315,174
2023-11-16 18:15:56.7869690,2221,15
2023-11-16 18:15:57.2267160,389,90
2023-11-16 18:15:57.8385010,415,106
2023-11-16 18:15:58.1114940,120,12
2023-11-16 18:15:58.5172230,369,74
2023-11-16 18:15:59.5671350,206,162
2023-11-16 18:15:59.7056780,1353,142
2023-11-16 18:15:59.7304330,197,152
2023-11-16 18:16:00.7401400,181,154
2023-11-16 18:16:00.7783700,388,54
2023-11-16 18:16:00.9738990,4085,62
"""


def test_requests_of_azure_are_counted_as_by_hand(tmp_path):
    path = tmp_path / "azure.csv"
    path.write_text(HEAD, encoding="utf-8")
    trace, rows = read_trace(path), [line.split(",") for line in HEAD.splitlines()[1:]]
    prompts, outputs = ([int(row[i]) for row in rows] for i in (1, 2))
    assert (len(trace), int(np.sum(trace.isl)), int(np.sum(trace.osl))) == (24, 16_391, 2096)
    assert (sum(prompts), sum(outputs)) == (16_391, 2096)
    # from 46.68059 s to 60.973899 s of 18:15: 14.293309 s
    assert trace.arrivals[-1] == pytest.approx(14.293309, abs=1e-6)
    traffic = describe(trace, period=3600.0)
    assert np.asarray(traffic.rates) == pytest.approx([24 / 14.293309])
    # 18:00:00 of 16 November 2023, 19,677 days after 1970
    assert float(traffic.start) == 19_677 * 86_400 + 18 * 3600
    # shortest, middle and longest prompt
    low, middle, high = min(prompts), sum(sorted(prompts)[11:13]) / 2, max(prompts)
    assert (low, middle, high) == (91, 388.0, 4085)
    for level, length in ((0.0, low), (0.5, middle), (1.0, high)):
        found = traffic.lengths_at(np.array([[level], [level]]))[0]
        assert found == pytest.approx([length], rel=0.01)


def test_an_hour_of_ragpulse_needs_the_replicas_and_dollars_of_a_slip_of_paper():
    rate = 52_509 / 3600
    assert rate == pytest.approx(14.58583, abs=1e-5)
    # a replica takes one request at a time, a fifth of a second each; a first token within 1 s is
    # a wait within 0.9 s, which all but (r / 5) exp(-(5 - r) 0.9) have
    late = {r / 1000: r / 5000 * math.exp(-(5.0 - r / 1000) * 0.9) for r in range(1, 5000)}
    each = max(r for r, share in late.items() if share <= 0.01)
    assert each == pytest.approx(1.343, abs=1e-3)  # 0.2686 x exp(-3.2913) = 0.2686 x 0.0372
    replicas = math.ceil(rate / each)
    dollars = replicas * 3.6
    assert (replicas, dollars) == (11, pytest.approx(39.6))  # 14.58583 / 1.343 = 10.86

    replica, life = exponential_replica(servers=1, mu=5.0, first=0.1), Lifecycle.of(start_delay=0.0)
    limits = ServiceLimits.of(ttft=1.0, tpot=1.0, goodput=0.99)
    steps = jnp.full(240, rate)
    within = float(replica.rate_within(limits))
    assert within == pytest.approx(each, rel=0.01)
    one = (np.array([x]) for x in (1.0, 3.6, 1.0, 0, 99.0))
    supply = Supply(np.array([[within]]), *one)
    assert mixes(supply, rate)[-1] == replicas
    first, pue, grid, work = (jnp.asarray(x) for x in (float(replicas), 1.0, 0.301, 2.0))
    plan = Schedule.of(replicas=jnp.full(240, float(replicas)))
    given = Conditions(replica, life, limits, steps, jnp.asarray(15.0), first, pue, grid, work)
    found = outcome(2, 240, plan, given)
    assert float(found.cost.usd) == pytest.approx(24.0 * dollars)  # of a day
    own = rate / replicas
    good = 1.0 - own / 5.0 * math.exp(-(5.0 - own) * 0.9)
    assert float(found.goodput) == pytest.approx(good, abs=1e-3)
