"""`infer-jax report`: one file that loads nothing, whose numbers are those of the other verbs."""

import json
import os
import re
import shlex
import shutil
import subprocess
from html import unescape
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest

from infer_jax.catalog.systems import profiles_folder
from infer_jax.launch import Checkpoint, Instance, Service, launches
from infer_jax.pages import charts, page
from infer_jax.pages.svg import Scale
from tests.cli.running import answer, run

WORDS = ("report", "llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "2", "--batch", "32")
VOID = {"meta", "br", "hr", "img", "link", "input"}
SECTIONS = ("plan", "flags", "frontier", "time", "memory", "sensitivity", "roofline", "sources")


class Reader(HTMLParser):
    """A page as a browser takes it apart: elements opened and closed, attributes, text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.attributes, self.text, self.tags = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def pictures(text):
    """Every SVG of a page, by an XML parser, which takes nothing that is not well-formed."""
    return [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]


def titles(svg):
    return [node.text or "" for node in svg.iter("title")]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The page, and what the command says of it."""
    folder = tmp_path_factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("JAX_PLATFORMS", os.environ.get("JAX_PLATFORMS") or "cpu")
        told = answer(*WORDS, "--estimator", "economics.planned")
        return told, (folder / "report.html").read_text(encoding="utf-8")


def test_the_page_is_whole_and_loads_nothing(made):
    _, text = made
    read = Reader(text)
    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(read.tags)
    for name, value in read.attributes:
        assert name not in ("src", "href", "srcset", "xlink:href", "data"), (name, value)
        assert not name.startswith("on"), name
    assert "url(" not in text and "@import" not in text
    commands = re.findall(r"<pre>(infer-jax .*?)</pre>", text, re.DOTALL)
    assert max(len(line) for told in commands for line in told.split("\n")) < 80
    asked = [shlex.split(unescape(told).replace("\\\n", "")) for told in commands]
    assert [words[1] for words in asked] == ["frontier", "estimate", "memory", "sensitivity"]
    assert all("--hardware" in words and "h100_sxm" in words for words in asked)
    anchors = [value for name, value in read.attributes if name == "id"]
    assert anchors == list(SECTIONS)


def test_pictures_are_well_formed_and_within_their_frames(made):
    _, text = made
    found = pictures(text)
    assert len(found) == 1 + 2 + 1 + 3 + 1  # frontier, time, memory, sensitivity, roofline
    for svg in found:
        _, _, width, height = (float(x) for x in svg.get("viewBox", "").split())
        for node in svg.iter():
            for name, most in (("cx", width), ("cy", height), ("x", width), ("y", height)):
                if node.get(name) is not None and "transform" not in node.attrib:
                    assert -1e-6 <= float(node.get(name, 0)) <= most, (node.tag, node.attrib)
        assert svg.get("aria-label")


def test_hovering_tells_the_frontier_that_the_verb_prints(made):
    told, text = made
    theirs = answer("frontier", "llama-3.1-8b", "--hardware", "h100_sxm", "--no-picture")["rows"]
    assert told["frontier"] == theirs
    pattern = r"([\d.]+) GPUs \(.*\), batch ([\d.]+): ([\d.]+) tokens/s, \$([\d.]+)/Mtok.*by (\w+)"
    shown = [re.fullmatch(pattern, title) for title in titles(pictures(text)[0])]
    found = [match.groups() for match in shown if match]
    assert len(found) == len(theirs) == len(shown) - 1  # and the plan
    names = ("gpus", "batch", "speed_tokens_per_s", "output_cost_per_mtok_usd")
    drawn = sorted(theirs, key=lambda row: row["preferred"])  # which lies on top
    for row, mine in zip(drawn, found, strict=True):
        assert [float(x) for x in mine[:4]] == pytest.approx([row[n] for n in names], rel=6e-3)
        assert mine[4] == row["binds"]


def test_numbers_are_those_of_estimate_and_memory(made):
    told, text = made
    same = [*WORDS[1:], "--estimator", "economics.planned"]
    one = answer("estimate", *same)
    for name in ("ttft_ms", "tpot_ms", "speed_tokens_per_s", "output_cost_per_mtok_usd"):
        assert told[name] == pytest.approx(one[name], rel=1e-9)
    held = answer("memory", *WORDS[1:6], "--max-model-len", "4608")  # isl + osl
    assert f"{held['weights_bytes']:,.0f}" in text
    assert f"{held['kv_cache_size_tokens']:,.0f} tokens" in text


def test_every_number_of_the_hardware_has_a_source(made):
    _, text = made
    assert "meta-llama/Meta-Llama-3.1-8B" in text
    assert "profile h100_sxm.toml, shipped" in text
    row = r"<td class=w>(chip\.\w+)</td><td>([^<]+)</td>.*?<td class=w>([^<]+)</td></tr>"
    rows = re.findall(row, text)
    assert len(rows) == 5
    assert all(source != "not in the profile" for _, _, source in rows)


def test_a_plan_that_costs_nothing_has_its_page(made, tmp_path):
    """A rent of 0: dollars have no logarithm and no elasticities, the rest is as it was."""
    priced, _ = made
    profile = (profiles_folder() / "h100_sxm.toml").read_text(encoding="utf-8")
    rent = "price_usd_per_hour = { value = "
    free = re.sub(f"{re.escape(rent)}[0-9.]+", f"{rent}0", profile)
    assert free != profile
    (tmp_path / "free.toml").write_text(free, encoding="utf-8")
    words = [word if word != "h100_sxm" else "free.toml" for word in WORDS]
    told = answer(*words, "--estimator", "economics.planned")
    assert told["output_cost_per_mtok_usd"] == 0.0 < priced["output_cost_per_mtok_usd"]
    assert told["tpot_ms"] == priced["tpot_ms"]
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "No number of model, hardware or plan moves the $/Mtok." in text
    drawn = pictures(text)
    assert len(drawn) == 1 + 2 + 1 + 2 + 1  # no bars of dollars
    assert not re.search(r'="(nan|-?inf)"', "".join(ET.tostring(svg, "unicode") for svg in drawn))


@pytest.mark.parametrize("asked", [("2", "20ms"), ("3", "12ms")], ids=["one kind", "two pools"])
def test_the_plan_is_the_first_that_the_verb_plan_prints(asked, tmp_path):
    """The same question has the same answer: layout, batch, times, dollars, what starts it."""
    gpus, tpot = asked
    words = ("llama-3.1-8b", "--hardware", "h100_sxm", "--total-gpus", gpus, "--tpot", tpot)
    told, planned = answer("report", *words), answer("plan", *words)
    first = planned["plans"][0]
    assert told["layout"] == first["layout"]
    assert (">" in told["layout"]) == (gpus == "3")
    assert told["batch"] == first["concurrency_per_replica"]
    for name in ("ttft_ms", "tpot_ms", "output_cost_per_mtok_usd"):
        assert told[name] == pytest.approx(first[name], rel=1e-9)
    assert told["launch"] == planned["launch"]
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    Reader(text)
    for launch in planned["launch"].values():
        for step in launch["commands"]:
            assert step["command"] in unescape(text)
    assert told["layout"] in unescape(text)


def test_refusals_are_one_sentence(tmp_path):
    for out in ("report.pdf", "report", str(tmp_path / "none" / "report.html")):
        ran = run(*WORDS, "--out", out)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.count("\n") == 1 and "--out" in ran.err
    assert list(tmp_path.iterdir()) == []
    ran = run(*WORDS, "--estimator", "economics")
    assert ran.code == 2 and "economics.planned" in ran.err
    ran = run(*WORDS[:4], "--estimator", "economics.planned")
    assert ran.code == 2 and "--tp" in ran.err


HOSTILE = "<script>alert(1)</script>\"'&\x00\x1b[31m\u202e"


def test_no_text_of_the_user_becomes_an_element():
    """Names come from files and paths; a shell command quotes them, a page escapes them."""
    bar = charts.Bar(HOSTILE, 1.0, HOSTILE, HOSTILE)
    drawn = charts.bars(HOSTILE, [bar], HOSTILE)
    plan = Service(Checkpoint(HOSTILE), (Instance(1),), 1000, 2000)
    (launch,) = launches(plan, "vllm")
    body = (
        drawn + page.code(launch.steps[0].command) + page.items([HOSTILE]) + page.paragraph(HOSTILE)
    )
    body += page.table((HOSTILE,), [(HOSTILE,)], (0,)) + page.folded(HOSTILE, "")
    text = page.page(HOSTILE, HOSTILE, [page.Section("a", HOSTILE, HOSTILE, body)])
    read = Reader(text)
    assert "script" not in read.tags
    assert not any(c in text for c in "\x00\x1b\u202e")
    (svg,) = pictures(text)
    assert titles(svg)[0].startswith("<script>")
    assert "vllm serve '<script>" in "".join(read.text)


def test_a_mark_stands_where_it_is_and_tells_its_title():
    marks = [charts.Mark(x, x**2, f"point {x:g}", x == 4.0) for x in (1.0, 2.0, 4.0)]
    axes = charts.Axis("a", log=True), charts.Axis("b", log=True)
    svg = ET.fromstring(charts.scatter("label", marks, {0: "c", 1: "d"}, axes))
    assert titles(svg) == [mark.title for mark in marks]
    at = {
        title.text: (float(disc.get("cx", 0)), float(disc.get("cy", 0)))
        for disc in svg.iter("circle")
        if (title := disc.find("title")) is not None
    }
    (x1, y1), (x2, y2) = at["point 1"], at["point 2"]
    assert x2 > x1 and y2 < y1  # to the right and up
    (corners,) = (d.get("points", "") for d in svg.iter("polygon") if d.find("title") is not None)
    x4 = sum(float(c.split(",")[0]) for c in corners.split()) / 4
    assert x4 - x2 == pytest.approx(x2 - x1, rel=1e-3)  # doublings are of equal length


def test_scales_put_their_ends_where_they_are_told():
    for log in (False, True):
        scale = Scale(2.0, 50.0, 10.0, 90.0, log)
        assert (scale(2.0), scale(50.0)) == pytest.approx((10.0, 90.0))
        assert all(2.0 <= tick <= 50.0 for tick in scale.ticks())
        assert len(scale.ticks()) >= 3


BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), "")
ALONE = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync")
ALONE += ("--disable-background-networking", "--disable-component-update")
ALONE += ("--enable-logging=stderr",)

