"""The request rates at which another plan would come first."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from infer_jax.planning.choice import Choice

DOUBLINGS = 4  # of the rate, up and down, within which a change is sought
ACCURACY = 1.01  # ratio of the two rates between which it lies


class RateChange(NamedTuple):
    """A rate with another first plan, None where none meets every limit; and one with the same.

    Requests per second. The change lies between ``same`` and ``rate``; between them and the asked
    rate others may come first for a while, as replicas are whole.
    """

    rate: float
    same: float
    choice: Choice | None

    def fields(self) -> dict[str, object]:
        """Both rates for JSON."""
        return {"request_rate_per_s": self.rate, "same_plan_at_per_s": self.same}


def rate_changes(
    best: Callable[[float], Choice | None], asked: float, first: Choice
) -> Iterator[RateChange]:
    """The nearest change above the asked rate and below it, by doubling and then by bisection.

    ``best``: the first plan at a rate, of which ``first`` is that at the ``asked`` one. Another
    number of the same instances is no change.
    """
    for step in (2.0, 0.5):
        same, rate, choice = asked, asked, first
        for _ in range(DOUBLINGS):
            same, rate = rate, rate * step
            choice = best(rate)
            if _kind(choice) != _kind(first):
                break
        else:
            continue
        while max(rate, same) > ACCURACY * min(rate, same):
            middle = (rate * same) ** 0.5
            between = best(middle)
            if _kind(between) == _kind(first):
                same = middle
            else:
                rate, choice = middle, between
        yield RateChange(rate, same, choice)


def _kind(choice: Choice | None) -> object:
    """What two plans have in common that differ in the number of their instances."""
    return choice and (choice.system, choice.formats, *(pool.layout for pool in choice.pools))
