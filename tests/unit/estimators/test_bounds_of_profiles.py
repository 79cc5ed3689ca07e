"""At both ends of what a profile may say, every answer is finite and a time one can wait for."""

import jax
import numpy as np
import pytest

from infer_jax import Plan, Workload, load_model, load_system
from infer_jax.catalog import sense
from infer_jax.estimators import make
from infer_jax.specs import leaves

SYSTEM, MODEL = load_system("h100_sxm"), load_model("llama-3.1-8b")
WORK, PLAN = Workload.of(isl=1024, osl=128, batch=8), Plan.of(tp=8, pp=2)
HOUR = 3600.0  # s: the slowest that a bound lets pass takes about one


def put(hardware, path, value):
    part, _, name = path.rpartition(".")
    change = {name: np.asarray(value, np.float64)}
    if part:
        change = {part: getattr(hardware, part).replace(**change)}
    return hardware.replace(**change)


@pytest.mark.parametrize("name", ["economics.planned", "serving"])
def test_no_absurd_answer_within_the_bounds(name, x64):
    estimator = make(name, SYSTEM.coefficients)

    @jax.jit
    def answers(hardware):
        life = estimator.estimate(MODEL.architecture, hardware, WORK, PLAN)
        return life.ttft, life.tpot, life.cost

    tried = 0
    for path, meta, _ in leaves(SYSTEM.hardware):
        if path.startswith("host"):  # may be absent, and is not asked here
            continue
        for value in sense.FIELDS.get(path, sense.UNITS[meta["unit"]]):
            ttft, tpot, cost = map(float, answers(put(SYSTEM.hardware, path, value)))
            assert 1e-4 < ttft < 1.1 * HOUR and 1e-5 < tpot < HOUR, (path, value)
            assert 0.0 < cost < np.inf, (path, value)
            tried += 1
    assert tried == 22
