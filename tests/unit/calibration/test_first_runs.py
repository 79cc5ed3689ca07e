"""The first runs to measure, beside the posterior of every possible one by matrix inverses."""

import jax
import jax.numpy as jnp
import numpy as np

from infer_jax.calibration.bounds import parameters
from infer_jax.calibration.runs import OUTPUTS, InstanceLoad, LoadPredictor
from infer_jax.calibration.server import SCALES, first_runs, priors
from infer_jax.calibration.server_fit import possible_runs
from infer_jax.catalog import load_model, load_system
from infer_jax.estimators import make
from infer_jax.estimators.serving import Deployment, ServingWorkload


def test_the_first_run_narrows_predictions_most():
    arch, system = load_model("llama-3.2-1b").architecture, load_system("h100_sxm")
    estimator = make("economics.planned")
    load = InstanceLoad(ServingWorkload.of(isl=1500, osl=600, batch=9), Deployment.of(tp=2))
    found = first_runs(estimator, arch, system.hardware, load, most=16)
    works = [x.load.workload for x in found]
    assert works and all(float(w.isl + w.osl) <= 2100 and float(w.batch) <= 16 for w in works)
    # every run that is possible: lengths of the load and shorter ones, powers of two at once
    loads = [load, *possible_runs(arch, [load])]
    loads = [x for x in loads if float(x.workload.isl + x.workload.osl) <= 2100
             and float(x.workload.batch) <= 16]  # fmt: skip
    assert len(loads) > len(found)
    names = estimator.server_coefficients(arch, [load.plan], list(OUTPUTS))
    chosen = parameters(estimator, names)
    predict = LoadPredictor.of(arch, system.hardware, loads)

    def logs(free):
        return jnp.log(predict(chosen.insert(estimator, free)))

    with jax.enable_x64(True):
        start = chosen.free(estimator)
        slope = np.asarray(jax.jit(jax.jacfwd(logs))(start))
        steps = np.asarray(jnp.diag(jax.jacfwd(lambda u: jnp.log(chosen.values(u)))(start)))
    believed = np.diag([(s / prior.spread) ** 2 for s, prior in
                        zip(steps, priors(estimator, names).values(), strict=True)])  # fmt: skip
    noise = np.repeat(SCALES, len(loads))

    def remaining(row):
        """Variance of all predictions, in units of their noise, once a time is measured."""
        information = believed + np.outer(slope[row], slope[row]) / noise[row] ** 2
        spread = np.linalg.inv(information)
        return np.sum((slope @ spread) * slope / noise[:, None] ** 2)

    best = int(np.argmin([remaining(row) for row in range(len(noise))])) % len(loads)
    first, wanted = works[0], loads[best].workload
    assert [float(first.isl), float(first.osl), float(first.batch)] == [
        float(wanted.isl), float(wanted.osl), float(wanted.batch)]  # fmt: skip
