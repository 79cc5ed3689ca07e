"""Seeded damage to a file that was good: bytes, lines and values of another type, depth or size."""

import copy
import json
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from infer_jax.errors import InputError

SECONDS = 2.0  # of the processor, for one file of some kilobytes

WORDS = [b"null", b"[]", b"{}", b"-1", b"0", b"1e999", b"NaN", b"true", b'"', b",", b"\n", b"\xff"]
WORDS += [b"\x1b[31m", b"\x00", b"[" * 70, b'{"a":' * 70, b"9" * 400, b"&a [*a]", b"!!binary x"]
WORDS += [b"1e-320", b"\xc2\xb2", b"\xd9\xa3", b"2020-99-99", b"re:(a*)*$", b"%", b"..", b"\r"]
WORDS += [b"1_0", b"0x1F", b"inf", b"-0", b'"\\ud800"', b"=1+1", b"'''", b"#", b"- ", b": ", b"\t"]
VALUES: list[Any] = [None, True, False, 0, -1, 1, 3.7, 1e308, 1e-320, 10**30, 10**310, "", "x"]
VALUES += ["\x1b]0;t\x07", "\ud800", "nan", "1e999", [], {}, [[]], [{}], [None], ["x"], {"a": {}}]
VALUES += [{"": None}, [1, "x"], "x" * 5000, "9" * 5000, float("inf"), float("nan"), -1e300]
VALUES += [json.loads("[" * 60 + "]" * 60)]


def outcome(read: Callable[..., Any], *arguments: Any) -> str:
    """What a reader makes of a file: "read", or the sentence with which it is refused."""
    begun = time.process_time()
    try:
        read(*arguments)
        said = "read"
    except InputError as error:
        said = str(error)
        assert "\n" not in said and said.isprintable() and len(said) <= 3000, said
        assert "allowed: " in said
    assert time.process_time() - begun < SECONDS
    return said


def damaged(whole: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """``count`` damaged copies of a file; those of JSON also get values of other kinds."""
    dice = random.Random(seed)
    documents = _documents(whole)
    for _ in range(count):
        if documents and dice.random() < 0.6:
            changed = [other(one, dice) for one in documents]
            yield "\n".join(json.dumps(one) for one in changed).encode("utf-8", "surrogatepass")
        else:
            yield _cut(whole, dice)


def _documents(whole: bytes) -> list[Any]:
    try:
        return [json.loads(whole)]
    except ValueError:
        pass
    try:
        return [json.loads(line) for line in whole.splitlines() if line.strip()]
    except ValueError:
        return []


def _cut(whole: bytes, dice: random.Random) -> bytes:
    """Words put in, cells and lines replaced, doubled or left out, at one to four places."""
    for _ in range(dice.choice((1, 1, 2, 4))):
        at = dice.randrange(len(whole) + 1)
        kind = dice.randrange(4)
        if kind == 0:
            whole = whole[:at] + dice.choice(WORDS) + whole[at + dice.choice((0, 0, 1, 20)) :]
        elif kind == 1:  # a cell or a word
            start = max(whole.rfind(mark, 0, at) for mark in b",\n \t:") + 1
            ends = [whole.find(mark, at) for mark in b",\n \t:"]
            end = min((one for one in ends if one >= 0), default=len(whole))
            whole = whole[:start] + dice.choice(WORDS) + whole[end:]
        else:
            lines = whole.split(b"\n")
            line = dice.randrange(len(lines))
            lines[line : line + 1] = dice.choice(([], [lines[line]] * 2, [dice.choice(WORDS)]))
            whole = b"\n".join(lines)
    return whole


def other(value: Any, dice: random.Random) -> Any:
    """A copy with one to three values, keys or containers replaced."""
    value = json.loads(json.dumps(value))
    for _ in range(dice.choice((1, 1, 2, 3))):
        places = [(None, None), *_places(value)]
        owner, key = dice.choice(places)
        if owner is None:
            if dice.random() < 0.1:
                return copy.deepcopy(dice.choice(VALUES))
        elif dice.random() < 0.15:
            del owner[key]
        else:
            owner[key] = copy.deepcopy(dice.choice(VALUES))
            if isinstance(owner, dict) and dice.random() < 0.1:
                owner[dice.choice(("", "x\x1b[2J", "p99_ttft_ms", "re:(a+)+"))] = 1
    return value


def _places(value: Any) -> list[tuple[Any, Any]]:
    result, level = [], [value] if isinstance(value, dict | list) else []
    while level:
        owner = level.pop()
        for key in list(owner) if isinstance(owner, dict) else range(len(owner)):
            result.append((owner, key))
            if isinstance(owner[key], dict | list):
                level.append(owner[key])
    return result
