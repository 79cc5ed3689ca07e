"""The three leaves of the later fit: neutral by default, and each does what it says."""

import jax
import pytest

import infer_jax as ij
from infer_jax.catalog.published import serving_errors, serving_fit
from infer_jax.estimators.serving import Deployment, Requests, Serving, shape


@pytest.fixture(scope="module")
def serve():
    """(TPOT, TTFT) of a mixture on eight chips, by a model and drafts; compiled once."""
    seen = shape(ij.load_model("qwen3-235b-a22b").architecture)
    hardware = ij.load_system("h100_sxm").hardware
    work = Requests.of(isl=4096, osl=512, batch=32)

    @jax.jit
    def both(model, plan):
        life = model.serve(seen, hardware, work, plan)
        return life.tpot, life.ttft

    def told(model, drafts=0.0):
        tpot, ttft = both(model, Deployment.of(tp=8, ep=8, drafts=drafts))
        return float(tpot), float(ttft)

    return told


def test_kernels_of_a_mixture_are_layer_gaps_of_its_engine(x64, serve):
    plain = Serving.of(engine="vllm")
    gap = float(plain.vllm.layer_gap)
    apart = plain.fitted({"vllm.expert_gap": 0.25 * gap})
    together = plain.fitted({"vllm.expert_gap": 0.0, "expert_kernels": 0.25})
    assert serve(together) == pytest.approx(serve(apart), rel=1e-12)


def test_eager_launches_grow_with_the_prompt(x64, serve):
    plain = Serving.of(engine="vllm")
    # a prompt of half of eager_tokens: growth of 2 doubles the launches, as twice the factor does
    grown = plain.but(eager_growth=2.0)
    double = plain.fitted({"vllm.eager": 2.0 * float(plain.vllm.eager)})
    assert serve(grown) == pytest.approx(serve(double), rel=1e-12)
    assert serve(grown)[1] > serve(plain)[1]


def test_admission_in_passes_differs_with_drafts_alone(x64, serve):
    plain = Serving.of(engine="vllm")
    passes = plain.but(admission_in_passes=1.0)
    assert serve(passes) == serve(plain)
    (tpot, ttft), (same, later) = serve(plain, 3.0), serve(passes, 3.0)
    a = float(plain.acceptance)
    kept = 1.0 + a + a**2 + a**3
    assert same == tpot
    steps = float(plain.vllm.admission)
    # what the queue behind it multiplies is the same share of a begun request
    assert later - ttft == pytest.approx(steps * tpot * (kept - 1.0), rel=0.05)


def test_the_shipped_fit_loads_and_its_values_are_within_their_intervals(x64, serve):
    model = Serving.calibrated("sglang")
    assert float(model.sglang.expert_gap) == 0.0 and float(model.admission_in_passes) == 1.0
    assert all(f.low <= f.value <= f.high for f in serving_fit().values())
    assert 0.001 < serve(model)[0] < 0.1
    for errors in serving_errors().values():
        for shares in errors.within.values():
            assert shares[95][0] <= shares[80][0] <= shares[50][0]
            assert shares[50][1] <= shares[80][1] <= shares[95][1]
