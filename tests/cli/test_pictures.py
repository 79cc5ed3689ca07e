"""Pictures of verbs: their bars are the numbers of the result, and --out writes them."""

import base64
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import infer_jax as ij
from infer_jax.specs.words import term
from infer_jax.verbs import pictures
from infer_jax.verbs.compare_result import EstimatorsCompared
from infer_jax.verbs.kernels_result import KERNELS
from tests.cli.running import answer, answered_once, run

pytest.importorskip("matplotlib")

POINT = ("llama-3.1-8b", "h100_sxm")
WORDS = ("llama-3.1-8b", "--hardware", "h100_sxm")
RUNS = Path(__file__).parents[1] / "data/server/runs.csv"
PALM = ("palm-540b-padded", "tpu_v4")


def sums(axes: Any) -> dict[str, float]:
    """The length of each bar by its label."""
    labels = {
        y: x.get_text() for y, x in zip(axes.get_yticks(), axes.get_yticklabels(), strict=True)
    }
    found: dict[str, float] = {}
    for bar in axes.patches:
        label = labels.get(round(bar.get_y() + bar.get_height() / 2), "")
        found[label] = found.get(label, 0.0) + bar.get_width()
    return found


def marks(axes: Any) -> list[float]:
    return [float(x.get_xdata()[0]) for x in axes.lines if x.get_marker() == "D"]


def caption(figure: Any) -> str:
    return " ".join(figure.texts[-1].get_text().split())


def test_estimate_draws_both_times_by_term():
    """A bar is all terms of a pass; where they overlap a line is the time."""
    found = ij.estimate(*POINT, tp=1, batch=16, tpot=0.02)
    figure = found.plot()
    phases = found.estimate.prefill, found.estimate.decode
    for axes, phase in zip(figure.axes, phases, strict=True):
        assert axes.get_xlabel() == "ms"
        assert sums(axes)[""] == pytest.approx(1e3 * float(phase.time), rel=1e-4)
        bars: Any = axes.patches
        largest = 1e3 * max(map(float, phase.terms.values()))
        assert max(bar.get_width() for bar in bars) == pytest.approx(largest)
    titles = [x.get_title(loc="left") for x in figure.axes]
    assert titles == ["mean TTFT", "time per output token"]
    said: Any = figure.axes[1].texts
    assert "limit, 20 ms" in [text.get_text() for text in said]
    named = {x.get_text() for x in figure.subfigs[0].legends[0].get_texts()}
    assert named <= {*(term(x) for phase in phases for x in phase.terms), "all else"}
    assert "4,096 tokens in, 512 out" in caption(figure) and "bfloat16" in caption(figure)
    assert "llama-3.1-8b on 1 NVIDIA H100" in figure.get_suptitle()
    ideal = ij.estimate(*POINT, tp=1, batch=8, estimator="economics.planned")
    figure, seen = ideal.plot(), []
    for axes, phase in zip(
        figure.axes, (ideal.estimate.prefill, ideal.estimate.decode), strict=True
    ):
        total, time = sum(map(float, phase.terms.values())), float(phase.time)
        assert sums(axes)[""] == pytest.approx(1e3 * total)
        lines: Any = axes.lines
        ends = [float(x.get_xdata()[0]) for x in lines]
        assert ends == ([pytest.approx(1e3 * time)] if total > 1.001 * time else [])
        seen += ends
    assert seen


def test_memory_draws_what_fills_the_budget():
    found = ij.memory(*POINT, tp=1, batch=8)
    (axes,) = found.plot().axes
    assert sums(axes)[""] == pytest.approx(float(found.memory.budget) / 1e9)
    lines: Any = axes.lines
    ends = [float(x.get_xdata()[0]) for x in lines]
    assert ends == pytest.approx(
        [float(x) / 1e9 for x in (found.memory.budget, found.memory.visible)]
    )
    full = ij.memory("llama-3.1-70b", "h100_sxm", tp=1)
    (axes,) = full.plot().axes
    assert sums(axes)[""] > float(full.memory.visible) / 1e9
    assert "left for the cache" not in [
        x.get_text() for x in full.plot().subfigs[0].legends[0].get_texts()
    ]


def test_compare_draws_estimators_and_runs_side_by_side():
    found = ij.compare(*POINT, tp=1, estimator="economics.planned")
    first, _ = found.plot().axes
    assert isinstance(found, EstimatorsCompared)
    want = {x.trust.estimator: x.estimate.prefill for x in found.answers}
    assert sums(first) == {
        name: pytest.approx(sum(1e3 * float(x) for x in phase.terms.values()))
        for name, phase in want.items()
    }
    caption = found.plot().texts[-1].get_text()
    assert "TP1" in caption and found.to_dict()["layout"] == "TP1"
    runs = ij.compare(*POINT, tp=1, measured=str(RUNS))
    shown: list[Any] = sorted(runs.rows()[:8], key=lambda row: row["concurrency"])  # pyright: ignore
    for axes, name in zip(runs.plot().axes, ("ttft_ms", "tpot_ms"), strict=True):
        seen = [row["measured"][name] for row in shown if name in row["measured"]]  # pyright: ignore
        assert marks(axes) == pytest.approx(seen) and len(sums(axes)) == len(shown)


