"""What is asked of jobs beside the contract: a steady optimum, and what memory does to any job."""

from functools import partial

import jax
import numpy as np
import pytest

from infer_jax.errors import InputError
from infer_jax.specs import Workload
from tests.contract.cases import BLOCKS, JOBS, dense, offloaded
from tests.contract.programs import world

# programs that run a few times each: compiling takes all the time, so compile quickly
compiled = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


@pytest.mark.parametrize("name", JOBS)
def test_a_job_has_no_passes(name):
    theory = JOBS[name].make()
    assert not theory.prices_passes
    with pytest.raises(InputError, match="step"):
        theory.step(*world(name, "dense", "offloaded", "block")[1:])


JOBS_DRAWN = 300


def drawn():
    """Random systems, lengths and blocks, stacked, in float64."""
    rng, base, rows = np.random.default_rng(0), offloaded(), []

    def between(low, high):
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))

    for _ in range(JOBS_DRAWN):
        host = base.host.with_(
            memory=between(2e10, 5e11),
            disk=float(rng.integers(2)) * between(1e11, 3e12),
            memory_bandwidth=between(3e10, 3e11),
            flops=between(5e11, 5e12),
            link_bandwidth=between(4e9, 6e10),
            disk_read=between(5e8, 7e9),
            disk_write=between(3e8, 5e9),
        )
        chip = base.chip.with_(memory=between(8e9, 5e10), flops_16=between(3e13, 4e14))
        choices = ("compress_weights", "compress_cache", "schedule", "overlap")
        plan = BLOCKS["block"]().with_(
            gpu_batch=np.floor(between(1, 128)),
            batches=np.floor(between(1, 40)),
            **{name: float(rng.integers(2)) for name in choices},
        )
        work = Workload.of(isl=between(20, 4000), osl=between(2, 300))
        rows.append((base.replace(host=host, chip=chip), work, plan))
    return jax.tree.map(lambda *x: np.stack([np.asarray(v, np.float64) for v in x]), *rows)


@compiled
def many(estimator, arch, hardware, work, plan):
    answers = jax.vmap(estimator.estimate, in_axes=(None, 0, 0, 0))(arch, hardware, work, plan)
    return answers.time, answers.feasible


@pytest.mark.parametrize("name", ["offloading"])
@pytest.mark.parametrize("part", ["GPU", "CPU", "disk"])
@pytest.mark.parametrize("factor", [1.1, 2.0])
def test_more_memory_slows_no_job_that_fits(name, part, factor):
    """Of one that fits nowhere the placement is the least infeasible, whatever its time."""
    theory, (hardware, work, plan) = JOBS[name].make(), drawn()
    chip, host = hardware.chip, hardware.host
    larger = {
        "GPU": hardware.replace(chip=chip.replace(memory=chip.memory * factor)),
        "CPU": hardware.replace(host=host.replace(memory=host.memory * factor)),
        "disk": hardware.replace(host=host.replace(disk=host.disk * factor)),
    }
    before, fits = many(theory, dense(), hardware, work, plan)
    after, still = many(theory, dense(), larger[part], work, plan)
    assert np.mean(fits) > 0.8 and np.all(still[fits])
    assert np.all(after[fits] <= before[fits] * (1.0 + 1e-9))
