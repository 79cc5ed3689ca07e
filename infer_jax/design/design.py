"""Searches the best design of a space by gradients, then on the lattice near it."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict, Unpack

import jax
import numpy as np

from infer_jax.design.ascent import AscentPath, AscentProgress, ascend
from infer_jax.design.problem import DesignProblem, estimate_of, violations
from infer_jax.design.relaxation import Relaxation
from infer_jax.design.rounding import Lattice, round_ends
from infer_jax.errors import InputError
from infer_jax.estimators import Estimate, Estimator
from infer_jax.sweeps.paths import Point, Tree, look, numbers
from infer_jax.sweeps.preparing import Prepared, prepare
from infer_jax.sweeps.reducers import Best
from infer_jax.sweeps.results import explain
from infer_jax.sweeps.space import Space

ENDS = 24  # continuous optima whose lattice is searched
RESTARTS_PER_NUMBER = 12  # restarts for every number that moves, by default
MAX_RESTARTS, MAX_STEPS = 4096, 10_000  # every step of every restart is kept and drawn
NEAR_START = 4  # one restart in this many begins near the start, the others anywhere


class SearchOptions(TypedDict, total=False):
    """The options of a search; see ``optimise``."""

    start: Mapping[str, float] | None
    restarts: int | None
    steps: int
    seed: int
    method: str
    progress: Callable[[AscentProgress], None] | None


@dataclasses.dataclass(frozen=True)
class Design:
    """A design, the start it came from, and the effort of the search.

    ``values`` are the axes; ``index`` is the point's place in the grid, None where the start
    itself was best, and ``digits`` are those in its group, number ``group``. ``counts``: gradients,
    lattice points, restarts. ``lattice``: the points that were tried; ``start_values``: by path.
    """

    values: Mapping[str, Tree]
    index: int | None
    group: int
    digits: tuple[int, ...]
    point: Point
    estimate: Estimate
    start: Point
    start_estimate: Estimate
    start_met: bool
    by: str
    sign: float
    moving: tuple[str, ...]
    notes: tuple[str, ...]
    paths: tuple[AscentPath, ...] = ()
    counts: dict[str, int] = dataclasses.field(default_factory=dict[str, int])
    seconds: float = 0.0
    lattice: Lattice | None = None
    start_values: Mapping[str, float] = dataclasses.field(default_factory=dict[str, float])

    @property
    def objective(self) -> float:
        """The objective of the design."""
        return float(look(self.by, self.point, self.estimate))

    @property
    def start_objective(self) -> float:
        """The objective of the start."""
        return float(look(self.by, self.start, self.start_estimate))

    @property
    def gain(self) -> float:
        """The factor by which the design is better than the start."""
        return (self.start_objective / self.objective) ** self.sign

    @property
    def terms(self) -> dict[str, float]:
        """All numbers of the design's estimate."""
        return {k: float(v) for k, v in numbers(self.estimate).items()}

    @property
    def start_terms(self) -> dict[str, float]:
        """All numbers of the start's estimate."""
        return {k: float(v) for k, v in numbers(self.start_estimate).items()}


