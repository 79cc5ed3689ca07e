"""What the studies of silicon share: chips priced for users, claims, and what would flip them.

A study's chips, requests and limits are data (``studies.toml``). A user takes each chip with the
batch and tensor parallel degree that cost least within the limits, under the fitted estimator and
under the ideal one, and again under draws of the coefficients of the laws of silicon.
"""
# pyright: reportArgumentType=false

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import infer_jax as ij
from infer_jax.catalog import load_model
from infer_jax.catalog.files import write_text
from infer_jax.catalog.foreign import read_toml
from infer_jax.compiling import of_gradients
from infer_jax.estimators import make
from infer_jax.estimators.serving import Deployment, Serving
from infer_jax.silicon.accelerator import Accelerator, areas, chip_bill
from infer_jax.silicon.chips import SiliconSystem, load_silicon
from infer_jax.silicon.on_silicon import OnSilicon
from infer_jax.silicon.spread import coefficient_deviations, draw_chips
from infer_jax.specs import Architecture, Plan, Workload
from infer_jax.specs.fields import leaves

HERE = Path(__file__).parent
STUDIES: dict[str, Any] = read_toml(HERE / "studies.toml")
KEPT = HERE / "designs.json"  # what the searches found
FITTED, IDEAL = "serving", "economics.planned"
DRAWS = 256
HALVINGS = 12  # of the range of batches, in which the largest within the limits is sought
LARGEST = 4096.0
BLOCK, FEW = 64, 8  # rows priced at once
STEP = 0.02  # of logarithms, for slopes
FACTORS = np.exp(np.linspace(-np.log(8.0), np.log(8.0), 97))  # at which a flip is sought
# besides coefficients: what an owner pays, what surrounds a chip, and what users ask
OTHERS = ("owner.electricity", "owner.years", "owner.around", "tpot", "isl", "osl")
Place = tuple[str, str]  # a chip and a case
Prices = dict[str, np.ndarray]  # by draw: usd, batch, chips, ttft, tpot, memory, die, bill ...


class Case(NamedTuple):
    """Requests, their limits in s, which tokens are paid, and the layouts that may be used.

    ``tp``: tensor parallel degrees, with ``groups`` of attention and experts over both.
    """

    isl: Any
    osl: Any = 1.0
    prefix: Any = 0.0
    ttft: Any = 1e9
    tpot: Any = 1e9
    prompts: Any = 1.0
    outputs: Any = 1.0
    tp: Any = (1.0, 2.0, 4.0, 8.0)
    groups: Any = (1.0, 1.0, 1.0, 1.0)
    most: Any = LARGEST  # requests of an instance


def _best(on: OnSilicon, arch: Architecture, chip: Accelerator, case: Case) -> dict[str, Array]:
    """Least USD per million tokens over batch and degree: outputs, or prompts where none is paid.

    Tokens become cheaper and slower with the batch, so that its largest within the limits is
    sought; a fraction of a request counts.
    """
    sheet, fresh = on.lowered(chip), case.isl - case.prefix
    read, written = case.prompts * fresh, case.outputs * case.osl

    def at(batch: Array, tp: Array, groups: Array) -> tuple[Array, dict[str, Array]]:
        work = Workload(
            isl=case.isl, osl=case.osl, prefix=case.prefix, batch=batch, lengths=(), arrivals=None
        )
        plan = Plan.of().replace(tp=tp, ep=groups)
        if isinstance(on.target, Serving):
            wide = jnp.where(groups > 1, tp * groups, 1.0)
            plan = Deployment.of().replace(tp=tp, attention_dp=groups, ep=wide)
        found = on.target.estimate(arch, sheet, work, plan)
        paid = read * found.input_cost + written * found.cost
        memory = found.decode.limits["memory"]
        out = {"usd": paid / jnp.where(written > 0, written, read), "batch": batch}
        out |= {"chips": tp * groups, "ttft": found.ttft, "tpot": found.tpot}
        out |= {"memory": memory.need / memory.capacity}
        return found.feasible & (found.ttft <= case.ttft) & (found.tpot <= case.tpot), out

    def of(tp: Array, groups: Array) -> dict[str, Array]:
        def halve(_: int, ends: tuple[Array, Array]) -> tuple[Array, Array]:
            middle = 0.5 * (ends[0] + ends[1])
            holds = at(jnp.exp(middle), tp, groups)[0]
            return jnp.where(holds, middle, ends[0]), jnp.where(holds, ends[1], middle)

        ends = jnp.zeros_like(tp), jnp.full_like(tp, jnp.log(case.most))
        batch = jnp.exp(jax.lax.fori_loop(0, HALVINGS, halve, ends)[0])
        holds, out = at(batch, tp, groups)
        return out | {"usd": jnp.where(holds, out["usd"], jnp.inf)}

    every, bill = jax.vmap(of)(case.tp, case.groups), chip_bill(chip)
    own = {"die": areas(chip).total, "bill": bill.total, "of memory": bill.memory / bill.total}
    own |= {"a TB/s": 1e12 * bill.memory / sheet.chip.memory_bandwidth}
    return own | {name: x[jnp.argmin(every["usd"])] for name, x in every.items()}


