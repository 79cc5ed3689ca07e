"""Pictures: written whole or not at all, through no link, and what is on them, bars too."""

import os
from typing import Any

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from infer_jax.plots import Curve, plot_frontier, plot_plans
from infer_jax.plots.bars import OTHER, OVERLAP, Panel, plot_bars
from infer_jax.plots.path import Change, SearchTrack, plot_path
from infer_jax.plots.plan_chart import PlanChart, PlanPoint, PlanSeries
from infer_jax.plots.style import heading_and_caption, save, slides
from infer_jax.plots.tornado import TornadoBar, plot_tornado

TITLE = "a model of a long name on 16 chips of a system whose name is long, in two lines"
CAPTION = "4,096 tokens in, 512 out; fp8. A sentence about what is drawn."


def point(speed, cost, **more):
    """A plan of the chart."""
    return PlanPoint("a", "1 x TP1", 1, 1, {"speed": speed, "usd": cost}, **more)


DOTS = [point(20.0, 0.4), point(50.0, 0.8), point(90.0, 3.0), point(40.0, 0.5, pools=True)]


def chart_of(systems, tones=None, chosen=None, **more):
    """A chart of series by label."""
    plans = [plan._replace(series=label) for label, dots in systems.items() for plan in dots]
    series = [PlanSeries(x, tones[x] if tones else i) for i, x in enumerate(systems)]
    return PlanChart(series, plans, chosen, **more)


def drawn(path):
    return save(plot_plans(chart_of({"a": DOTS}), title="title", caption="caption"), path)


