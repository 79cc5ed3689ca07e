"""Which modules of a checkpoint a config names: plainly, with wildcards, or by regular expressions.

Patterns come from files of users, and Python's own ``re`` backtracks: on names of 60 characters one
such as ``(a*)*$`` takes it years. Here it matches only what cannot backtrack, runs of characters;
of all else the positions that a match may have reached are kept together (Thompson 1968, "Regular
expression search algorithm"), so that no part of a pattern visits a position twice.
"""

import re
from collections.abc import Callable, Sequence
from itertools import groupby
from re import _compiler, _constants as op, _parser  # pyright: ignore[reportAttributeAccessIssue]
from typing import Any

from infer_jax.catalog.huggingface.facts import Facts

MAX_LENGTH, MAX_DEPTH = 2000, 32  # characters of a pattern, groups within groups
SUPPORTED = "characters, classes, groups, repeats, ^, $, \\b and look-aheads"
WORK = 2_000_000  # positions visited for one list of names; published configs take up to 500,000
PREFIXES = ("model.", "language_model.", "backbone.")  # wrappers around "layers.0.…"
SPELLINGS = ("", "model.", "language_model.model.")  # before which a regular expression begins
SINGLE = (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN)
Ends = Callable[[str, set[int], "Work"], set[int]]  # where a match in a name may end, by its starts


class Work:
    """A budget of steps; spending more raises TimeoutError."""

    def __init__(self, steps: int = WORK):
        self.left = steps

    def spend(self, steps: int) -> None:
        """Count steps."""
        self.left -= steps
        if self.left < 0:
            raise TimeoutError


def expression(pattern: str) -> Ends:
    r"""A regular expression, whose matches may end anywhere, as those of ``re.match`` do.

    Raises:
        ValueError: not a regular expression, too long, or with what is not ``SUPPORTED``.

    >>> experts = expression(r".*experts\.\d+\.(up|down)_proj$")
    >>> experts("layers.3.mlp.experts.17.up_proj", {0}, Work())
    {31}
    """
    if len(pattern) > MAX_LENGTH:
        raise ValueError(f"over {MAX_LENGTH} characters")
    try:
        tree = _parser.parse(pattern)
    except (re.error, RecursionError, OverflowError):
        raise ValueError("not a regular expression") from None
    if tree.state.flags & ~re.UNICODE:
        raise ValueError("flags")
    return _sequence(tree, 0)


def _sequence(parts: _parser.SubPattern, depth: int) -> Ends:
    """Parts one after the other; those of one character, and edges of words, are one step."""
    if depth > MAX_DEPTH:
        raise ValueError(f"over {MAX_DEPTH} groups within groups")
    steps: list[Ends] = []
    for is_run, group in groupby(parts, lambda part: part[0] in (*SINGLE, op.AT)):
        if is_run:
            steps.append(_run(parts, list(group)))
        else:
            steps += [_step(parts, kind, args, depth + 1) for kind, args in group]

    def ends(name: str, starts: set[int], work: Work) -> set[int]:
        for step in steps:
            if not starts:  # else repeats within repeats ask of nothing twice, and twice again
                break
            work.spend(len(starts))
            starts = step(name, starts, work)
        return starts

    return ends


def _run(parts: _parser.SubPattern, run: list[Any], shortest: int | None = None) -> Ends:
    """Parts of one end, or one of every end from ``shortest`` characters to the longest."""
    match = _compiler.compile(_parser.SubPattern(parts.state, run)).match

    def ends(name: str, starts: set[int], work: Work) -> set[int]:
        found = [(i, whole.end()) for i in starts if (whole := match(name, i))]
        if shortest is None:
            return {end for _, end in found}
        return {end for i, longest in found for end in range(i + shortest, longest + 1)}

    return ends


