"""What a sweep runs, of a file or of arguments: prepared, and how far its answers are trusted."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from infer_jax.catalog import Model, System
from infer_jax.catalog.published import serving_measured
from infer_jax.errors import InputError
from infer_jax.estimators import Estimator, Trust, trust
from infer_jax.estimators.registry import variant
from infer_jax.silicon.chips import SiliconSystem
from infer_jax.sweeps.preparing import Prepared, prepare
from infer_jax.sweeps.reducers import Reducer
from infer_jax.sweeps.space import Space
from infer_jax.sweeps.toml import DEFAULT, SweepFile, load_space, space_of

# also a file, or its tables
SpaceLike = Space | str | os.PathLike[str] | Mapping[str, object]
Estimators = str | Estimator | Sequence[str | Estimator]
REDUCERS = "what to keep, such as Pareto('speed', 'cost'), TopK(10, 'cost') or Best('cost')"


def request_of(
    space: SpaceLike, keep: Reducer | None, estimator: Estimators | None, feasible: str | None
) -> SweepFile:
    """The sweep to run: of a file, or of a space and the other arguments.

    Each system has its own coefficients.
    """
    if isinstance(space, Space):
        if keep is None:
            raise InputError("sweep", "keep", "missing", REDUCERS)
        request = SweepFile([], space, keep, "feasible", ())
        estimator = DEFAULT if estimator is None else estimator
    elif isinstance(space, Mapping):
        request = space_of("sweep", space, keep)
    else:
        request = load_space(Path(space), keep)
    if estimator is not None:
        single = isinstance(estimator, str | Estimator)
        several = [estimator] if single else list(estimator)
        made = [variant(x).make() if isinstance(x, str) else x for x in several]
        names = tuple(x if isinstance(x, str) else x.innermost.table for x in several)
        request = request._replace(estimator=made[0] if single else made, names=names)
    return request._replace(feasible=feasible) if feasible else request


def prepare_sweep(request: SweepFile, precision: str, legal: bool) -> Prepared:
    """The grid of a sweep, checked."""
    space, keep, feasible = request.space, request.keep, request.feasible
    return prepare(
        request.estimator, space, keep, precision=precision, feasible=feasible, legal=legal
    )


def trusts_of(request: SweepFile, ready: Prepared) -> list[Trust]:
    """How far each estimator is trusted on each system, and for a model that was not measured."""
    systems = [x for x in ready.named.values() if isinstance(x, System)]
    models = [x.name for x in ready.named.values() if isinstance(x, Model)]

    def unmeasured(system: System) -> str:
        own, measured = system.calibration, serving_measured().models
        known = measured if own is None else (own.model,)
        return next((name for name in models if name not in known), *models[:1] or [""])

    return [
        trust(
            name,
            estimator.fitted_to(system.coefficients).innermost,
            system,
            unmeasured(system),
            isinstance(system, SiliconSystem),
        )
        for name, estimator in zip(request.names, ready.estimators, strict=True)
        for system in systems
    ]
