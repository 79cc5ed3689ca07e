"""Request traces as plain columns, each checked."""

from infer_jax.catalog.traces.reading import read_trace as read_trace
from infer_jax.catalog.traces.trace import Trace as Trace
