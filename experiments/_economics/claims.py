"""Which claims does the economics paper make in its text, and what do we find?

Many figures were lost when the paper was turned into text. Beside those stands what its tables, its
program's stored points, model configurations, data sheets or arithmetic by hand make of them; what
none of these has is said to be out of reach, with what was tried.
"""

from experiments._claims import Claim
from experiments._economics import claims_context, claims_hardware, claims_latency


def all_claims() -> list[Claim]:
    """Every claim in the order of the paper."""
    return [*claims_latency.claims(), *claims_hardware.claims(), *claims_context.claims()]