_priced = jax.jit(
    jax.vmap(_best, (0, None, 0, 0)), compiler_options=of_gradients(jax.default_backend())
)


def stacked(chip: Accelerator, factors: Mapping[str, np.ndarray]) -> Accelerator:
    """A chip with numbers by path times factors of one length; 0 stays, but in ``OTHERS``."""
    count = max((len(x) for x in factors.values()), default=1)
    values = {path: float(np.asarray(value)) for path, _, value in leaves(chip)}
    highest = {path: declared.get("high", np.inf) for path, declared, _ in leaves(chip)}
    many = jax.tree.map(lambda x: np.full(count, float(x)), chip)
    return many.at(
        {
            path: np.minimum(
                values[path] * x if values[path] else np.maximum(x - 1, 0) * (path in OTHERS),
                highest[path],
            )
            for path, x in factors.items()
        }
    )


class World:
    """USD and the rest of every chip and case under one estimator, by draw."""

    def __init__(self, found: Mapping[Place, Prices], first: str) -> None:
        self.found, self.first = found, first

    def __call__(self, chip: str, case: str = "", of: str = "usd") -> np.ndarray:
        """A figure of a chip for a case, the first where none is named."""
        return self.found[chip, case or self.first][of]


class Claim:
    """A claim of a study's table: a figure, or one over another, above or below a number.

    ``of``, ``over``: chip, case (the first) and figure (usd); ``says`` has the value as {x}.
    """

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.table = table

    def places(self, first: str) -> list[Place]:
        """Which chips in which cases it is about."""
        named = [self.table[k] for k in ("of", "over") if k in self.table]
        return [(chip, case[0] if case and case[0] else first) for chip, *case in named]

    def value(self, world: World) -> np.ndarray:
        """The figure, or the ratio; 1 of two chips that do not keep their limits."""
        of, over = (np.asarray(world(*self.table[k])) if k in self.table else np.ones(1)
                    for k in ("of", "over"))  # fmt: skip
        with np.errstate(invalid="ignore"):
            return np.where(np.isinf(of) & np.isinf(over), 1.0, of / over)

    def margin(self, world: World) -> np.ndarray:
        """By how much it holds, in logarithms: above 0."""
        value = np.maximum(self.value(world), 1e-12)
        if "below" in self.table:
            return np.log(self.table["below"]) - np.log(value)
        return np.log(value) - np.log(self.table.get("above", 1.0))

    def says(self, world: World) -> str:
        """The sentence with its figure."""
        return self.table["says"].format(x=short(self.table.get("scale", 1.0) * self.value(world)))


