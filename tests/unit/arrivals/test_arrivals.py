"""Traffic is fitted to a trace, written, read back, and drawn again."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import infer_jax as ij
from infer_jax.arrivals import LEVELS, Sessions, Traffic, compare_traces, describe, draw
from infer_jax.arrivals.description import fit_bursts, rate_errors, rates_of, read_traffic
from infer_jax.arrivals.drawing import arrivals
from infer_jax.catalog.traces import Trace
from infer_jax.catalog.traffic_file import write_description
from infer_jax.errors import InputError
from infer_jax.verbs.traffic_result import TrafficResult

TOKENS = np.geomspace(20.0, 8000.0, len(LEVELS))


def traffic(**changes):
    fields = {"rates": [20.0, 40.0, 10.0], "period": 1800.0, "prompts": TOKENS}
    return Traffic.of(**({**fields, "outputs": TOKENS / 8} | changes))


@settings(derandomize=True, max_examples=8, deadline=None)
@given(st.floats(0.5, 4.0), st.floats(0.0, 0.6), st.floats(10.0, 60.0))
def test_requests_in_a_window_scatter_as_the_law_says(variability, surge, sojourn):
    """Counts of a long drawn trace, beside the variance that is computed without drawing."""
    source = traffic(rates=[30.0] * 16, variability=variability, surge=surge, sojourn=sojourn)
    times = arrivals(source, np.asarray(source.rates), np.random.default_rng(3))
    for window in (5.0, 40.0):
        counts = np.histogram(times, np.arange(0.0, source.seconds, window))[0]
        found = counts.var() / counts.mean()
        # surges come and go some hundred times: what is counted is itself of chance
        assert found == pytest.approx(float(source.dispersion(30.0, window)), rel=0.35)
    assert len(times) == pytest.approx(30.0 * source.seconds, rel=0.1)


@pytest.mark.parametrize("bursts", [(1.0, 0.0, 60.0), (2.5, 0.0, 60.0), (1.2, 0.3, 30.0)])
def test_bursts_are_found_from_what_the_law_says(bursts):
    variability, surge, sojourn = bursts
    source = traffic(variability=variability, surge=surge, sojourn=sojourn)
    windows = np.geomspace(0.5, 200.0, 9)
    found = np.array([float(source.dispersion(25.0, w)) for w in windows])
    fitted = fit_bursts(windows, found, 25.0)
    assert fitted[0] == pytest.approx(variability, rel=0.07)  # sojourns are of a lattice
    assert fitted[1] == pytest.approx(surge, abs=0.03)
    if surge:
        assert fitted[2] == pytest.approx(sojourn, rel=0.3)


def test_a_trace_of_drawn_traffic_is_described_as_that_traffic():
    source = traffic(variability=1.5, surge=0.3, sojourn=40.0, dependence=0.5, reuse=0.3)
    found = describe(draw(source, 1), 1800.0)
    np.testing.assert_allclose(found.rates, source.rates, rtol=0.13)  # of a third of 90 surges
    np.testing.assert_allclose(found.prompts[3:13], TOKENS[3:13], rtol=0.05)
    assert float(found.variability) == pytest.approx(1.5, rel=0.3)
    assert float(found.surge) == pytest.approx(0.3, abs=0.1)
    assert float(found.dependence) == pytest.approx(0.5, abs=0.02)
    assert float(found.reuse) == pytest.approx(0.3, abs=0.07)  # whole blocks alone


def test_sessions_have_their_turns_and_each_begins_with_all_that_was_said():
    gaps, news = np.full(len(LEVELS), 20.0), np.full(len(LEVELS), 50.0)
    sessions = Sessions.of(turns=3.0, gaps=gaps, news=news)
    source = traffic(rates=[20.0] * 4, sessions=sessions)
    trace = draw(source, 2)
    assert len(trace) / len(np.unique(trace.sessions)) == pytest.approx(3.0, rel=0.05)
    assert len(trace) / source.seconds == pytest.approx(20.0, rel=0.05)
    first = trace.sessions[np.argmax(np.bincount(trace.sessions))]
    mine = np.flatnonzero(trace.sessions == np.bincount(trace.sessions).argmax())
    assert len(mine) > 3 and first >= 0
    np.testing.assert_allclose(np.diff(trace.arrivals[mine]), 20.0)
    said = trace.isl[mine][:-1] + trace.osl[mine][:-1]
    np.testing.assert_array_equal(trace.isl[mine][1:], said + 50.0)
    found = describe(trace, 1800.0).sessions
    assert found is not None and float(found.turns) == pytest.approx(3.0, rel=0.05)
    np.testing.assert_allclose(found.news[1:-1], 50.0)
    assert trace.hit_ratio() > 0.3  # a turn finds the whole blocks of the one before


@pytest.mark.parametrize("depth", [0.0, 2.0])
def test_a_drawn_trace_begins_among_sessions_and_keeps_the_mean_prompt(depth):
    """Sessions of five turns and 4,000 s, geometric in number or all alike, drawn for an hour."""
    gaps, news = np.full(len(LEVELS), 1000.0), np.full(len(LEVELS), 50.0)
    sessions = Sessions.of(turns=5.0, gaps=gaps, news=news, depth=depth)
    source = traffic(rates=[20.0], period=3600.0, sessions=sessions, outputs=np.full(16, 100.0))
    trace = draw(source, 3)
    assert len(trace) / 3600.0 == pytest.approx(20.0, rel=0.1)
    first = np.sum(trace.arrivals < 600.0) / 600.0
    assert first == pytest.approx(20.0, rel=0.15)
    # between the levels the logarithm of a length is linear
    grid = np.interp((np.arange(10**5) + 0.5) / 10**5, LEVELS, np.log(TOKENS))
    assert trace.isl.mean() == pytest.approx(np.exp(grid).mean(), rel=0.08)
    assert np.unique(trace.sessions).tolist() == list(range(trace.sessions.max() + 1))
    if depth:
        assert np.unique(trace.sessions, return_counts=True)[1].max() <= 5


def test_sessions_have_the_depth_of_their_turns_and_what_an_answer_leaves():
    """Two sessions of one and three turns; an answer of which the next prompt has nothing."""
    times, ids = np.arange(4.0), np.array([0, 1, 1, 1])
    isl, osl = np.array([10.0, 10.0, 50.0, 55.0]), np.array([5.0, 30.0, 99.0, 5.0])
    found = describe(Trace("t", "plain", times, isl, osl, sessions=ids)).sessions
    assert found is not None
    assert float(found.turns) == 2.0 and float(found.depth) == 3 / 4  # 0 + 0 + 1 + 2, of four
    assert found.news[0] == 5.0 and found.news[-1] == 10.0  # 55 - 50, and 50 - 10 - 30


def test_a_description_is_written_and_read_back(tmp_path):
    sessions = Sessions.of(turns=2.0, gaps=np.arange(1.0, 17.0), news=TOKENS)
    source = traffic(start=1.7e9, dependence=-0.2, sessions=sessions)
    write_description(tmp_path / "t.toml", vars(source), LEVELS)
    found = read_traffic(tmp_path / "t.toml")
    for one, two in zip(jax.tree.leaves(source), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("rates_per_s = []", "rates_per_s is []"),
        ("period_s = 0.5", "period"),
        ("lengths.prompt_tokens = [1, 2]", "a list of 16 numbers"),
        ("lengths.reuse = 1.5", "reuse"),
        ("lengths.words = 1", "lengths.words is 'unknown'"),
        ("prompts = 3", "prompts is 'unknown'"),
    ],
)
def test_a_wrong_description_is_refused_in_one_sentence(line, said, tmp_path):
    key = line.partition(" = ")[0]
    tokens = "[" + ", ".join(map(str, range(1, 17))) + "]"
    lines = ["rates_per_s = [1]", "period_s = 60"]
    lines += [f"lengths.{x}_tokens = {tokens}" for x in ("prompt", "output")]
    kept = [x for x in lines if not x.startswith(f"{key} ")]
    (tmp_path / "t.toml").write_text("\n".join([*kept, line]))
    with pytest.raises(InputError, match=rf"t\.toml: .*{re.escape(said)}"):
        read_traffic(tmp_path / "t.toml")


def test_rates_are_counts_over_the_seconds_that_a_trace_covers():
    times = np.array([0.0, 10.0, 20.0, 30.0, 70.0, 89.0])
    ones = np.ones(6)
    trace = Trace("t", "plain", times, ones, ones, start=3630.0)  # half a minute into one
    known = rates_of(trace, 60.0)
    # 30 s with 3 requests, 59 s with 3
    np.testing.assert_allclose(known.rates, [3 / 30, 3 / 59])
    with pytest.raises(InputError, match="different times"):
        rates_of(dataclasses.replace(trace, arrivals=np.zeros(6)), 60.0)


def test_a_moment_of_a_period_at_either_end_has_no_rate():
    """A request just before the hour, then one every 10 s for an hour, and two just after it."""
    times = np.r_[0.0, 0.5 + 10.0 * np.arange(360), 3601.0, 3602.0]
    ones = np.ones(len(times))
    trace = Trace("t", "plain", times, ones, ones, start=2 * 3600.0 - 0.5)
    np.testing.assert_allclose(rates_of(trace, 3600.0).rates, [0.1])
    found = describe(trace)
    assert float(found.start) == 7200.0 and found.rates.tolist() == [0.1]
    # two minutes over the full hour: none of both parts is too little, and the later one has most
    short = dataclasses.replace(trace, arrivals=times[:13], isl=ones[:13], osl=ones[:13])
    np.testing.assert_allclose(rates_of(short, 3600.0).rates, [12 / 110.0])


def test_the_error_of_a_rate_is_of_the_seconds_that_are_counted():
    """Counts of Poisson scatter by their root: of n in T seconds the rate by sqrt(n) / T."""
    calm = traffic(rates=[10.0, 10.0], period=3600.0)
    np.testing.assert_allclose(rate_errors(calm), np.sqrt(36000.0) / 3600.0)
    errors = rate_errors(calm, np.array([3600.0, 300.0]))
    np.testing.assert_allclose(errors, [np.sqrt(36000.0) / 3600.0, np.sqrt(3000.0) / 300.0])


def test_evenly_spaced_requests_are_described():
    """As of a load generator: counts of windows do not vary at all."""
    times, ones = np.arange(400.0), np.ones(400)
    found = describe(Trace("t", "plain", times, ones, ones))
    assert float(found.variability) < 0.02 and float(found.surge) < 0.1


def test_what_a_trace_covers_is_said(tmp_path):
    """Five minutes of a request every 2 s, of which a session's id stands in each tenth row."""
    rows = [f"{2 * i},10,5,{'a' if i % 10 == 0 else ''}" for i in range(151)]
    (tmp_path / "t.csv").write_text(
        "\n".join(["arrival_s,prompt_tokens,output_tokens,session", *rows])
    )
    found = ij.traffic(tmp_path / "t.csv")
    text, told = str(found), found.to_dict()
    assert "151 requests, 5 minutes;" in text and "covers 8.33 % of the only period" in text
    assert told["mean_rate_per_s"] == pytest.approx(151 / 300)
    # the others are sessions by themselves
    sessions = found.traffic.sessions
    assert sessions is not None and float(sessions.turns) == pytest.approx(151 / (1 + 135))
    with pytest.raises(InputError, match="a description has no requests"):
        found.write(tmp_path / "t.toml")
        ij.traffic(tmp_path / "t.toml", model="llama-3.1-8b", hardware="h100_sxm")


