"""Which runs to measure next: those expected to narrow predictions most."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from infer_jax.calibration.runs import SCALES, InstanceLoad
from infer_jax.calibration.uncertainty import Fit
from infer_jax.errors import InputError
from infer_jax.specs import Architecture

LENGTHS = ((1024.0, 1024.0), (8192.0, 1024.0), (1024.0, 8192.0))  # prompts and outputs proposed
PROPOSALS = 3


class Worth(NamedTuple):
    """A candidate: its index in the list, and the bits it adds beyond the ones chosen before.

    ``narrows`` is the share by which the deviation of the wanted predictions falls.
    """

    index: int
    bits: float
    narrows: float


class Proposal(NamedTuple):
    """A run worth measuring: bits it adds, and by which share it narrows the predictions."""

    load: InstanceLoad
    bits: float
    narrows: float


def next_measurements(
    fit: Fit,
    candidates: np.ndarray,
    scale: float | Sequence[float],
    *,
    wanted: np.ndarray | None = None,
    covered: np.ndarray | None = None,
    count: int = 3,
) -> tuple[Worth, ...]:
    """The best next runs, one after the other (each assumed done before the next is chosen).

    A run with Jacobian j and noise s adds log2(1 + j C j^T / s^2) / 2 bits of information on the
    parameters, with C their covariance. With ``wanted``, the run that narrows these predictions
    most is chosen. Source: Lindley 1956; MacKay 1992 for the second.

    Args:
        fit: the fit so far.
        candidates: Jacobian of the log predictions of possible runs, runs x parameters.
        scale: noise of one run in log.
        wanted: Jacobian of the log predictions to narrow; None: the parameters.
        covered: covariance of the parameters; None: that of the fit's information.
        count: how many runs.

    Raises:
        InputError: candidates of another number of parameters, or none.
    """
    candidates = np.atleast_2d(np.asarray(candidates, float))
    if not candidates.size or candidates.shape[1] != len(fit.free):
        allowed = f"at least one row of {len(fit.free)} numbers"
        raise InputError("fit", "candidates", f"of shape {candidates.shape}", allowed)
    noise = np.broadcast_to(np.asarray(scale, float) ** 2, len(candidates))
    spread = np.linalg.pinv(fit.information) if covered is None else np.asarray(covered)
    goal = np.eye(len(fit.free)) if wanted is None else np.atleast_2d(wanted)
    chosen: list[Worth] = []
    for _ in range(min(count, len(candidates))):
        towards = candidates @ spread
        variance = np.sum(towards * candidates, axis=1)
        bits = 0.5 * np.log2(1.0 + variance / noise)
        before = np.sum((goal @ spread) * goal, axis=1)
        # by how much each candidate reduces the variance of every goal, by the rank-one update
        falls = (towards @ goal.T) ** 2 / (variance + noise)[:, None]
        best = int(np.argmax(bits if wanted is None else falls.sum(axis=1)))
        remaining = np.sqrt(np.maximum(before - falls[best], 0.0).sum() / before.sum())
        chosen.append(Worth(best, float(bits[best]), float(1.0 - remaining)))
        spread = spread - np.outer(towards[best], towards[best]) / (variance[best] + noise[best])
    return tuple(chosen)


def possible_runs(arch: Architecture, loads: Sequence[InstanceLoad]) -> tuple[InstanceLoad, ...]:
    """Closed-loop runs that could be measured: layouts of the runs, lengths, concurrencies."""

    def key(load: InstanceLoad) -> tuple[float, ...]:
        work, plan = load.workload, load.plan
        return tuple(map(float, (work.isl, work.osl, work.batch, plan.tp, plan.attention_dp)))

    first = loads[0].workload
    plans = {tuple(map(float, jax.tree.leaves(x.plan))): x.plan for x in loads}
    lengths = {(float(x.workload.isl), float(x.workload.osl)): None for x in loads}
    lengths |= dict.fromkeys(LENGTHS)
    longest, largest = float(arch.max_positions), max(float(x.workload.batch) for x in loads)
    batches = 2.0 ** np.arange(math.ceil(math.log2(max(largest, 1.0))) + 3)
    known = {key(load) for load in loads}
    possible = [
        InstanceLoad(first.with_(isl=i, osl=o, prefix=0.0, batch=b), plan)
        for plan in list(plans.values())[:2]
        for i, o in list(lengths)[-6:]
        for b in batches
        if i + o <= longest
    ]
    return tuple(load for load in possible if key(load) not in known)


def next_runs(
    fit: Fit, covered: np.ndarray, possible: Sequence[InstanceLoad]
) -> tuple[Proposal, ...]:
    """The possible runs that would narrow the predictions of all possible runs most.

    They are the last rows of TPOT and of TTFT in the fit, of typical errors.
    """
    if not possible:
        return ()
    slope = fit.jacobian.reshape(2, -1, len(fit.free))
    flat = slope[:, slope.shape[1] - len(possible) :].reshape(2 * len(possible), -1)
    noise = np.repeat(SCALES, len(possible))
    worth = next_measurements(
        fit,
        flat,
        noise.tolist(),
        wanted=flat / noise[:, None],
        covered=covered,
        count=2 * PROPOSALS,
    )
    proposals: dict[int, Proposal] = {}
    for one in worth:
        i = one.index % len(possible)
        proposals.setdefault(i, Proposal(possible[i], one.bits, one.narrows))
    return tuple(proposals.values())[:PROPOSALS]
