"""SRAM alone against stacks: at what speed, price and hop it pays, and for whom."""

import numpy as np
from jax import Array

from experiments._silicon.claims import Claim, Prices, World
from experiments._silicon.frame import FACTORS, FITTED, IDEAL, flip
from experiments._silicon.page import Page, draw_lines
from experiments._silicon.passes import Given, Pass, Passed, PassStudy, model, one_pass
from infer_jax.catalog.published.tables import tables
from infer_jax.design.quality import depth
from infer_jax.estimators import make
from infer_jax.estimators.economics import Economics
from infer_jax.estimators.economics.coefficients import Laws, RankLayout, all_chips_memory
from infer_jax.estimators.partitioning.slices import Slice
from infer_jax.physics.network.collectives import Protocol
from infer_jax.plots.style import Figure
from infer_jax.silicon.accelerator import areas
from infer_jax.silicon.chips import load_accelerator
from infer_jax.silicon.on_silicon import OnSilicon

SRAM, STACKS, TODAY = "SRAM", "HBM", "HBM, today"
# 10,440 chips reach each other within 3 us (Abts et al., ISCA 2022): a level of a tree of them
HOP = 3e-6 / np.log2(10_440)
SPEEDS = (20, 100, 200, 400, 800, 1600)
TP, STAGES = 2.0 ** np.arange(7), 8  # tensor parallel degrees, and how many numbers of stages
EXIST = ("groq_lpu", "wse3")  # chips of SRAM alone
IDEAL_SHARES = {"flop_cap": 0.7, "memory_cap": 0.75}  # those of the economics model


def scheduled(given: Given) -> tuple[Array, Array]:
    """A pass by the economics model on a network without launches, whose hops take one time."""
    hop = given.numbers["hop"]
    one = Protocol(intra=hop, inter=hop, base=0.0 * hop, efficiency=1.0 + 0.0 * hop)
    return one_pass(
        given._replace(on=given.on.replace(target=given.on.target.replace(protocols=(one,))))
    )


def sliced(given: Given) -> tuple[Array, Array]:
    """The same by the partitioning model: stages pass micro-batches on without gaps."""
    plan, forward = given.plan, given.forward
    one = 0.0 * plan.tp + 1.0
    slice_ = Slice.of().replace(
        tp=plan.tp, pp=plan.pp, x=plan.tp**0.5, y=plan.tp**0.5, z=one, micro_batches=one, layout=one
    )
    target = given.on.target.replace(collective=given.numbers["hop"])
    micro = forward.replace(sequences=forward.sequences / plan.pp)
    found = target.step(given.arch, given.sheet, micro, slice_)
    ranks = RankLayout(plan.tp, plan.pp, one, one)
    room = all_chips_memory(Economics.as_planned(), given.arch, given.sheet, forward, ranks)
    return found.time, (room.need <= room.capacity) & (forward.sequences >= plan.pp)


def larger() -> float:
    """Area of dies of SRAM as published over that by law, the mean of those that exist."""
    rows, found = tables("silicon")["accelerators"], []
    for name in EXIST:
        chip = load_accelerator(name)
        by_law = 1e6 * float(areas(chip).total) / float(chip.unlisted.area)
        found.append(rows[name]["published"]["die_mm2"] / by_law)
    return float(np.exp(np.mean(np.log(found))))


