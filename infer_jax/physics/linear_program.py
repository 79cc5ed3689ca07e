"""What is the best point of a small linear program, exactly, in batch and with its gradient?

    minimise c.x  subject to  A x >= b,  x >= 0,  with c >= 0

by the dual simplex on a condensed tableau: with c >= 0 the slack basis is dual feasible, so there
is no first phase, and a violated row in which nothing can rise proves infeasibility. One program
is a ``while_loop``; ``vmap`` makes a batch of it.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax
from jax.typing import ArrayLike

PIVOTS = 8  # per row and column: far beyond what a program takes; ends a cycle of rounding


class Tolerance(NamedTuple):
    """Rounding of a dtype: of a bound while pivoting, of a pivot, how far costs are moved apart,
    and by how much a solution may miss a row as it was given."""

    bound: float
    pivot: float
    cost: float
    given: float


EXACT = Tolerance(bound=1e-11, pivot=1e-11, cost=1e-10, given=1e-8)
SINGLE = Tolerance(bound=1e-6, pivot=1e-5, cost=1e-5, given=1e-4)


def tolerance(kind: jnp.dtype) -> Tolerance:
    """The rounding of a dtype."""
    return SINGLE if kind == jnp.float32 else EXACT


class Optimum(NamedTuple):
    """The best vertex; where no point is feasible, the best of those least infeasible."""

    x: Array  # (n,)
    feasible: Array  # whether some point keeps every row
    excess: Array  # how much of ``relax`` every row had to give way by; 0 where feasible
    proof: Array  # (m,) where infeasible: the rows that together admit no point
    slope: Array  # (n, m): dx / db at the vertex; the duals are c @ slope
    pivots: Array  # pivots taken


class _State(NamedTuple):
    table: Array  # rows: m slacks, excess, cost; columns: n variables, excess, constant
    rows: Array  # labels of the basic ones: 0 .. n - 1 variables, n excess, n + 1 .. slacks
    columns: Array
    relaxed: Array
    stuck: Array
    proof: Array
    pivots: Array


def minimise(cost: ArrayLike, rows: ArrayLike, bounds: ArrayLike, relax: ArrayLike) -> Optimum:
    """The vertex that minimises c.x subject to A x >= b and x >= 0, for c >= 0.

    Args:
        cost: (n,) c, not negative.
        rows: (m, n) A.
        bounds: (m,) b.
        relax: (m,) w, not negative: where no point is feasible, A x + w e >= b is kept with the
            least e, and c.x is minimised at that e. Rows of weight 0 must not contradict.

    The solution is found on stopped numbers and then moved by its own derivative,
    x + slope (b - A x - w e): the value stays, and forward and reverse mode give the gradient of
    the vertex, under ``vmap`` too. The optimum is piecewise smooth: where the best vertex changes
    its gradient jumps, and the one of the vertex found is given.
    Source: the dual simplex method, Lemke 1954; Dantzig 1963, chapter 11.
    """
    kind = jnp.result_type(cost, rows, bounds, relax, 0.0)
    given = [jnp.asarray(x, kind) for x in (cost, rows, bounds, relax)]
    _, rows, bounds, relax = given
    m, n = rows.shape
    still = [lax.stop_gradient(x) for x in given]
    near = tolerance(kind)
    scale = _middle(jnp.abs(still[1]))
    end = _solve(still[0], still[1], still[2], still[3], scale, near)
    constants, body = end.table[:m, -1], end.table[:m, :-1]
    basic = (end.rows[:, None] == jnp.arange(n + 1)).astype(kind)
    active = (end.columns[:, None] == n + 1 + jnp.arange(m)).astype(kind)
    vertex = basic.T @ constants
    slope = (basic.T @ body @ active) / scale
    point, excess = vertex[:n], vertex[n]
    residual = bounds - rows @ point - relax * excess
    x = point + slope[:n] @ residual
    # a pivot on nothing but rounding would show here
    missed = jnp.max((bounds - rows @ x) / scale)
    return Optimum(
        x=x,
        feasible=~end.relaxed & (jnp.min(constants) >= -near.bound) & (missed <= near.given),
        excess=excess,
        proof=end.proof,
        slope=slope[:n],
        pivots=end.pivots,
    )


def _middle(sizes: Array) -> Array:
    """The geometric mean of each row's entries that are not 0; 1 where all are.

    Scaled by it, a row's largest and smallest entry are equally far from 1, so that float32
    neither takes rounding for a pivot nor a pivot for rounding.
    """
    some = sizes > 0
    logs = jnp.sum(jnp.log(jnp.where(some, sizes, 1.0)), axis=1)
    return jnp.exp(logs / jnp.maximum(jnp.sum(some, axis=1), 1))


def _solve(
    cost: Array, rows: Array, bounds: Array, relax: Array, scale: Array, near: Tolerance
) -> _State:
    """Pivot until no row is violated."""
    m, n = rows.shape
    kind = rows.dtype
    top = jnp.max(jnp.abs(cost))
    unit = cost / jnp.where(top > 0, top, 1.0)
    # free columns tie: grading their cost picks one of them, and the same one every time
    graded = unit + near.cost * (1.0 + jnp.arange(n, dtype=kind) / n)
    last = jnp.zeros(2, kind)
    table = jnp.concatenate(
        [
            jnp.column_stack([rows / scale[:, None], relax / scale, -bounds / scale]),
            jnp.concatenate([jnp.zeros(n, kind), last.at[0].set(1.0)])[None],
            jnp.concatenate([graded, last])[None],
        ]
    )
    no = jnp.asarray(False)
    begin = _State(
        table=table,
        rows=n + 1 + jnp.arange(m),
        columns=jnp.arange(n + 1),
        relaxed=no,
        stuck=no,
        proof=jnp.zeros(m, bool),
        pivots=jnp.asarray(0),
    )

    def violated(s: _State) -> Array:
        more = jnp.min(s.table[:m, -1]) < -near.bound
        return more & ~s.stuck & (s.pivots < PIVOTS * (m + n))

    return lax.while_loop(violated, lambda s: _pivot(s, near), begin)


def _pivot(s: _State, near: Tolerance) -> _State:
    """Let the most violated row leave, for the column that costs least per unit of it."""
    m, n = s.rows.shape[0], s.columns.shape[0] - 1
    leaving = jnp.argmin(s.table[:m, -1])
    row = s.table[leaving]
    rises = row[:-1] > near.pivot
    # the excess enters only where nothing else can: its cost comes before all others
    first = jnp.where(rises, s.table[m, :-1] / jnp.where(rises, row[:-1], 1.0), jnp.inf)
    tied = first <= jnp.min(first) * (1.0 + near.pivot) + near.cost
    second = s.table[m + 1, :-1] / jnp.where(rises, row[:-1], 1.0)
    entering = jnp.argmin(jnp.where(rises & tied, second, jnp.inf))
    stuck = ~jnp.any(rises)
    proven = ~s.relaxed & ~jnp.any(rises[:n])
    slacks = n + 1 + jnp.arange(m)
    against = (s.columns[:, None] == slacks) & (row[:-1, None] < -near.pivot)
    these = jnp.any(against, axis=0) | (s.rows[leaving] == slacks)
    here, there = jnp.arange(m + 2) == leaving, jnp.arange(n + 2) == entering
    column, pivot = s.table[:, entering], row[entering]
    fresh = jnp.where(there, 1.0, -row) / pivot
    table = jnp.where(there, 0.0, s.table) + column[:, None] * fresh
    # what rounding leaves of a zero must not decide between columns
    noise = (jnp.arange(m + 2) == m)[:, None] & (jnp.abs(table) < near.cost)
    table = jnp.where(noise, 0.0, table)
    return _State(
        table=jnp.where(stuck, s.table, jnp.where(here[:, None], fresh, table)),
        rows=jnp.where(here[:m], s.columns[entering], s.rows),
        columns=jnp.where(there[:-1], s.rows[leaving], s.columns),
        relaxed=s.relaxed | proven,
        stuck=stuck,
        proof=jnp.where(proven, these, s.proof),
        pivots=s.pivots + 1,
    )
