"""Calibration of one server: what was put in comes back, and what is not known is said."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from jax import Array

from infer_jax.calibration.linearised import Linearised
from infer_jax.calibration.profile import ARRIVALS, caveats
from infer_jax.calibration.runs import LoadPredictor, engine_of, in_flight, load_of, measured
from infer_jax.calibration.server import (
    STEP_SHARES,
    calibrate_server,
    coefficients_to_fit,
    padded_predictor,
    step_index,
)
from infer_jax.calibration.server_fit import possible_runs
from infer_jax.catalog import load_model, load_system
from infer_jax.catalog.measurements import Run, Speculation, Statistic, WorkerPool
from infer_jax.errors import InputError
from infer_jax.estimators import Estimator
from infer_jax.estimators.serving import Serving
from infer_jax.specs import number, spec

ARCH = load_model("llama-3.1-8b").architecture
HARDWARE = load_system("h100_sxm").hardware
THEORY = Serving.of(engine="vllm")
TRUE = {"decode_factor": 1.3, "first_factor": 0.7}
LOADS = ((1, 1000, 101), (8, 1000, 101), (32, 500, 501), (16, 4000, 501), (64, 2000, 201),
         (128, 300, 300))  # fmt: skip


def run(concurrency: float | None = 8.0, isl=1000.0, osl=101.0, **facts):
    built = {"file": "a.csv", "line": 2, "source": "csv", "engine": "vllm", "tp": 1.0, **facts}
    return Run(isl=isl, osl=osl, concurrency=concurrency, **built)


BLANK = [run(float(c), float(i), float(o)) for c, i, o in LOADS]
SPREADS = {name: THEORY.server_spreads[name] for name in TRUE}


@spec
class Factors(Estimator):
    """Of a server of simple times two factors are not known; their priors are the server's."""

    decode_factor: Array = number("on TPOT", kind="fraction", high=9, default=1.0)
    first_factor: Array = number("on TTFT", kind="fraction", high=9, default=1.0)

    @property
    def server_spreads(self):
        return SPREADS

    def estimate(self, arch, hardware, workload, plan) -> Any:
        """Times that grow with requests and with prompts; a median is under its mean."""
        first = self.first_factor * 1e-4 * workload.isl
        tpot = self.decode_factor * (6e-3 + 1e-4 * workload.batch)
        return SimpleNamespace(tpot=tpot, ttft=first, ttft_median=0.7 * first)


def predictions(server):
    """TPOT and TTFT of every load, by a server: the program that its calibration compiles, too."""
    loads = [load_of(one) for one in BLANK]
    predict, more = padded_predictor(ARCH, HARDWARE, loads, possible_runs(ARCH, loads))
    names = coefficients_to_fit(server, ARCH, loads, np.ones((2, len(loads))))
    problem = Linearised.of(predict, np.ones(2 * (len(loads) + more)), server, names)
    return np.asarray(problem.predictions(server)).reshape(2, -1)[:, : len(loads)]


def measured_as(times):
    pairs = zip(BLANK, *times, strict=True)
    return [r.replace(tpot=Statistic(a), ttft=Statistic(b)) for r, a, b in pairs]


@pytest.fixture(scope="module")
def built():
    """Of runs of a server whose factors are ``TRUE``, with noise in log on both times."""
    times = predictions(THEORY.fitted(TRUE))
    times = times * np.exp(0.03 * np.random.default_rng(3).normal(size=times.shape))
    return calibrate_server(THEORY, ARCH, HARDWARE, measured_as(times))


def test_factors_come_back_within_their_intervals(built):
    ends = built.interval(0.95)
    for name, value in TRUE.items():
        assert ends[name][0] < value < ends[name][1], (name, ends[name])
        narrow, wide = built.interval(0.5)[name], ends[name]
        assert wide[0] < narrow[0] < built.fit.values[name] < narrow[1] < wide[1]


def test_the_band_holds_what_was_left_out(built):
    low, high = built.band(0.8).T
    ratio = built.times.measured / built.times.left_out
    inside = (low[:, None] < ratio) & (ratio < high[:, None])
    assert 0.7 <= inside.mean() <= 1.0
    assert np.all(built.band(0.95)[:, 1] > high) and np.all(built.band(0.5)[:, 1] < high)


def test_runs_with_arrivals_beside_others_are_told_of(built):
    *closed, last = built.runs
    arriving = last.replace(concurrency=None, request_rate=1.0)
    notes = caveats(replace(built, runs=(*closed, arriving)))
    assert ARRIVALS in notes and ARRIVALS not in caveats(built)


def test_a_broken_run_is_told_and_moves_a_server_by_less_than_is_stated():
    """Runs of a server as shipped, with ordinary noise, one of them three times slower."""
    server = Factors.of()
    true, random = predictions(server), np.random.default_rng(0)
    for broken in (1, 4):
        times = true * np.exp(0.04 * random.normal(size=true.shape))
        times[:, broken] *= 3.0
        result = calibrate_server(server, ARCH, HARDWARE, measured_as(times))
        assert result.outliers == (broken,)
        after = np.abs(np.log(result.times.predictions["after"] / true))
        assert np.all(after.mean(axis=1) < np.log(result.band(0.8)[:, 1]))


