"""Which claims does the economics paper make in its text, and what do we find?

Many figures were lost when the paper was turned into text. Beside those stands what its tables, its
program's stored points, model configurations, data sheets or arithmetic by hand make of them; what
none of these has is said to be out of reach, with what was tried.
"""

from experiments._economics import claims_context, claims_hardware, claims_latency
from experiments._economics.claim import Claim
from experiments._report import show


def all_claims() -> list[Claim]:
    """Every claim in the order of the paper."""
    return [*claims_latency.claims(), *claims_hardware.claims(), *claims_context.claims()]


def print_claims(claims: list[Claim]) -> None:
    """The claims as a table, the reasons below it."""
    columns = ("claim", "where", "theirs", "ours", "verdict")
    show("Erdil 2025 (arXiv 2506.04645)", columns, [claim[:5] for claim in claims])
    for claim in claims:
        if claim.why:
            print(f"{claim.name}: {claim.why}")
