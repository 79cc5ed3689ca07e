"""A page that a study writes: its tables, its claims, what would change them."""

from collections.abc import Sequence

import numpy as np

from experiments._silicon.frame import DRAWS, FITTED, Claim, Study, flip, short


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
        end = len(self.lines)
        central, drawn = study.central, {} if study.light else study.drawn
        claims = [Claim(x) for x in study.table["claims"]]
        self.section("What holds")
        rows: list[list[object]] = []
        for i, claim in enumerate(claims, 1):
            holds = {k: bool(claim.margin(w)[0] > 0) for k, w in central.items()}
            counts = [int(np.sum(claim.margin(w) > 0)) for w in drawn.values()]
            says = claim.says(central[FITTED])
            self.lines.append(f"{i}. {says if holds[FITTED] else 'Not found: ' + says}")
            rows.append([i, *("yes" if x else "no" for x in holds.values()), *counts])
        self.lines.append("")
        names = study.table.get("estimators", ["fitted", "ideal"])
        heads = ("claim", *(f"{x} estimator" for x in names))
        heads += tuple(f"of {DRAWS} draws, {x}" for x in names)
        self.table(heads, [] if study.light else rows)
        self.lines = self.lines[: self.answer] + self.lines[end:] + self.lines[self.answer : end]
        if study.light:
            return self.say("...")
        self.section("What would change it", study.table.get("change", ""))
        slopes = study.slopes(claims)
        rows = []
        known = {
            path: max(one[path] for one in study.deviations.values())
            for path in next(iter(study.deviations.values()))
        }
        for i, claim in enumerate(claims):
            weight = {path: abs(x[i]) * known.get(path, 0.0) for path, x in slopes.items()}
            leading = sorted(known, key=lambda path: -weight[path])[:2]
            for path in (*leading, max(study.others, key=lambda path: abs(slopes[path][i]))):
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