@dataclasses.dataclass(frozen=True, eq=False)
class Search:
    """A design problem, read and checked; its compiled programs serve every run."""

    ready: Prepared
    problems: tuple[DesignProblem, ...]

    @classmethod
    def of(
        cls,
        estimator: Estimator,
        space: Space,
        keep: Best,
        *,
        feasible: str = "feasible",
        smooth: bool | None = None,
    ) -> "Search":
        """See ``optimise``."""
        if not isinstance(keep, Best):
            allowed = "Best(objective, under=limits)"
            raise InputError("codesign", "keep", type(keep).__name__, allowed)
        keep = dataclasses.replace(keep, k=1, per=())
        # shapes and splits are real numbers in between; rounded points satisfy `likes`
        ready = prepare(estimator, space, keep, precision="float64", feasible=feasible, legal=False)
        problems = [DesignProblem.of(ready, i, smooth) for i in range(len(ready.parts))]
        return cls(ready, tuple(problems))

    def run(
        self,
        *,
        start: Mapping[str, float] | None = None,
        under: Mapping[str, float] | None = None,
        restarts: int | None = None,
        steps: int = 160,
        seed: int = 0,
        method: str = "adam",
        progress: Callable[[AscentProgress], None] | None = None,
        near: Sequence[Design] = (),
    ) -> Design:
        """One search; ``under`` gives other values to the limits. See ``optimise``.

        ``near``: designs to begin at, too. With 0 steps these and the start alone are rounded.
        """
        started = time.perf_counter()
        fewest = 1 if restarts is None else restarts
        if not (1 <= fewest <= MAX_RESTARTS and 0 <= steps <= MAX_STEPS):
            allowed = f"1 to {MAX_RESTARTS:,} restarts (each a search) of 1 to {MAX_STEPS:,} steps"
            raise InputError("codesign", "restarts, steps", (restarts, steps), allowed)
        start, rng = start or {}, np.random.default_rng(seed)
        limits, paths, begun = self.limits(under), list[AscentPath](), 0
        lattices = [Lattice(problem, limits) for problem in self.problems]
        # excess, objective, group, digits
        ends = list[tuple[float, float, int, tuple[int, ...]]]()
        for number, lattice in enumerate(lattices):
            problem, relaxed = lattice.problem, lattice.problem.relaxed
            share = RESTARTS_PER_NUMBER * max(2, len(relaxed.moving))
            if restarts is not None:
                share = max(1, restarts // len(self.problems))
            begun += share
            known = [x.digits for x in near if x.group == number and x.index is not None]
            free, digits = _starts(relaxed, rng, share, start, known)
            if relaxed.moving and steps > 0:
                path = ascend(
                    problem, free, digits, limits, steps=steps, method=method, progress=progress
                )
                paths.append(path)
                free, digits = _distinct_ends(problem, path)
            elif relaxed.moving:
                free, digits = free[:1], digits[:1]
            end = tuple(round_ends(lattice, free, digits, rng, known).tolist())
            objective, excess = lattice.scores[end]
            ends.append((excess, objective, number, end))
        excess, _, number, end = min(ends)
        counts = {
            "gradients": sum(path.gradients for path in paths),
            "lattice": sum(len(lattice.scores) for lattice in lattices),
            "restarts": begun,
        }
        design = self._design(lattices[number], number, end, excess <= 0, start)
        seconds = time.perf_counter() - started
        return dataclasses.replace(design, paths=tuple(paths), counts=counts, seconds=seconds)

    def limits(self, under: Mapping[str, float] | None = None) -> np.ndarray:
        """The limits on terms in the order of ``keep``, with the values of ``under``."""
        own = dict(self.problems[0].keep.limits)
        return np.array([{**own, **(under or {})}[name] for name in own], np.float64)

    def _design(
        self,
        lattice: Lattice,
        number: int,
        digits: tuple[int, ...],
        met: bool,
        start: Mapping[str, float],
    ) -> Design:
        """The rounded design or, if that is better, the start, under the exact model."""
        problem, limits = lattice.problem, lattice.limits
        group, by = problem.relaxed.group, problem.keep.by
        base = problem.relaxed.start_point(start)
        base_estimate = estimate_of(base)
        broken = violations(problem, base, base_estimate, limits)
        index: int | None = group.offset
        if group.sizes:
            index += int(np.ravel_multi_index(digits, group.sizes))
        point, estimate = group.fill(group.steps(digits)), explain(self.ready, index).estimate
        values = {c.path: c.labels[digits[c.digit]] for c in group.columns if len(c.labels) > 1}
        gain = problem.signs[by] * (look(by, base, base_estimate) - look(by, point, estimate))
        notes: list[str] = []
        if not broken and (gain < 0 or not met):
            point, estimate, met, index = base, base_estimate, True, None
            values = {path: float(look(path, base, estimate)) for path, x in values.items()
                      if isinstance(x, int | float)}  # fmt: skip
            notes.append("No lattice point that was tried beats the start, which is returned.")
        if not met:
            at = ", ".join(f"{k} = {v:.6g}" for k, v in values.items() if not isinstance(v, str))
            error = InputError("codesign", "", "", "")
            error.args = (
                f"codesign: limits are kept by no design that was tried (the best is {at}); "
                f"allowed: wider ones: {violations(problem, point, estimate, limits)}",
            )
            raise error
        if broken:
            notes.append(f"The start breaks limits: {broken}.")
        return Design(
            values=values,
            index=index,
            group=number,
            digits=digits,
            point=point,
            estimate=estimate,
            start=base,
            start_estimate=base_estimate,
            start_met=not broken,
            by=by,
            sign=problem.signs[by],
            moving=tuple(group.leads[digit].path for digit in problem.relaxed.moving),
            notes=tuple(notes),
            lattice=lattice,
            start_values=start,
        )


def _starts(
    relaxed: Relaxation,
    rng: np.random.Generator,
    count: int,
    start: Mapping[str, float],
    known: Sequence[Sequence[int]],
) -> tuple[np.ndarray, np.ndarray]:
    """(coordinates, digits) of restarts: at random, around the start, and at known designs."""
    free, digits = relaxed.random(rng, count)
    if relaxed.moving:
        free[0] = relaxed.free([*relaxed.start_values(start).values()])
        around = free[1 : count // NEAR_START]
        around[:] = free[0] + rng.normal(size=around.shape)
        for i, own in enumerate(known[: count - 1], 1):
            free[-i], digits[-i] = relaxed.free_of(own), own
    return free, digits


def _distinct_ends(problem: DesignProblem, path: AscentPath) -> tuple[np.ndarray, np.ndarray]:
    """(coordinates, digits) of the best ends, one of those that round to the same point."""
    first: dict[tuple[int, ...], int] = {}
    for end in path.ends.tolist():
        positions = np.round(problem.relaxed.positions(path.values[-1, end]))
        first.setdefault((*map(int, positions), *map(int, path.digits[end])), end)
    ends = [*first.values()][:ENDS]
    return path.free[ends], path.digits[ends]


def optimise(
    estimator: Estimator,
    space: Space,
    keep: Best,
    *,
    feasible: str = "feasible",
    smooth: bool | None = None,
    **options: Unpack[SearchOptions],
) -> Design:
    """The best point of a space, as ``sweep(estimator, space, keep)`` seeks it, by gradients.

    Axes of numbers are relaxed and followed from ``restarts`` starts, the first of them at
    ``start`` (axis paths to values; the middle of an axis where none is given); around the ends
    the lattice is searched with the exact model. The result keeps all limits and is never worse
    than a start that keeps them.

    Args:
        keep: ``Best(objective, under=limits)``; terms as in a sweep.
        feasible: the limits that make a point feasible; ``"decode.feasible"``: those of decode.
        smooth: see ``DesignProblem.of``.
        options: ``start``, ``restarts`` (12 for every number that moves), ``steps=160``,
            ``seed=0``, ``method="adam"`` or ``"lbfgs"``, ``progress``.

    Raises:
        InputError: as ``sweep``; a start outside the bounds; limits that no point keeps, with
            the one that is exceeded most and by how much.
    """
    search = Search.of(estimator, space, keep, feasible=feasible, smooth=smooth)
    with jax.enable_x64(True):
        return search.run(**options)
