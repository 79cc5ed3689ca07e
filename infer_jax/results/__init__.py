"""Results of verbs: they print in a terminal and a notebook, and turn into JSON and rows."""

from infer_jax.results.parts import (
    Column as Column,
    Lines as Lines,
    Notes as Notes,
    Part as Part,
    Table as Table,
)
from infer_jax.results.result import Result as Result
