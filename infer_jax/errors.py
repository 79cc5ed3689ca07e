"""``InputError``: one sentence for one problem in the user's input."""

import reprlib

WIDTHS = {"where": 240, "field": 160, "value": 80, "allowed": 2400}  # characters of each part
ABSENT = ("missing", "given", "given twice", "not in the file")  # no values, but words


class InputError(ValueError):
    """Bad input, in one sentence: where, which field, which value, what is allowed.

    The sentence is one line of printable characters of at most 3,000, whatever was given.

    Args:
        where: the file, command-line option or function the value came from.
        field: the name of the offending field, or ``""`` when the whole input is bad.
        value: the offending value (shortened when printed); of a whole input what is wrong with it.
        allowed: what would have been accepted.

    >>> print(InputError("run.toml", "plan.tp", -1, "a number above 0"))
    run.toml: plan.tp is -1; allowed: a number above 0
    """

    def __init__(self, where: str, field: str, value: object, allowed: str):
        self.where, self.field, self.value, self.allowed = where, field, value, allowed
        # what stands in a file's name counts from its end
        where = where if len(where) <= WIDTHS["where"] else "..." + where[3 - WIDTHS["where"] :]
        field = _cut(field, WIDTHS["field"])
        text = _shortened(value)
        if not field and isinstance(value, str):
            text = _cut(value[: WIDTHS["value"] + 1], WIDTHS["value"])
        subject = f"{field} is {text}" if field else text
        sentence = f"{where}: {subject}; allowed: {_cut(allowed, WIDTHS['allowed'])}"
        super().__init__(printable(" ".join(sentence.split())))


class WrongPartError(InputError, AttributeError):
    """A field was read of a model or system that one of its parts has; ``hasattr`` stays False."""

    def __init__(self, whole: str, name: str, part: str):
        super().__init__(whole, name, None, f".{part}.{name}")
        self.args = (f"{whole} has no {name} of its own: pass or read its .{part}.{name}",)


def printable(text: str) -> str:
    r"""``text`` with every character that a terminal would obey, and not show, spelt out.

    Control characters (the escape that starts a colour or a title among them), marks that turn
    the direction of writing, and halves of surrogate pairs; line ends stay.

    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == "\n" else " " if c.isspace() else ascii(c)[1:-1] for c in text
    )


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _shortened(value: object) -> str:
    """A value in at most 80 characters; of a large structure only its beginning is looked at."""
    width = WIDTHS["value"]
    if isinstance(value, str):
        if value in ABSENT:
            return value
        return _cut(f"'{value[: width + 1]}'", width)
    if isinstance(value, float):
        return f"{value:.12g}"
    try:
        container = isinstance(value, list | tuple | dict | set | frozenset | bytes)
        return _cut(_short.repr(value) if container else str(value), width)
    except (ValueError, RecursionError):  # an integer of thousands of digits, a deep object
        integer = isinstance(value, int)
        return "an integer too long to print" if integer else f"a {type(value).__name__}"


_short = reprlib.Repr()
_short.maxlevel, _short.maxlist, _short.maxtuple, _short.maxdict = 4, 20, 20, 20
_short.maxset, _short.maxfrozenset, _short.maxstring, _short.maxother = 20, 20, 80, 80


class MissingOptionError(InputError):
    """A required option is missing: a question, and the options that answer it.

    >>> print(MissingOptionError("plan", "tp", "How many GPUs are there?", "--total-gpus"))
    plan: How many GPUs are there? Give --total-gpus.
    """

    def __init__(self, where: str, field: str, question: str, allowed: str):
        super().__init__(where, field, None, allowed)
        self.args = (printable(f"{where}: {question} Give {allowed}."),)
