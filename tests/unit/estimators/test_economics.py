"""The economics model where it can be worked out by hand, at its corners, and slopes at bounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import infer_jax as ij
from infer_jax.catalog.published import economics_hardware, economics_model
from infer_jax.errors import InputError
from infer_jax.estimators import Economics, make
from infer_jax.physics.network.collectives import fastest_instance
from infer_jax.specs import ForwardPass, Plan
from tests.unit.estimators.compiled import quickly, step

H100, CAPS = economics_hardware("H100")


def token(batch, context=0.0):
    return ForwardPass.of(sequences=batch, new_tokens=1, cached_tokens=context)


@pytest.mark.usefixtures("x64")
def test_level1_is_the_roofline_of_one_chip():
    arch = economics_model("Llama_3_8B")
    d, f, v = 4096, 14336, 128256
    p = 32 * ((32 + 16) * 128 * d + 128 * 32 * d + 3 * d * f) + 2 * v * d
    for batch in (1.0, 1e4):
        phase = step(Economics.level1().fitted(CAPS), arch, H100, token(batch), Plan.of())
        expected = max(2 * p / (0.75 * 3.3e12), 2 * p * batch / (0.7 * 1e15))
        assert float(phase.time) == pytest.approx(expected, rel=1e-12)


def test_level2_meets_its_closed_form_where_memory_binds():
    arch = economics_model("Llama_3_70B")
    estimator = Economics.level2().with_(root_base=0.0, memory_cap=1.0)
    chips = np.geomspace(5, 100, 4001)
    plans = jax.vmap(lambda n: Plan.of().replace(tp=n))(chips)
    times = jax.jit(jax.vmap(lambda p: estimator.step(arch, H100, token(1e-6), p).time))(plans)
    phase = step(estimator, arch, H100, token(1e-6), Plan.of(tp=1.0))
    exact = fastest_instance(jnp.asarray(80 * 4 * 2e-6), phase.terms["memory"])
    assert float(times.min()) == pytest.approx(float(exact.time), rel=1e-6)
    assert chips[times.argmin()] == pytest.approx(float(exact.chips), rel=2e-3)


@pytest.mark.usefixtures("x64")
def test_stages_equal_to_the_batch_are_feasible():
    # 20 sequences: 2^log2(20) exceeds 20 by a rounding error, the last tick must not
    arch, (torus, caps) = economics_model("DeepSeek_V3"), economics_hardware("TPU_v4")
    plan = Plan.of(tp=15843.0)
    free = step(Economics.level4().fitted(caps), arch, torus, token(20.0), plan)
    kept = step(Economics.level4().with_(headroom=1e-12, **caps), arch, torus, token(20.0), plan)
    assert float(free.layout["pp"]) == 20.0 and bool(free.feasible)
    assert float(free.time) < float(kept.time)


@pytest.mark.usefixtures("x64")
def test_memory_equal_to_the_need_is_feasible():
    arch = economics_model("Llama_3_8B")
    need = step(Economics.level2(), arch, H100, token(1.0), Plan.of()).limits["memory"].need
    exact = H100.replace(chip=H100.chip.replace(memory=need))
    short = H100.replace(chip=H100.chip.replace(memory=need * (1 - 1e-12)))
    assert bool(step(Economics.level2(), arch, exact, token(1.0), Plan.of()).feasible)
    assert not bool(step(Economics.level2(), arch, short, token(1.0), Plan.of()).feasible)


def test_the_search_is_no_slower_than_any_plan():
    arch = economics_model("Llama_3_70B")
    best = step(Economics.corrected(), arch, H100, token(64.0, 2e3), Plan.of(tp=16.0))
    for plan in (Plan.of(tp=16), Plan.of(tp=16, layout="2d"), Plan.of(tp=4, pp=4)):
        one = step(Economics.as_planned(), arch, H100, token(64.0, 2e3), plan)
        # pipeline degrees of the search are ticks, so only its own are beaten for certain
        if float(plan.pp) == 1.0:
            assert float(best.time) <= float(one.time) * (1 + 1e-12)


def test_all_micro_batches_count_in_the_corrected_capacity():
    """Of 4 x 4 chips each holds a 16th of the cache, whose last block of 16 tokens is half full."""
    arch = economics_model("Llama_3_70B")
    corrected, plan = Economics.corrected().replace(search=False), Plan.of(tp=4, pp=4)
    more, fewer = (
        float(step(corrected, arch, H100, token(n, 1e4), plan).limits["memory"].need)
        for n in (64.0, 32.0)
    )
    kappa = 2 * 8 * 128 * 80 * 2.0
    assert more - fewer == pytest.approx(32 * (1e4 + 1 + 8) * kappa / 16)


def test_unknown_estimators_and_coefficients_are_refused():
    with pytest.raises(InputError, match=r"economics\.level4"):
        make("economic")
    with pytest.raises(InputError, match="flop_cap"):
        Economics.corrected().fitted({"flops_cap": 0.5})
    with pytest.raises(InputError, match="from 0 to 1"):
        Economics.corrected().fitted({"flop_cap": 1.5})


STEP = 1e-5
WORK = ij.Workload.of(isl=1024, osl=128, batch=16)
# estimator, model, system, tensor parallel degree, and the number at its bound of 1
CASES = (
    ("economics.planned", "llama-3.1-8b", "h100_sxm", 2.0, "pp"),
    ("serving", "llama-3.1-8b", "h100_sxm", 2.0, "pp"),
    ("kernels", "palm-540b", "h800_sxm", 8.0, "kv_heads"),
    ("serving", "palm-540b", "h800_sxm", 8.0, "kv_heads"),
    ("economics.planned", "palm-540b", "h800_sxm", 8.0, "kv_heads"),
)


@quickly
def times(estimator, *asked, along):
    """TTFT and TPOT, and their slopes along a direction of the model and the plan.

    Reverse mode agrees with this one by a law of the contract.
    """
    arch, hardware, plan = asked

    def both(arch, plan):
        answer = estimator.estimate(arch, hardware, WORK, plan)
        return jnp.stack([answer.ttft, answer.tpot])

    return jax.jvp(both, (arch, plan), along)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("name", "model", "system", "tp", "leaf"), CASES)
def test_slopes_at_one(name, model, system, tp, leaf):
    machine, arch = ij.load_system(system), ij.load_model(model).architecture
    estimator, plan = ij.make(name, machine.coefficients), ij.Plan.of(tp=tp)
    still, aside = jax.tree.map(np.zeros_like, (arch, plan))
    if leaf == "pp":
        aside = aside.replace(pp=np.ones(()))
    else:
        still = still.at({f"blocks.{i}.attention.kv_heads": 1.0 for i in range(len(arch.blocks))})
    along = still, aside
    moved = jax.tree.map(lambda x, d: x + STEP * d, (arch, plan), along)
    value, slope = times(estimator, arch, machine.hardware, plan, along=along)
    allowed = (
        times(estimator, moved[0], machine.hardware, moved[1], along=along)[0] - value
    ) / STEP
    for ours, theirs, seconds in zip(slope, allowed, value, strict=True):
        assert float(ours) == pytest.approx(float(theirs), rel=2e-3, abs=1e-4 * float(seconds))
