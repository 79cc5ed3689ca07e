"""Terms of a time in the field's words, for tables and pictures; JSON has their short names."""

TERMS = {
    "front": "network and tokeniser",
    "admission": "wait until scheduled",
    "beside decodes": "decodes beside the prompt",
    "first wave": "first wave of the benchmark",
    "host": "host between passes",
}


def term(name: str) -> str:
    """A term of a time, in words.

    >>> term("front"), term("attention")
    ('network and tokeniser', 'attention')
    """
    return TERMS.get(name, name)