def servers(random, count, moved, noise, broken):
    """Times of runs, and those of fits that left each out, at every share of the way.

    A server differs from what is shipped by ``moved`` in log, and fits know it up to their noise.
    """
    for _ in range(count):
        own, runs = moved * random.normal(), 6
        error = noise * random.standard_t(4, (2, runs))
        error[:, random.random(runs) < broken] += np.log(3.0)
        log = own + error
        others = (log.sum(axis=1, keepdims=True) - log) / (runs - 0.5)
        yield own, log, np.exp(np.asarray(STEP_SHARES)[:, None, None] * others)


@pytest.mark.parametrize(("moved", "broken"), [(0.0, 0.0), (0.0, 0.15), (0.1, 0.0), (0.3, 0.05)])
def test_calibration_makes_servers_no_worse_by_more_than_an_error(moved, broken):
    """Of many servers: what is believed is as good as the fit where it is right, else as before."""
    random = np.random.default_rng(7)
    before, whole, after = [], [], []
    for own, log, left_out in servers(random, 400, moved, 0.06, broken):
        share = STEP_SHARES[step_index(np.exp(log), left_out)]
        fit = log[0].sum() / (log.shape[1] + 0.5)
        before.append(abs(own))
        whole.append(abs(fit - own))
        after.append(abs(share * fit - own))
    assert np.mean(np.asarray(after) > np.asarray(before) + 0.08) < 0.06
    assert np.mean(after) < np.mean(before) + 0.02
    if moved > 0.2:
        assert np.mean(after) < 0.5 * np.mean(before)
    if broken and not moved:
        assert np.mean(after) < 0.5 * np.mean(whole)


def test_one_run_is_believed_two_thirds():
    """k runs move a factor by k / (k + 1/2) of the error, in log, where errors are ordinary."""
    one = measured_as(predictions(Factors.of(decode_factor=1.04)))[1]
    result = calibrate_server(Factors.of(), ARCH, HARDWARE, [one], ("decode_factor",))
    moved = np.log(result.fit.values["decode_factor"])
    assert moved == pytest.approx(np.log(1.04) * 1 / 1.5, rel=0.05)
    assert result.times.left_out is None


def test_a_measured_median_is_predicted_as_one():
    """Of a benchmark, whose start few medians hold; medians alone are what is fitted."""
    blank = run(completed=80.0)
    by_mean = blank.replace(ttft=Statistic(0.3, percentiles=((50.0, 0.1),)))
    by_median = blank.replace(ttft=Statistic(percentiles=((50.0, 0.1),)))
    assert measured([by_mean, by_median])[1].tolist() == [0.3, 0.1]
    predict = LoadPredictor.of(ARCH, HARDWARE, [load_of(one) for one in (by_mean, by_median)])
    *_, mean, median = predict(Factors.of())
    assert median == pytest.approx(0.7 * mean)


def test_requests_in_flight_follow_little():
    arriving = run(None, request_rate=4.0, ttft=Statistic(0.5), tpot=Statistic(0.01))
    assert in_flight(arriving) == pytest.approx(4.0 * (0.5 + 100 * 0.01))
    assert np.isnan(measured([arriving])[1, 0]) and measured([arriving])[0, 0] == 0.01
    assert in_flight(run(8.0)) == 8.0
    load = load_of(run(32.0, chips=8.0, tp=2.0))  # copies share them
    assert float(load.workload.batch) == 8.0 and float(load.plan.tp) == 2.0


def test_an_engine_is_needed_and_only_one():
    for engines, said in (
        ([None], "engine"),
        (["abacus"], "abacus"),
        (["vllm", "sglang"], "one engine"),
    ):
        with pytest.raises(InputError, match=said):
            engine_of([run(engine=engine, line=2 + i) for i, engine in enumerate(engines)])


NO_LOADS = {
    "no layout": (run(tp=None), "tp"),
    "all at once": (run(None), "concurrency"),
    "drafts": (run(speculation=Speculation(method="mtp")), "drafts"),
    "two pools": (run(pools=(WorkerPool("prefill"), WorkerPool("decode"))), "disaggregated"),
    "experts do not fit": (run(ep=3.0), "divisor"),
    "arrivals without latency": (run(None, request_rate=4.0, tpot=Statistic(0.01)), "latency"),
}


@pytest.mark.parametrize(("one", "said"), NO_LOADS.values(), ids=NO_LOADS)
def test_what_a_run_must_say(one, said):
    with pytest.raises(InputError, match=said) as output:
        load_of(one)
    assert "a.csv, line 2" in str(output.value)


def test_more_parameters_than_times_are_refused():
    one = run(tpot=Statistic(0.01), ttft=Statistic(0.1))
    three = ("decode_factor", "first_factor", "vllm.layer_gap")
    refused: dict[str, Any] = {
        "at least 3": ([one], three), "parameter is 'banana'": ([one], ("banana",)), "runs": ([],),
    }  # fmt: skip
    for said, asked in refused.items():
        with pytest.raises(InputError, match=said):
            calibrate_server(THEORY, ARCH, HARDWARE, *asked)