def test_kernels_draws_each_kernel_in_all_layers():
    """And what is no kernel's, so that the bars add up to the time of the pass."""
    found = ij.kernels(*POINT, batch=8)
    for axes, stage in zip(found.plot().axes, ("prefill", "decode"), strict=True):
        each: dict[str, float] = {}
        for row in found.kernels[stage]:
            time, name = 1e-3 * row["layers"] * row["time_us"], str(row["kernel"])
            name = KERNELS.get(name, name)
            each[name] = each.get(name, 0.0) + time
        drawn, time = sums(axes), 1e3 * float(getattr(found.estimate, stage).time)
        assert {name: drawn[name] for name in each} == {
            k: pytest.approx(x) for k, x in each.items()
        }
        assert "scheduling" in drawn and sum(drawn.values()) == pytest.approx(time)
        assert axes.get_title(loc="left").startswith(f"{stage}: ")


def test_layout_draws_every_layout():
    found = ij.layout(*PALM, total_gpus=64, batch=512)
    figure = found.plot()
    (axes,) = figure.axes
    assert axes.get_xlabel() == "s"  # tens of seconds
    assert len(sums(axes)) == len(found.layouts)
    totals = [1e-3 * sum(row["terms"].values()) for row in found.layouts]
    assert list(sums(axes).values()) == pytest.approx(totals)
    assert sum("does not fit" in name for name in sums(axes)) == sum(
        not row["feasible"] for row in found.layouts
    )


