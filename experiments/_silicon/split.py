"""Prefill on chips with GDDR7, decode on chips with HBM: what it saves, and for which requests."""

import jax.numpy as jnp
import numpy as np

from experiments._silicon.claims import Prices, World
from experiments._silicon.frame import FITTED, IDEAL
from experiments._silicon.page import Page, draw_lines
from experiments._silicon.passes import Pass, PassStudy
from infer_jax.physics import decoder
from infer_jax.plots.style import Figure

BOTH, PREFILL = "HBM4", "GDDR7"
READS = (1, 8, 64)  # tokens of a prompt for one of its output
LINE = 2.0 ** np.arange(8)


class Kind(PassStudy):
    """Prompts on both chips, outputs on that with HBM."""

    def start(self) -> None:
        """Prompts in batches and one at a time, and outputs, of every model and length."""
        t = self.table
        for name in t["models"]:
            for isl in t["prompts"]:
                self.cases[f"{name} in {isl}"] = Pass(name, new=isl, limit=t["ttft"])
                self.cases[f"{name} alone {isl}"] = Pass(name, new=isl, most=1.0)
                held = isl + t["output"] / 2
                self.cases[f"{name} out {isl}"] = Pass(name, cached=held, limit=t["tpot"])

    def figures(self, world: World, name: str, case: str) -> Prices | None:
        """USD per million output tokens of requests, tokens in:out, on one kind of chip or two."""
        if ":" not in case:
            return None
        words, _, lengths = case.rpartition(" ")
        isl, _, osl = lengths.partition(":")
        fed = world(BOTH if name == "one kind" else PREFILL, f"{words} in {isl}")
        return {"usd": world(BOTH, f"{words} out {isl}") + fed * float(isl) / float(osl)}


def saved(world: World, model: str, isl: int, reads: float) -> float:
    """Per cent that two kinds of chip save, ``reads`` tokens in for one out."""
    one, two = (world(x, f"{model} {isl}:{isl / reads}")[0] for x in ("one kind", "two kinds"))
    return float(100 * (1 - two / one))


def run(study: Kind) -> tuple[Page, Figure]:
    """Price prompts on both chips, and what requests cost with one kind and with two."""
    page, t, w, ideal = Page(study), study.table, study.central[FITTED], study.central[IDEAL]
    link = float(study.systems[PREFILL].chip.network)
    page.section("Prompts", study.table["counted"])
    rows: list[list[object]] = []
    for m in t["models"]:
        for isl in t["prompts"]:
            made = w(PREFILL, f"{m} in {isl}", "time") / w(PREFILL, f"{m} in {isl}", "batch")
            tp = w(PREFILL, f"{m} in {isl}", "tp")
            sent = float(decoder.cache_bytes(study.model(m), jnp.asarray(float(isl)))) / (link * tp)
            row: list[object] = [m, isl, w(BOTH, f"{m} in {isl}"), w(PREFILL, f"{m} in {isl}")]
            for kind in ("in", "alone"):
                case = f"{m} {kind} {isl}"
                row += [world(PREFILL, case) / world(BOTH, case) for world in (w, ideal)]
            rows.append([*row, 100 * sent / made])
    heads = ("model", "prompt, tokens", "USD/Mtok, HBM4", "GDDR7", "ratio, fitted", "ideal")
    page.table((*heads, "one prompt a pass: ratio, fitted", "ideal", "moving the cache, %"), rows)
    page.section("Requests")
    rows = []
    for m in t["models"]:
        for isl in t["prompts"]:
            out = w(BOTH, f"{m} out {isl}")
            shares = [saved(world, m, isl, r) for world in (w, ideal) for r in READS]
            rows.append([m, isl, out, *shares])
    heads = ("model", "prompt, tokens", "USD/Mtok out, HBM4")
    each = [f"{r} in for 1 out" for r in READS]
    page.table((*heads, *(f"saved, %, {each[0]}", *each[1:]), *(f"ideal, {x}" for x in each)), rows)
    page.claims(study)
    middle = t["prompts"][1]
    parts = {
        f"{word} estimator": {
            m: (list(LINE), [saved(world, m, middle, r) for r in LINE]) for m in t["models"]
        }
        for word, world in (("fitted", w), ("ideal", ideal))
    }
    labels = [("tokens in for one out", "saved, %"), ("tokens in for one out", "")]
    title, caption = (
        "What a chip for prompts alone saves",
        f"{t['caption']} Prompts: {middle:,} tokens.",
    )
    return page, draw_lines(parts, labels, title=title, caption=caption, logs=(True, False))
