"""Studies of passes: prompts or outputs of several models, within a time, at any layout."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments._silicon.claims import Place, Prices, World
from experiments._silicon.frame import HALVINGS, LARGEST, Moves, Study
from infer_jax.catalog import load_model
from infer_jax.compiling import quick
from infer_jax.physics.cost import usd_per_million_tokens
from infer_jax.silicon.accelerator import Accelerator
from infer_jax.silicon.on_silicon import OnSilicon
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
    law = jax.vmap(lambda *given: _cheapest(passed, *given), (0, None, None, 0, 0))
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
    numbers = NUMBERS
    others = ("owner.electricity", "owner.years", "limit", "new", "cached")

    def start(self) -> None:
        """Fill the cases."""
        raise NotImplementedError

    def passed(self, which: str, name: str) -> Passed:
        """How a pass on a chip is priced."""
        return one_pass

    def model(self, words: str) -> Architecture:
        """The model of a case."""
        return model(words)

    def figures(self, world: World, name: str, case: str) -> Prices | None:
        """What follows from prices of other chips or cases; None: it is priced itself."""
        return None

    def world(
        self,
        which: str,
        chips: Mapping[str, Accelerator],
        only: Sequence[Place] = (),
        *,
        drawn: bool = False,
        **factors: np.ndarray,
    ) -> World:
        """All chips in those cases that are asked about."""
        moves = None if drawn else factors

        def found(world: World, name: str, case: str) -> Prices:
            other = self.figures(world, name, case)
            return other or self.prices(which, name, case, chips[name], moves)

        return Asked(found, self.first).world

    def prices(
        self, which: str, name: str, case: str, chips: Accelerator, moves: Moves | None
    ) -> Prices:
        """What stacked chips cost users of a case; ``moves``: its numbers and shares; or drawn."""
        numbers, count = self.cases[case], len(chips.clock)
        many = {k: np.full(count, float(getattr(numbers, k))) for k in NUMBERS}
        many |= {k: many[k] * x for k, x in (moves or {}).items() if k in many}
        layouts = np.array([(t, p) for t in numbers.tp for p in numbers.pp], float)
        chunk = FEW if self.light else CHUNK
        size = chunk * -(-count // chunk)
        on = self.estimators(which, name, count, moves)
        padded = jax.tree.map(
            lambda x: np.pad(x, (0, size - count), mode="edge"), (on, chips, many)
        )
        # of one type, so that models of one structure share a program
        arch = jax.tree.map(lambda x: np.asarray(x, float), self.model(numbers.model))
        run, parts = _program(self.passed(which, name)), []
        for i in range(0, size, chunk):
            on, chip, these = jax.tree.map(lambda x, i=i: x[i : i + chunk], padded)
            found = run(on, arch, layouts, chip, these)
            parts.append({k: np.asarray(x) for k, x in found.items()})
        return {k: np.concatenate([p[k] for p in parts])[:count] for k in parts[0]}
