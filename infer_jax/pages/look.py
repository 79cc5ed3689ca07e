"""Tones and marks of the charts of a page, in light and in dark."""

from infer_jax.plots.style import SERIES

# each at least 3 : 1 against both grounds (WCAG 2.2, 1.4.11), none told apart by its tone alone
TONES = SERIES
NOT_USED = "#7b8794"  # memory that no server has
SHAPES = ("circle", "square", "triangle-up", "triangle-down", "cross", "triangle-right")
GROUNDS = {"light": "#ffffff", "dark": "#15181d"}
INKS = {"light": "#1d2127", "dark": "#e8eaed"}
QUIETS = {"light": "#586069", "dark": "#a7b0ba"}
INK, QUIET = INKS["light"], QUIETS["light"]