# what the pointer meets in the middle of every mark of the first picture, and what it may touch
POINTER = """<pre id="met"></pre><script>
const met = [...document.querySelectorAll("svg")[0].querySelectorAll("circle,polygon,rect")].map(
  (mark) => {
    mark.scrollIntoView({block: "center"});
    const at = mark.getBoundingClientRect();
    const found = document.elementFromPoint(at.x + at.width / 2, at.y + at.height / 2);
    return [mark.textContent, found ? found.textContent : null];
  });
const rules = [...document.styleSheets[0].cssRules].map((rule) => rule.selectorText || "");
const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
const loaded = performance.getEntriesByType("resource").map((one) => one.name);
document.getElementById("met").textContent = JSON.stringify({met, rules, wide, loaded});
</script></body>"""


def browsed(folder, text):
    """(the page as a browser made it, its console): rendered in a folder of its own."""
    path = folder / "browsed.html"
    path.write_text(text, encoding="utf-8")
    words = [BROWSER, *ALONE, f"--user-data-dir={folder / 'browser'}", "--window-size=600,900"]
    ran = subprocess.run(
        [*words, "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, [line for line in ran.stderr.splitlines() if "CONSOLE" in line]


def test_the_page_starts_the_plan_or_says_why_not(made):
    told, text = made
    assert set(told["launch"]) == {"vLLM", "SGLang", "TensorRT-LLM"}
    shown = [unescape(x) for x in re.findall(r"<pre>(.*?)</pre>", text, re.DOTALL)]
    for engine, launch in told["launch"].items():
        assert f"{engine} {launch['version']}" in text
        (step,) = launch["commands"]
        assert step["command"] in shown
        for option in ("model-len 4608", "context-length 4608", "max_seq_len 4608"):
            assert (option in step["command"]) == (option.startswith(MARKS[engine]))
    assert "tensor-parallel-size 2" in told["launch"]["vLLM"]["commands"][0]["command"]


MARKS = {"vLLM": "model", "SGLang": "context", "TensorRT-LLM": "max_seq"}


@pytest.mark.skipif(not BROWSER, reason="no chromium on this machine: parsers alone read the page")
@pytest.mark.slow
def test_a_browser_shows_it_and_the_pointer_finds_every_point(made, tmp_path):
    told, text = made
    shown, console = browsed(tmp_path, text.replace("</body>", POINTER))
    assert console == []
    assert shown.count("<svg") == len(pictures(text))
    assert shown.count("<table") == text.count("<table") > 0
    assert all(f'id="{name}"' in shown for name in SECTIONS)
    found = json.loads(unescape(re.findall(r'<pre id="met">(.*?)</pre>', shown, re.DOTALL)[0]))
    assert found["loaded"] == []
    assert found["wide"] <= 0  # nothing is wider than a narrow window
    assert any(":has(title):hover" in rule for rule in found["rules"])
    marks = [(mine, met) for mine, met in found["met"] if mine]  # the legend's tell nothing
    assert len(marks) == len(told["frontier"]) + 1  # and the plan
    # a neighbour may lie over the middle of a mark: it, too, tells its configuration
    assert all(re.search("GPUs .*batch|^the plan: ", met or "") for _, met in marks)
    assert all(mine == met for mine, met in marks[-2:])  # the preferred one and the plan
    (liked,) = (row for row in told["frontier"] if row["preferred"])
    assert marks[-2][1].startswith(f"{liked['gpus']:g} GPUs (")
    assert f"batch {liked['batch']:g}:" in marks[-2][1]
