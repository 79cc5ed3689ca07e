"""The best decode chip: what binds, and what chips of today waste."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.optimize import nnls

from experiments._silicon.claims import most_of
from experiments._silicon.frame import ESTIMATORS, FITTED, IDEAL, Study
from experiments._silicon.page import Bars, Page, draw_bars
from infer_jax.compiling import quick
from infer_jax.design.design import Search
from infer_jax.design.problem import MIN_TEMPERATURE
from infer_jax.design.toml import spec_of
from infer_jax.plots.style import Figure
from infer_jax.sweeps.constraint import Constraint
from infer_jax.sweeps.paths import Point, estimate_at

ACTIVE = 0.05  # a limit further from binding has no price
AT_END = 1e-3  # of a search's span


def shadow_prices(table: Mapping[str, Any], values: Mapping[str, float]) -> dict[str, float]:
    """By how many per cent the objective improves with a per cent more of each limit that binds.

    Multipliers of least squares, at least 0, of the slopes of objective and limits in the
    logarithms of the free numbers (Karush, Kuhn, Tucker) at the rounded design; the ends of axes
    count as limits, degrees as fixed.
    """
    spec = spec_of("search", table)
    search = Search.of(spec.estimator, spec.space, spec.keeps[0], feasible=spec.feasible)
    problem, keep = search.problems[0], spec.keeps[0]
    relaxed = problem.relaxed
    paths = [next(c.path for c in relaxed.group.columns if c.digit == d) for d in relaxed.moving]
    at, low, high = (
        np.log([values[path] for path in paths]),
        relaxed.bounds.low,
        relaxed.bounds.high,
    )
    inside = np.clip((at - low) / (high - low), 1e-6, 1 - 1e-6)
    free = relaxed.bounds.unbounded(jnp.asarray(low + inside * (high - low)))
    digits = jnp.asarray(relaxed.random(np.random.default_rng(0), 1)[1][0])

    def both(free: Array) -> tuple[tuple[Array, Array, Array], Array]:
        out = problem.relaxation(
            free, digits, jnp.asarray(MIN_TEMPERATURE), jnp.asarray(problem.limits)
        )
        return (*out, jnp.log(relaxed.values(free))), out[1]

    compiled = jax.jit(jax.jacfwd(both, has_aux=True), compiler_options=quick("cpu"))
    (objective, limits, logs), excess = jax.tree.map(np.asarray, compiled(free))
    scale, moves = np.diag(logs), np.array([not path.startswith("plan.") for path in paths])
    names = [name for name, _ in keep.limits]

    def name_limits(point: Point) -> float:  # as they are traced: jit sorts them
        for phase in problem.evaluation.phases(point, estimate_at(point)).values():
            names.extend(phase.limits)
        return 0.0

    jax.eval_shape(name_limits, relaxed.start_point(values))
    names += [
        c.value or " x ".join(c.product) for c in spec.space.where if isinstance(c, Constraint)
    ]
    active = np.flatnonzero(excess > -ACTIVE)
    columns = [((limits[i] / scale)[moves], names[i]) for i in active]
    for i in np.flatnonzero(moves):
        for end, sign in ((inside[i] < AT_END, -1.0), (inside[i] > 1 - AT_END, 1.0)):
            if end:
                columns.append((sign * np.eye(len(paths))[i][moves], f"{paths[i]}, end of axis"))
    weights, _ = nnls(np.array([c for c, _ in columns]).T, -(objective / scale)[moves])
    found: dict[str, float] = {}
    for (_, name), weight in zip(columns, weights, strict=True):
        found[name] = found.get(name, 0.0) + float(weight)
    return dict(sorted(found.items(), key=lambda x: -x[1]))


WORTH = {  # numbers of a chip moved alone, and what each of them is
    "FLOP/s (clock)": {"clock": 1.0},
    "memory bandwidth, same bill": {"memory.interface.lane": 1.0},
    "memory, same bill": {"memory.capacity": 1.0, "memory.price": -1.0},
    "links": {"link.lane": 1.0},
    "power limit": {"limit": 1.0},
}
STEP = 0.05


def run(study: Study) -> tuple[Page, Figure]:
    """Search two chips, one under each estimator, and price them beside those of today."""
    search = study.table["search"]
    tables = {"best, fitted": search, "best, ideal": {**search, "estimator": IDEAL}}
    for name, table in tables.items():
        study.search(name, table)
    page, names = Page(study), list(study.systems)
    fitted, ideal = study.central[FITTED], study.central[IDEAL]
    page.section("Chips")
    rows: list[list[object]] = []
    for name in names:
        chip = study.systems[name].chip
        row: list[object] = [name, chip.dies * chip.active, chip.clock / 1e9, chip.limit]
        row += [chip.stacks, 1e6 * fitted(name, of="die"), fitted(name, of="bill")]
        row += [100 * fitted(name, of="of memory"), fitted(name), ideal(name)]
        served = (f"{fitted(name, of=of)[0]:.0f}" for of in ("batch", "chips"))
        rows.append([*row, " on ".join(served), 100 * fitted(name, of="memory")])
    heads = ("chip", "cores", "GHz", "W", "stacks", "die, mm2", "bill, USD", "memory, % of it")
    more = ("USD/Mtok, fitted", "ideal", "requests on chips", "memory filled, %")
    page.table((*heads, *more), rows)
    page.section("What binds", study.table["binds"])
    rows = []
    for name, table in tables.items():
        found = {} if study.light else shadow_prices(study.spec(table), study.designs[name])
        rows += [[name, f"`{k}`", x] for k, x in found.items() if x > 0.005]
    page.table(("design", "limit", "%"), rows)
    page.section("What today's chips waste", study.table["wastes"])
    for word, which in ESTIMATORS.items():
        worth = [[what, *worth_of(study, which, moves)] for what, moves in WORTH.items()]
        page.table((word, *names), worth)
    page.claims(study)
    bars = {
        f"USD per million tokens, {word}": Bars(
            names,
            [float(study.central[which](n)[0]) for n in names],
            [most_of(study.drawn[which](n)) for n in names],
            [float(np.median(study.drawn[which](n))) for n in names],
        )
        for word, which in ESTIMATORS.items()
    }
    title = "What a decode chip costs its users"
    return page, draw_bars(bars, title=title, caption=study.table["caption"])


def worth_of(study: Study, which: str, moves: dict[str, float]) -> list[float]:
    """Per cent that tokens get cheaper by a per cent more, of each chip in its first case."""
    factors = {path: np.exp(sign * np.array([-STEP, STEP])) for path, sign in moves.items()}
    world = study.moved(factors, which)
    return [float(np.log(world(n)[0] / world(n)[1]) / (2 * STEP)) for n in study.systems]
