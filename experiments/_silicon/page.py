"""A page that a study writes: its tables, its claims, what would change them."""

from collections.abc import Sequence

from experiments._silicon.claims import Claim, short
from experiments._silicon.frame import DRAWS, FITTED, IDEAL, METHOD, Study, flip

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
