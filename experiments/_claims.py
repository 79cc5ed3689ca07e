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


# by key: ours, whether it agrees (None: it is out of reach), and why where that is computed
Ours = dict[str, tuple[str, object] | tuple[str, object, str]]


def beside(file: Path, ours: Ours) -> list[Claim]:
    """The claims of a paper, a row each of a CSV file in the order of the paper, beside ours.

    Columns: key, claim, where, published, why (it fails or is out of reach). A published figure
    that is lost in the text stands beside what another source makes of it: "lost; source: figure".
    """
    rows = {row["key"]: row for row in printed_rows(file)}
    assert ours.keys() <= rows.keys()
    results = []
    for key, row in rows.items():
        if key in ours:
            text, agrees, *why = ours[key]
            verdict = UNREACHABLE if agrees is None else _report.verdict(bool(agrees))
            names = (row["claim"], row["where"], row["published"])
            results.append(Claim(*names, text, verdict, *(why or [row["why"]])))
    return results


def is_close(ours: float, theirs: float, tolerance: float) -> bool:
    """|ours / theirs - 1| <= tolerance."""
    return bool(abs(ours / theirs - 1.0) <= tolerance)


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
