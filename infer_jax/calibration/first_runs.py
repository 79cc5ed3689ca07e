"""Which runs of a server to measure first, before there are any."""

import numpy as np

from infer_jax.calibration.fitting import at
from infer_jax.calibration.problem import FitProblem
from infer_jax.calibration.proposals import Proposal, next_runs, possible_runs
from infer_jax.calibration.runs import OUTPUTS, InstanceLoad, predictor
from infer_jax.calibration.server import SCALES, priors
from infer_jax.estimators import Estimator
from infer_jax.specs import Architecture, Hardware


def first_runs(
    estimator: Estimator, arch: Architecture, hardware: Hardware, load: InstanceLoad, most: float
) -> tuple[Proposal, ...]:
    """The runs that would narrow predictions most, by what is believed of all servers.

    As ``proposals.next_runs`` after a fit to no run, whose covariance is that of the priors.
    ``load``: an instance with the longest requests that it takes; ``most``: as many run at most.
    """
    work = load.workload
    loads = (InstanceLoad(work.with_(prefix=0.0), load.plan), *possible_runs(arch, [load]))
    runs = [(x, x.workload) for x in loads]
    longest = float(work.isl + work.osl)
    possible = [x for x, w in runs if float(w.isl + w.osl) <= longest and float(w.batch) <= most]
    names = estimator.server_coefficients(arch, [load.plan], list(OUTPUTS))
    count = 2 * len(possible)
    problem = FitProblem.of(
        predictor(arch, hardware, possible),
        np.ones(count),
        estimator,
        names,
        priors=priors(estimator, names),
        scale=np.repeat(SCALES, len(possible)),
    )
    fit = at(problem, problem.chosen.free(estimator), np.zeros(count))
    return next_runs(fit, np.diag(1.0 / fit.precision), possible, np.asarray(SCALES))
