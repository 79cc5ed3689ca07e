"""A page that a study writes: its tables, its claims, what would change them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments._silicon.claims import Claim, short
from experiments._silicon.frame import DRAWS, FITTED, IDEAL, METHOD, Study, flip
from infer_jax.plots.style import (
    INK,
    SERIES,
    Figure,
    line,
    name_rows,
    panels,
    readable,
    style,
    subplots,
)

LEAST = 0.005  # elasticity that a page prints


class Page:
    """A page that a study writes, line by line; no number in it is typed."""

    def __init__(self, study: Study) -> None:
        self.lines = [f"# {study.table['title']}", ""]
        self.say(f"    python experiments/silicon.py {study.name}")
        self.say(study.table["question"])
        self.say(f"![{study.table['picture']}](../pictures/silicon_{study.name}.png)")
        self.answer = len(self.lines)  # where claims go: before the tables that they are of

    def section(self, title: str, says: str = "") -> None:
        """A heading, and what stands below it."""
        self.say(f"## {title}")
        self.lines += [says, ""] if says else []

    def say(self, text: str) -> None:
        """A paragraph."""
        self.lines += [text, ""]

    def table(self, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """A table: numbers with three digits."""
        self.lines += [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
        self.lines += [f"| {' | '.join(map(short, row))} |" for row in rows]
        self.lines.append("" if rows else "...")

    def claims(self, study: Study) -> None:
        """What is claimed and holds elsewhere, first of all; last, what would change it."""
        end, central, light = len(self.lines), study.central, study.light
        claims = [Claim(x) for x in study.table["claims"]]
        self.section("What holds")
        rows: list[list[object]] = []
        for i, claim in enumerate(claims, 1):
            self.lines.append(f"{i}. {claim.says(central[FITTED])}")
            if light:
                self.lines.append("...")
                continue
            same, every = claim.agreement(central[FITTED], study.drawn[FITTED])
            most = "True in" if 2 * same > every else "Most draws disagree: true in"
            where = f"80 % of all have {claim.ends(study.drawn[FITTED])}"
            self.lines.append(f"   {most} {same} of {every} draws; {where}.")
            agrees = claim.agreement(central[FITTED], central[IDEAL])[0]
            same, every = claim.agreement(central[FITTED], study.drawn[IDEAL])
            row = [i, claim.scale * claim.value(central[IDEAL]), "yes" if agrees else "no"]
            rows.append([*row, claim.ends(study.drawn[IDEAL]), f"{same} of {every}"])
        self.lines.append("")
        second = study.table.get("second", "ideal")
        heads = ("claim", f"{second} estimator", "agrees", "80 % of its draws", "that agree")
        self.table(heads, rows)
        about = {chip for claim in claims for chip, _ in claim.places("")}
        own = [name for name in study.table.get("chips", {}) if name in study.seen & about]
        shares = METHOD["some" if own else "all"].format(own=", ".join(own))
        drawn = METHOD["silicon"].format(draws=DRAWS)
        self.say(f"{drawn} {study.table.get('shares', shares)}")
        self.lines = self.lines[: self.answer] + self.lines[end:] + self.lines[self.answer : end]
        if light:
            return self.say("...")
        words = f"{METHOD['change']} {study.table.get('change', '')}"
        self.section("What would change it", words.strip())
        slopes, rows, known = study.slopes(claims), [], dict(study.share_deviations)
        for path in next(iter(study.deviations.values())):
            known[path] = max(one[path] for one in study.deviations.values())
        for i, claim in enumerate(claims):
            weight = {path: abs(x[i]) * known.get(path, 0.0) for path, x in slopes.items()}
            leading = sorted(known, key=lambda path: -weight[path])[:2]
            leading += [max(study.others, key=lambda path: abs(slopes[path][i]))]
            for path in (path for path in leading if abs(slopes[path][i]) >= LEAST):
                factor = flip(claim, study, path)
                at = "not within 8 times" if factor is None else f"{factor:.3g} times"
                sigma = f"{100 * known[path]:.0f} %" if path in known else "-"
                rows.append([i + 1, f"`{path}`", sigma, f"{slopes[path][i]:+.2f}", at])
        self.table(
            ("claim", "number", "its deviation", "elasticity of the margin", "flips at"), rows
        )
        if "caveats" in study.table:
            self.section("What is left out", study.table["caveats"])

    @property
    def text(self) -> str:
        """As it is written."""
        return "\n".join(self.lines).rstrip() + "\n"


class Bars(NamedTuple):
    """Horizontal bars by name, with the ends of their whiskers, and second figures as circles."""

    names: Sequence[str]
    values: Sequence[float]
    ends: Sequence[np.ndarray]
    seconds: Sequence[float] = ()


def draw_bars(parts: Mapping[str, Bars], *, title: str, caption: str, shared: str = "") -> Figure:
    """A panel of bars for each part; on one axis if all share its label."""
    with style():
        across = min(len(parts), 2)
        down = -(-len(parts) // across)
        figure, axes = subplots(down, across, height=(2.5 if shared else 3.0) * down, title=title,
                                caption=caption, sharex=bool(shared))  # fmt: skip
        for i, (one, (label, bars)) in enumerate(zip(axes, parts.items(), strict=False)):
            rows = range(len(bars.names))
            one.barh(rows, bars.values, height=0.72, color=SERIES[0 if shared else i])
            for row, ends in zip(rows, bars.ends, strict=True):
                one.plot(ends, [row, row], color=INK, linewidth=1.2)
            if bars.seconds:
                one.plot(bars.seconds, rows, "o", color="white", markeredgecolor=INK, markersize=5)
            name_rows(one, bars.names if i % across == 0 else [""] * len(bars.names))
            one.set_title(label if shared else "")
            one.set_xlabel(label if not shared else shared if i >= len(parts) - across else "")
        for one in axes:
            one.set_xlim(0)
    return figure


# x and y of a line, and the ends of its band
Line = tuple[Sequence[float], Sequence[float]] | tuple[Sequence[float], Sequence[float], Any]


def draw_lines(
    parts: Mapping[str, Mapping[str, Line]],
    labels: Sequence[tuple[str, str]],
    *,
    title: str,
    caption: str,
    logs: tuple[bool, bool] = (True, True),
) -> Figure:
    """A panel of the same lines for each part, x and y by name; ``labels``: of its axes.

    A panel without a label of y has the axis of the first.
    """
    with style():
        figure, axes = panels(len(parts), title, caption, shared=False)
        for one, (head, lines), (x, y) in zip(axes, parts.items(), labels, strict=False):
            for i, (name, (across, up, *ends)) in enumerate(lines.items()):
                one.plot(across, up, label=name, markersize=4, **line(i))  # pyright: ignore
                if ends:
                    one.fill_between(across, *np.transpose(ends[0]), color=SERIES[i], alpha=0.2)
            one.set_xscale("log" if logs[0] else "linear")
            one.set_yscale("log" if logs[1] else "linear")
            one.set(title=head if len(parts) > 1 else "", xlabel=x, ylabel=y)
            if not any(logs):
                one.set_ylim(0)
        ends = np.array([one.get_ylim() for one, (_, y) in zip(axes, labels, strict=False)])
        for one, (_, y) in zip(axes, labels, strict=False):
            if not all(y for _, y in labels):
                one.set_ylim(ends[:, 0].min(), ends[:, 1].max())
            readable(one, 150)
        keys = axes[0].get_legend_handles_labels()
        axes[0].figure.legend(*keys, loc="outside upper left", ncols=4, handlelength=2.6)  # pyright: ignore
    return figure