@dataclasses.dataclass
class Study:
    """A study at work: its chips, its cases, and which chips are priced in which."""

    name: str
    kept: dict[str, dict[str, float]] | None = None  # designs, where none is searched
    places: list[Place] = dataclasses.field(default_factory=list)  # all chips in all cases if empty
    light: bool = False  # without draws and what would change, for which a page has ...
    designs: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    systems: dict[str, SiliconSystem] = dataclasses.field(default_factory=dict)
    others: ClassVar[tuple[str, ...]] = OTHERS

    def __post_init__(self) -> None:
        self.table: dict[str, Any] = STUDIES[self.name]
        self.cases = {}
        self.start()
        self.first = next(iter(self.cases))
        for name, silicon in self.table.get("chips", {}).items():
            self.add(name, load_silicon(silicon if "." not in silicon else HERE / silicon), {})

    def start(self) -> None:
        """The model and the cases."""
        formats = {k: x for k, x in self.table["arch"].items() if k != "model"}
        self.arch: Architecture = load_model(self.table["arch"]["model"], **formats).architecture
        self.cases = {name: Case(**x) for name, x in self.table["cases"].items()}

    def add(self, name: str, system: SiliconSystem, numbers: Mapping[str, float]) -> None:
        """A chip, with other numbers by path."""
        chip = jax.tree.map(lambda x: np.asarray(x, float), system.chip)
        self.systems[name] = dataclasses.replace(system, chip=chip.at(numbers))

    def spec(self, table: Mapping[str, Any]) -> dict[str, Any]:
        """The tables of a search, with the study's model and where its silicon is."""
        silicon = table["chip"]["silicon"]
        chip = {**table["chip"], "silicon": str(HERE / silicon) if "." in silicon else silicon}
        return {"arch": self.table["arch"], "estimator": FITTED, **table, "chip": chip}

    def search(self, name: str, table: Mapping[str, Any]) -> None:
        """Design a chip as ``infer-jax codesign`` does, or take it as it is kept."""
        table = self.spec(table)
        if self.kept is None:
            found = ij.codesign(spec=table).designs[0].values
            self.designs[name] = {k: float(v) for k, v in found.items()}  # pyright: ignore
        else:
            self.designs[name] = self.kept[name]
        numbers = dict(_numbers(table["chip"])) | {
            path.removeprefix("hardware."): x
            for path, x in self.designs[name].items()
            if path.startswith("hardware.")
        }
        self.add(name, load_silicon(table["chip"]["silicon"]), numbers)

    def world(
        self,
        which: str,
        chips: Mapping[str, Accelerator],
        only: Sequence[Place] = (),
        **factors: np.ndarray,
    ) -> World:
        """Chips in cases under one estimator, all or ``only`` some; ``factors`` on the cases."""
        every = [(name, case) for name in chips for case in self.cases]
        places = [*(only or self.places or every)]
        rows: list[tuple[OnSilicon, Accelerator, Case]] = []
        for name, case in places:
            on = OnSilicon.of(target=make(which, self.systems[name].coefficients))
            count, own = len(chips[name].clock), self.cases[case]
            numbers = {k: getattr(own, k) * x for k, x in factors.items()}
            layouts = {
                k: np.tile(np.array(getattr(own, k), float), (count, 1)) for k in ("tp", "groups")
            }
            here = own._replace(**numbers, tp=0.0, groups=0.0)
            here = Case(*(np.broadcast_to(np.asarray(x, float), count) for x in here))
            spread = jax.tree.map(lambda x, n=count: np.full(n, float(x)), on)
            rows.append((spread, chips[name], here._replace(**layouts)))
        flat = jax.tree.map(lambda *x: np.concatenate(x), *rows)
        total, size = len(flat[1].clock), BLOCK if len(flat[1].clock) > BLOCK else FEW
        flat = jax.tree.map(lambda x: np.concatenate([x, x[-1:].repeat(-total % size, 0)]), flat)
        parts: list[dict[str, Array]] = []
        for i in range(0, total, size):
            on, chip, case = jax.tree.map(lambda x, i=i: x[i : i + size], flat)
            parts.append(_priced(on, self.arch, chip, case))
        found = {k: np.concatenate([np.asarray(p[k]) for p in parts]) for k in parts[0]}
        ends = np.cumsum([0, *(len(one.clock) for _, one, _ in rows)])
        return World(
            {
                place: {k: x[low:high] for k, x in found.items()}
                for place, low, high in zip(places, ends, ends[1:], strict=False)
            },
            self.first,
        )

    def lattice(self, base: str, numbers: Mapping[str, np.ndarray]) -> World | None:
        """Every chip of a lattice under the fitted estimator; None where designs are kept."""
        if self.kept is not None:
            return None
        chip = jax.tree.map(lambda x: np.full(len(numbers["clock"]), float(x)),
                            self.systems[base].chip)  # fmt: skip
        return self.world(FITTED, {base: chip.at(numbers)}, [(base, x) for x in self.cases])

    def choose(
        self, name: str, base: str, numbers: Mapping[str, np.ndarray], usd: np.ndarray | None
    ) -> None:
        """The chip of a lattice that costs least, or the one that is kept."""
        if self.kept is None:
            i = int(np.argmin(usd))  # pyright: ignore
            self.designs[name] = {path: float(x[i]) for path, x in numbers.items()}
        else:
            self.designs[name] = self.kept[name]
        self.add(name, self.systems[base], self.designs[name])

    @cached_property
    def deviations(self) -> dict[str, dict[str, float]]:
        """Deviations of the logarithms of coefficients, by chip and path, in one order."""
        own = {k: coefficient_deviations(x.chip, x.rows) for k, x in self.systems.items()}
        every = sorted({path for one in own.values() for path in one})
        return {k: {path: one.get(path, 0.0) for path in every} for k, one in own.items()}

    @cached_property
    def central(self) -> dict[str, World]:
        """Both estimators at the coefficients as they are."""
        plain = {k: stacked(x.chip, {}) for k, x in self.systems.items()}
        return {which: self.world(which, plain) for which in (FITTED, IDEAL)}

    @cached_property
    def drawn(self) -> dict[str, World]:
        """Both under draws; a coefficient deviates alike in every chip."""
        if self.light:
            return self.central
        key = jax.random.key(0)
        chips = {
            k: jax.tree.map(np.asarray, draw_chips(x.chip, self.deviations[k], key, DRAWS))
            for k, x in self.systems.items()
        }
        return {which: self.world(which, chips) for which in (FITTED, IDEAL)}

    def moved(
        self, factors: Mapping[str, np.ndarray], which: str = FITTED, only: Sequence[Place] = ()
    ) -> World:
        """Under one estimator, with numbers of every chip and case times factors."""
        of_cases = {path: x for path, x in factors.items() if path in Case._fields}
        own = {path: x for path, x in factors.items() if path not in of_cases}
        count = max(len(x) for x in factors.values())
        own = own or {"clock": np.ones(count)}
        chips = {k: stacked(x.chip, own) for k, x in self.systems.items()}
        return self.world(which, chips, only, **of_cases)

    def slopes(self, claims: Sequence[Claim]) -> dict[str, np.ndarray]:
        """d margin / d log number of each claim: of coefficients, and of ``others``."""
        every = [*next(iter(self.deviations.values())), *self.others]
        moves = np.exp(STEP * np.repeat(np.eye(len(every)), 2, 1) * np.tile([-1, 1], len(every)))
        world = self.moved(dict(zip(every, moves, strict=True)))
        margins = np.array([claim.margin(world) for claim in claims])
        slopes = (margins[:, 1::2] - margins[:, ::2]) / (2 * STEP)
        return {path: slopes[:, i] for i, path in enumerate(every)}


