"""`infer-jax sensitivity` and `infer-jax codesign`: answers, files, and mistakes told."""

import json

import pytest

from infer_jax.catalog import load_model
from tests.cli.running import answer, run

SPEC = """
estimator = "economics.planned"
[arch]
model = "llama-3.2-1b"
[hardware]
system = "h100_sxm"
[workload]
isl = 1024
osl = 128
[free]
width = [1024, 4096]
feedforward_width = [4096, 16384]
batch = [1, 64]
[start]
batch = 8
[objective]
best = "cost"
[limits]
tpot = 0.002
[[where]]
value = "parameters"
at_least = 1.2e9
[search]
restarts = 8
steps = 32
"""


def test_sensitivity_names_what_counts():
    words = ["llama-3.2-1b", "--hardware", "h100_sxm", "--tp", "1", "--batch", "4"]
    told = answer("sensitivity", *words)
    rows = {(e["output"], e["path"]): e for e in told["points"][0]["elasticities"]}
    memory = rows["tpot", "hardware.chip.memory_bandwidth"]
    assert -1.0 <= memory["slope"] < -0.5  # a small batch reads weights
    assert memory["tenth"] == pytest.approx(1.1 ** memory["slope"] - 1, abs=0.01)
    assert rows["cost", "hardware.price"]["slope"] == pytest.approx(1.0)
    assert told["what_if"]["weights at half the bytes"]["tpot"] < -0.2
    changed = answer("sensitivity", *words, "--set", "hardware.chip.memory_bandwidth=*2")
    again = {(e["output"], e["path"]): e for e in changed["points"][0]["elasticities"]}
    row = again["tpot", "hardware.chip.memory_bandwidth"]
    assert row["value"] == 2 * memory["value"]
    assert abs(row["slope"]) < abs(memory["slope"])


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--set", "hardware.chip.memory_bandwith=1"], "memory_bandwith"),
        (["--set", "hardware.price"], "PATH=NUMBER"),
        (["--set", "hardware.price=-3"], "hardware.price"),
        (["--along", "3"], "--along"),
        (["--out", "tornado.gif"], "--out"),
    ],
)
def test_a_wrong_question_is_told(extra, said):
    ran = run("sensitivity", "llama-3.2-1b", "--hardware", "h100_sxm", "--tp", "1", *extra)
    assert ran.code == 2
    assert said in ran.err and ran.err.count("\n") == 1


def test_a_design_and_its_files(tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    told = answer("codesign", "spec.toml", "--out", "made")
    assert told["gain"] >= 1.0 and told["start_keeps_limits"]
    assert told["terms"]["tpot"] <= 0.002
    assert told["terms"]["parameters"] >= 1.2e9
    assert told["design"]["arch.width"] % 128 == 0
    read = load_model("made/config.json").architecture
    assert float(read.width) == told["design"]["arch.width"]
    kept = json.loads((tmp_path / "made" / "design.json").read_text())
    assert kept["design"] == told["design"]
    made = sorted(p.name for p in (tmp_path / "made").iterdir())
    assert made == ["config.json", "design.json", "path.png"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["codesign"], "SPEC.toml"),
        (["codesign", "nowhere.toml"], "nowhere.toml"),
        (["codesign", "spec.toml", "--tpot", "30ms"], "--tpot"),
        (["codesign", "--model", "llama-3.2-1b", "--hardware", "h100_sxm"], "--tpot"),
        (["codesign", "bad.toml"], "free.experts"),
        (["codesign", "out.toml"], "bounds that hold the start"),
    ],
)
def test_a_wrong_file_is_told(words, said, tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    (tmp_path / "bad.toml").write_text(SPEC.replace("width = [1024, 4096]", "experts = [1, 4]"))
    (tmp_path / "out.toml").write_text(SPEC.replace("width = [1024, 4096]", "width = [2560, 4096]"))
    ran = run(*words)
    assert ran.code == 2
    assert said in ran.err and ran.err.count("\n") == 1
