"""The request rates at which another plan would come first."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from infer_jax.planning import Choice
from infer_jax.results.numbers import digits
from infer_jax.verbs.plan_search import Question, plans

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


def rate_changes(question: Question, first: Choice) -> Iterator[RateChange]:
    """The nearest change above the asked rate and below it, by doubling and then by bisection.

    Another number of the same instances is no change.
    """
    asked = question.requirements.rate or 0.0
    for step in (2.0, 0.5):
        same, rate, choice = asked, asked, first
        for _ in range(DOUBLINGS):
            same, rate = rate, rate * step
            choice = plans(_at(question, rate)).best
            if _kind(choice) != _kind(first):
                break
        else:
            continue
        while max(rate, same) > ACCURACY * min(rate, same):
            middle = (rate * same) ** 0.5
            between = plans(_at(question, middle)).best
            if _kind(between) == _kind(first):
                same = middle
            else:
                rate, choice = middle, between
        yield RateChange(rate, same, choice)


def rates_in_words(question: Question, changes: Sequence[RateChange]) -> str:
    """Which plan comes first from which rate on."""
    asked = question.requirements.rate or 0.0
    parts = list[str]()
    for x in changes:
        where = f"{'from' if x.rate > asked else 'up to'} {digits(x.rate)} requests/s"
        plan = x.choice and f"{x.choice.layout} on {x.choice.system} comes first"
        parts.append(f"{where} {plan or 'no plan meets every limit'}")
    times = 2**DOUBLINGS
    if not parts:
        parts = [f"none is within {times} times less and {times} times more"]
    return f"Where another plan wins: {'; '.join(parts)}."


def _at(question: Question, rate: float) -> Question:
    """The same question at another rate."""
    work, limits = question.requests.work, replace(question.requirements, rate=rate)
    assert work.arrivals is not None
    work = work.replace(arrivals=work.arrivals.replace(rate=rate))
    return replace(question, requests=question.requests._replace(work=work), requirements=limits)


def _kind(choice: Choice | None) -> object:
    """What two plans have in common that differ in the number of their instances."""
    return choice and (choice.system, choice.formats, *(pool.layout for pool in choice.pools))
