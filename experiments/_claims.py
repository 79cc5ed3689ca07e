"""What is one claim of a paper, how is it judged, and how are claims printed beside ours?"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import typer

from experiments import _report
from experiments._columns import printed_rows

UNREACHABLE = "not reachable"


class Claim(NamedTuple):
    """One claim: where the paper makes it, in short, ours, and the verdict.

    ``why`` explains a failure that is the paper's or a matter of reading.
    """

    name: str
    where: str
    theirs: str
    ours: str
    verdict: str
    why: str = ""


# by key: what ours is made of, a number or several; nothing where it is out of reach
Ours = dict[str, Any]


def beside(file: Path, ours: Ours) -> list[Claim]:
    """The claims of a paper, a row each of a CSV file in the order of the paper, beside ours.

    Columns: key, claim, where, published, ours (a format of our values), allowed (of each value a
    term of ``holds``; "-" where it is out of reach) and why (it fails or is out of reach; a format,
    too). A published figure that is lost in the text stands beside what another source makes of it:
    "lost; source: figure".
    """
    rows = {row["key"]: row for row in printed_rows(file)}
    assert ours.keys() <= rows.keys()
    results = []
    for key, row in rows.items():
        if key in ours:
            values = ours[key] if isinstance(ours[key], tuple) else (ours[key],)
            terms = zip(row["allowed"].split(";"), values, strict=False)
            verdict = UNREACHABLE
            if row["allowed"] != "-":
                verdict = _report.verdict(all(holds(term.strip(), x) for term, x in terms))
            text, why = (row[name].format(*values) for name in ("ours", "why"))
            names = (row["claim"], row["where"], row["published"])
            results.append(Claim(*names, text, verdict, why))
    return results


def holds(term: str, value: Any) -> bool:
    """Whether a value is what a term allows; an empty one allows all.

    >>> holds("3 +- 2%", 3.05), holds("3 +- 0.01", 3.05), holds("2 .. 3", 3.0), holds("", 7)
    (True, False, True, True)
    >>> holds("< 2", 1.9), holds("> 2", 1.9), holds("= ws_2d", "ws_2d")
    (True, False, True)
    """
    if "+-" in term:
        middle, _, reach = term.partition(" +- ")
        size = abs(float(middle)) * float(reach[:-1]) / 100 if reach[-1] == "%" else float(reach)
        return bool(abs(value - float(middle)) <= size)
    if ".." in term:
        low, high = map(float, term.split(".."))
        return bool(low <= value <= high)
    sign, _, bound = term.partition(" ")
    if sign == "=":
        return bool(value == bound)
    return not sign or bool(value < float(bound) if sign == "<" else value > float(bound))


def show(source: str, results: list[Claim]) -> dict[str, Any]:
    """Print claims beside ours, and why they fail; they agree where every failure has a why."""
    columns = ("claim", "where", "theirs", "ours", "verdict")
    _report.show(source, columns, [claim[:5] for claim in results])
    for claim in results:
        if claim.why:
            print(f"{claim.name}: {claim.why}")
    found = {c.name: {"ours": c.ours, "verdict": c.verdict} for c in results}
    return {"claims": found, "agrees": all(c.verdict != "fail" or c.why for c in results)}


def add(app: typer.Typer, source: str, all_claims: Callable[[], list[Claim]]) -> None:
    """Add the command of a paper's claims."""

    @_report.command(app)
    def claims() -> dict[str, Any]:
        """Print each claim of the paper beside ours: pass, fail or not reachable, and why."""
        return show(source, all_claims())
