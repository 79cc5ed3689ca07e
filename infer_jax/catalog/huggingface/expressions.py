"""Matches names with regular expressions without backtracking, in time bounded by both lengths.

Python's own ``re`` backtracks: on names of 60 characters a pattern such as ``(a*)*$`` takes it
years, and patterns come from files of users. Here all positions that a match may have reached are
kept at once as the bits of one number (Thompson 1968, "Regular expression search algorithm", with
positions for states), so that no part of a pattern visits a position twice.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from re import _compiler, _constants as op, _parser  # pyright: ignore[reportAttributeAccessIssue]
from typing import Any

MAX_LENGTH, MAX_DEPTH = 2000, 32  # characters of a pattern, groups within groups
SUPPORTED = "characters, classes, groups, repeats, ^, $, \\b and look-aheads"
WORK = 1_000_000  # steps for a list of names; published configs take up to 17,000
REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT)
SINGLE = (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN)
BEGINNINGS = (op.AT_BEGINNING, op.AT_BEGINNING_STRING)
ENDS = (op.AT_END, op.AT_END_STRING)
ANCHORS = (*BEGINNINGS, *ENDS, op.AT_BOUNDARY, op.AT_NON_BOUNDARY)
WORD = re.compile(r"\w").match
Part = tuple[object, Any]  # a part as the parser of re has it: its kind and its arguments
Parts = Sequence[Part]
Holds = Callable[[str], object]  # of a character


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
        ValueError: not a regular expression, too long, or with what is not ``SUPPORTED``.

    >>> experts = Expression(r".*experts\.\d+\.(up|down)_proj$")
    >>> experts.matches(Name("layers.3.mlp.experts.17.up_proj", Work()))
    True
    """

    def __init__(self, pattern: str):
        if len(pattern) > MAX_LENGTH:
            raise ValueError(f"over {MAX_LENGTH} characters")
        try:
            self.tree = _parser.parse(pattern)
        except (re.error, RecursionError, OverflowError):
            raise ValueError("not a regular expression") from None
        if self.tree.state.flags & ~re.UNICODE:
            raise ValueError("flags")
        _prepare(self.tree, 0)

    def matches(self, name: "Name") -> bool:
        """Whether the expression matches from the first character on.

        Raises:
            TimeoutError: more steps than are left.
        """
        return bool(name.ends(self.tree, 1))


def _prepare(parts: _parser.SubPattern, depth: int) -> None:
    """Compile what matches one character; raise ValueError for a part that is not understood."""
    if depth > MAX_DEPTH:
        raise ValueError(f"over {MAX_DEPTH} groups within groups")
    for i, (kind, args) in enumerate(parts):
        if kind is op.BRANCH:
            inner = args[1]
        elif kind in REPEATS:
            inner = [args[2]]
        elif kind is op.SUBPATTERN and not args[1] and not args[2]:
            inner = [args[3]]
        elif kind in (op.ASSERT, op.ASSERT_NOT) and args[0] > 0:
            inner = [args[1]]
        elif kind is op.LITERAL or (kind is op.AT and args in ANCHORS):
            inner = []
        elif kind in SINGLE:
            one = _parser.SubPattern(parts.state, [(kind, args)])
            parts[i], inner = (kind, _compiler.compile(one).match), []
        else:
            raise ValueError(f"with {kind}")
        for tree in inner:
            _prepare(tree, depth + 1)


class Name:
    """A name, with the positions of each character as bits."""

    def __init__(self, name: str, work: Work):
        self.length, self.work = len(name), work
        self.positions: dict[str, int] = {}
        self.in_class: dict[Holds, int] = {}  # positions that a class matches
        for i, letter in enumerate(name):
            self.positions[letter] = self.positions.get(letter, 0) | 1 << i

    def ends(self, parts: Iterable[Part], starts: int) -> int:
        """Where a match of ``parts`` may end that begins at any of ``starts``."""
        for kind, args in parts:
            if not starts:
                break
            self.work.spend(1)
            if kind in SINGLE:
                starts = (starts & self.matching(kind, args)) << 1
            elif kind in REPEATS:
                starts = self.repeated(starts, *args)
            elif kind is op.BRANCH:
                reached = 0
                for branch in args[1]:
                    reached |= self.ends(branch, starts)
                starts = reached
            elif kind is op.SUBPATTERN:
                starts = self.ends(args[3], starts)
            elif kind is op.AT:
                starts &= self.anchors(args)
            else:
                positions = (i for i in range(self.length + 1) if starts >> i & 1)
                follows = kind is op.ASSERT
                starts = sum(
                    1 << i for i in positions if bool(self.ends(args[1], 1 << i)) == follows
                )
        return starts

    def repeated(self, starts: int, low: int, high: int, body: Parts) -> int:
        """Where ``low`` to ``high`` repeats of a part may end."""
        # positions only move forward: after twice the length nothing changes
        for _ in range(min(low, 2 * self.length + 2)):
            before, starts = starts, self.ends(body, starts)
            if starts in (0, before):
                break
        if len(body) == 1 and body[0][0] in SINGLE and high - low > self.length:
            return self.run(starts, self.matching(*body[0]))
        reached = fresh = starts
        for _ in range(min(high - low, self.length + 1)):
            fresh = self.ends(body, fresh) & ~reached
            if not fresh:
                break
            reached |= fresh
        return reached

    def run(self, starts: int, matching: int) -> int:
        """Where a run of any number of characters at ``matching`` may end, by doubling."""
        step = 1
        while step <= self.length:
            starts |= (starts & matching) << step
            matching &= matching >> step
            step *= 2
        return starts

    def where(self, holds: Holds) -> int:
        """The positions of the characters of which something holds."""
        if holds not in self.in_class:
            found = (bits for letter, bits in self.positions.items() if holds(letter))
            self.in_class[holds] = sum(found)
        return self.in_class[holds]

    def matching(self, kind: object, args: Any) -> int:
        """The positions of the characters that one part of a pattern matches."""
        return self.positions.get(chr(args), 0) if kind is op.LITERAL else self.where(args)

    def anchors(self, kind: object) -> int:
        """The positions, one more than characters, where ``^``, ``$`` or a word's edge is."""
        if kind in BEGINNINGS:
            return 1
        if kind in ENDS:
            return 1 << self.length
        inside = self.where(WORD)
        edges = inside ^ inside << 1
        return edges if kind is op.AT_BOUNDARY else ~edges & ((1 << self.length + 1) - 1)