def test_a_command_writes_the_picture_that_the_result_draws_as_a_file_and_as_a_page(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    asked, found = ("memory", *WORDS, "--tp", "1", "--batch", "8"), ij.memory(*POINT, tp=1, batch=8)
    out, web = tmp_path / "a.svg", tmp_path / "memory.html"
    (said, printed), (plain, alone) = (
        answered_once(*asked, "--out", str(out)),
        answered_once(*asked),
    )
    assert said == {**plain, "picture": str(out)} and printed.startswith(alone.rstrip())
    assert " ".join(printed.split()).endswith(f"Picture: {out}.")
    found.plot(tmp_path / "mine.svg")
    assert out.stat().st_size == pytest.approx((tmp_path / "mine.svg").stat().st_size, rel=0.01)
    slide = tmp_path / "slide.svg"
    answer(*asked, "--out", str(slide), "--slide")
    assert 'viewBox="0 0 460.8 259.2"' in slide.read_text()  # points: 16 : 9
    assert "needs --out" in run(*asked, "--slide").err
    assert answer(*asked, "--out", str(web))["picture"] == str(web)
    page = web.read_text()
    assert page.startswith("<!doctype html>") and found._repr_html_() in page
    assert page.count("<svg") == 1 and "default-src 'none'" in page and "<script" not in page
    rent = float(found.setup.hardware.price)
    assert f"${rent:.2f} per GPU-hour" in page and "1970-01-02" in page
    assert not re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?(?!#)\w", page.replace("xlink:", ""))


@pytest.mark.parametrize("verb", ["estimate", "memory", "compare", "kernels", "layout", "plan"])
def test_a_picture_that_cannot_be_written_is_refused_before_computing(verb, tmp_path, monkeypatch):
    for place, said in (("a.txt", "a name that ends in .png, .svg, .pdf"),
                        ("no/a.png", "a folder that can be written"),
                        ("a.png", "matplotlib is not installed")):  # fmt: skip
        if place == "a.png":
            monkeypatch.setattr(pictures, "missing", lambda: "matplotlib is not installed.")
        ran = run(verb, *WORDS, "--out", str(tmp_path / place))
        assert ran.code == 2 and said in ran.err
    assert list(tmp_path.iterdir()) == []


def test_a_result_draws_itself_in_a_notebook(monkeypatch):
    """IPython shows the last expression of a cell by this method."""
    found = ij.memory(*POINT, tp=1, batch=8)
    shown = found._repr_mimebundle_(include=None, exclude=None)
    image, _, text = shown["text/html"].partition(">")
    assert image.startswith(f'<img alt="{found.setup.model.name}') and text == found._repr_html_()
    data = image.partition("base64,")[2].rstrip('"')
    assert base64.b64decode(data)[:4] == b"\x89PNG" and shown["text/plain"] == str(found)
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it were not installed
    assert found._repr_mimebundle_()["text/html"] == found._repr_html_()


def test_systems_are_compared_as_each_is_estimated_alone():
    systems = [POINT[1], "h200_sxm", "mi300x"]
    found = ij.compare(POINT[0], systems, tp=1, batch=16)
    assert isinstance(found, EstimatorsCompared) and found.labels == systems
    alone = [ij.estimate(POINT[0], one, tp=1, batch=16).estimate for one in systems]
    for axes, name in zip(found.plot().axes, ("prefill", "decode"), strict=True):
        times = {s: 1e3 * float(getattr(x, name).time) for s, x in zip(systems, alone, strict=True)}
        assert sums(axes) == {name: pytest.approx(x) for name, x in times.items()}
    asked: dict[str, Any] = found.to_dict()
    rows = {row["hardware"]: row["answers"]["tpot_ms"] for row in asked["estimators"]}
    assert rows == {s: 1e3 * float(x.tpot) for s, x in zip(systems, alone, strict=True)}
    head = next(line for line in str(found).splitlines() if line.startswith("answer"))
    assert head.split() == ["answer", "unit", *systems]
    both = ij.compare(POINT[0], systems[:2], tp=1, estimator=["serving", "economics.planned"])
    assert isinstance(both, EstimatorsCompared)
    assert both.labels == [
        f"{s} {e}" for s in systems[:2] for e in ("serving", "economics.planned")
    ]
    with pytest.raises(ij.InputError, match="one system with measured"):
        ij.compare(POINT[0], systems, measured=str(RUNS))


def test_layouts_are_compared_at_the_rate_that_arrives_at_all_copies():
    layouts, rate = ["TP1", "2 x TP1"], 4.0
    found = ij.compare(*POINT, layout=layouts, request_rate=rate)
    assert isinstance(found, EstimatorsCompared) and "4 requests/s at all copies" in str(found)
    alone = [ij.estimate(*POINT, layout=x, request_rate=rate).estimate for x in layouts]
    rows: list[Any] = [*found.rows()]
    for row, one, copies in zip(rows, alone, (1.0, 2.0), strict=True):
        assert row["answers"]["ttft_ms"] == 1e3 * float(one.ttft)
        assert row["batch"] == pytest.approx(rate / copies * 1e-3 * row["answers"]["latency_ms"])
    beyond = ij.compare(*POINT, layout=layouts, request_rate=5e3)
    answers: list[Any] = [row["answers"] for row in beyond.rows()]
    assert all(x["ttft_ms"] is None and x["output_cost_per_mtok_usd"] > 0 for x in answers)
    assert "2 x TP1 is overloaded: more requests arrive than it completes." in str(beyond)
    with pytest.raises(ij.InputError, match="one that a system completes"):
        beyond.plot()
    with pytest.raises(ij.InputError, match="request_rate is '4'; allowed: one of batch"):
        ij.compare(*POINT, layout=layouts, batch=8, request_rate=rate)
    with pytest.raises(ij.InputError, match='with estimator="serving"'):
        ij.compare(*POINT, estimator="economics.planned", tp=1, request_rate=rate)


def test_a_comparison_says_the_load_that_it_assumes_and_leaves_out_what_is_too_small():
    asked: dict[str, Any] = {"hardware": [POINT[1], "b200_sxm"], "tp": 1}
    found = ij.compare(POINT[0], **asked)
    assert isinstance(found, EstimatorsCompared)
    assert "Load assumed: 1 request in flight in an instance; batch or conc" in str(found)
    assert "Load assumed" not in str(ij.compare(POINT[0], **asked, batch=1))
    _, _, printed = str(found).partition("decode, spent on")
    for name in found.answers[0].estimate.decode.terms:
        shares = [float(x.terms[name] / x.time) for x in (a.estimate.decode for a in found.answers)]
        assert (f"\n{term(name)} " in printed) == (max(shares) >= 1e-3), (name, shares)


def test_layouts_are_compared_as_each_is_estimated_alone():
    """One load of all copies, or one of each instance; a column a layout, and a row in JSON."""
    layouts = ["TP2", "2 x TP1"]
    found = ij.compare(*POINT, layout=[*layouts, "TP2"], concurrency=32)
    assert isinstance(found, EstimatorsCompared) and found.labels == layouts
    alone = [ij.estimate(*POINT, layout=x, concurrency=32).estimate for x in layouts]
    rows: list[Any] = [*found.rows()]
    assert [row["layout"] for row in rows] == layouts and [row["batch"] for row in rows] == [32, 16]
    for row, one in zip(rows, alone, strict=True):
        assert row["answers"]["tpot_ms"] == 1e3 * float(one.tpot)
    assert "  TP2  2 x TP1  " in str(found)
    both = ij.compare(*POINT, layout=layouts, batch=16, estimator=["serving", "economics.planned"])
    assert isinstance(both, EstimatorsCompared) and both.answers[2].layout == layouts[1]
    assert both.labels[1:3] == ["TP2 economics.planned", "2 x TP1 serving"]
    caption = both.plot().texts[-1].get_text()
    assert "16 requests in flight in an instance, TP2, 2 x TP1." in caption
    with pytest.raises(ij.InputError, match="'2 x TP1'; allowed: one with measured"):
        ij.compare(*POINT, layout=layouts, measured=str(RUNS))
