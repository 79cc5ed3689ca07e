"""Kernels timed on this machine: times that are real, curves that recover, a profile that loads."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.catalog import load_system
from infer_jax.errors import InputError
from infer_jax.kernel_timing import Timed, families, fitted, kernels, profile
from infer_jax.kernel_timing.families import FP8
from infer_jax.kernel_timing.kernels import seconds
from infer_jax.physics import efficiency as eff

CHIP = load_system("h20_sxm").hardware.chip


def test_work_is_neither_dropped_nor_merged():
    """Sixteen times the work takes several times as long, though nobody reads the results."""
    small, large = (jnp.ones((n, n), jnp.float32) for n in (128, 512))
    times = [seconds(jnp.matmul, x, x, repeats=3, min_seconds=2e-3) for x in (small, large)]
    assert times[1] > 4 * times[0] > 0
    assert 2 * 512**3 / times[1] < 2e13  # no CPU does 20 TFLOP/s


@pytest.mark.parametrize("function, shapes", [
    (kernels.increment, [(4096,)]), (jnp.matmul, [(64, 96), (96, 128)]),
])  # fmt: skip
def test_calls_that_share_a_turn_of_the_loop_each_stand_behind_a_barrier(function, shapes):
    """Accelerators keep it until kernels are fused; a processor's compiler, which shares no turn,
    takes it away before."""
    operands = tuple(jnp.ones(shape, jnp.float32) for shape in shapes)
    one, eight = (kernels.repeat_calls(function, n).lower(1, operands).as_text() for n in (1, 8))
    name = "dot_general" if len(shapes) > 1 else "add %"
    assert (one.count("optimization_barrier"), eight.count("optimization_barrier")) == (1, 8)
    assert eight.count(name) - one.count(name) == 7


@cache
def known():
    """Products whose times follow a law exactly."""
    m, k, n = (x.ravel() for x in np.meshgrid([16.0, 256.0, 4096.0], [512.0, 2048.0, 8192.0],
                                              [1024.0, 4096.0]))  # fmt: skip
    family = families.products("gemm", m, k, n, np.ones(len(m)), FP8, CHIP)
    law = eff.Product.of(compute=0.8, memory=0.7, fixed=5e-6, rows=60, depth=100, tail=1e5)
    return law, family._replace(seconds=np.asarray(family.predicted(law)),
                                start=family.start.replace(fixed=np.asarray(2e-6)))  # fmt: skip


@cache
def curve():
    return fitted(known()[1], restarts=1)


def test_a_fit_recovers_a_known_law(x64):
    (law, _), answer = known(), curve()
    assert np.abs(answer.seen).max() < 1e-3
    assert np.abs(answer.unseen).max() < 1e-2
    for name in ("compute", "memory", "fixed"):
        assert float(getattr(answer.coefficients, name)) == pytest.approx(
            float(getattr(law, name)), rel=0.02
        )


def rows():
    """Times that look like a device's, two devices."""
    cases = kernels.cases(kernels.TOY)
    built = [Timed(family, shape, 1e-5) for family, shape, *_ in cases if family != "copy"]
    built += [Timed("copy", {"moved": 2.0**k}, 1e-6 + 2.0**k / 1e10) for k in (16, 18, 20, 22)]
    return [*built, Timed("all_reduce", {"moved": 2.0**20}, 1e-3)]


def test_rates_are_those_of_the_fastest():
    chip = profile.chip_of(rows(), 16e9)
    assert float(chip.flops_16) == pytest.approx(2 * 64 * 256 * 256 / 1e-5)
    assert float(chip.memory_bandwidth) == pytest.approx(2**22 / (1e-6 + 2**22 / 1e10))
    assert profile.link_of(rows()) == pytest.approx(2**20 / 1e-3)


def test_a_shape_without_memory_is_left_out():
    lost = [r._replace(seconds=float("nan")) if r.shape.get("m") == 64 else r for r in rows()]
    chip = profile.chip_of(lost, 16e9)
    built = {f.name: f for f in profile.families_of(lost, chip)}
    assert len(built["gemm"].seconds) == 4
    assert np.isfinite(built["gemm"].seconds).all()
    with pytest.raises(InputError, match="out of memory"):
        profile.chip_of([r._replace(seconds=float("nan")) for r in lost], 16e9)
