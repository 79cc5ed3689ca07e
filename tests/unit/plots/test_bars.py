"""Bars in parts: what is drawn adds up to the numbers given, and the legend names all of it."""

from typing import Any

import pytest

pytest.importorskip("matplotlib")

from infer_jax.plots.bars import OTHER, OVERLAP, Panel, plot_bars
from infer_jax.plots.style import heading_and_caption

TERMS = {"attention": 60.0, "feedforward": 39.5, "sampling": 0.3, "head": 0.2}


def widths(axes: Any) -> dict[float, float]:
    """The length of each bar by its height in the axes."""
    found: dict[float, float] = {}
    for bar in axes.patches:
        y = round(bar.get_y() + bar.get_height() / 2, 6)
        found[y] = found.get(y, 0.0) + bar.get_width()
    return found


def keys(figure: Any) -> Any:
    """The legend below all axes."""
    return figure.subfigs[0].legends[0]


def legend(figure: Any) -> list[str]:
    return [text.get_text() for text in keys(figure).get_texts()]


def texts(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_parts_add_up_and_small_ones_are_one():
    figure = plot_bars([Panel("time", "ms", {"a": TERMS, "b": {"attention": 30.0}})])
    (axes,) = figure.axes
    assert widths(axes) == {0.0: pytest.approx(100.0), 1.0: pytest.approx(30.0)}
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["a", "b"]
    assert legend(figure) == ["attention", "feedforward", OTHER]
    assert {"100", "30"} <= set(texts(axes)) and axes.get_xlabel() == "ms"


def test_a_bar_ends_at_its_time_and_what_is_beside_is_pale():
    """The number is the time, not the sum of parts that overlap; no diamond, which is measured."""
    panel = Panel("", "ms", {"": {"memory": 40.0, "compute": 70.0}}, ends={"": 80.0})
    figure = plot_bars([panel], mark="measured", end=OVERLAP)
    (axes,) = figure.axes
    assert "80" in texts(axes) and legend(figure) == ["compute, 70", "memory, 40", OVERLAP]
    (pale,) = axes.collections
    box: Any = pale.get_datalim(axes.transData)
    assert (box.x0, box.x1) == (80.0, 110.0)
    assert not any(x.get_marker() == "D" for x in axes.lines)  # pyright: ignore


def test_nothing_overlaps_and_nothing_is_cut_off():
    """Labels lie within the figure, and the number of a part within the part."""
    title = "a model of a long name on 16 chips of a system whose name is long, in two lines"
    caption = " ".join(["words of a caption"] * 12)
    parts = {"a": 50.0, "b": 1.4, "c": 48.6}
    figure: Any = plot_bars([Panel("t", "ms", {"": parts}, limits={"limit": 101.0})],
                            title=title, caption=caption)  # fmt: skip
    figure.draw_without_rendering()
    page, (axes,) = figure.bbox, figure.axes
    boxes = [text.get_window_extent() for text in [*axes.texts, *figure.texts]]
    boxes.append(keys(figure).get_window_extent())
    assert all(page.x0 <= b.x0 and b.x1 <= page.x1 and b.y0 >= page.y0 for b in boxes)
    assert "1.40" not in texts(axes) and "48.6" in texts(axes)
    below, names = figure.texts[-1].get_window_extent(), keys(figure).get_window_extent()
    assert below.y1 <= names.y0 + 1 and names.y1 <= axes.get_tightbbox().y0 + 1
    assert heading_and_caption(figure) == (title, caption)
