"""Tones, marks and fonts of the charts of a page, in light and in dark."""

from collections.abc import Mapping

from infer_jax.plots.tones import SERIES

# each at least 3 : 1 against both grounds (WCAG 2.2, 1.4.11), none told apart by its tone alone
TONES = SERIES
NOT_USED = "#7b8794"  # memory that no server has
SHAPES = ("circle", "square", "triangle-up", "triangle-down", "cross", "triangle-right")
GROUNDS = {"light": "#ffffff", "dark": "#15181d"}
INKS = {"light": "#1d2127", "dark": "#e8eaed"}
QUIETS = {"light": "#586069", "dark": "#a7b0ba"}
INK, QUIET, RULE = INKS["light"], QUIETS["light"], "#9aa3ad"

CONFIG: Mapping[str, object] = {
    "background": None,
    "aria": False,  # the page says what a chart is, and has its numbers as a table
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelColor": QUIET,
        "titleColor": INK,
        "gridColor": "#8b949e",
        "gridOpacity": 0.25,
        "domainColor": "#8b949e",
        "tickColor": "#8b949e",
        "titlePadding": 8,
    },
    "legend": {"labelFontSize": 12, "labelColor": INK, "labelLimit": 340, "symbolSize": 90},
    "text": {"fontSize": 12, "color": INK},
}
