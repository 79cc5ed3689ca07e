"""What the studies of silicon share: chips priced for users, claims, and what would flip them.

A study's chips, requests and limits are data (``studies.toml``). A user takes each chip with the
batch and tensor parallel degree that cost least within the limits, under the fitted estimator and
under the ideal one, and again under draws: of the coefficients of the laws of silicon, and of the
shares of its peaks that a chip reaches by the fitted estimator, where no fit has rows of it.
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
from experiments._silicon.claims import Claim, Place, World
from infer_jax.calibration.posterior import OF_GENERATION, new_chip_laws, normal_scores
from infer_jax.catalog import load_model
from infer_jax.catalog.files import write_text
from infer_jax.catalog.foreign import read_toml
from infer_jax.compiling import of_gradients
from infer_jax.estimators import make
from infer_jax.estimators.serving import Deployment, Serving
from infer_jax.silicon.accelerator import Accelerator, areas, chip_bill
from infer_jax.silicon.chips import SiliconSystem, known_chips, load_silicon
from infer_jax.silicon.on_silicon import OnSilicon
from infer_jax.silicon.spread import RATIO, coefficient_deviations, ratios
from infer_jax.specs import Architecture, Plan, Workload
from infer_jax.specs.fields import leaves

HERE = Path(__file__).parent
STUDIES: dict[str, Any] = read_toml(HERE / "studies.toml")
METHOD: dict[str, str] = STUDIES.pop("method")  # of draws, in words
KEPT = HERE / "designs.json"  # what the searches found
FITTED, IDEAL = "serving", "economics.planned"
ESTIMATORS = {"fitted": FITTED, "ideal": IDEAL}
DRAWS = 256
HALVINGS = 12  # of the range of batches, in which the largest within the limits is sought
LARGEST = 4096.0
SHARE = "shares."  # before the name of a coefficient of the fitted estimator
BLOCK, FEW = 64, 8  # rows priced at once
STEP = 0.02  # of logarithms, for slopes
FACTORS = np.exp(np.linspace(-np.log(8.0), np.log(8.0), 97))  # at which a flip is sought
# besides coefficients: what an owner pays, what surrounds a chip, and what users ask
OTHERS = ("owner.electricity", "owner.years", "owner.around", "tpot", "isl", "osl")
Moves = Mapping[str, np.ndarray]  # factors by name, of one length


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
        def halve(i: Array, last: tuple[Array, Array, Array, Any]) -> Any:
            low, high = last[:2]
            middle = jnp.where(i < HALVINGS, 0.5 * (low + high), low)  # at last the answer
            holds, out = at(jnp.exp(middle), tp, groups)
            return jnp.where(holds, middle, low), jnp.where(holds, high, middle), holds, out

        names = ("usd", "batch", "chips", "ttft", "tpot", "memory")
        begin = jnp.zeros_like(tp), jnp.full_like(tp, jnp.log(case.most)), jnp.zeros(tp.shape, bool)
        begin = *begin, dict.fromkeys(names, jnp.zeros_like(tp))
        _, _, holds, out = jax.lax.fori_loop(0, HALVINGS + 1, halve, begin)
        return out | {"usd": jnp.where(holds, out["usd"], jnp.inf)}

    every, bill = jax.vmap(of)(case.tp, case.groups), chip_bill(chip)
    own = {"die": areas(chip).total, "bill": bill.total, "of memory": bill.memory / bill.total}
    own |= {"a TB/s": 1e12 * bill.memory / sheet.chip.memory_bandwidth}
    return own | {name: x[jnp.argmin(every["usd"])] for name, x in every.items()}


_priced = jax.jit(
    jax.vmap(_best, (0, None, 0, 0)), compiler_options=of_gradients(jax.default_backend())
)


def stacked(chip: Accelerator, factors: Moves) -> Accelerator:
    """A chip with numbers by path times factors of one length; 0 stays, but in ``OTHERS``."""
    count, changes = max((len(x) for x in factors.values()), default=1), dict[str, np.ndarray]()
    for path, declared, value in leaves(chip):
        if path in factors:
            more = np.maximum(factors[path] - 1, 0) * (path in OTHERS)
            moved = float(np.asarray(value)) * factors[path] if np.asarray(value) else more
            changes[path] = np.minimum(moved, declared.get("high", np.inf))
    return jax.tree.map(lambda x: np.full(count, float(x)), chip).at(changes)


@dataclasses.dataclass
class Study:
    """A study at work: its chips, its cases, and which chips are priced in which."""

    name: str
    kept: dict[str, dict[str, float]] | None = None  # designs, where none is searched
    places: list[Place] = dataclasses.field(default_factory=list)  # all chips in all cases if empty
    light: bool = False  # without draws and what would change, for which a page has ...
    designs: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    systems: dict[str, SiliconSystem] = dataclasses.field(default_factory=dict)
    seen: set[str] = dataclasses.field(default_factory=set)  # chips whose cores were measured
    others: ClassVar[tuple[str, ...]] = OTHERS
    numbers: ClassVar[tuple[str, ...]] = Case._fields

    def __post_init__(self) -> None:
        self.table: dict[str, Any] = STUDIES[self.name]
        self.cases = {}
        self.start()
        self.first = next(iter(self.cases))
        for name, silicon in self.table.get("chips", {}).items():
            system = load_silicon(silicon if "." not in silicon else HERE / silicon)
            measured = system.name in known_chips() and FITTED in system.coefficients
            self.add(name, system, {}, seen=measured)

    @property
    def heads(self) -> list[str]:
        """Columns: each case by each estimator."""
        return [f"{case}, {word}" for case in self.cases for word in ESTIMATORS]

    def start(self) -> None:
        """The model and the cases."""
        formats = {k: x for k, x in self.table["arch"].items() if k != "model"}
        self.arch: Architecture = load_model(self.table["arch"]["model"], **formats).architecture
        self.cases = {name: Case(**x) for name, x in self.table["cases"].items()}

    def add(
        self, name: str, system: SiliconSystem, numbers: Mapping[str, float], *, seen: bool = False
    ) -> None:
        """A chip, with other numbers by path; ``seen``: the shares of its silicon are its own."""
        self.seen = self.seen | {name} if seen else self.seen - {name}
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

    def estimator(self, which: str, name: str) -> OnSilicon:
        """What prices a chip under the estimator of that name."""
        return OnSilicon.of(target=make(which, self.systems[name].coefficients))

    def laws(self, on: OnSilicon, name: str) -> dict[str, tuple[str, float, float]]:
        """Name, median and deviation of shares by path, of a chip that has none of its own."""
        if name in self.seen or not isinstance(on.target, Serving):
            return {}
        laws = new_chip_laws(on.target)
        return {
            path: (SHARE + (law[0] if law[0] in OF_GENERATION else path), *law[1:])
            for path, law in laws.items()
        }

    def estimators(self, which: str, name: str, count: int, moves: Moves | None) -> OnSilicon:
        """``count`` estimators of a chip: shares times ``moves`` by name; None: drawn.

        A draw is alike in all chips that have no shares of their own.
        """
        on = self.estimator(which, name)
        laws, changes = self.laws(on, name), dict[str, np.ndarray]()
        names = [*dict.fromkeys(share for share, _, _ in laws.values())]
        scores = dict(zip(names, normal_scores(max(len(names), 1), count).T, strict=False))
        for path, declared, value in leaves(on.target):
            if path in laws:
                share, median, sigma = laws[path]
                drawn = median * np.exp(sigma * scores[share])
                if moves is not None:
                    drawn = float(np.asarray(value)) * moves.get(share, np.ones(count))
                changes[path] = np.minimum(drawn, declared.get("high", np.inf))
        on = jax.tree.map(lambda x: np.full(count, float(x)), on)
        return on.replace(target=on.target.at(changes))

    def world(
        self,
        which: str,
        chips: Mapping[str, Accelerator],
        only: Sequence[Place] = (),
        *,
        drawn: bool = False,
        **factors: np.ndarray,
    ) -> World:
        """Chips in cases under one estimator, all or ``only`` some.

        ``drawn``: with shares that are drawn; ``factors``: on cases and shares, by name.
        """
        every = [(name, case) for name in chips for case in self.cases]
        places = [*(only or self.places or every)]
        rows: list[tuple[OnSilicon, Accelerator, Case]] = []
        for name, case in places:
            count, own = len(chips[name].clock), self.cases[case]
            numbers = {k: getattr(own, k) * x for k, x in factors.items() if k in self.numbers}
            layouts = {
                k: np.tile(np.array(getattr(own, k), float), (count, 1)) for k in ("tp", "groups")
            }
            here = own._replace(**numbers, tp=0.0, groups=0.0)
            here = Case(*(np.broadcast_to(np.asarray(x, float), count) for x in here))
            on = self.estimators(which, name, count, None if drawn else factors)
            rows.append((on, chips[name], here._replace(**layouts)))
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

    def changed(self, name: str, factors: Moves) -> Accelerator:
        """A chip with those of the coefficients by name that it has times factors."""
        own = {"clock": np.ones(max(len(x) for x in factors.values()))}
        for full, x in factors.items():
            path, _, row = full.partition(" of ")
            of_chip = full not in self.numbers and not full.startswith(SHARE)
            if of_chip and (not row or row == self.row_of(name, path)):
                own[path] = x
        return stacked(self.systems[name].chip, own)

    @cached_property
    def central(self) -> dict[str, World]:
        """Both estimators at the coefficients as they are."""
        plain = {k: stacked(x.chip, {}) for k, x in self.systems.items()}
        return {which: self.world(which, plain) for which in (FITTED, IDEAL)}

    @cached_property
    def drawn(self) -> dict[str, World]:
        """Both under draws; a coefficient deviates alike in chips that share its row."""
        if self.light:
            return self.central
        rng, fits, chips = np.random.default_rng(0), ratios(), dict[str, Accelerator]()
        scores = {
            path: rng.standard_t(max(fits[path.removeprefix(RATIO)].chips - 1, 1), DRAWS)
            if path.startswith(RATIO)
            else rng.standard_normal(DRAWS)
            for path in next(iter(self.deviations.values()))
        }
        for name, one in self.deviations.items():
            factors = {path: np.exp(x * scores[path]) for path, x in one.items()}
            for ratio, fit in fits.items():  # about its centre, but in a chip that has its own
                if getattr(self.systems[name].chip.unlisted, ratio) == 1.0:
                    factors[RATIO + ratio] = factors[RATIO + ratio] * fit.centre
            chips[name] = self.changed(name, factors)
        return {which: self.world(which, chips, drawn=True) for which in (FITTED, IDEAL)}

    @cached_property
    def share_deviations(self) -> dict[str, float]:
        """Deviations of the logarithms of shares, the widest of each name."""
        laws = [self.laws(self.estimator(FITTED, name), name) for name in self.systems]
        return dict(sorted((share, x) for one in laws for share, _, x in one.values()))

    def moved(self, moves: Moves, which: str = FITTED, only: Sequence[Place] = ()) -> World:
        """Under one estimator, with numbers of every chip, its shares and cases times factors."""
        chips = {name: self.changed(name, moves) for name in self.systems}
        return self.world(which, chips, only, **moves)

    def slopes(self, claims: Sequence[Claim]) -> dict[str, np.ndarray]:
        """d margin / d log number of each claim: of coefficients, and of ``others``."""
        every = [*next(iter(self.deviations.values())), *self.share_deviations, *self.others]
        moves = np.exp(STEP * np.repeat(np.eye(len(every)), 2, 1) * np.tile([-1, 1], len(every)))
        world = self.moved(dict(zip(every, moves, strict=True)))
        margins = np.array([claim.margin(world) for claim in claims])
        slopes = (margins[:, 1::2] - margins[:, ::2]) / (2 * STEP)
        return {path: slopes[:, i] for i, path in enumerate(every)}


def flip(claim: Claim, study: Study, path: str) -> float | None:
    """The factor of a number nearest to 1 at which a claim no longer holds; None within 8."""
    margins = claim.margin(study.moved({path: FACTORS}, only=claim.places(study.first)))
    margins = np.where(np.isnan(margins), -np.inf, margins)  # no chip keeps its limits
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


def keep(name: str, designs: Mapping[str, Mapping[str, float]]) -> None:
    """Write down what a study's searches found."""
    known = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    known = {**known, name: designs}
    write_text(KEPT, json.dumps(dict(sorted(known.items())), indent=1) + "\n")
