"""What is not known when a chip is chosen: draws of coefficients and of future requests."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from infer_jax.calibration.posterior import new_chip_laws, normal_scores
from infer_jax.calibration.uncertainty import QUANTILES
from infer_jax.errors import InputError
from infer_jax.estimators.serving import Serving
from infer_jax.silicon.accelerator import areas, chip_bill
from infer_jax.silicon.chips import SiliconSystem, known_chips, published_figures
from infer_jax.silicon.nodes import UNSEEN
from infer_jax.silicon.spread import RATIO, Ratio, coefficient_deviations, draw_chips, ratios
from infer_jax.specs import leaves
from infer_jax.sweeps.paths import Point, by_path, is_table
from infer_jax.sweeps.reading import POSITIVE, Requirement, is_number, read_table, whole_number

FACTOR = Requirement(
    lambda x: is_table(x) and [*x] == ["factor"] and is_number(x["factor"]) and x["factor"] > 1,
    "{ factor = F }, F above 1: 80 % of futures lie within F of the number",
)
YES_NO = Requirement(lambda x: isinstance(x, bool), "true or false")
KEYS = {
    "count": whole_number(32, 65_536),
    "silicon": YES_NO,
    "shares": YES_NO,
    "elsewhere": POSITIVE,
    **dict.fromkeys(("isl", "osl", "requests"), FACTOR),
}
SHARES = "shares"  # the group of coefficients of the estimator
Scores = Float[np.ndarray, " draws"]
Factors = Callable[[Scores], Scores]  # of a leaf, from normal scores


@dataclasses.dataclass(frozen=True)
class DrawSpec:
    """The ``[draws]`` of a file.

    ``silicon``: whether coefficients of the laws of silicon are drawn; ``shares``: those of a
    fitted estimator, as of a chip without measured rows; ``elsewhere``: cost of what cannot be
    served within the limits, None: that of the start; ``factors``: by name or path, the factor
    within which 80 % of futures lie.
    """

    count: int = 256
    silicon: bool = True
    shares: bool = True
    elsewhere: float | None = None
    factors: Mapping[str, float] = dataclasses.field(default_factory=dict[str, float])


def read_draws(where: str, table: Mapping[str, object]) -> DrawSpec:
    """The draws of a table.

    Raises:
        InputError: an unknown key, or a value that does not fit.
    """
    paths = dict.fromkeys((key for key in table if "." in key), FACTOR)
    body = read_table(where, "draws", table, {**KEYS, **paths})
    factors = {k: float(v["factor"]) for k, v in body.items() if is_table(v)}
    return DrawSpec(**{k: v for k, v in body.items() if k not in factors}, factors=factors)


class Uncertain(NamedTuple):
    """A number that is not known, or several that one score moves.

    ``group``: what it is of; ``moves``: factors by leaf; ``of_chip``: whether a chip that exists
    has fixed it, at the median but of its shares, which are its own.
    """

    name: str
    group: str
    moves: Mapping[str, Factors]
    of_chip: bool = False


class Draws(NamedTuple):
    """Draws of what is not known at a point.

    ``scores``: a normal score of each uncertain number; ``factors``: of each leaf that varies, and
    ``of_start`` the same where the chip exists, so that nothing but requests varies.
    """

    names: tuple[str, ...]
    groups: tuple[str, ...]
    scores: Float[np.ndarray, "draws names"]
    leaves: tuple[int, ...]
    factors: Float[np.ndarray, "draws leaves"]
    of_start: Float[np.ndarray, "draws leaves"]

    @classmethod
    def of(cls, where: str, spec: DrawSpec, point: Point, system: object, seed: int) -> "Draws":
        """Stratified draws (``normal_scores``), within the bounds of each leaf.

        Raises:
            InputError: a path that is no number of the point, or nothing that is not known.
        """
        count = spec.count + spec.count % 2
        silicon = system if isinstance(system, SiliconSystem) else None
        numbers = [
            *(_of_silicon(silicon, count, seed) if silicon and spec.silicon else ()),
            *(_of_shares(point) if silicon and spec.shares else ()),
            *_of_requests(where, spec.factors, point),
        ]
        if not numbers:
            raise InputError(where, "draws", "nothing", "a [chip], or isl = { factor = 2 }")
        values = by_path(point)
        highest = {
            f"{name}.{path}": declared.get("high", np.inf)
            for name, part in zip(Point._fields, point, strict=True)
            for path, declared, _ in leaves(part)
        }
        index = {path: i for i, path in enumerate(values)}
        scores = normal_scores(len(numbers), count, seed)
        exists = silicon is not None and silicon.name in known_chips()
        places: list[int] = []
        moved: list[tuple[Scores, Scores]] = []
        for z, number in zip(scores.T, numbers, strict=True):
            for path, factors in number.moves.items():
                if values[path] > 0.0:  # others are absent here
                    top = max(highest[path] / values[path], 1.0)
                    drawn = own = np.minimum(factors(z), top)
                    if exists and number.of_chip:
                        own = np.full(count, 1.0 if number.group == SHARES else np.median(drawn))
                    places.append(index[path])
                    moved.append((drawn, own))
        names, groups = tuple(x.name for x in numbers), tuple(x.group for x in numbers)
        drawn, own = np.moveaxis(np.array(moved), 0, -1)
        return cls(names, groups, scores, tuple(places), drawn, own)


def _lognormal(z: Scores, sigma: float, median: float = 1.0) -> Scores:
    return median * np.exp(sigma * z)


def own_ratios(system: SiliconSystem) -> dict[str, Ratio]:
    """What the laws leave out in variations of a chip: as much as in the chip, where that is known.

    Within ``UNSEEN`` of it, the error of laws on dies and bills that gave no coefficient.
    """
    found, published = ratios(), published_figures(system.name)
    by_law = {"die_mm2": areas(system.chip).total * 1e6, "bill_usd": chip_bill(system.chip).total}
    for name, figure in (("area", "die_mm2"), ("bill", "bill_usd")):
        if figure in published:
            centre = published[figure] / float(by_law[figure])
            found[name] = found[name]._replace(centre=centre, deviation=UNSEEN)
    return found


def _of_silicon(system: SiliconSystem, count: int, seed: int) -> Iterator[Uncertain]:
    """Coefficients of the laws of silicon, each with the distribution of ``draw_chips``."""
    deviation = coefficient_deviations(system.chip, system.rows)
    with jax.enable_x64(True):
        own = own_ratios(system)
        deviation |= {RATIO + name: ratio.deviation for name, ratio in own.items()}
        key = jax.random.key(seed)
        drawn = by_path(draw_chips(system.chip, deviation, key, count, own))
    values = by_path(system.chip)

    def ranked(z: Scores, ordered: Scores) -> Scores:
        return ordered[np.argsort(np.argsort(z))]

    for path in deviation:
        group = path.partition(".")[0] if "." in path else "power"
        if values[path] > 0.0:
            ordered = np.sort(np.asarray(drawn[path])) / float(values[path])
            moves = {f"hardware.{path}": partial(ranked, ordered=ordered)}
            yield Uncertain(path, group, moves, of_chip=True)


def _of_shares(point: Point) -> Iterator[Uncertain]:
    """Shares and overheads of the serving estimator on a chip without measured rows."""
    serving, values = point.estimator.innermost, by_path(point)
    if not isinstance(serving, Serving):
        return
    inside = next(x for x in values if x.startswith("estimator.") and x.endswith(".weight_read"))
    head = inside.removesuffix("weight_read")
    own: dict[str, dict[str, Factors]] = {}
    for path, (symbol, median, sigma) in new_chip_laws(serving).items():
        ratio = median / float(values[f"{head}{path}"])
        law = partial(_lognormal, sigma=sigma, median=ratio)
        own.setdefault(symbol, {})[f"{head}{path}"] = law
    for symbol, moves in own.items():
        name = next(iter(moves)).removeprefix(head) if len(moves) == 1 else symbol
        yield Uncertain(name, SHARES, moves, of_chip=True)


def _of_requests(where: str, factors: Mapping[str, float], point: Point) -> Iterator[Uncertain]:
    """What the file gives a factor: lengths and weights of all cases, numbers by path."""
    every = list(by_path(point))
    for name, factor in factors.items():
        law = partial(_lognormal, sigma=float(np.log(factor) / QUANTILES[0.8]))
        ends = (".prompts", ".outputs") if name == "requests" else f"workload.{name}"
        own = [x for x in every if x == name or x.endswith(ends)]
        if not own:
            allowed = "a number of the point by its path; isl, osl; requests with [[case]]"
            raise InputError(where, "draws", name, allowed)
        if name != "requests":
            yield Uncertain(name, name, dict.fromkeys(own, law))
            continue
        for i, pair in enumerate(zip(own[::2], own[1::2], strict=True), 1):
            yield Uncertain(f"requests of case {i}", name, dict.fromkeys(pair, law))