def flip(claim: Claim, study: Study, path: str) -> float | None:
    """The factor of a number nearest to 1 at which a claim no longer holds; None within 8."""
    margins = claim.margin(study.moved({path: FACTORS}, only=claim.places(study.first)))
    signs = np.sign(margins)
    changes = np.flatnonzero(signs[1:] != signs[:-1])
    if not len(changes):
        return None
    logs = np.log(FACTORS)
    i = int(changes[np.argmin(np.abs(logs[changes]))])
    ends = margins[i : i + 2]
    if not np.all(np.isfinite(ends)):
        return float(FACTORS[i + (logs[i] >= 0)])
    return float(np.exp(logs[i] - ends[0] * (logs[i + 1] - logs[i]) / (ends[1] - ends[0])))


def _numbers(table: Mapping[str, Any], head: str = "") -> Iterator[tuple[str, float]]:
    """Plain numbers of nested tables, by path."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{head}{key}.")
        elif isinstance(value, int | float):
            yield f"{head}{key}", float(value)


def short(x: object) -> str:
    """A cell: a number with three digits, a text as it is."""
    if isinstance(x, float | np.floating | np.ndarray | Array):
        value = float(np.ravel(np.asarray(x))[0])
        value = value if abs(value) > 1e-9 else 0.0
        return (
            "-" if not np.isfinite(value) else f"{value:,.0f}" if value >= 1e3 else f"{value:.3g}"
        )
    return str(x)


def keep(name: str, designs: Mapping[str, Mapping[str, float]]) -> None:
    """Write down what a study's searches found."""
    known = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    known = {**known, name: designs}
    write_text(KEPT, json.dumps(dict(sorted(known.items())), indent=1) + "\n")
