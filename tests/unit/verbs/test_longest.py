"""Requests that no server of a model takes: longer than its context, more than it completes."""

import numpy as np
import pytest

import infer_jax as ij
from infer_jax import InputError, legal
from infer_jax.specs import UNBOUNDED, Workload

POINT = ("llama-3.1-8b", "h100_sxm")  # a context of 131072 tokens
VERBS = {
    "estimate": {"tp": 1},
    "plan": {"total_gpus": 1},
    "memory": {"batch": 1, "tp": 1},
    "frontier": {"total_gpus": 1},
    "sensitivity": {"tp": 1},
    "compare": {"tp": 1, "estimator": "economics.planned"},
    "report": {"tp": 1},
    "offload": {},
}


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_refuses_more_than_the_longest_context(name):
    with pytest.raises(InputError) as refused:
        getattr(ij, name)(*POINT, isl=131072, osl=1, **VERBS[name])
    assert "isl is '131072'" in str(refused.value)
    assert "at most 131072 tokens together" in str(refused.value)


def test_a_longer_context_may_be_given_and_equal_is_within():
    fits = ij.memory(*POINT, tp=1, batch=1, isl=131071, osl=1)
    assert fits.filled is not None
    longer = ij.memory(*POINT, tp=1, batch=1, isl=131072, osl=1, set="arch.max_positions=200000")
    assert longer.filled is not None and longer.filled.used > fits.filled.used
    with pytest.raises(InputError, match="max_model_len"):
        ij.memory(*POINT, tp=1, max_model_len=131073)


def test_an_unknown_context_is_not_checked():
    arch = ij.load_model(POINT[0]).architecture
    unknown = arch.replace(max_positions=np.asarray(UNBOUNDED))
    work = Workload.of(isl=1e6, osl=1e6)
    assert legal.context(unknown, work).holds and not legal.context(arch, work).holds


def test_a_server_that_is_sent_too_much_completes_what_it_can():
    """Throughput and dollars are of its capacity; below it, of what arrives."""
    hardware = ij.load_system(POINT[1]).hardware
    for rate in (100.0, 1.0):
        answer = ij.estimate(*POINT, tp=1, request_rate=rate, isl=4096, osl=512)
        estimate, limit = answer.estimate, answer.estimate.decode.limits["arrivals"]
        done = min(rate, float(limit.capacity))
        assert (done < rate) == (rate == 100.0) == (not estimate.feasible)
        np.testing.assert_allclose(estimate.throughput, 512 * done, rtol=1e-9)
        dollars = (estimate.cost * 512 + estimate.input_cost * 4096) / 1e6
        np.testing.assert_allclose(dollars, hardware.price / 3600 / done, rtol=1e-9)
        said = [part for part in answer.parts() if "requests/s arrive" in str(part)]
        assert len(said) == (1 if rate == 100.0 else 0)
