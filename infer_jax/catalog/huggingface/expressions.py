"""Matches names with regular expressions without backtracking, in time bounded by both lengths.

Python's own ``re`` backtracks: on names of 60 characters a pattern such as ``(a*)*$`` takes it
years, and patterns come from files of users. Here all positions that a match may have reached are
kept at once as the bits of one number (Thompson 1968, "Regular expression search algorithm", with
positions for states), so that no part of a pattern visits a position twice.
"""

import re
from collections.abc import Iterable, Sequence
from re import _constants as op, _parser  # pyright: ignore[reportAttributeAccessIssue]
from typing import Any

LONGEST, DEEPEST = 2000, 32  # characters of a pattern, groups within groups
KNOWN = "characters, classes, groups, repeats, ^, $, \\b and look-aheads"
WORK = 1_000_000  # steps for a list of names; published configs take up to 17,000
REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT)
SINGLE = (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN)
PLACES = (op.AT_BEGINNING, op.AT_BEGINNING_STRING, op.AT_END, op.AT_END_STRING)
PLACES += (op.AT_BOUNDARY, op.AT_NON_BOUNDARY)
CATEGORIES = {
    op.CATEGORY_DIGIT: str.isdecimal,
    op.CATEGORY_SPACE: str.isspace,
    op.CATEGORY_WORD: lambda c: c.isalnum() or c == "_",
}
OPPOSITES = {
    op.CATEGORY_NOT_DIGIT: op.CATEGORY_DIGIT,
    op.CATEGORY_NOT_SPACE: op.CATEGORY_SPACE,
    op.CATEGORY_NOT_WORD: op.CATEGORY_WORD,
}


class Work:
    """A budget of steps; spending more raises TimeoutError."""

    def __init__(self, steps: int = WORK):
        self.left = steps

    def spend(self, steps: int) -> None:
        """Count steps."""
        self.left -= steps
        if self.left < 0:
            raise TimeoutError


class Expression:
    r"""A regular expression, matched from the beginning of a name as ``re.match`` does.

    Raises:
        ValueError: not a regular expression, too long, or with what is not in ``KNOWN``.

    >>> experts = Expression(r".*experts\.\d+\.(up|down)_proj$")
    >>> experts.matches(Name("layers.3.mlp.experts.17.up_proj", Work()))
    True
    """

    def __init__(self, pattern: str):
        if len(pattern) > LONGEST:
            raise ValueError(f"over {LONGEST} characters")
        try:
            self.tree = _parser.parse(pattern)
        except (re.error, RecursionError, OverflowError):
            raise ValueError("not a regular expression") from None
        if self.tree.state.flags & ~re.UNICODE:
            raise ValueError("flags")
        _check(self.tree, 0)

    def matches(self, name: "Name") -> bool:
        """Whether the expression matches from the first character on.

        Raises:
            TimeoutError: more steps than are left.
        """
        return bool(name.ends(self.tree, 1))


Part = tuple[object, Any]  # a part as the parser of re has it: its kind and its arguments
Tree = Iterable[Part]
Parts = Sequence[Part]


def _check(tree: Tree, depth: int) -> None:
    """Raise ValueError for a part that is not understood."""
    if depth > DEEPEST:
        raise ValueError(f"over {DEEPEST} groups within groups")
    for kind, given in tree:
        if kind in REPEATS:
            _check(given[2], depth + 1)
        elif kind is op.BRANCH:
            for one in given[1]:
                _check(one, depth + 1)
        elif kind is op.SUBPATTERN and not given[1] and not given[2]:
            _check(given[3], depth + 1)
        elif kind in (op.ASSERT, op.ASSERT_NOT) and given[0] > 0:
            _check(given[1], depth + 1)
        elif kind not in SINGLE and not (kind is op.AT and given in PLACES):
            raise ValueError(f"with {kind}")


