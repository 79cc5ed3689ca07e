"""``plan --out FOLDER`` and ``deploy`` write the same folder, and refuse what is none."""

import json

import pytest

import infer_jax as ij
from tests.cli.running import answer, run

ASKED = (
    "plan", "llama-3.1-8b", "--hardware", "h100_sxm", "--total-gpus", "2", "--mode", "aggregated",
)  # fmt: skip
FAST = ("--tpot", "1us")  # a limit that no plan keeps


def test_a_plan_and_its_json_become_the_same_folder(tmp_path):
    place, second = tmp_path / "service", tmp_path / "again"
    plans = answer(*ASKED, "--tpot", "12ms", "--out", str(place))
    assert plans["folder"] == str(place) and plans["deployment"]["title"]
    (tmp_path / "plan.json").write_text(json.dumps(plans))
    files = answer("deploy", str(tmp_path / "plan.json"), "--out", str(second))["files"]
    names = {x.name for x in place.iterdir()}
    assert names == {x["file"] for x in files} | {"README.md"}
    for name in names:
        assert (place / name).read_bytes() == (second / name).read_bytes()
    # the page has the numbers that the plan prints
    best, page = plans["plans"][0], (place / "README.md").read_text()
    assert f"| TPOT | 12 ms | {best['tpot_ms']:.4g} ms |" in page
    assert f"| Rent |  | ${best['cost_per_hour_usd']:.4g} per hour |" in page
    # the command that the plan prints is the one that the script starts
    (printed,) = plans["launch"]["vLLM"]["commands"]
    script = (place / "start.sh").read_text()
    for option in printed["command"].split(" \\\n  ")[1:]:
        assert option in script
    # refused before anything is computed, and left as it was
    refused = run(*ASKED, "--out", str(place))
    assert refused.code == 2 and "a folder that holds something" in refused.err
    assert {x.name for x in place.iterdir()} == names


def test_no_plan_no_folder(tmp_path):
    plans = answer(*ASKED, *FAST, "--out", f"{tmp_path}/service/", code=1)
    assert not plans["feasible"] and plans["deployment"] is None
    assert not [*tmp_path.iterdir()]
    (tmp_path / "plan.json").write_text(json.dumps(plans))
    ran = run("deploy", str(tmp_path / "plan.json"), "--out", str(tmp_path / "service"))
    assert ran.code == 2 and "a plan within the limits" in ran.err
    found = ij.plan("llama-3.1-8b", "h100_sxm", total_gpus=2, tpot=1e-6, mode="aggregated")
    with pytest.raises(ij.InputError, match="within the limits"):
        found.deploy(tmp_path / "service")
