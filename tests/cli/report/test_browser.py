"""The page of the report in a browser: drawn, quiet, and followed by a reader who moves in it."""

import json
import re
import shutil
import subprocess
from html import unescape

import pytest

from infer_jax.plots.plan_chart import in_words
from tests.cli.report.reading import SECTIONS

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
