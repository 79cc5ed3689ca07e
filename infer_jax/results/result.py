"""Base class of results: they print, turn into JSON and rows, and draw themselves."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from infer_jax.errors import InputError
from infer_jax.on_demand import load_optional
from infer_jax.results.numbers import to_json_types
from infer_jax.results.parts import Answers, Notes, Part, Rows, Section
from infer_jax.results.text import as_html, as_text

if TYPE_CHECKING:
    import pandas


SCHEMA = 2  # of fields: counts up where one goes or changes its meaning; docs/command-line.md


class Result:
    """The answer of a verb, declared in ``sections``.

    It prints what the command prints, in a terminal and in a notebook; ``to_dict`` is what the
    command prints with ``--json``, ``to_pandas`` its rows, ``plot`` its picture.
    """

    rows_key = ""  # the field that holds the rows of the answer; the answer is a row where ""

    def sections(self) -> Iterator[Section]:
        """The answer from the top: what is printed, and what JSON has."""
        raise NotImplementedError(type(self).__name__)

    def fields(self) -> Mapping[str, object]:
        """Every number and word of the answer by its name in JSON; names end in their units."""
        fields: dict[str, object] = {}
        for section in self.sections():
            if isinstance(section, Mapping):
                fields |= section
            elif isinstance(section, Answers | Rows):
                fields |= section.fields()
            elif isinstance(section, Notes):
                fields["notes"] = list(dict.fromkeys(section.sentences))
        return fields

    def parts(self) -> Iterator[Part]:
        """What is printed, from the top."""
        last: Part = ""
        for section in self.sections():
            if isinstance(section, Mapping) or (isinstance(section, Rows) and not section.columns):
                continue
            if isinstance(section, Answers | Rows):
                if last != "":
                    yield ""
                section = section.table()
            yield section
            last = section

    def rows(self) -> Sequence[Mapping[str, object]]:
        """The rows of the answer; the answer itself where it is one."""
        if not self.rows_key:
            return [self._plain()]
        rows = self.fields()[self.rows_key]
        assert isinstance(rows, list)
        return rows

    def to_dict(self) -> dict[str, object]:
        """The answer as plain numbers, words, lists and dictionaries; not finite is None.

        It begins with ``schema``, the number of the fields' meaning.
        """
        return {"schema": SCHEMA, **self._plain()}

    def _plain(self) -> dict[str, object]:
        """The fields in the types that JSON has."""
        fields = to_json_types(self.fields())
        assert isinstance(fields, dict)
        return fields

    def to_pandas(self) -> "pandas.DataFrame":
        """The rows as a ``pandas.DataFrame``; what lies deeper has dotted names.

        Raises:
            InputError: pandas is not installed.
        """
        otherwise = ", or rows(), which are dictionaries"
        pandas = load_optional("to_pandas", "pandas", "pandas", otherwise)
        return pandas.json_normalize([dict(row) for row in self.rows()])

    def plot(self, out: str | os.PathLike[str] | None = None) -> object:
        """The picture of the answer, a matplotlib figure, written to ``out`` where one is given.

        Raises:
            InputError: this answer has no picture; matplotlib is not installed; a file that
                cannot be written.
        """
        raise InputError("plot", "", type(self).__name__, "a result that has a picture")

    def __str__(self) -> str:
        return as_text(self.parts())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return as_html(self.parts())
