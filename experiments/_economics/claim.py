"""What is one claim of the economics paper, and how is it judged?"""

from typing import NamedTuple

from experiments._report import verdict

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
    return Claim(name, where, theirs, ours, verdict(bool(agrees)), why)


def derived(
    name: str, where: str, basis: str, theirs: str, ours: str, agrees: object, *, why: str = ""
) -> Claim:
    """A claim whose figure is lost in the text, beside what ``basis`` makes of it."""
    return Claim(name, where, f"lost; {basis}: {theirs}", ours, verdict(bool(agrees)), why)


def unreachable(name: str, where: str, theirs: str, why: str, ours: str = "-") -> Claim:
    """A claim that cannot be compared, and ``why``."""
    return Claim(name, where, theirs, ours, UNREACHABLE, why)
