"""`infer-jax sensitivity` and `infer-jax codesign`: answers, files, and mistakes told."""

import json
import math
import os
import tomllib
from dataclasses import replace

import pytest

import infer_jax as ij
from infer_jax.catalog import load_model
from infer_jax.design import load_spec
from tests.cli.running import answer, answered_once, run
from tests.installed.test_verbs import SPEC as PLAIN

SPEC = (
    PLAIN.replace("[arch]", 'second = "serving"\n[arch]').replace(
        "[free]", "[free]\nwidth = [1024, 4096]\nfeedforward_width = [4096, 16384]"
    )
    + """
[[where]]
value = "parameters"
at_least = 1.2e9
[quality]
law = "chinchilla"
tokens = 9e12
"""
)


def test_sensitivity_names_what_counts():
    words = ["llama-3.2-1b", "--hardware", "h100_sxm", "--tp", "1", "--batch", "4"]
    words += ["--estimator", "economics.planned", "--top", "99"]
    output, shown = answered_once("sensitivity", *words, "--second")
    rows = {(e["output"], e["path"]): e for e in output["points"][0]["elasticities"]}
    memory = rows["tpot", "hardware.chip.memory_bandwidth"]
    assert -1.0 <= memory["slope"] < -0.5  # a small batch reads weights
    assert memory["tenth"] == pytest.approx(1.1 ** memory["slope"] - 1, abs=0.01)
    assert rows["cost", "hardware.price"]["slope"] == pytest.approx(1.0)
    bent = {one["output"]: one for one in output["curvatures"]}["tpot"]
    at = bent["paths"].index("hardware.chip.memory_bandwidth")
    assert bent["matrix"][at][at] > 0.0  # the more there is, the less it counts
    assert "how slopes move" in shown and "with 10 % more of the first" in " ".join(shown.split())
    assert output["what_if"]["weights at half the bytes: 8 bits"]["tpot"] < -0.2
    changed = answer("sensitivity", *words, "--set", "hardware.chip.memory_bandwidth=*2")
    again = {(e["output"], e["path"]): e for e in changed["points"][0]["elasticities"]}
    row = again["tpot", "hardware.chip.memory_bandwidth"]
    assert row["value"] == 2 * memory["value"]
    assert abs(row["slope"]) < abs(memory["slope"])
    # what this model and its hardware have
    titles = [line[:26].strip() for line in shown.splitlines()]
    for name in ("memory bandwidth", "rent of a GPU", "layers", "requests in flight"):
        assert name in titles
    assert "estimator." not in shown and "plan." not in shown and "EP" not in shown
    assert {"J/Mtok", "$/Mtok", "TPOT (s)", "TTFT (s)"} <= set(titles)
    assert "estimator " in run("sensitivity", *words, "--coefficients").out


def test_without_a_file_it_is_a_loop_over_model_split_and_batch():
    limits = ["--ttft", "0.2s", "--tpot", "4ms", "--target-throughput", "2000"]
    output = answer("codesign", "--model", "llama-3.2-1b", "--hardware", "h100_sxm", *limits)
    assert output["limits"] == {"ttft": 0.2, "tpot": 0.004, "throughput": 2000.0}
    terms, start = output["terms"], output["start_terms"]
    assert terms["ttft"] <= 0.2 and terms["tpot"] <= 0.004 and terms["throughput"] >= 2000.0
    for name in ("parameters", "active"):
        assert terms[name] == pytest.approx(start[name], rel=0.02)
    heads = "arch.blocks.0.attention.query_heads"
    assert output["design"][heads] % output["design"]["plan.tp"] == 0
    assert output["config"]["num_attention_heads"] == output["design"][heads]
    assert output["gain"] >= 1.0 or not output["start_keeps_limits"]


@pytest.fixture(scope="module")
def designed(tmp_path_factory):
    """(JSON, text, folder) of the design, whose answers are judged by a second estimator, too."""
    folder = tmp_path_factory.mktemp("design")
    (folder / "spec.toml").write_text(SPEC)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("COLUMNS", "80")
        patch.setenv("JAX_PLATFORMS", os.environ.get("JAX_PLATFORMS") or "cpu")
        files = ("--out", "made", "--out", "path.svg")
        return *answered_once("codesign", "spec.toml", *files), folder / "made"


def test_a_design_and_its_files(designed):
    output, _, folder = designed
    assert output["gain"] >= 1.0 and output["start_keeps_limits"]
    assert output["terms"]["tpot"] <= 0.002
    assert output["terms"]["parameters"] >= 1.2e9
    assert output["design"]["arch.width"] % 128 == 0
    read = load_model(str(folder / "config.json")).architecture
    assert float(read.width) == output["design"]["arch.width"]
    kept = json.loads((folder / "design.json").read_text())
    assert kept["design"] == output["design"]
    law = next(note for note in output["notes"] if "Chinchilla" in note)  # trained for longer
    assert "tokens 9e+12" in law and "5e+09 to 5e+11" in law and "arXiv" in law
    built = sorted(p.name for p in folder.iterdir())
    assert built == ["config.json", "design.json"]
    assert folder.with_name("path.svg").read_text().count("<svg") == 1


def test_designs_along_a_limit_are_a_table_and_a_picture(designed, tmp_path):
    """Of a table, and of several limits, of which the first is the command's."""
    said, _, _ = designed
    spec = tomllib.loads(SPEC)
    spec["objective"]["along"] = {"tpot": [0.002, 0.004]}
    front = ij.codesign(spec=spec)
    assert [dict(one.keep.under)["tpot"] for one in front.designs] == [0.002, 0.004]
    table = front.to_dict()
    assert len(table["frontier"]) == len(front.rows()) == 2  # pyright: ignore
    assert table["along"] == "tpot" and len(table["flips"]) == len(front.flips)  # pyright: ignore
    path = front.designs[0].path
    assert math.prod(step.gain for step in path.steps) == pytest.approx(
        front.designs[0].design.gain
    )
    (axes,) = front.plot().axes
    assert axes.get_xlabel() == "limit of TPOT, ms"
    result = replace(front, designs=front.designs[:1])
    assert result.to_dict()["design"] == said["design"]
    rows = {row["term"]: row for row in result.rows()}
    assert rows["tpot"]["design"] == said["terms"]["tpot"] and rows["tpot"]["unit"] == "s"
    assert len(result.plot().axes) == 4
    (tmp_path / "spec.toml").write_text(SPEC)
    assert load_spec("spec.toml").keeps[0] == result.designs[0].keep
    with pytest.raises(ij.InputError, match=r"^codesign: tpot is"):
        ij.codesign(spec="spec.toml", tpot=0.03)


def test_a_design_that_breaks_limits_under_the_second_estimator_says_so_first(designed):
    """2 ms a token are below the launches of a server: 16 layers of 73 us are 1.2 ms alone."""
    output, text, _ = designed
    second = output["second_estimator"]
    assert second["name"] == "serving" and not second["design"]["feasible"]
    assert second["design"]["tpot"] > 0.002
    assert any("asked for at most 0.002" in text for text in second["design"]["broken"])
    assert [known["rows"] > 0 for known in output["trust"]] == [False, True]
    out = " ".join(text.split())
    assert "Not feasible by serving, the second estimator: the design: tpot is" in out
    assert out.index("Not feasible") < out.index("free start design")