def test_a_link_that_lies_in_wait_is_not_followed(tmp_path):
    """Names of temporary files that hold the process's number can be planted before."""
    victim = tmp_path / "victim"
    victim.write_text("kept")
    place = tmp_path / "pictures"
    place.mkdir()
    for name in (f".{os.getpid()}.plan.png", ".plan.png.tmp", "plan.png"):
        (place / name).symlink_to(victim)
    drawn(place / "plan.png")
    assert victim.read_text() == "kept"
    assert (place / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert not (place / "plan.png").is_symlink()


def test_plans_the_limit_and_the_plan_are_on_the_picture():
    axes: Any = plot_plans(chart_of({"one": DOTS, "two": DOTS[:2]}, chosen=1, tpot=25.0)).axes[0]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    kinds = ["one pool", "pools that prefill and decode"]  # which marks are hollow
    assert labels == ["one", "two", *kinds, "limit: TPOT 25 ms", "the plan to take"]
    text: Any = axes.texts[0]
    assert text.get_text() == "one: 1 x TP1, 1 GPUs\n50 tokens/s, \\$0.800/Mtok"
    assert text.xy == (50.0, 0.8)
    seen = {(float(x), float(y)) for curve in axes.lines for x, y in curve.get_xydata()}
    assert {(d.numbers["speed"], d.numbers["usd"]) for d in DOTS} <= seen
    hollow = [c for c in axes.lines if c.get_markerfacecolor() == "white" and len(c.get_xdata())]
    assert [tuple(c.get_xydata()[0]) for c in hollow] == [(40.0, 0.5)]


def test_a_frontier_says_which_dot_is_which():
    """And its fastest point, though it is dear."""
    speed, cost = np.array([440.0, 300.0, 50.0]), np.array([150.0, 1.0, 0.2])
    figure = plot_frontier({"a": Curve(speed, cost, 1, "8 GPUs (TP8)")}, caption="4,096 tokens in")
    said: Any = figure.axes[0].texts[0]
    assert said.get_text() == "8 GPUs (TP8)" and said.xy == (300.0, 1.0)
    assert "4,096 tokens in" in [text.get_text() for text in figure.texts]
    low, high = figure.axes[0].get_ylim()
    assert low < cost.min() and high > cost.max()


def test_a_tornado_has_the_numbers_that_change_most_and_says_what_is_left_out():
    bars = [TornadoBar(f"number {i}", "model", 0.1 * i, float(i)) for i in range(1, 14)]
    figure: Any = plot_tornado({"TPOT": bars, "TTFT": bars[:2]})
    names = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert names == [f"number {i}" for i in range(13, 3, -1)]
    (legend,) = figure.subfigs[0].legends
    assert legend.get_title().get_text().endswith("3 more change at most 3.0 %")
    assert figure.get_figheight() < 0.75 * figure.get_figwidth()


def test_a_design_is_drawn_beside_its_start():
    """A bar is design over start; both numbers stand beside it, with their unit."""
    steps = np.linspace(2.0, 1.0, 5)[:, None]
    search = SearchTrack(steps, steps[:, 0], steps[:, 0] < 3, 2.0, 1.0, "cost ($)")
    changes = {
        "what changed": [
            Change("layers", 32, 16, bound="least allowed"),
            Change("hidden size", 4096, 8192),
        ],
        "what it brings": [Change("price", 2.0, 1.0, "$/Mtok", -1), Change("time", 1, 2, "", -1)],
    }
    first, second, path = plot_path(search, changes, title="t").axes
    widths = {p.get_y(): p.get_width() for p in first.patches}  # pyright: ignore
    assert sorted(widths.values()) == [-0.5, 1.0]
    labels = [x.get_text() for x in first.get_yticklabels()]
    assert labels == ["layers", "hidden size"]
    said = [text.get_text() for text in second.texts]
    assert said[0] == "2 \N{RIGHTWARDS ARROW} 1 $/Mtok" and path.get_ylabel() == "cost ($)"
    assert first.texts[0].get_text() == "32 \N{RIGHTWARDS ARROW} 16, least allowed"
    best: Any = path.lines[2]
    assert best.get_ydata() == pytest.approx(steps[:, 0])


def test_where_measured_servers_are_is_shaded_beside_plans():
    """With upright ends: the slowest plan's speed, and the highest that slow servers reach."""
    first, second = ((60.0, 0.9), (45.0, 1.2)), ((48.0, 0.7), (36.0, 0.9))
    bands = [
        dict(zip(("speed", "usd"), zip(*x, strict=True), strict=True)) for x in (first, second)
    ]
    dots = [point(50.0, 1.0, bands=bands[0]), point(40.0, 0.8, bands=bands[1]), point(30.0, 0.5)]
    axes: Any = plot_plans(chart_of({"one": dots, "two": DOTS})).axes[0]
    (shaded,) = axes.collections
    corners = {tuple(map(float, corner)) for corner in shaded.get_paths()[0].vertices}
    slope = (np.log(1.2) - np.log(0.9)) / 9.0
    at_40 = pytest.approx(0.9 * np.exp(4.0 * slope))
    assert {(40.0, 0.7), (45.0, 0.7), (45.0, 1.2)} < corners
    assert {x for x, _ in corners} == {40.0, 45.0}
    assert max(y for x, y in corners if x == 40.0) == at_40
    assert "80 % of measured servers" in [x.get_text() for x in axes.get_legend().get_texts()]


def slide_of(name):
    """A picture as a slide, of more than a slide holds."""
    terms = {f"a term of a long name, {i}": 3.0 + i for i in range(5)}
    if name == "bars":
        panel = Panel("time per output token", "ms", dict.fromkeys("abcdefghijkl", terms))
        return plot_bars([panel, panel], title=TITLE, caption=CAPTION)
    if name == "tornado":
        bars = [TornadoBar(f"a number {i}", "hardware", 0.1, float(i)) for i in range(14)]
        columns = {"TPOT": bars, "TTFT": bars, "$/Mtok": bars}
        return plot_tornado(columns, title=TITLE, caption=CAPTION)
    if name == "path":
        steps = np.linspace(2.0, 1.0, 5)[:, None]
        search = SearchTrack(steps, steps[:, 0], steps[:, 0] < 3, 2.0, 1.0, "cost ($)")
        changes = {x: [Change("hidden size", 8192, 4096)] * 5 for x in ("changed", "brought")}
        return plot_path(search, changes, title=TITLE, caption=CAPTION)
    ends = {"speed": (60.0, 25.0), "usd": (0.3, 0.6)}
    dots = [point(20.0, 0.4, bands=ends), point(50.0, 0.8, bands=ends)]
    systems = {f"system {i}": [*dots, *DOTS[2:]] for i in range(4)}
    return plot_plans(chart_of(systems, chosen=4), title=TITLE, caption=CAPTION)


@pytest.mark.parametrize("name", ["bars", "tornado", "path", "plans"])
def test_a_slide_has_its_size_and_nothing_is_cut_off(name, tmp_path):
    """16 : 9 at 1,600 pixels, a caption of one line, at most two bands."""
    from PIL import Image

    with slides():
        figure: Any = slide_of(name)
    with Image.open(save(figure, tmp_path / "slide.png")) as image:
        assert image.size == (1600, 900)
    assert heading_and_caption(figure) == (TITLE, "4,096 tokens in, 512 out; fp8.")
    figure.draw_without_rendering()
    texts = [x for axes in figure.axes for x in (*axes.texts, axes.title, axes.xaxis.label)]
    boxes = [x.get_window_extent() for x in [*texts, *figure.texts] if x.get_text()]
    boxes += [x.get_window_extent() for x in figure.subfigs[0].legends]
    page = figure.bbox
    assert all(page.x0 <= b.x0 and b.x1 <= page.x1 and page.y0 <= b.y0 for b in boxes)
    assert sum(len(axes.collections) for axes in figure.axes) == 2 * (name == "plans")


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


def texts_of(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_parts_add_up_and_small_ones_are_one():
    figure = plot_bars([Panel("time", "ms", {"a": TERMS, "b": {"attention": 30.0}})])
    (axes,) = figure.axes
    assert widths(axes) == {0.0: pytest.approx(100.0), 1.0: pytest.approx(30.0)}
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["a", "b"]
    assert legend(figure) == ["attention", "feedforward", OTHER]
    assert {"100", "30"} <= set(texts_of(axes)) and axes.get_xlabel() == "ms"


def test_a_bar_ends_at_its_time_and_what_is_beside_is_pale():
    """The number is the time, not the sum of parts that overlap; no diamond, which is measured."""
    panel = Panel("", "ms", {"": {"memory": 40.0, "compute": 70.0}}, ends={"": 80.0})
    figure = plot_bars([panel])
    (axes,) = figure.axes
    assert "80" in texts_of(axes) and legend(figure) == ["compute, 70", "memory, 40", OVERLAP]
    (pale,) = axes.collections
    box: Any = pale.get_datalim(axes.transData)
    assert (box.x0, box.x1) == (80.0, 110.0)
    assert not any(x.get_marker() == "D" for x in axes.lines)  # pyright: ignore


def test_nothing_overlaps_and_nothing_is_cut_off():
    """Labels lie within the figure, and the number of a part within the part."""
    caption = " ".join(["words of a caption"] * 12)
    parts = {"a": 50.0, "b": 1.4, "c": 48.6}
    figure: Any = plot_bars([Panel("t", "ms", {"": parts}, limits={"limit": 101.0})],
                            title=TITLE, caption=caption)  # fmt: skip
    figure.draw_without_rendering()
    page, (axes,) = figure.bbox, figure.axes
    boxes = [text.get_window_extent() for text in [*axes.texts, *figure.texts]]
    boxes.append(keys(figure).get_window_extent())
    assert all(page.x0 <= b.x0 and b.x1 <= page.x1 and b.y0 >= page.y0 for b in boxes)
    assert "1.40" not in texts_of(axes) and "48.6" in texts_of(axes)
    below, names = figure.texts[-1].get_window_extent(), keys(figure).get_window_extent()
    assert below.y1 <= names.y0 + 1 and names.y1 <= axes.get_tightbbox().y0 + 1
    assert heading_and_caption(figure) == (TITLE, caption)
