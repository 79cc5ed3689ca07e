"""Which rows has a fit seen, themselves or a twin: the same configuration and load on another day?

A row of which a twin was fitted says how machines and builds repeat, not how well a fit carries
over to what it has not seen; so the two are told apart.
"""

from collections.abc import Hashable, Sequence

import jax
import numpy as np

from infer_jax.calibration.pooled.rows import PooledRow
from infer_jax.calibration.uncertainty import rows_by_label
from infer_jax.estimators.disaggregated import Pools
from infer_jax.estimators.serving import Deployment

TIMES = ("tpot", "ttft")
PRINTED = 2e-3  # relative difference of two rounded figures of one run
FITTED, TWIN, NEW = "fitted", "with a twin in the fit", "without a twin"


def layout(row: PooledRow) -> Hashable:
    """Model, formats, chip, program and degrees of a server: what does not change with its load."""
    plan = row.plan
    if isinstance(plan, Deployment):
        plan = plan.with_(polling=1.0)  # which scripts set by load
    leaves = tuple(float(x) for x in jax.tree.leaves(plan))
    return row.served, row.system, row.framework, isinstance(plan, Pools), leaves


def configuration(row: PooledRow) -> Hashable:
    """A server and its load; of a replay, which has no other, its name."""
    if row.workload is None:
        return row.group, row.id
    return layout(row), row.mode, row.lengths, float(row.workload.batch)


def has_twin(rows: Sequence[PooledRow], seen: np.ndarray) -> np.ndarray:
    """Whether each row that is not ``seen`` has the configuration of one that is."""
    known = {configuration(row) for row, is_seen in zip(rows, seen, strict=True) if is_seen}
    return np.asarray([configuration(row) in known for row in rows]) & ~seen


def told_apart(rows: Sequence[PooledRow], fitted: Sequence[PooledRow]) -> np.ndarray:
    """Of each row whether it is one of the ``fitted``, has a twin among them, or neither."""
    own = {(row.dataset, row.id, configuration(row)) for row in fitted}
    seen = np.asarray(
        [(r.dataset, r.id, configuration(r)) in own for r in rows] + [True] * len(fitted)
    )
    twin = has_twin([*rows, *fitted], seen)[: len(rows)]
    return np.where(seen[: len(rows)], FITTED, np.where(twin, TWIN, NEW))


def is_repeated(rows: Sequence[PooledRow], others: Sequence[PooledRow]) -> np.ndarray:
    """Whether each row is the run of another file: one load of a server, both times alike."""
    known = rows_by_label(map(_load, others))
    return np.asarray([any(_alike(r, others[i]) for i in known.get(_load(r), ())) for r in rows])


def _load(row: PooledRow) -> Hashable:
    """Model, chip and load of a row; its name where it has none."""
    return (row.model, row.system, float(row.workload.batch)) if row.workload else row.id


def _alike(row: PooledRow, other: PooledRow) -> bool:
    """Lengths and both times equal but for the digits that sources print."""
    mine, theirs = (np.asarray([r.measured.get(k, np.nan) for k in TIMES]) for r in (row, other))
    if row.workload is None or not np.isfinite(mine + theirs).all():
        return False
    lengths = np.asarray(row.lengths) / np.asarray(other.lengths)
    return bool(np.abs(np.concatenate([lengths, mine / theirs]) - 1.0).max() < PRINTED)