def test_hours_are_of_a_clock_where_there_is_one():
    day = traffic(rates=[1.0] * 24, period=3600.0)
    for start, word in ((0.0, "of 24"), (1794182400.0, "UTC")):
        found = TrafficResult("t", day.with_(start=start), None, draw(day, 1))
        assert f"{word} " in str(found) and ("UTC" in str(found)) == bool(start)


def test_a_workload_has_the_lengths_and_a_slope_by_its_rate():
    source = traffic(dependence=0.4, variability=2.0, reuse=0.25)
    work = source.workload(3.0)
    trace = draw(source, 4)
    assert work.arrivals is not None and float(work.arrivals.variability) == 2.0
    assert float(work.isl) == pytest.approx(trace.isl.mean(), rel=0.02)
    assert float(work.osl) == pytest.approx(trace.osl.mean(), rel=0.02)
    assert float(work.prefix) == pytest.approx(0.25 * float(work.isl), rel=1e-6)

    def rate(x):
        arrivals = source.workload(x).arrivals
        assert arrivals is not None
        return arrivals.rate

    assert float(jax.grad(rate)(2.0)) == 1.0


@pytest.mark.parametrize("point", [(0.0, 30.0, 10.0), (0.5, 0.02, 1.0), (0.5, 1e6, 1.0)])
def test_the_dispersion_has_slopes_at_no_surge_and_in_short_and_long_windows(point):
    surge, window, rate = point

    def law(surge, window, rate):
        source = traffic().replace(surge=surge, sojourn=jnp.asarray(60.0))
        return source.dispersion(rate, window)

    for i, slope in enumerate(jax.grad(law, argnums=(0, 1, 2))(surge, window, rate)):
        step = 1e-4 * max(point[i], 1e-2)
        ends = [law(*(x + s * step * (j == i) for j, x in enumerate(point))) for s in (1, -1)]
        assert float(slope) == pytest.approx(
            float(ends[0] - ends[1]) / (2 * step), abs=1e-5, rel=1e-3
        )


def test_two_traces_of_one_traffic_are_alike_and_of_two_are_not():
    source = traffic()
    other = traffic(rates=[40.0, 40.0, 40.0])
    one, two, three = draw(source, 1), draw(source, 2), draw(other, 2)
    alike, unlike = (
        next(x for x in compare_traces(one, y, 1800.0) if x.figure == "mean rate")
        for y in (two, three)
    )
    assert alike.drawn / alike.real == pytest.approx(1.0, abs=0.03)
    assert unlike.drawn / unlike.real == pytest.approx(120 / 70, rel=0.03)