class Name:
    """A name, with the positions of each character as bits."""

    def __init__(self, name: str, work: Work):
        self.length, self.work = len(name), work
        self.places: dict[str, int] = {}
        self.taken: dict[int, int] = {}  # by the part of a pattern that takes these
        for i, letter in enumerate(name):
            self.places[letter] = self.places.get(letter, 0) | 1 << i

    def ends(self, tree: Tree, starts: int) -> int:
        """Where a match of ``tree`` may end that begins at any of ``starts``."""
        for kind, given in tree:
            if not starts:
                break
            self.work.spend(1)
            if kind in SINGLE:
                starts = (starts & self.where(kind, given)) << 1
            elif kind in REPEATS:
                starts = self.repeated(given, starts)
            elif kind is op.BRANCH:
                reached = 0
                for one in given[1]:
                    reached |= self.ends(one, starts)
                starts = reached
            elif kind is op.SUBPATTERN:
                starts = self.ends(given[3], starts)
            elif kind is op.AT:
                starts &= self.at(given)
            else:
                wanted = kind is op.ASSERT
                ahead = (i for i in range(self.length + 1) if starts >> i & 1)
                starts = sum(1 << i for i in ahead if bool(self.ends(given[1], 1 << i)) == wanted)
        return starts

    def repeated(self, given: tuple[int, int, Parts], starts: int) -> int:
        """Where repeated matches may end, given (least, most, the repeated part)."""
        least, most, body = given
        # positions only move forward: after twice the length nothing changes
        for _ in range(min(least, 2 * self.length + 2)):
            before, starts = starts, self.ends(body, starts)
            if starts in (0, before):
                break
        if len(body) == 1 and body[0][0] in SINGLE and most - least > self.length:
            return self.run(starts, self.where(*body[0]))
        reached = fresh = starts
        for _ in range(min(most - least, self.length + 1)):
            fresh = self.ends(body, fresh) & ~reached
            if not fresh:
                break
            reached |= fresh
        return reached

    def run(self, starts: int, taken: int) -> int:
        """Where a run of any number of characters at positions ``taken`` may end, by doubling."""
        step = 1
        while step <= self.length:
            starts |= (starts & taken) << step
            taken &= taken >> step
            step *= 2
        return starts

    def where(self, kind: object, given: Any) -> int:
        """The positions of the characters that one part of a pattern matches."""
        if kind is op.LITERAL:
            return self.places.get(chr(given), 0)
        if kind is op.IN and id(given) in self.taken:  # patterns outlive the name
            return self.taken[id(given)]
        taken = {op.ANY: lambda c: c != "\n", op.NOT_LITERAL: lambda c: ord(c) != given}.get(
            kind, lambda c: _in(given, c)
        )
        matching = sum(places for letter, places in self.places.items() if taken(letter))
        if kind is op.IN:
            self.taken[id(given)] = matching
        return matching

    def at(self, place: object) -> int:
        """The places, one more than characters, where ``^``, ``$`` or a word's edge is."""
        if place in (op.AT_BEGINNING, op.AT_BEGINNING_STRING):
            return 1
        if place in (op.AT_END, op.AT_END_STRING):
            return 1 << self.length
        word = CATEGORIES[op.CATEGORY_WORD]
        inside = sum(places for letter, places in self.places.items() if word(letter))
        edges = inside ^ inside << 1
        return edges if place is op.AT_BOUNDARY else ~edges & ((1 << self.length + 1) - 1)


def _in(items: Parts, letter: str) -> bool:
    """Whether a class, ``[a-z]`` or ``\\d``, has a character."""
    code, inside = ord(letter), False
    for kind, given in items:
        if kind is op.LITERAL:
            inside |= code == given
        elif kind is op.RANGE:
            inside |= given[0] <= code <= given[1]
        elif kind is op.CATEGORY:
            opposite = given in OPPOSITES
            inside |= CATEGORIES[OPPOSITES.get(given, given)](letter) != opposite
    return inside != (items[0][0] is op.NEGATE)
