"""A page that a study writes: its tables, its claims, what would change them."""

from collections.abc import Sequence

from experiments._silicon.claims import Claim, short
from experiments._silicon.frame import FITTED, IDEAL, Study, flip


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
            worlds = study.drawn.values()
            ends = [claim.ends(drawn) for drawn in worlds]
            counts = [claim.agreement(central[FITTED], drawn) for drawn in worlds]
            most = 2 * counts[0][0] > counts[0][1]
            self.lines.append(f"   80 % of draws: {ends[0]}{'' if most else '; most disagree'}.")
            agrees = claim.agreement(central[FITTED], central[IDEAL])[0]
            of = [f"{x} of {y}" for x, y in counts]
            figure = claim.scale * claim.value(central[IDEAL])
            rows.append([i, of[0], figure, "yes" if agrees else "no", ends[1], of[1]])
        self.lines.append("")
        first, second = study.table.get("estimators", ["fitted", "ideal"])
        heads = ("claim", f"draws that agree, {first}", f"{second} estimator", "agrees")
        self.table((*heads, "80 % of its draws", "that agree"), rows)
        self.say(study.method)
        self.lines = self.lines[: self.answer] + self.lines[end:] + self.lines[self.answer : end]
        if light:
            return self.say("...")
        self.section("What would change it", study.table.get("change", ""))
        slopes, rows = study.slopes(claims), []
        known = {
            path: max(one[path] for one in study.deviations.values())
            for path in next(iter(study.deviations.values()))
        } | study.share_deviations
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
