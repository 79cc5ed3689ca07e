"""Traffic as data: rates over time, bursts, lengths and sessions, fitted to a trace and drawn."""

from infer_jax.arrivals.description import describe as describe, read_traffic as read_traffic
from infer_jax.arrivals.drawing import draw as draw
from infer_jax.arrivals.likeness import Likeness as Likeness, compare_traces as compare_traces
from infer_jax.arrivals.traffic import LEVELS as LEVELS, Sessions as Sessions, Traffic as Traffic
