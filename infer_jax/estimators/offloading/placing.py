"""The placement of weights, cache and hidden states with the least time per sample.

With the block fixed, times and peaks are affine in the fractions. The laws are therefore not
written a second time: their slopes are read off by differentiation, and the linear program

    minimise  w_p t_p + w_g t_g  over fractions and times, every t at least each of its groups,
    every need at most its capacity, every pair of fractions at most 1

is solved exactly. Source: FlexGen (arXiv 2303.06865), Eq. 1.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from infer_jax.estimators.offloading.coefficients import Coefficients
from infer_jax.estimators.offloading.job import Job
from infer_jax.physics.linear_program import Optimum, minimise, tolerance
from infer_jax.physics.memory.tiers import Moved, Placement, rest

Values = TypeVar("Values")
MEMORIES = ("GPU", "CPU", "disk")
BRIM = 4.0  # roundings of a bound that are left free in every memory


class LinearProgram(NamedTuple):
    """The linear program of a job: c, A, b, the weights ``relax`` of rows, the rows of memories."""

    cost: Array
    rows: Array
    bounds: Array
    relax: Array


class Placed(NamedTuple):
    """The best placement, and where there is none the least infeasible one.

    ``binding``: the memories (GPU, CPU, disk) that together make every placement infeasible.
    """

    placement: Placement
    feasible: Array
    binding: Array
    optimum: Optimum


def placement(model: Coefficients, free: Array) -> Placement:
    """The placement of the free fractions (w_C, c_C, h_C, w_D, c_D, [h_D]): the GPU has the rest.

    Zero is everything on the GPU, so that among equal placements faster memory wins.
    """
    cpu = Moved(free[0], free[1], free[2])
    disk = Moved(free[3], free[4], free[5] if model.hidden_on_disk else jnp.zeros_like(free[0]))
    return Placement(Moved(*(rest(c, d) for c, d in zip(cpu, disk, strict=True))), cpu, disk)


def program(model: Coefficients, job: Job) -> tuple[LinearProgram, tuple[int, ...]]:
    """The linear program, and for each of its last rows the memory (GPU, CPU, disk) it is of.

    Variables: the free fractions, t_prefill and t_decode, times in units of their size with
    everything on the CPU.
    """
    count = 6 if model.hidden_on_disk else 5
    host, chip = job.hardware.host, job.hardware.chip
    capacities = [model.usable * x for x in (chip.memory, host.memory, host.disk)]

    def groups(free: Array) -> tuple[Array, Array]:
        prefill, decode = model.laws.terms(model.rates, job, placement(model, free))
        return (
            jnp.stack(model.lengths(prefill, model.laws.prefill, job)),
            jnp.stack(model.lengths(decode, model.laws.decode, job)),
        )

    peaks = model.laws.memory(job, placement(model, jnp.zeros(count)))
    memories = (0, 0, 1, 1, 2)
    of = tuple(m for m, peak in zip(memories, peaks, strict=True) for _ in peak.needs)

    def needs(free: Array) -> Array:
        at = placement(model, free)
        return jnp.stack([x for peak in model.laws.memory(job, at) for x in peak.needs])

    def affine(law: Callable[[Array], Values], zero: Array) -> tuple[Values, Values]:
        return law(zero), jax.jacfwd(law)(zero)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

    zero = jnp.zeros(count, jnp.result_type(job.prompt, job.gpu_batch, 0.0))
    (p0, g0), (p1, g1) = affine(groups, zero)
    n0, n1 = affine(needs, zero)
    # a little below the capacity, so that rounding leaves the answer feasible
    limit = jnp.stack(capacities)[jnp.asarray(of)] * (1.0 - BRIM * tolerance(zero.dtype).bound)
    on_cpu = jnp.asarray([1.0, 1.0, 1.0, 0.0, 0.0, 0.0][:count], zero.dtype)
    units = [lax.stop_gradient(jnp.max(x)) for x in groups(on_cpu)]
    pairs = -jnp.tile(jnp.eye(3, dtype=zero.dtype), 2)[:, :count]
    rows = jnp.concatenate(
        [
            _with_times(-p1, units[0], 0.0),
            _with_times(-g1, 0.0, units[1]),
            _with_times(-n1, 0.0, 0.0),
            _with_times(pairs, 0.0, 0.0),
        ]
    )
    bounds = jnp.concatenate([p0, g0, n0 - limit, -jnp.ones(3, zero.dtype)])
    weights = model.weights(job)
    cost = jnp.concatenate([zero, jnp.stack([w * u for w, u in zip(weights, units, strict=True)])])
    give = jnp.where(limit > 0, limit, 1.0 + jnp.max(jnp.abs(n1), axis=1))
    still = jnp.zeros(len(p0) + len(g0), zero.dtype)
    relax = jnp.concatenate([still, give, jnp.zeros(3, zero.dtype)])
    return LinearProgram(cost, rows, bounds, relax), of


def _with_times(rows: Array, prefill: Array | float, decode: Array | float) -> Array:
    """Rows over the fractions with the coefficients of the two times added."""
    ones = jnp.ones((rows.shape[0], 1), rows.dtype)
    return jnp.concatenate([rows, prefill * ones, decode * ones], axis=1)


def best_placement(model: Coefficients, job: Job) -> Placed:
    """The placement that takes the least time for a block; its derivatives are the vertex's."""
    problem, of = program(model, job)
    vertex = minimise(*problem)
    first = problem.rows.shape[0] - len(of) - 3
    proven = vertex.proof[first : first + len(of)]
    binding = jnp.stack(
        [jnp.any(proven[jnp.asarray([i for i, m in enumerate(of) if m == k])]) for k in range(3)]
    )
    # rounding may leave a tiny fraction where a disk of 0 bytes takes none
    hair = 32.0 * np.finfo(vertex.x.dtype).eps
    inside = vertex.x - lax.stop_gradient(jnp.where(vertex.x > hair, 0.0, vertex.x))
    return Placed(placement(model, inside), vertex.feasible, binding, vertex)
