"""`infer-jax report`: one file that loads nothing, with a picture of every chart, of any text."""

import base64
import hashlib
import json
import re
import shlex
import shutil
import subprocess
from html import unescape
from xml.etree import ElementTree as ET

import pytest

from infer_jax.catalog.systems import profiles_folder
from infer_jax.launch import Instance, LaunchedService, ModelCheckpoint, launches
from infer_jax.pages import charts, page, vega
from infer_jax.plots.plan_chart import PlanChart, PlanPoint, PlanSeries, in_words
from tests.cli.report.reading import SECTIONS, WORDS, Reader, pictures, shown
from tests.cli.running import answer, run


def test_the_page_is_whole_and_loads_nothing(given_page, searched_page):
    for _, text in (given_page, searched_page):
        read = Reader(text)
        assert not {"link", "img", "iframe", "object", "embed", "base"} & set(read.tags)
        for name, value in read.attributes:
            assert name not in ("src", "srcset", "xlink:href", "data", "action"), (name, value)
            assert name != "href" or value == "#answer"
            assert not name.startswith("on"), name
        style = "".join(re.findall(r"<style>.*?</style>|<svg.*?</svg>", text, re.DOTALL))
        assert "@import" not in style and not re.search(r"url\((?!#)", style)
        assert len(text) < 3e6
        # of three scripts one is data, and the policy names the other two and nothing else
        data, *code = read.scripts
        assert json.loads(data) and len(code) == 2
        (policy,) = (v for k, v in read.attributes if k == "content" and "default-src" in (v or ""))
        digests = [hashlib.sha256(script.encode()).digest() for script in code]
        named = [f"'sha256-{base64.b64encode(x).decode()}'" for x in digests]
        assert policy.startswith("default-src 'none';")
        assert policy.partition("script-src ")[2].split() == named
        anchors = [value for name, value in read.attributes if name == "id"]
        assert anchors == SECTIONS


def test_the_page_names_the_command_of_every_section(given_page):
    _, text = given_page
    commands = [x for x in shown(text) if x.startswith("infer-jax ")]
    assert max(len(line) for output in commands for line in output.split("\n")) < 80
    asked = [shlex.split(output.replace("\\\n", "")) for output in commands]
    assert [words[1] for words in asked] == ["estimate", "memory", "sensitivity", "frontier"]
    assert all("--hardware" in words and "h100_sxm" in words for words in asked)


def test_every_chart_is_a_picture_too_with_as_many_marks_as_data(given_page, searched_page):
    """What stands in the page before a script runs, drawn by Vega-Lite."""
    for _, text in (given_page, searched_page):
        read, drawn = Reader(text), pictures(text)
        assert len(drawn) == 1 + len(read.data["charts"]) == 1 + 2 + 1 + 3 + 1
        assert all(svg.get("viewBox") for svg in drawn)
        assert not re.search(r">[+\N{MINUS SIGN}-]?0\.00<", text)  # a number that moves nothing
        spec = read.data["tradeoff"]["spec"]
        first = next(p["value"] for p in spec["params"] if p["name"] == "shown")
        plans = [p for p in spec["datasets"]["plans"] if p["series"] in first]
        groups = [g for g in drawn[0].iter() if "points_marks" in (g.get("class") or "")]
        assert sum(len(list(g)) for g in groups) == len(plans) > 20
        assert not re.search(r'="(nan|-?inf(inity)?)"|NaN', text.partition('<script type="app')[0])
        charts = text.partition("<script")[0].split('<div class="vega"')[1:]
        labels = [re.match(r' data-chart="[^"]+" role="img" aria-label="[^"]+"', x) for x in charts]
        assert len(labels) == len(drawn) and all(labels)


def test_every_number_of_the_hardware_has_a_source(given_page):
    _, text = given_page
    assert "meta-llama/Llama-3.1-8B-Instruct" in text
    assert "profile h100_sxm.toml, shipped" in text
    row = r'<td class="w">(chip\.\w+)</td><td>([^<]+)</td>.*?<td class="w">([^<]+)</td></tr>'
    rows = re.findall(row, text)
    assert len(rows) == 5
    assert all(source != "not in the profile" for _, _, source in rows)


def test_a_plan_that_costs_nothing_has_its_page(given_page, tmp_path):
    """A rent of 0: dollars have no logarithm and no elasticities, the rest is as it was."""
    priced, _ = given_page
    profile = (profiles_folder() / "h100_sxm.toml").read_text(encoding="utf-8")
    rent = "price_usd_per_hour = { value = "
    free = re.sub(f"{re.escape(rent)}[0-9.]+", f"{rent}0", profile)
    assert free != profile
    (tmp_path / "free.toml").write_text(free, encoding="utf-8")
    words = [word if word != "h100_sxm" else "free.toml" for word in WORDS]
    output = answer(*words, "--estimator", "economics.planned")
    assert output["output_cost_per_mtok_usd"] == 0.0 < priced["output_cost_per_mtok_usd"]
    assert output["tpot_ms"] == priced["tpot_ms"]
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "No number of model, hardware or plan moves the $/Mtok." in text
    read = Reader(text)
    assert len(read.data["charts"]) == 2 + 1 + 2 + 1  # no bars of dollars
    (dollars,) = (a for a in read.data["tradeoff"]["axes"]["y"] if a["key"] == "usd_out")
    assert dollars["scale"]["type"] == "linear"


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
    assert read.plans[0]["series"] == SPELT
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


BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), "")
ALONE = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync")
ALONE += ("--disable-background-networking", "--disable-component-update")
ALONE += ("--enable-logging=stderr", "--virtual-time-budget=20000")

# what a reader does: points at marks, moves by keys, changes axes, limits and systems
READER = """<pre id="met"></pre><script>
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const wide = () => document.documentElement.scrollWidth - document.documentElement.clientWidth;
const told = () => document.getElementById("point").innerText;
const points = () => document.querySelectorAll("#plot .points_marks path").length;
const all = (what) => [...document.querySelectorAll(what)].map((x) => x.textContent);
const titles = () => all("#plot .role-axis-title text");
(async () => {
  while (document.documentElement.dataset.drawn !== "yes") await sleep(20);
  const met = { first: told(), points: points(), titles: titles(), wide: wide() };
  const plot = document.getElementById("plot");
  plot.focus();
  met.focused = document.activeElement === plot;
  const key = (name) =>
    plot.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
  key("ArrowRight"); met.right = told();
  key("ArrowDown"); met.down = told();
  const form = document.getElementById("controls");
  const set = async (name, value) => {
    form.elements[name].value = value;
    form.dispatchEvent(new Event("change"));
    await sleep(300);
  };
  await set("y", "rate"); met.rates = titles();
  await set("tpot", "10"); met.tight = told();
  await set("tpot", "0.001"); met.none = told();
  await set("tpot", "");
  form.querySelector("[name=series]").checked = false;
  await set("y", "usd"); met.fewer = points(); met.other = told();
  met.wider = wide();
  const [, last] = form.querySelectorAll("[name=series]");
  last.click(); met.stays = last.checked; // no chart without any system
  met.loaded = performance.getEntriesByType("resource").map((one) => one.name);
  met.charts = document.querySelectorAll(".vega svg.marks").length;
  document.getElementById("met").textContent = JSON.stringify(met);
})();
</script></body>"""


def browsed(folder, text, width):
    """(the page as a browser made it, its console): rendered in a folder of its own."""
    path = folder / "browsed.html"
    path.write_text(text, encoding="utf-8")
    words = [BROWSER, *ALONE, f"--user-data-dir={folder / 'browser'}", f"--window-size={width},900"]
    ran = subprocess.run(
        [*words, "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout, [line for line in ran.stderr.splitlines() if "CONSOLE" in line]


needs_browser = pytest.mark.skipif(
    not BROWSER, reason="no chromium on this machine: parsers and Vega alone read the page"
)


@needs_browser
def test_a_browser_draws_it_and_writes_nothing_on_its_console(searched_page, tmp_path):
    _, text = searched_page
    page, console = browsed(tmp_path, text, 1600)
    assert console == []
    assert 'data-drawn="yes"' in page
    assert all(f'id="{name}"' in page for name in SECTIONS)


@needs_browser
@pytest.mark.parametrize("width", [400, 1600])
def test_a_reader_points_moves_and_filters(searched_page, tmp_path, width):
    """Without the policy of the page, which lets no script of a test run."""
    output, text = searched_page
    text, policies = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    assert policies == 1
    page, console = browsed(tmp_path, READER.join(text.rsplit("</body>", 1)), width)
    assert console == []
    met = json.loads(unescape(re.findall(r'<pre id="met">(.*?)</pre>', page, re.DOTALL)[0]))
    assert met["loaded"] == []
    assert met["wide"] <= 0 and met["wider"] <= 0  # no wider than the window
    assert met["stays"]
    assert met["focused"] and met["charts"] == 8
    rows = output["frontiers"]
    assert met["points"] >= len(rows)
    assert in_words(output["layout"]) in met["first"] and "infer-jax" in met["first"]
    assert met["right"] != met["first"] and met["down"] != met["right"]
    assert "USD per million tokens, in and out" in met["titles"]
    assert "output tokens/s per GPU" in met["rates"]
    fast = [row for row in rows if row["tpot_ms"] <= 10.0]
    best = min(fast, key=lambda row: row["blended_cost_per_mtok_usd"])
    assert "Cheapest shown within these limits" in met["tight"]
    assert in_words(best["layout"]) in met["tight"]
    assert met["none"].startswith("No plan that is shown is within these limits")
    assert met["fewer"] == sum(row["series"] == "l4" for row in rows)
    assert "l4" in met["other"]