def _step(parts: _parser.SubPattern, kind: object, args: Any, depth: int) -> Ends:
    """One part with others in it; raises ValueError for one that is not understood."""
    if kind in (op.MAX_REPEAT, op.MIN_REPEAT):
        low, high, body = args
        if len(body) == 1 and body[0][0] in SINGLE:
            return _run(parts, [(op.MAX_REPEAT, args)], low)
        return _repeat(low, high, _sequence(body, depth))
    if kind is op.BRANCH:
        branches = [_sequence(branch, depth) for branch in args[1]]
        return lambda name, starts, work: set().union(*(x(name, starts, work) for x in branches))
    if kind is op.SUBPATTERN and not args[1] and not args[2]:
        return _sequence(args[3], depth)
    if kind in (op.ASSERT, op.ASSERT_NOT) and args[0] > 0:
        inner, follows = _sequence(args[1], depth), kind is op.ASSERT
        return lambda name, starts, work: {
            i for i in starts if bool(inner(name, {i}, work)) == follows
        }
    raise ValueError(f"with {kind}")


def _repeat(low: int, high: int, body: Ends) -> Ends:
    """``low`` to ``high`` repeats of a part."""

    def ends(name: str, starts: set[int], work: Work) -> set[int]:
        # positions only move forward: after twice the length nothing changes
        for _ in range(min(low, 2 * len(name) + 2)):
            before, starts = starts, body(name, starts, work)
            if starts == before:
                break
        reached, fresh = set(starts), starts
        for _ in range(min(high - low, len(name) + 1)):
            fresh = body(name, fresh, work) - reached
            if not fresh:
                break
            reached |= fresh
        return reached

    return ends


class Names:
    """Module names as configs write them: plain, with wildcards, or regular after ``re:``.

    A plain name matches itself, everything below it, and any module of which it is a run of
    whole parts ("gate" is "mlp.gate" and not "mlp.gate_proj"); ``*`` stands for anything.

    Args:
        facts: the object in which they stand.
        key: where in it.
        names: themselves.

    Raises:
        InputError: a regular expression that is not one.
    """

    def __init__(self, facts: Facts, key: str, names: Sequence[str]):
        self.facts, self.key, self.work = facts, key, Work()
        self.plain = set[str]()
        self.wild: list[list[str]] = []  # texts between the wildcards
        self.regular: list[Ends] = []
        for name in dict.fromkeys(names):
            if name.startswith("re:"):
                try:
                    self.regular.append(expression(name[3:]))
                except ValueError as error:
                    allowed = f"a regular expression after re: ({error}), of {SUPPORTED}"
                    raise facts.error(key, name, allowed) from None
            elif "*" in name:
                self.wild.append(f"*.{bare(name)}.*".split("*"))
            else:
                self.plain.add(bare(name))

    def match(self, module: str) -> bool:
        """Whether ``module`` ("layers.0.mlp.up_proj") is named.

        Raises:
            InputError: the names take too long to match.
        """
        parts = module.split(".")
        ends = range(1, len(parts) + 1)
        if self.plain and any(".".join(parts[i:j]) in self.plain for j in ends for i in range(j)):
            return True
        try:
            return any(self._contains(f".{module}.", pieces) for pieces in self.wild) or any(
                ends(f"{spelling}{module}", {0}, self.work)
                for ends in self.regular
                for spelling in SPELLINGS
            )
        except TimeoutError:
            patterns = f"{len(self.wild) + len(self.regular)} patterns"
            allowed = "fewer and simpler patterns for these layers"
            raise self.facts.error(self.key, patterns, allowed) from None

    def _contains(self, text: str, pieces: list[str]) -> bool:
        """Whether all pieces stand in it, one after the other: the leftmost match is the best."""
        at = 0
        for piece in pieces:
            self.work.spend(1)
            at = text.find(piece, at)
            if at < 0:
                return False
            at += len(piece)
        return True


def bare(name: str) -> str:
    """A module name without the wrappers around the language model.

    >>> bare("model.language_model.layers.0.mlp")
    'layers.0.mlp'
    """
    while name.startswith(PREFIXES):
        name = name[name.index(".") + 1 :]
    return name
