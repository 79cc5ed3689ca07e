"""The sentence of an InputError: one line of bounded length that no terminal obeys."""

import time

import pytest

from infer_jax.errors import InputError, printable


@pytest.mark.parametrize(
    "value",
    [
        "\x1b[2J\x1b]0;owned\x07",
        "a\nb\rc\td\x00\x7f\x9b31m",
        "\u202egnp.exe\u2066",
        "\ud800",
        "x" * 10**6,
        "é" * 200,
        10**5000,
        [1] * 10**6,
        {"a": {"b": {"c": {"d": {"e": [1, 2, 3]}}}}},
        {str(i): i for i in range(10**5)},
        b"\x1b[2J" * 100,
    ],
    ids=range(11),
)
def test_any_value_is_one_printable_line(value):
    begun = time.process_time()
    said = str(InputError(str(value)[:99] if isinstance(value, str) else "f", "x", value, "a word"))
    assert said.isprintable() and len(said) < 3000
    assert time.process_time() - begun < 0.5
    assert said.endswith("; allowed: a word")


def test_printable():
    assert printable("größe 14 µs — 中文 ✓\nsecond line") == "größe 14 µs — 中文 ✓\nsecond line"
    assert printable("a\x1b[31mb\x9b") == r"a\x1b[31mb\x9b"
    assert printable("a\u00a0b\tc") == "a b c"
