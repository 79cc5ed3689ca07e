"""What is one claim of the economics paper, and how is it judged?"""

from typing import NamedTuple

from experiments._report import verdict

LOST = "figure lost"


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
    return Claim(name, where, theirs, ours, verdict(bool(agrees)), why)


def lost(name: str, where: str, ours: str) -> Claim:
    """A claim whose figure does not survive."""
    return Claim(name, where, "-", ours, LOST)
