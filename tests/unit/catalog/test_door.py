"""A model stands for its architecture, a system for its hardware; anything else is named."""

import copy
import pickle

import pytest

import infer_jax as ij
from infer_jax.errors import InputError
from infer_jax.estimators.economics import evaluate
from infer_jax.footprint import memory

MODEL, SYSTEM = ij.load_model("llama-3.1-8b"), ij.load_system("h100_sxm")
WORK, PLAN = ij.Workload.of(isl=100, osl=10), ij.Plan.of(tp=1)


def test_a_model_stands_for_its_architecture_and_a_system_for_its_hardware():
    estimator = ij.make("economics.planned", SYSTEM.coefficients)
    loaded = estimator.estimate(MODEL, SYSTEM, WORK, PLAN)  # pyright: ignore[reportArgumentType]
    trees = estimator.estimate(MODEL.architecture, SYSTEM.hardware, WORK, PLAN)
    assert loaded.tpot == trees.tpot and loaded.ttft == trees.ttft


def test_a_number_of_a_part_is_not_read_of_the_whole():
    with pytest.raises(InputError, match=r"Model 'llama-3.1-8b' has no blocks .* .architecture.bl"):
        MODEL.blocks  # noqa: B018
    with pytest.raises(InputError, match=r"System 'h100_sxm' has no chip .* .hardware.chip$"):
        SYSTEM.chip  # noqa: B018


ESTIMATORS = ("economics", "kernels.published", "offloading", "partitioning", "serving")


@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_stands_in_the_place_of_another_is_named(name):
    estimator = ij.make(name, SYSTEM.coefficients)
    arch, hardware = MODEL.architecture, SYSTEM.hardware
    forward = ij.ForwardPass.of(sequences=1)
    for given, said in (
        ((arch, hardware, PLAN, WORK), r"workload is 'a Plan'; allowed: a Workload"),
        (("llama-3.1-8b", hardware, WORK, PLAN), r"arch is 'a str'; allowed: an Architecture"),
        ((hardware, arch, WORK, PLAN), r"arch is 'a Hardware'; allowed: an Architecture"),
        ((arch, hardware, WORK, None), r"plan is 'a NoneType'; allowed: a Plan"),
        ((arch, hardware, forward, PLAN), r"workload is 'a ForwardPass'; allowed: a Workload"),
    ):
        with pytest.raises(InputError, match=rf"^\w+.estimate: {said}"):
            estimator.estimate(*given)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match=r"plan is 'a Workload'; allowed: a Plan"):
        estimator.estimate(arch, hardware, workload=WORK, plan=WORK)
    if estimator.prices_passes:
        with pytest.raises(InputError, match=r"step: forward is 'a Workload'; allowed: a Forw"):
            estimator.step(arch, hardware, WORK, PLAN)  # pyright: ignore[reportArgumentType]


def test_a_grid_refuses_what_is_not_meant():
    estimator = ij.make("economics", SYSTEM.coefficients)
    good = [estimator, MODEL.architecture, SYSTEM.hardware, WORK, [1.0], [1.0]]
    for at, wrong, said in (
        (0, "economics", "estimator is 'economics'"),
        (1, SYSTEM, "arch is 'a System'; allowed: an Architecture"),
        (2, MODEL, "hardware is 'a Model'; allowed: a Hardware"),
        (3, PLAN, "workload is 'a Plan'; allowed: a Workload"),
        (4, [], "chips is"),
        (5, ["a"], "batches is"),
    ):
        with pytest.raises(InputError, match=said):
            evaluate(*[*good[:at], wrong, *good[at + 1 :]])


def test_memory_takes_them_too():
    loaded = memory(MODEL, SYSTEM, PLAN)  # pyright: ignore[reportArgumentType]
    assert loaded.tokens == memory(MODEL.architecture, SYSTEM.hardware, PLAN).tokens
    with pytest.raises(InputError, match=r"memory: plan is 'a Workload'; allowed: a Plan"):
        memory(MODEL.architecture, SYSTEM.hardware, WORK)  # pyright: ignore[reportArgumentType]


def test_they_are_plain_objects_otherwise():
    assert not hasattr(MODEL, "blocks") and not hasattr(SYSTEM, "chip")
    with pytest.raises(AttributeError):
        MODEL.nonsense  # noqa: B018
    assert copy.copy(MODEL).name == MODEL.name
    for one in (MODEL, SYSTEM):
        assert len(repr(one)) < 120 and "\n" not in repr(one) and one.name in repr(one)
    assert pickle.loads(pickle.dumps(SYSTEM)).name == SYSTEM.name
