"""What is one claim of a paper, how is it judged, and how are claims printed beside ours?"""

from collections.abc import Callable
from typing import Any, NamedTuple

from experiments import _report

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


def stated(
    name: str, where: str, theirs: str, ours: str, agrees: object, *, why: str = ""
) -> Claim:
    """A claim whose figure survives."""
    return Claim(name, where, theirs, ours, _report.verdict(bool(agrees)), why)


def derived(
    name: str, where: str, basis: str, theirs: str, ours: str, agrees: object, *, why: str = ""
) -> Claim:
    """A claim whose figure is lost in the text, beside what ``basis`` makes of it."""
    return stated(name, where, f"lost; {basis}: {theirs}", ours, agrees, why=why)


def unreachable(name: str, where: str, theirs: str, why: str, ours: str = "-") -> Claim:
    """A claim that cannot be compared, and ``why``."""
    return Claim(name, where, theirs, ours, UNREACHABLE, why)


def is_close(ours: float, theirs: float, tolerance: float) -> bool:
    """|ours / theirs - 1| <= tolerance."""
    return bool(abs(ours / theirs - 1.0) <= tolerance)


def command(source: str, all_claims: Callable[[], list[Claim]]) -> Callable[[_report.Json], None]:
    """The command of a paper's claims; 1 where one fails for which no reason is known."""

    def claims(as_json: _report.Json = False) -> None:
        """Print each claim of the paper beside ours: pass, fail or not reachable, and why."""
        results = all_claims()
        columns = ("claim", "where", "theirs", "ours", "verdict")
        _report.show(source, columns, [claim[:5] for claim in results])
        for claim in results:
            if claim.why:
                print(f"{claim.name}: {claim.why}")
        agrees = all(claim.verdict != "fail" or claim.why for claim in results)
        found: dict[str, Any] = {c.name: {"ours": c.ours, "verdict": c.verdict} for c in results}
        _report.finish(agrees, {"claims": found, "agrees": agrees}, as_json)

    return claims
