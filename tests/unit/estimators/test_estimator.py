"""What the base classes say of every estimator: its passes, its target, what it takes; drafts."""

import copy
import pickle
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import infer_jax as ij
from infer_jax.design import QualityWrapper
from infer_jax.errors import InputError
from infer_jax.estimators import (
    AttentionFeedforward,
    Disaggregated,
    Economics,
    Estimate,
    Estimator,
    Offloading,
    Phase,
    Speculative,
)
from infer_jax.estimators.economics import evaluate
from infer_jax.estimators.serving import Serving
from infer_jax.estimators.speculative import (
    break_even_acceptance,
    break_even_batch,
    head_of,
    relaxed_length,
)
from infer_jax.footprint import memory
from infer_jax.specs import ForwardPass, Plan, Workload, number, spec
from tests.contract.cases import dense, nodes
from tests.unit.estimators.compiled import quickly

WORK = Workload.of(isl=900, osl=100, batch=7, prefix=30)


@spec
class Fixed(Estimator):
    """A pass takes as long per token as its one coefficient says."""

    table = "fixed"
    each: Any = number("seconds a token", unit="s", kind="time", default=2.0)

    def step(self, arch, hardware, forward, plan):
        time = self.each * forward.sequences * forward.new_tokens
        return Phase(time=time, terms={"all": time}, limits={}, mfu=0.0 * time, layout={})


def test_a_wrapper_answers_as_its_target():
    inner = Economics.corrected()
    for wrap in (
        Speculative.bonus(inner, None, 0.5),
        AttentionFeedforward.of(target=inner),
        QualityWrapper.of(target=Speculative.bonus(inner, None, 0.5)),
    ):
        assert wrap.innermost is inner and wrap.searches and wrap.smooths and wrap.prices_passes
        assert not wrap.table, "a profile has coefficients for the target, not for what wraps it"
        fitted = wrap.fitted_to({"economics": {"launch": 9e-6}, "speculative": {"acceptance": 0.1}})
        assert isinstance(fitted.innermost, Economics) and type(fitted) is type(wrap)
        assert float(fitted.innermost.launch) == 9e-6
        cold = wrap.softened(jnp.asarray(0.25)).innermost
        assert isinstance(cold, Economics) and cold.smoothing is not None
        assert float(cold.smoothing) == 0.25 and inner.smoothing is None
    assert not Disaggregated.of(target=inner).prices_passes
    assert not QualityWrapper.of(target=Offloading.improved()).prices_passes
    serving = Serving.of()
    wrapped = QualityWrapper.of(target=serving)
    assert float(wrapped.front_time(Plan.of())) == float(serving.front_time(Plan.of())) > 0.0


def test_an_estimate_comes_of_steps():
    """TTFT one prompt of 870 new tokens, TPOT 7 tokens, at 2 s each; cost by hand."""
    hardware = nodes()
    life = Fixed.of().estimate(dense(), hardware, WORK, Plan.of(tp=2))
    assert isinstance(life, Estimate)
    assert (float(life.ttft), float(life.tpot)) == (2.0 * 870, 2.0 * 7)
    assert float(life.cost) == pytest.approx(2 * 3.0 / 3600 * 14.0 / 7 * 1e6)
    with pytest.raises(InputError, match="speed is 'not a field"):
        Fixed.of().fitted({"speed": 1.0})
    assert float(Fixed.of().fitted_to({"fixed": {"each": 3.0}, "serving": {}}).each) == 3.0
    assert float(Fixed.of().fitted_to({}).each) == 2.0


pytestmark = pytest.mark.usefixtures("x64")

TARGET, HARDWARE, PLAN = Economics.as_planned(), nodes(), Plan.of(tp=2)
ARCH = dense()


def forward(batch):
    # a short context: reading a long one is shared by the drafts, and then they always pay
    return ForwardPass.of(sequences=batch, new_tokens=1, cached_tokens=100)


