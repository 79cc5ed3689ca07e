"""Studies of passes: prompts or outputs of several models, within a time, at any layout."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments._silicon.frame import (
    DRAWS,
    FITTED,
    HALVINGS,
    IDEAL,
    LARGEST,
    Place,
    Prices,
    Study,
    World,
    stacked,
)
from infer_jax.catalog import load_model
from infer_jax.compiling import quick
from infer_jax.estimators import make
from infer_jax.physics.price import usd_per_million_tokens
from infer_jax.silicon.accelerator import Accelerator
from infer_jax.silicon.on_silicon import OnSilicon
from infer_jax.silicon.spread import coefficient_deviations
from infer_jax.specs import Architecture, ForwardPass, Hardware, Plan

CHUNK, FEW = 64, 8  # chips of one call, so that one program serves all; of a light study


class Pass(NamedTuple):
    """Passes of a model: new and cached tokens of a sequence, most seconds and most sequences."""

    model: str
    new: float = 1.0
    cached: float = 0.0
    limit: float = 1e9
    most: float = LARGEST
    hop: float = 0.0  # s of a hop between chips, where a study sets it
    tp: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0)
    pp: tuple[float, ...] = (1.0,)


NUMBERS = ("new", "cached", "limit", "most", "hop")


class Given(NamedTuple):
    """What a pass is priced by: estimator, model, data sheet, pass, layout, numbers of the case."""

    on: OnSilicon
    arch: Architecture
    sheet: Hardware
    forward: ForwardPass
    plan: Plan
    numbers: Mapping[str, Array]


Passed = Callable[[Given], tuple[Array, Array]]


def one_pass(given: Given) -> tuple[Array, Array]:
    """Seconds of a pass by its estimator, and whether its limits hold."""
    found = given.on.target.step(given.arch, given.sheet, given.forward, given.plan)
    return found.time, found.feasible


def _cheapest(
    passed: Passed,
    on: OnSilicon,
    arch: Architecture,
    layouts: Array,
    chip: Accelerator,
    numbers: dict[str, Array],
) -> dict[str, Array]:
    """Least USD per million new tokens over layouts, with as many sequences as limits allow."""
    sheet = on.lowered(chip)

    def at(count: Array, layout: Array) -> tuple[Array, dict[str, Array]]:
        each = jnp.ones_like(count)
        plan = Plan.of().replace(tp=layout[0], pp=layout[1])
        forward = ForwardPass(
            sequences=count,
            new_tokens=numbers["new"] * each,
            cached_tokens=numbers["cached"] * each,
        )
        time, holds = passed(Given(on, arch, sheet, forward, plan, numbers))
        usd = usd_per_million_tokens(plan.instance, sheet.price, time, count * forward.new_tokens)
        out = {"usd": usd, "batch": count, "tp": layout[0], "pp": layout[1], "time": time}
        return holds & (time <= numbers["limit"]), out

    def of(layout: Array) -> dict[str, Array]:
        low, high = jnp.log(layout[1]), jnp.log(jnp.maximum(numbers["most"], layout[1]))
        none = {name: jnp.zeros_like(low) for name in ("batch", "tp", "pp", "time")}

        def halve(i: int, state: tuple[Array, Array, dict[str, Array]]) -> Any:
            low, high, best = state  # both ends are tried first
            middle = jnp.where(i == 0, high, jnp.where(i == 1, low, 0.5 * (low + high)))
            holds, out = at(jnp.exp(middle), layout)
            more = holds & (out["batch"] >= best["batch"])
            best = {name: jnp.where(more, out[name], best[name]) for name in best}
            return jnp.where(holds, middle, low), jnp.where(holds, high, middle), best

        start = low, high, none | {"usd": jnp.full_like(low, jnp.inf)}
        return jax.lax.fori_loop(0, HALVINGS + 2, halve, start)[2]

    every = jax.vmap(of)(layouts)
    return {name: x[jnp.argmin(every["usd"])] for name, x in every.items()}


@cache
def _program(passed: Passed) -> Callable[..., dict[str, Array]]:
    law = jax.vmap(lambda *given: _cheapest(passed, *given), (None, None, None, 0, 0))
    return jax.jit(law, compiler_options=quick(jax.default_backend()))


@cache
def model(words: str) -> Architecture:
    """A model by its name and, after a space, the format of its weights."""
    name, _, quant = words.partition(" ")
    return load_model(name, quant=quant or None).architecture


class Asked(dict[tuple[str, str], Prices]):
    """Prices of chips and cases, worked out when they are first asked for."""

    def __init__(self, found: Callable[[World, str, str], Prices], first: str) -> None:
        super().__init__()
        self.found, self.world = found, World(self, first)

    def __missing__(self, key: tuple[str, str]) -> Prices:
        return self.setdefault(key, self.found(self.world, *key))


class PassStudy(Study):
    """A study whose cases are passes."""

    cases: dict[str, Pass]
    others = ("owner.electricity", "owner.years", "limit", "new", "cached")

    def start(self) -> None:
        """Fill the cases."""
        raise NotImplementedError

    def estimator(self, which: str, name: str) -> OnSilicon:
        """What prices a chip under the estimator of that name."""
        return OnSilicon.of(target=make(which, self.systems[name].coefficients))

    def passed(self, which: str, name: str) -> Passed:
        """How a pass on a chip is priced."""
        return one_pass

    def model(self, words: str) -> Architecture:
        """The model of a case."""
        return model(words)

    def figures(self, world: World, name: str, case: str) -> Prices | None:
        """What follows from prices of other chips or cases; None: it is priced itself."""
        return None

    def world(self, which: str, chips: Mapping[str, Accelerator], **factors: np.ndarray) -> World:
        """All chips in those cases that are asked about."""

        def found(world: World, name: str, case: str) -> Prices:
            other = self.figures(world, name, case)
            return other or self.prices(which, name, case, chips[name], **factors)

        return Asked(found, self.first).world

    def prices(
        self, which: str, name: str, case: str, chips: Accelerator, **factors: np.ndarray
    ) -> Prices:
        """What stacked chips cost users of a case; ``factors`` on its numbers."""
        numbers, count = self.cases[case], len(chips.clock)
        many = {k: np.full(count, float(getattr(numbers, k))) for k in NUMBERS}
        many |= {k: many[k] * x for k, x in factors.items()}
        layouts = np.array([(t, p) for t in numbers.tp for p in numbers.pp], float)
        chunk = FEW if self.light else CHUNK
        size = chunk * -(-count // chunk)
        padded = jax.tree.map(lambda x: np.pad(x, (0, size - count), mode="edge"), (chips, many))
        # of one type, so that models and chips of one structure share a program
        plain = (self.estimator(which, name), self.model(numbers.model))
        on, arch = jax.tree.map(lambda x: np.asarray(x, float), plain)
        run, parts = _program(self.passed(which, name)), []
        for i in range(0, size, chunk):
            take = jax.tree.map(lambda x, i=i: x[i : i + chunk], padded)
            found = run(on, arch, layouts, *take)
            parts.append({k: np.asarray(x) for k, x in found.items()})
        return {k: np.concatenate([p[k] for p in parts])[:count] for k in parts[0]}

    def row_of(self, name: str, path: str) -> str:
        """The row that memory or package of a chip was read from; those of two rows differ."""
        part, rows = path.split(".")[0], self.systems[name].rows
        return rows.get(part, ("", "none"))[1] if part in ("memory", "assembly") else ""

    @cached_property
    def deviations(self) -> dict[str, dict[str, float]]:
        """Deviations of the logarithms of coefficients, by chip and name, in one order."""
        own: dict[str, dict[str, float]] = {}
        for name, system in self.systems.items():
            found = coefficient_deviations(system.chip, system.rows)
            rows = {path: self.row_of(name, path) for path in found}
            own[name] = {f"{p} of {rows[p]}" if rows[p] else p: x for p, x in found.items()}
        every = sorted({path for one in own.values() for path in one})
        return {k: {path: one.get(path, 0.0) for path in every} for k, one in own.items()}

    def changed(self, factors: Mapping[str, np.ndarray]) -> dict[str, Accelerator]:
        """Every chip with coefficients by name times factors, where it has them."""
        count = max(len(x) for x in factors.values())
        chips: dict[str, Accelerator] = {}
        for name, system in self.systems.items():
            own = {"clock": np.ones(count)}
            for full, x in factors.items():
                path, _, row = full.partition(" of ")
                if full not in NUMBERS and (not row or row == self.row_of(name, path)):
                    own[path] = x
            chips[name] = stacked(system.chip, own)
        return chips

    @cached_property
    def drawn(self) -> dict[str, World]:
        """Both estimators under draws; a coefficient deviates alike in chips that share its row."""
        rng, one = np.random.default_rng(0), next(iter(self.deviations.values()))
        widest = {path: max(x[path] for x in self.deviations.values()) for path in one}
        draws = {path: np.exp(x * rng.standard_normal(DRAWS)) for path, x in widest.items()}
        return {which: self.world(which, self.changed(draws)) for which in (FITTED, IDEAL)}

    def moved(
        self, factors: Mapping[str, np.ndarray], which: str = FITTED, only: Sequence[Place] = ()
    ) -> World:
        """Under one estimator, with coefficients and numbers of cases times factors."""
        of_cases = {path: x for path, x in factors.items() if path in NUMBERS}
        return self.world(which, self.changed(factors), **of_cases)
