"""For the site: doctests of docstrings, which stand after the text, become blocks of code."""

import re
from typing import Any

import griffe  # pyright: ignore[reportMissingImports]

DOCTEST = re.compile(r"^ *>>> .*(?:\n *\S.*)*", re.MULTILINE)  # to the next blank line


class Doctests(griffe.Extension):
    """Puts fences around every run of doctest lines."""

    def on_object(self, *, obj: Any, **kwargs: Any) -> None:
        """Called by griffe with every module, class, function and attribute it has read."""
        if obj.docstring is not None:
            fenced = DOCTEST.sub(lambda m: f"```pycon\n{m[0]}\n```", obj.docstring.value)
            obj.docstring.value = fenced
