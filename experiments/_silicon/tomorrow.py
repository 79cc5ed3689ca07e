"""The model that tomorrow's chip would like: experts, layers, key-value heads and window."""

import itertools
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq

from experiments._silicon.claims import Prices, World
from experiments._silicon.frame import FITTED, IDEAL
from experiments._silicon.page import Page, draw_lines
from experiments._silicon.passes import Pass, PassStudy, model
from infer_jax.design.quality import law
from infer_jax.plots.style import Figure
from infer_jax.specs import Architecture

LARGER = 1.1  # times the layers, for what a nat costs


class Kind(PassStudy):
    """Variants of one model; by experts and width with the layers that keep its loss."""

    others = ("owner.electricity", "owner.years", "limit", "cached")

    def start(self) -> None:
        """Prompts and outputs of every variant."""
        t = self.table
        for name in self.variants:
            self.cases[f"{name} in"] = Pass(name, new=t["isl"], limit=t["ttft"])
            self.cases[f"{name} out"] = Pass(name, cached=t["isl"] + t["osl"] / 2, limit=t["tpot"])

    def model(self, words: str) -> Architecture:
        """A variant."""
        return self.variants[words]

    @cached_property
    def variants(self) -> dict[str, Architecture]:
        """Every variant by its name."""
        t, base = self.table, model(self.table["model"])
        found = {"base": base, "larger": changed(base, "count", LARGER)}
        for name in t["laws"]:
            for experts in t["experts"]:
                one = changed(base, "feedforward.experts", experts, times=False)
                found[f"{name} experts {experts}"] = as_good(one, base, name, t["tokens"])
            for width in t["width"]:
                one = base.replace(width=jnp.asarray(float(width)))
                found[f"{name} width {width}"] = as_good(one, base, name, t["tokens"])
        for heads in t["kv_heads"]:
            found[f"kv_heads {heads}"] = changed(base, "attention.kv_heads", heads, times=False)
        for window in t["window"]:
            found[f"window {window}"] = base.at({"blocks.0.attention.window": float(window)})
        return found

    def figures(self, world: World, name: str, case: str) -> Prices | None:
        """USD of requests by variant; ``best``: of a free number, least by a parabola; ``nats``."""
        words = case.split()
        if words[-1] in ("in", "out"):
            return None
        t = self.table
        if words[-1] == "best":
            free = words[-2]
            values = t[free]
            usd = [world(name, f"{' '.join(words[:-1])} {x}") for x in values]
            return {"usd": least(np.log(np.array(values, float)), np.log(np.array(usd)))}
        if words[-1] == "nats":
            head, (low, high) = " ".join(words[:-3]), words[-3:-1]
            cost = np.log(world(name, f"{head} {high}") / world(name, f"{head} {low}"))
            size = np.log(world(name, "larger") / world(name, "base"))
            return {"usd": cost / size * self.gained}
        reads = t["isl"] / t["osl"]
        return {"usd": world(name, f"{case} out") + reads * world(name, f"{case} in")}

    @cached_property
    def gained(self) -> float:
        """Nats that the larger model is better by, under the first law."""
        both = [float(loss(self.table["laws"][0], self.variants[x], self.table["tokens"]))
                for x in ("base", "larger")]  # fmt: skip
        return both[0] - both[1]


def changed(arch: Architecture, field: str, x: float, *, times: bool = True) -> Architecture:
    """A model with a number of all its blocks changed."""
    now = {f"blocks.{i}.{field}": b for i, b in enumerate(arch.blocks)}
    values = {
        path: x * (float(b.count) if field == "count" else 1.0) if times else float(x)
        for path, b in now.items()
    }
    return arch.at(values)


_loss = jax.jit(lambda law, arch, tokens: law.loss(arch, tokens))


def loss(name: str, arch: Architecture, tokens: float) -> jax.Array:
    """Predicted loss by a law."""
    return _loss(law(name), arch, jnp.asarray(tokens))


def as_good(arch: Architecture, base: Architecture, name: str, tokens: float) -> Architecture:
    """A model with so many layers that its predicted loss is that of another."""
    aim = float(loss(name, base, tokens))

    def worse(log: float) -> float:
        return float(loss(name, changed(arch, "count", float(np.exp(log))), tokens)) - aim

    found = brentq(worse, np.log(0.1), np.log(10.0), xtol=1e-9)
    return changed(arch, "count", float(np.exp(found)))  # pyright: ignore


def least(at: np.ndarray, cost: np.ndarray) -> np.ndarray:
    """Where a cost is least, by a parabola through the least and its neighbours; or an end."""
    cost = np.minimum(cost, cost[np.isfinite(cost)].max() + 1.0)
    best, rows = np.argmin(cost, 0), np.arange(cost.shape[1])
    i = np.clip(best, 1, len(at) - 2)
    low, mid, high = (cost[i + k, rows] for k in (-1, 0, 1))
    step, bend = at[i + 1] - at[i], low - 2 * mid + high
    moved = 0.5 * (low - high) / np.where(bend > 0, bend, 1.0)
    return np.exp(np.where(best == i, at[i] + step * moved, at[best]))


def run(study: Kind) -> tuple[Page, Figure]:
    """Price every variant on every chip."""
    page, names, t = Page(study), list(study.systems), study.table
    worlds = study.central[FITTED], study.central[IDEAL]
    columns = (*names, *(f"{c}, ideal" for c in names))

    def each(case: str, over: str = "") -> list[object]:
        return [w(c, case) / (w(c, over) if over else 1.0) for w in worlds for c in names]

    page.section("At equal loss", t["counted"])
    rows: list[list[object]] = []
    for name in t["laws"]:
        for x in t["experts"]:
            case = f"{name} experts {x}"
            layers = sum(float(b.count) for b in study.variants[case].blocks)
            rows.append([name, x, layers, *each(case, "base")])
        rows.append([name, "best", "", *each(f"{name} experts best")])
    page.table(("law", "experts", "layers", *columns), rows)
    page.section("What the laws do not know", t["unknown"])
    rows = []
    for free in ("width", "kv_heads", "window"):
        values, head = t[free], f"{t['laws'][0]} " if free == "width" else ""
        for low, high in itertools.pairwise(values):
            nats = [1000 * x for x in each(f"{head}{free} {low} {high} nats")]  # pyright: ignore
            rows.append([t["words"][free], f"{low:,} to {high:,}", *nats])
    page.table(("number", "change", *columns), rows)
    page.claims(study)
    w = worlds[0]
    parts = {
        title: {
            c: (t[free], [float((w(c, f"{head} {x}") / w(c, "base"))[0]) for x in t[free]])
            for c in names
        }
        for free, head, title in (
            ("experts", f"{t['laws'][0]} experts", "Experts, at equal loss"),
            ("kv_heads", "kv_heads", "Key-value heads"),
        )
    }
    cost = "cost over that of gpt-oss-120b"
    labels = [("experts", cost), ("key-value heads", cost)]
    title = "What chips of 2024, 2026 and 2028 would have of a model"
    return page, draw_lines(parts, labels, title=title, caption=t["caption"], logs=(True, False))