@quickly
def time(model, batch):
    work = forward(1).replace(sequences=batch)
    return model.step(ARCH, HARDWARE, work, PLAN).time


@quickly
def plain(batch):
    return TARGET.step(ARCH, HARDWARE, forward(1).replace(sequences=batch), PLAN).time


def test_nothing_accepted_is_slower_than_plain_decoding():
    model = Speculative.bonus(TARGET, None, 0.0, heads=True).always(3)
    for batch in (1.0, 300.0):
        assert float(time(model, batch)) > float(plain(batch))
    # and the best of all lengths is then none
    free = Speculative.bonus(TARGET, None, 0.0, heads=True)
    assert float(time(free, 1.0)) == pytest.approx(float(plain(1.0)), rel=1e-12)


def test_equal_positions_are_one_acceptance():
    one = Speculative.bonus(TARGET, None, 0.7, most=3)
    curve = Speculative.curve(TARGET, [0.7, 0.7, 0.7])
    for batch in (1.0, 200.0):
        assert float(time(one, batch)) == pytest.approx(float(time(curve, batch)), rel=1e-12)


def test_a_lookup_drafts_for_free_and_a_head_for_less_than_a_model():
    free, heads, model = (
        Speculative.bonus(TARGET, draft, 0.7, heads=heads).always(3)
        for draft, heads in ((None, False), (None, True), (ARCH, False))
    )
    times = [float(time(m, 4.0)) for m in (free, heads, model)]
    assert times == sorted(times) and times[0] < times[1] < times[2]
    assert float(head_of(ARCH).blocks[0].count) == 1.0


def test_the_relaxed_length_is_beside_the_exact_one():
    model = Speculative.bonus(TARGET, None, 0.8, most=8, heads=True)
    args = ARCH, HARDWARE, forward(8), PLAN

    @quickly
    def answers():
        real = relaxed_length(model, *args)
        return model.step(*args), real, model.with_drafts(real, *args).time

    phase, real, least = answers()
    assert abs(float(real) - float(phase.layout["drafts"])) <= 1.0
    assert float(least) <= float(phase.time) * (1 + 1e-9)


def test_break_even_is_where_both_are_equal():
    three = jnp.asarray(3.0)
    model = Speculative.bonus(TARGET, None, 0.6, heads=True)
    at = quickly(
        lambda a, b: (
            break_even_acceptance(model, three, ARCH, HARDWARE, forward(64), PLAN),
            break_even_batch(model, three, jnp.asarray(1e4), ARCH, HARDWARE, forward(1), PLAN),
        )
    )
    acceptance, batch = at(0.0, 0.0)
    assert 0.0 < float(acceptance) < 1.0 and 1.0 < float(batch) < 1e4
    even = model.always(3).replace(acceptance=np.asarray(float(acceptance)))
    assert float(time(even, 64.0)) == pytest.approx(float(plain(64.0)), rel=1e-6)
    assert float(time(model.always(3), batch)) == pytest.approx(float(plain(batch)), rel=1e-6)


def test_a_depth_without_an_acceptance_is_refused():
    with pytest.raises(InputError, match=r"drafts is .*at most 2"):
        Speculative.curve(TARGET, [0.8, 0.6], drafts=(1, 2, 3))


MODEL, SYSTEM = ij.load_model("llama-3.1-8b"), ij.load_system("h100_sxm")
SHORT, ONE_CHIP = ij.Workload.of(isl=100, osl=10), ij.Plan.of(tp=1)


def test_a_model_stands_for_its_architecture_and_a_system_for_its_hardware():
    estimator = ij.make("economics.planned", SYSTEM.coefficients)
    loaded = estimator.estimate(MODEL, SYSTEM, SHORT, ONE_CHIP)  # pyright: ignore[reportArgumentType]
    trees = estimator.estimate(MODEL.architecture, SYSTEM.hardware, SHORT, ONE_CHIP)
    assert loaded.tpot == trees.tpot and loaded.ttft == trees.ttft


