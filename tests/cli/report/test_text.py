"""What the report refuses, text of others in its page, and tones that stand out."""

from xml.etree import ElementTree as ET

import pytest

from infer_jax.launch import Instance, LaunchedService, ModelCheckpoint, launches
from infer_jax.pages import charts, page, vega
from infer_jax.plots.plan_chart import PlanChart, PlanPoint, PlanSeries
from tests.cli.report.reading import Reader, pictures
from tests.cli.running import run


def test_a_page_without_what_draws_it_is_refused(monkeypatch):
    monkeypatch.setattr(vega, "find_spec", lambda name: None)
    ran = run("report", "no-such-model", "--hardware", "h100_sxm")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1 and "pip install 'infer_jax[report]'" in ran.err


HOSTILE = "</script><script>alert(1)</script>\"'&<!--\x00\x1b[31m\u202e"
SPELT = "</script><script>alert(1)</script>\"'&<!--\\x00\\x1b[31m\\u202e"


def test_no_text_of_the_user_becomes_an_element():
    """Names come from files and paths; a shell command quotes them, a page escapes them."""
    plan = LaunchedService(ModelCheckpoint(HOSTILE), (Instance(1),), 1000, 2000)
    (launch,) = launches(plan, "vllm")
    numbers: dict[str, float | None]
    numbers = dict.fromkeys(("speed", "tpot", "ttft", "latency", "usd", "usd_out", "rate"), 2.0)
    plans = [PlanPoint(HOSTILE, HOSTILE, 1.0, 1.0, numbers, command=launch.steps[0].command)]
    plans += [plans[0]._replace(numbers=dict.fromkeys(numbers, 3.0))]
    series = PlanChart([PlanSeries(HOSTILE, 0)], plans, 0, label=HOSTILE)
    bar = {"label": HOSTILE, "value": 1.0, "text": HOSTILE, "note": HOSTILE, "faint": False}
    bars = charts.bars(HOSTILE, [bar], "ms")
    text = charts.chart_page(series, title=HOSTILE, lead=HOSTILE, notes=[HOSTILE])
    text += page.render("macros.html")
    assert not any(c in text for c in "\x00\x1b\u202e")
    read = Reader(text)
    assert read.tags.count("script") == len(read.scripts) == 3
    assert read.data["tradeoff"]["spec"]["datasets"]["plans"][0]["series"] == SPELT
    assert "".join(read.text).count(SPELT) >= 6
    (svg,) = pictures(text)
    assert SPELT in {node.text for node in svg.iter() if node.text}
    drawn = ET.fromstring(vega.svg(bars))
    assert SPELT in {node.text for node in drawn.iter() if node.text}
    with pytest.raises(ValueError, match="ends its own element"):
        page.render(
            "base.html",
            library="</SCRIPT>",
            **dict.fromkeys(("policy", "title", "css", "lead", "script"), ""),
            data={},
            plans=series,
            axes={"x": [], "y": []},
            pictures={"tradeoff": charts.tradeoff(series)},
        )


def luminance(tone):
    """Relative luminance of #rrggbb (WCAG 2.2)."""
    parts = [int(tone[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return sum(w * x for w, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_tones_and_text_stand_out_in_light_and_in_dark():
    """WCAG 2.2: 3 : 1 for what is drawn (1.4.11), 4.5 : 1 for text (1.4.3)."""
    for ground, colour in vega.GROUNDS.items():
        texts = [(vega.INKS[ground], 4.5), (vega.QUIETS[ground], 4.5)]
        for tone, least in [*((tone, 3.0) for tone in vega.TONES), *texts]:
            low, high = sorted((luminance(tone), luminance(colour)))
            assert (high + 0.05) / (low + 0.05) >= least, (tone, ground)
    css = page.own("page.css")
    for book in (vega.GROUNDS, vega.INKS, vega.QUIETS):
        assert all(tone in css or tone == "#ffffff" for tone in book.values())
