"""`infer-jax report`: one file that loads nothing, whose numbers are those of the other verbs."""

import base64
import hashlib
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
from infer_jax.launch import Instance, LaunchedService, ModelCheckpoint, launches
from infer_jax.pages import decision, figures, look, page, tradeoff, vega
from infer_jax.pages.tradeoff import PlanSeries, Plotted, Tradeoff
from tests.cli.running import answer, run

WORDS = ("report", "llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "2", "--batch", "32")
ASKED = ("llama-3.1-8b", "--hardware", "h100_sxm", "--hardware", "l4", "--total-gpus", "2")
VOID = {"meta", "br", "hr", "img", "link", "input"}
SECTIONS = [
    "answer",
    "tradeoff",
    "controls",
    "plot",
    "how",
    "point",
    "plan",
    "flags",
    "cost",
    "time",
]
SECTIONS += ["memory", "sensitivity", "trust", "roofline", "sources", "charts"]
INTERVALS = ("ttft_interval80_ms", "tpot_interval80_ms")


class Reader(HTMLParser):
    """A page as a browser takes it apart: elements opened and closed, attributes, text, scripts."""

    def __init__(self, text):
        super().__init__()
        self.open, self.attributes, self.text, self.tags, self.scripts = [], [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if "svg" not in self.open:  # ids within a picture are its own
            self.attributes += attrs
        if tag == "script":
            self.scripts.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        else:
            self.text.append(data)

    @property
    def data(self):
        """The charts as the page's script reads them."""
        return json.loads(self.scripts[0])


def pictures(text):
    """Every SVG of a page, by an XML parser, which takes nothing that is not well-formed."""
    body = text.partition("<script")[0]
    return [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", body, re.DOTALL)]


def shown(text):
    """The lines to copy."""
    return [unescape(x) for x in re.findall(r"<pre>(.*?)</pre>", text, re.DOTALL) if x]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The page of a plan that is given, and what the command says of it."""
    yield from written(tmp_path_factory, *WORDS, "--estimator", "economics.planned")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The page of a plan that is looked for on two systems, one of which is too slow."""
    yield from written(tmp_path_factory, "report", *ASKED, "--tpot", "20ms")


def written(factory, *words):
    folder = factory.mktemp("report")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("JAX_PLATFORMS", os.environ.get("JAX_PLATFORMS") or "cpu")
        told = answer(*words)
        yield told, (folder / "report.html").read_text(encoding="utf-8")


def test_the_page_is_whole_and_loads_nothing(made, found):
    for _, text in (made, found):
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


def test_the_page_names_the_command_of_every_section(made):
    _, text = made
    commands = [x for x in shown(text) if x.startswith("infer-jax ")]
    assert max(len(line) for told in commands for line in told.split("\n")) < 80
    asked = [shlex.split(told.replace("\\\n", "")) for told in commands]
    assert [words[1] for words in asked] == ["estimate", "memory", "sensitivity", "frontier"]
    assert all("--hardware" in words and "h100_sxm" in words for words in asked)


def test_every_chart_is_a_picture_too_with_as_many_marks_as_data(made, found):
    """What stands in the page before a script runs, drawn by Vega-Lite."""
    for _, text in (made, found):
        read, drawn = Reader(text), pictures(text)
        assert len(drawn) == 1 + len(read.data["charts"]) == 1 + 2 + 1 + 3 + 1
        assert all(svg.get("viewBox") for svg in drawn)
        spec = read.data["tradeoff"]["spec"]
        first = next(p["value"] for p in spec["params"] if p["name"] == "shown")
        plans = [p for p in spec["datasets"]["plans"] if p["series"] in first]
        groups = [g for g in drawn[0].iter() if "points_marks" in (g.get("class") or "")]
        assert sum(len(list(g)) for g in groups) == len(plans) > 20
        assert not re.search(r'="(nan|-?inf(inity)?)"|NaN', text.partition('<script type="app')[0])
        charts = text.partition("<script")[0].split('<div class="vega"')[1:]
        labels = [re.match(r' data-chart="[^"]+" role="img" aria-label="[^"]+"', x) for x in charts]
        assert len(labels) == len(drawn) and all(labels)


def test_the_frontier_of_an_ideal_server_is_the_one_that_the_verb_prints(made):
    told, text = made
    theirs = answer("frontier", "llama-3.1-8b", "--hardware", "h100_sxm", "--no-picture")["rows"]
    assert told["frontier"] == theirs
    drawn = [p for p in Reader(text).data["tradeoff"]["spec"]["datasets"]["plans"] if p["line"]]
    names = {"gpus": "gpus", "batch": "batch", "speed": "speed_tokens_per_s"}
    names |= {"usd_out": "output_cost_per_mtok_usd", "tpot": "tpot_ms"}
    for row, mine in zip(theirs, drawn, strict=True):
        assert [mine[k] for k in names] == pytest.approx(
            [row[k] for k in names.values()], rel=1e-12
        )


def test_numbers_are_those_of_estimate_and_memory(made):
    told, text = made
    same = [*WORDS[1:], "--estimator", "economics.planned"]
    one = answer("estimate", *same)
    for name in ("ttft_ms", "tpot_ms", "speed_tokens_per_s", "output_cost_per_mtok_usd"):
        assert told[name] == pytest.approx(one[name], rel=1e-9)
    held = answer("memory", *WORDS[1:6], "--max-model-len", "4608")  # isl + osl
    assert f"{held['weights_bytes']:,.0f}" in text
    assert f"{held['kv_cache_size_tokens']:,.0f} tokens" in text


def test_what_it_costs_adds_up(made):
    """Fresh and cached tokens at their prices are what a prompt with that much cached pays."""
    told, text = made
    costs, (isl, osl) = told["costs"], (4096, 512)
    assert costs["per_month_usd"] == pytest.approx(730 * costs["per_hour_usd"])
    assert costs["per_hour_usd"] == pytest.approx(2 * told["price_per_hour_usd"])
    paid = isl * costs["input_per_mtok_usd"] + osl * costs["output_per_mtok_usd"]
    assert paid == pytest.approx((isl + osl) * costs["blended_per_mtok_usd"])
    held = costs["cached_input_tokens"]
    same = [*WORDS[1:], "--estimator", "economics.planned", "--prefix", str(held)]
    half = answer("estimate", *same)["input_cost_per_mtok_usd"] * (isl - held)
    mine = (isl - held) * costs["input_per_mtok_usd"] + held * costs["cached_input_per_mtok_usd"]
    assert mine == pytest.approx(half)
    assert 0.0 < costs["cached_input_per_mtok_usd"] < costs["input_per_mtok_usd"]
    assert f"{costs['per_month_usd']:,.0f}" in text


def test_every_number_of_the_hardware_has_a_source(made):
    _, text = made
    assert "meta-llama/Meta-Llama-3.1-8B" in text
    assert "profile h100_sxm.toml, shipped" in text
    row = r'<td class="w">(chip\.\w+)</td><td>([^<]+)</td>.*?<td class="w">([^<]+)</td></tr>'
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
    read = Reader(text)
    assert len(read.data["charts"]) == 2 + 1 + 2 + 1  # no bars of dollars
    (dollars,) = (a for a in read.data["tradeoff"]["axes"]["y"] if a["key"] == "usd_out")
    assert dollars["scale"]["type"] == "linear"


def test_the_plan_is_the_first_that_the_verb_plan_prints(found):
    """The same question has the same answer: layout, batch, times, dollars, what starts it."""
    told, text = found
    planned = answer("plan", *ASKED, "--tpot", "20ms")
    first = planned["plans"][0]
    assert (told["layout"], told["hardware"]) == (first["layout"], first["hardware"])
    assert told["batch"] == first["concurrency_per_replica"]
    for name in ("ttft_ms", "tpot_ms", "output_cost_per_mtok_usd"):
        assert told[name] == pytest.approx(first[name], rel=1e-9)
    assert told["costs"]["blended_per_mtok_usd"] == first["blended_cost_per_mtok_usd"]
    assert told["launch"] == planned["launch"]
    for launch in planned["launch"].values():
        for step in launch["commands"]:
            assert step["command"] in unescape(text)
    chosen = [p for p in Reader(text).data["tradeoff"]["spec"]["datasets"]["plans"] if p["chosen"]]
    assert [(p["layout"], p["usd"]) for p in chosen] == [
        (first["layout"], first["blended_cost_per_mtok_usd"])
    ]


def test_two_pools_have_their_page(tmp_path):
    words = ("llama-3.1-8b", "--hardware", "h100_sxm", "--total-gpus", "3", "--tpot", "12ms")
    told, planned = answer("report", *words), answer("plan", *words)
    first = planned["plans"][0]
    assert told["layout"] == first["layout"] and ">" in told["layout"]
    assert told["launch"] == planned["launch"]
    costs = told["costs"]
    paid = 4096 * costs["input_per_mtok_usd"] + 512 * costs["output_per_mtok_usd"]
    assert paid == pytest.approx(4608 * first["blended_cost_per_mtok_usd"], rel=1e-9)
    assert 0.0 < costs["cached_input_per_mtok_usd"] < 0.5 * costs["input_per_mtok_usd"]
    assert told["layout"] in unescape((tmp_path / "report.html").read_text(encoding="utf-8"))


def test_a_system_that_cannot_meet_the_limits_is_said_and_no_error(found):
    told, text = found
    able, unable = told["systems"]
    assert (able["hardware"], able["feasible"]) == ("h100_sxm", True)
    assert (unable["hardware"], unable["feasible"]) == ("l4", False)
    (share,) = (unable["broken"][name] for name in ("TPOT",))
    lead = unescape(re.findall(r'id="answer">(.*?)</p>', text, re.DOTALL)[0])
    assert lead == told["answer"] and lead.endswith(f"l4 breaks {', '.join(broken(unable))}.")
    assert share == pytest.approx(unable["tpot_ms"] / 20.0 - 1.0)


def broken(system):
    worst = sorted(system["broken"].items(), key=lambda item: -item[1])
    return [f"{name} by {share:.1%}" for name, share in worst]


def test_where_no_system_meets_the_limits_the_nearest_is_said():
    told = answer("report", *ASKED, "--tpot", "0.5ms", "--out", "chart.svg")
    assert not any(system["feasible"] for system in told["systems"])
    nearest = min(told["systems"], key=lambda system: max(system["broken"].values()))
    assert told["hardware"] == nearest["hardware"]
    said = f"No plan meets every limit: the nearest breaks {broken(nearest)[0]}"
    assert said in told["answer"]
    # the chart alone, with its title and caption, also for readers of the screen
    (title, caption) = [*ET.parse("chart.svg").getroot()][:2]
    assert title.text and "4,096 tokens in, 512 out" in (caption.text or "")


def test_frontiers_are_those_of_the_verb_plan_on_every_system(found):
    told, text = found
    rows = told["frontiers"]
    assert {row["series"] for row in rows} == {"h100_sxm", "l4"}
    alone = answer("plan", "llama-3.1-8b", *ASKED[1:3], *ASKED[5:], "--frontier")["frontier"]
    key = ("layout", "concurrency_per_replica", "tpot_ms", "blended_cost_per_mtok_usd")
    mine = {tuple(row[k] for k in key) for row in rows if row["series"] == "h100_sxm"}
    assert {tuple(row[k] for k in key) for row in alone} <= mine
    drawn = Reader(text).data["tradeoff"]["spec"]["datasets"]["plans"]
    seen = {
        (p["layout"], p["batch"], p["tpot"], p["usd"]) for p in drawn if p["series"] == "h100_sxm"
    }
    assert mine <= seen


def test_the_command_of_a_point_answers_it_and_its_band(found):
    told, text = found
    rows = [row for row in told["frontiers"] if row["series"] == "h100_sxm"]
    one = next(row for row in rows if row["mode"] == "aggregated")
    words = shlex.split(one["command"].replace("\\\n", ""))
    assert words[:2] == ["infer-jax", "estimate"]
    same = answer(*words[1:])
    for name in ("ttft_ms", "tpot_ms", "output_cost_per_mtok_usd", *INTERVALS):
        assert one[name] == pytest.approx(same[name], rel=1e-9), name
    pools = next(row for row in rows if row["mode"] == "disaggregated")
    words = shlex.split(pools["command"].replace("\\\n", ""))
    (best, *_) = answer(*words[1:])["plans"]
    assert best["tpot_ms"] <= 1.001 * pools["tpot_ms"]
    assert best["blended_cost_per_mtok_usd"] <= pools["blended_cost_per_mtok_usd"] * (1 + 1e-9)
    # the band: at the same requests in flight throughput and dollars go by the latency
    plans = Reader(text).data["tradeoff"]["spec"]["datasets"]["plans"]
    drawn = next(p for p in plans if (p["layout"], p["tpot"]) == (one["layout"], one["tpot_ms"]))
    for side, end in (("fast", 0), ("slow", 1)):
        times = [one[name][end] for name in INTERVALS]
        whole = (times[0] + 511 * times[1]) / (one["ttft_ms"] + 511 * one["tpot_ms"])
        assert drawn[f"usd_{side}"] == pytest.approx(whole * one["blended_cost_per_mtok_usd"])
        assert drawn[f"speed_{side}"] == pytest.approx(1e3 / times[1])
    assert not any(p["banded"] for p in plans if p["pools"])


def test_refusals_are_one_sentence(tmp_path, monkeypatch):
    for out in ("report.pdf", "report", str(tmp_path / "none" / "report.html")):
        ran = run(*WORDS, "--out", out)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.count("\n") == 1 and "--out" in ran.err
    assert list(tmp_path.iterdir()) == []
    ran = run(*WORDS, "--estimator", "economics")
    assert ran.code == 2 and "economics.planned" in ran.err
    ran = run(*WORDS[:4], "--estimator", "economics.planned")
    assert ran.code == 2 and "--tp" in ran.err
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
    plans = [Plotted(HOSTILE, HOSTILE, 1.0, 1.0, numbers, command=launch.steps[0].command)]
    plans += [plans[0]._replace(numbers=dict.fromkeys(numbers, 3.0))]
    series = Tradeoff([PlanSeries(HOSTILE, 0)], plans, 0, label=HOSTILE)
    bars = figures.bars(HOSTILE, [figures.Bar(HOSTILE, 1.0, HOSTILE, HOSTILE)], "ms")
    text = decision.alone(series, title=HOSTILE, lead=HOSTILE, notes=[HOSTILE])
    text += page.render("macros.html")
    assert not any(c in text for c in "\x00\x1b\u202e")
    read = Reader(text)
    assert read.tags.count("script") == len(read.scripts) == 3
    assert read.data["tradeoff"]["spec"]["datasets"]["plans"][0]["series"] == SPELT
    assert "".join(read.text).count(SPELT) >= 6
    (svg,) = pictures(text)
    assert SPELT in {node.text for node in svg.iter() if node.text}
    drawn = ET.fromstring(vega.svg(page.cleaned(bars)))  # pyright: ignore[reportArgumentType]
    assert SPELT in {node.text for node in drawn.iter() if node.text}
    with pytest.raises(ValueError, match="ends its own element"):
        page.render(
            "base.html",
            library="</SCRIPT>",
            **dict.fromkeys(("policy", "title", "css", "lead", "script"), ""),
            data={},
            plans=series,
            rows=[],
            axes={"x": [], "y": []},
            pictures={"tradeoff": tradeoff.chart(series)},
        )


def luminance(tone):
    """Relative luminance of #rrggbb (WCAG 2.2)."""
    parts = [int(tone[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return sum(w * x for w, x in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_tones_and_text_stand_out_in_light_and_in_dark():
    """WCAG 2.2: 3 : 1 for what is drawn (1.4.11), 4.5 : 1 for text (1.4.3)."""
    for ground, colour in look.GROUNDS.items():
        texts = [(look.INKS[ground], 4.5), (look.QUIETS[ground], 4.5)]
        for tone, least in [*((tone, 3.0) for tone in look.TONES), *texts]:
            low, high = sorted((luminance(tone), luminance(colour)))
            assert (high + 0.05) / (low + 0.05) >= least, (tone, ground)
    css = page.own("page.css")
    for book in (look.GROUNDS, look.INKS, look.QUIETS):
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


needs_browser = pytest.mark.skipif(
    not BROWSER, reason="no chromium on this machine: parsers and Vega alone read the page"
)


@needs_browser
def test_a_browser_draws_it_and_writes_nothing_on_its_console(found, tmp_path):
    _, text = found
    page, console = browsed(tmp_path, text, 1600)
    assert console == []
    assert 'data-drawn="yes"' in page
    assert all(f'id="{name}"' in page for name in SECTIONS)


@needs_browser
@pytest.mark.parametrize("width", [400, 1600])
def test_a_reader_points_moves_and_filters(found, tmp_path, width):
    """Without the policy of the page, which lets no script of a test run."""
    told, text = found
    text, policies = re.subn(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    assert policies == 1
    page, console = browsed(tmp_path, READER.join(text.rsplit("</body>", 1)), width)
    assert console == []
    met = json.loads(unescape(re.findall(r'<pre id="met">(.*?)</pre>', page, re.DOTALL)[0]))
    assert met["loaded"] == []
    assert met["wide"] <= 0 and met["wider"] <= 0  # no wider than the window
    assert met["focused"] and met["charts"] == 8
    rows = told["frontiers"]
    assert met["points"] >= len(rows)
    assert told["layout"] in met["first"] and "infer-jax" in met["first"]
    assert met["right"] != met["first"] and met["down"] != met["right"]
    assert "USD per million tokens, in and out" in met["titles"]
    assert "output tokens/s per GPU" in met["rates"]
    fast = [row for row in rows if row["tpot_ms"] <= 10.0]
    best = min(fast, key=lambda row: row["blended_cost_per_mtok_usd"])
    assert "Cheapest shown within these limits" in met["tight"] and best["layout"] in met["tight"]
    assert met["none"].startswith("No plan that is shown is within these limits")
    assert met["fewer"] == sum(row["series"] == "l4" for row in rows)
    assert "l4" in met["other"]