def test_a_number_of_a_part_is_not_read_of_the_whole():
    with pytest.raises(InputError, match=r"Model 'llama-3.1-8b' has no blocks .* .architecture.bl"):
        MODEL.blocks  # noqa: B018
    with pytest.raises(InputError, match=r"System 'h100_sxm' has no chip .* .hardware.chip$"):
        SYSTEM.chip  # noqa: B018


NAMED = ("economics", "kernels.published", "offloading", "partitioning", "serving")


@pytest.mark.parametrize("name", NAMED)
def test_what_stands_in_the_place_of_another_is_named(name):
    estimator = ij.make(name, SYSTEM.coefficients)
    arch, hardware = MODEL.architecture, SYSTEM.hardware
    forward = ij.ForwardPass.of(sequences=1)
    for given, said in (
        ((arch, hardware, ONE_CHIP, SHORT), r"workload is 'a Plan'; allowed: a Workload"),
        (("llama-3.1-8b", hardware, SHORT, ONE_CHIP), r"arch is 'a str'; allowed: an Architecture"),
        ((hardware, arch, SHORT, ONE_CHIP), r"arch is 'a Hardware'; allowed: an Architecture"),
        ((arch, hardware, SHORT, None), r"plan is 'a NoneType'; allowed: a Plan"),
        ((arch, hardware, forward, ONE_CHIP), r"workload is 'a ForwardPass'; allowed: a Workload"),
    ):
        with pytest.raises(InputError, match=rf"^\w+.estimate: {said}"):
            estimator.estimate(*given)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match=r"plan is 'a Workload'; allowed: a Plan"):
        estimator.estimate(arch, hardware, workload=SHORT, plan=SHORT)
    if estimator.prices_passes:
        with pytest.raises(InputError, match=r"step: forward is 'a Workload'; allowed: a Forw"):
            estimator.step(arch, hardware, SHORT, ONE_CHIP)  # pyright: ignore[reportArgumentType]


def test_a_grid_refuses_what_is_not_meant():
    estimator = ij.make("economics", SYSTEM.coefficients)
    good = [estimator, MODEL.architecture, SYSTEM.hardware, SHORT, [1.0], [1.0]]
    for at, wrong, said in (
        (0, "economics", "estimator is 'economics'"),
        (1, SYSTEM, "arch is 'a System'; allowed: an Architecture"),
        (2, MODEL, "hardware is 'a Model'; allowed: a Hardware"),
        (3, ONE_CHIP, "workload is 'a Plan'; allowed: a Workload"),
        (4, [], "chips is"),
        (5, ["a"], "batches is"),
    ):
        with pytest.raises(InputError, match=said):
            evaluate(*[*good[:at], wrong, *good[at + 1 :]])


def test_memory_takes_them_too():
    loaded = memory(MODEL, SYSTEM, ONE_CHIP)  # pyright: ignore[reportArgumentType]
    assert loaded.tokens == memory(MODEL.architecture, SYSTEM.hardware, ONE_CHIP).tokens
    with pytest.raises(InputError, match=r"memory: plan is 'a Workload'; allowed: a Plan"):
        memory(MODEL.architecture, SYSTEM.hardware, SHORT)  # pyright: ignore[reportArgumentType]


def test_they_are_plain_objects_otherwise():
    assert not hasattr(MODEL, "blocks") and not hasattr(SYSTEM, "chip")
    with pytest.raises(AttributeError):
        MODEL.nonsense  # noqa: B018
    assert copy.copy(MODEL).name == MODEL.name
    for one in (MODEL, SYSTEM):
        assert len(repr(one)) < 120 and "\n" not in repr(one) and one.name in repr(one)
    assert pickle.loads(pickle.dumps(SYSTEM)).name == SYSTEM.name