class Kind(PassStudy):
    """Outputs of dense models at several contexts, on any number of chips."""

    others = ("hop", "node.bitcell", "owner.electricity", "owner.years", "cached")

    def start(self) -> None:
        """Every model and context at each speed."""
        for name in self.table["models"]:
            layers = round(float(depth(model(name))))
            stages = [x for x in range(1, layers + 1) if layers % x == 0]
            chosen = [stages[round(i)] for i in np.linspace(0, len(stages) - 1, STAGES)]
            for held in self.table["contexts"]:
                for speed in SPEEDS:
                    self.cases[f"{name} {held} {speed}"] = Pass(
                        name, cached=held, limit=1 / speed, hop=HOP, tp=tuple(TP), pp=tuple(chosen)
                    )

    def passed(self, which: str, name: str) -> Passed:
        """Scheduled networks but for the stacks of today, which servers have."""
        return one_pass if name == TODAY else {FITTED: scheduled, IDEAL: sliced}[which]

    def estimator(self, which: str, name: str) -> OnSilicon:
        """The memory of all chips together; of today's servers what was fitted to them."""
        if name == TODAY:
            known = {FITTED: "economics.planned", IDEAL: "serving"}[which]
            return OnSilicon.of(target=make(known, self.systems[name].coefficients))
        if which == FITTED:
            target = make("economics.planned").with_(launch=0.0, **IDEAL_SHARES)
            return OnSilicon.of(target=target.replace(laws=Laws(memory=all_chips_memory)))
        return OnSilicon.of(target=make("partitioning.planned").with_(**IDEAL_SHARES))

    def figures(self, world: World, name: str, case: str) -> Prices | None:
        """``demand``: tokens/s of all users below which stacks cost less, an instance not full."""
        if not case.startswith("demand"):
            return None
        case = case.partition(" ")[2]
        rate = world(SRAM, case, "batch") / world(SRAM, case, "time")
        return {"usd": rate * world(SRAM, case) / world(STACKS, case)}


def run(study: Kind) -> tuple[Page, Figure]:
    """Price outputs of stacks and of SRAM at every speed."""
    own = study.systems[SRAM]
    study.add(SRAM, own, {"unlisted.area": larger()})
    page, t, w, second = Page(study), study.table, study.central[FITTED], study.central[IDEAL]
    page.section("Costs", t["counted"])
    chip = study.systems[SRAM].chip
    size, sheet = 1e6 * float(areas(chip).total), chip.chip
    page.say(
        f"The die of SRAM: {size:,.0f} mm2, {larger():.3g} times its law; "
        f"{float(sheet.memory) / 1e9:.3g} GB, {float(sheet.memory_bandwidth) / 1e12:.3g} TB/s. "
        f"A hop: {1e9 * HOP:.0f} ns."
    )
    rows: list[list[object]] = []
    for case in study.cases:
        costs = [world(x, case) for world in (w, second) for x in study.systems]
        chips = w(SRAM, case, "tp") * w(SRAM, case, "pp")
        rows.append([*case.rsplit(" ", 2), *costs, chips, w(SRAM, f"demand {case}")])
    heads = ("model", "context", "tokens/s")
    both = (*study.systems, *(f"{x}, second" for x in study.systems))
    page.table((*heads, *both, "chips of SRAM", "tokens/s that fill them"), rows)
    page.section("What SRAM may cost, and how slow a hop may be", t["even"])
    rows = []
    for case in study.cases:
        price = w(STACKS, case) / w(SRAM, case)
        if study.light or not np.isfinite(price[0]):
            continue
        claim = Claim({"of": [STACKS, case], "over": [SRAM, case], "says": ""})
        even = [flip(claim, study, path) for path in ("hop", "node.bitcell")]
        words = [f"over {FACTORS[-1]:.0f}" if x is None else x for x in even]
        rows.append([*case.rsplit(" ", 2), price, *words])
    page.table((*heads, "price", "hop", "area of a bit"), rows)
    page.claims(study)
    ends = t["contexts"][0], t["contexts"][-1]
    parts = {
        f"{held:,} tokens of context": {
            x: _line(w, x, f"{t['models'][-1]} {held}") for x in study.systems
        }
        for held in ends
    }
    labels = [("tokens/s of a user", "USD per million tokens"), ("tokens/s of a user", "")]
    title, caption = "SRAM alone beside stacks", f"{t['models'][-1]}. {t['caption']}"
    return page, draw_lines(parts, labels, title=title, caption=caption)


def _line(w: World, name: str, case: str) -> tuple[list[float], list[float]]:
    costs = {float(speed): float(w(name, f"{case} {speed}")[0]) for speed in SPEEDS}
    kept = {speed: cost for speed, cost in costs.items() if np.isfinite(cost)}
    return list(kept), list(kept.values())
