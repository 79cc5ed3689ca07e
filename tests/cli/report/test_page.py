"""`infer-jax report`: one file that loads nothing, with a picture of every chart."""

import base64
import hashlib
import json
import re
import shlex

from infer_jax.catalog.systems import profiles_folder
from tests.cli.report.reading import SECTIONS, WORDS, Reader, pictures, shown
from tests.cli.running import answer


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
