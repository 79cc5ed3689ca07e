"""Answers of verbs: data, declared once, from which text, HTML, JSON and rows follow.

A result is a frozen dataclass with ``sections``, its answer from the top::

    def sections(self):
        yield f"{self.model} on {self.hardware}"             # a sentence, printed
        yield {"batch": self.batch}                          # fields, for JSON alone
        yield Answers([Fact("tpot_ms", 21.3, "time per output token", "ms")])
        yield Rows("kernels", self.kernels, KERNELS)         # a list in JSON, printed as a table
        yield Notes(self.notes)                              # "notes" in JSON, a list in print

A ``Fact`` is a field of JSON and, where it has a title, a line of the printed table. ``KERNELS``
is a constant, ``(Column("time", "us", "time_us"), Column("MFU", "%", "mfu", percent), ...)``: the
value of a column is a key or attribute of a row ("terms.network"), or a function of it; None prints
nothing, texts stand left. Tables of facts and rows have an empty line above them. ``rows_key`` of
the class names the rows that ``rows`` and ``to_pandas`` return. A sentence that mentions an option
has ``option("ttft", "none")`` in it: ``--ttft none`` for the command, ``ttft="none"`` for Python.
"""

from infer_jax.results.numbers import (
    number as number,
    percent as percent,
    scaled_format as scaled_format,
)
from infer_jax.results.parts import (
    Answers as Answers,
    Column as Column,
    Fact as Fact,
    Lines as Lines,
    Notes as Notes,
    Part as Part,
    Row as Row,
    Rows as Rows,
    Section as Section,
    Table as Table,
    table as table,
)
from infer_jax.results.problems import option as option
from infer_jax.results.result import Result as Result
