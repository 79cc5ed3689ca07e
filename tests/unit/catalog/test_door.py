"""A model where its architecture is meant, a system where its hardware is: one sentence."""

import copy
import pickle

import pytest

import infer_jax as ij
from infer_jax.errors import InputError
from infer_jax.memory import memory

MODEL, SYSTEM = ij.load_model("llama-3.1-8b"), ij.load_system("h100_sxm")
WORK, PLAN = ij.Workload.of(isl=100, osl=10), ij.Plan.of(tp=1)


@pytest.mark.parametrize(
    "name", ["serving", "economics.planned", "kernels", "partitioning.planned"]
)
def test_a_model_is_no_architecture_and_a_system_no_hardware(name):
    theory = ij.make(name, SYSTEM.coefficients)
    with pytest.raises(InputError, match=r"Model 'llama-3.1-8b': .* pass .architecture") as caught:
        theory.estimate(MODEL, SYSTEM.hardware, WORK, PLAN)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"System 'h100_sxm': .* pass .hardware"):
        theory.estimate(MODEL.architecture, SYSTEM, WORK, PLAN)


def test_memory_refuses_them_too():
    with pytest.raises(InputError, match=r"pass .architecture"):
        memory(MODEL, SYSTEM.hardware, PLAN)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match=r"pass .hardware"):
        memory(MODEL.architecture, SYSTEM, PLAN)  # pyright: ignore[reportArgumentType]


def test_reprs_are_one_short_line():
    for one in (MODEL, SYSTEM):
        assert len(repr(one)) < 120 and "\n" not in repr(one) and one.name in repr(one)


def test_they_are_plain_objects_otherwise():
    assert not hasattr(MODEL, "blocks") and not hasattr(SYSTEM, "chip")
    with pytest.raises(AttributeError):
        MODEL.nonsense  # noqa: B018
    assert copy.copy(MODEL).name == MODEL.name
    assert pickle.loads(pickle.dumps(SYSTEM)).name == SYSTEM.name
