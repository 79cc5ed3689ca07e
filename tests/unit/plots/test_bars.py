"""Bars in parts: what is drawn adds up to the numbers given, and the legend names all of it."""

from typing import Any

import pytest

pytest.importorskip("matplotlib")

from infer_jax.plots.bars import OVERLAP, Panel, plot_bars
from infer_jax.plots.style import heading_and_caption


def keys(figure: Any) -> Any:
    """The legend below all axes."""
    return figure.subfigs[0].legends[0]


def legend(figure: Any) -> list[str]:
    return [text.get_text() for text in keys(figure).get_texts()]


def texts(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


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
