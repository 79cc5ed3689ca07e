"""Replays of measured servers: within the goals, where the measured files are there.

The files are not ours to commit; calibrating on requests is tried on made ones elsewhere.
"""

import jax
import pytest

from experiments._replay import open_loop, per_request
from experiments._replay.server import errors, served, shipped
from experiments._report import SHARED

MEASURED = SHARED / "data" / "measured"
BUNDLES = ("RTXPRO6000_Llama-3.1-8B", "RTXPRO6000_Qwen3-32B")
there = pytest.mark.skipif(not MEASURED.is_dir(), reason=f"no measured files in {MEASURED}")


@pytest.fixture(scope="module", autouse=True)
def _wide():
    with jax.enable_x64(True):
        yield


@there
@pytest.mark.parametrize("name", BUNDLES)
def test_shipped_coefficients_on_servers_that_they_were_not_fitted_to(name):
    """Measured: TPOT 8 and 7 %, TTFT 23 and 7 % too short in the mean, its p99 19 and 9 %."""
    b = per_request.read(MEASURED / "llmservingsim" / name)
    result = errors(served(b.server, shipped(b.system), b.requests), b.measured)
    # products in 16 bits are fitted to Blackwell's large chips, and too fast on this one
    assert abs(result["tpot mean"]) < 0.10 and abs(result["ttft mean"]) < 0.25
    assert abs(result["ttft p99"]) < 0.22 and abs(result["e2e p99"]) < 0.15


@there
@pytest.mark.slow
@pytest.mark.parametrize("name", BUNDLES)
def test_calibrated_on_100_requests_the_other_200_are_within_the_goals(name):
    replayed, measured, _ = per_request.calibrated(MEASURED / "llmservingsim" / name)
    result = errors(replayed, measured)
    for key, goal in per_request.GOALS.items():
        assert abs(result[key]) <= goal, key


@there
@pytest.mark.slow
def test_rows_at_given_rates_have_the_errors_that_the_docs_name():
    shipped = open_loop.run(MEASURED / "open_loop_h100.csv")["shipped"]
    for name, goal in open_loop.GOALS.items():
        assert shipped[name] <= goal
