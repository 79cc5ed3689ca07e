"""Loads of a server to measure next, by how much they would narrow predictions."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from infer_jax.calibration.fitting import Fit
from infer_jax.calibration.information import next_measurements
from infer_jax.calibration.ladder import SCALES
from infer_jax.calibration.runs import InstanceLoad
from infer_jax.specs import Architecture

LENGTHS = ((1024.0, 1024.0), (8192.0, 1024.0), (1024.0, 8192.0))  # prompts and outputs proposed
SUGGESTED = 3


class Proposal(NamedTuple):
    """A run worth measuring: bits it adds, and by which share it narrows the predictions."""

    load: InstanceLoad
    bits: float
    narrows: float


def candidates(arch: Architecture, loads: Sequence[InstanceLoad]) -> tuple[InstanceLoad, ...]:
    """Closed-loop runs that could be measured: layouts of the runs, lengths, concurrencies."""
    first = loads[0].workload
    plans = {tuple(map(float, jax.tree.leaves(x.plan))): x.plan for x in loads}
    lengths = {(float(x.workload.isl), float(x.workload.osl)): None for x in loads}
    lengths |= dict.fromkeys(LENGTHS)
    longest, most = float(arch.max_positions), max(float(x.workload.batch) for x in loads)
    batches = 2.0 ** np.arange(math.ceil(math.log2(max(most, 1.0))) + 3)
    known = {_key(load) for load in loads}
    possible = [
        InstanceLoad(first.with_(isl=i, osl=o, prefix=0.0, batch=b), plan)
        for plan in list(plans.values())[:2]
        for i, o in list(lengths)[-6:]
        for b in batches
        if i + o <= longest
    ]
    return tuple(load for load in possible if _key(load) not in known)


def _key(load: InstanceLoad) -> tuple:
    work = load.workload
    return tuple(map(float, (work.isl, work.osl, work.batch, load.plan.tp, load.plan.attention_dp)))


def proposed(
    fit: Fit, covered: np.ndarray, possible: Sequence[InstanceLoad], runs: int
) -> tuple[Proposal, ...]:
    """The possible runs that would narrow the predictions of all possible runs most."""
    slope = fit.jacobian.reshape(2, runs + len(possible), -1)[:, runs:]
    scales = np.repeat(SCALES, len(possible))
    flat = slope.reshape(len(scales), -1)
    worth = next_measurements(
        fit,
        flat,
        scales.tolist(),
        wanted=flat / scales[:, None],
        covered=covered,
        count=2 * SUGGESTED,
    )
    proposals: dict[int, Proposal] = {}
    for one in worth:
        i = one.index % len(possible)
        proposals.setdefault(i, Proposal(possible[i], one.bits, one.narrows))
    return tuple(proposals.values())[:SUGGESTED]
