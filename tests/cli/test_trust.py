"""Every answer says which estimator spoke and how far it is trusted; borrowed rows are marked."""

from tests.cli.running import answer, answered_once, run

ONE = ("--tp", "1", "--isl", "1000", "--osl", "101")
SPACE = """
[arch]
model = "llama-3.1-8b"
[hardware]
systems = ["h100_sxm", "h20_sxm", "dark.toml"]
[plan]
tp = { values = [1, 2] }
[keep]
top = 6
by = "cost"
"""


DARK = """
base = "h100_sxm"
title = "an H100 of unknown power"
power_w = { value = 0, source = "us" }
[sources]
us = "we, 2026"
"""


def lines(out: str) -> str:
    return " ".join(out.split())


def test_estimate_marks_what_is_borrowed():
    point = ("estimate", "llama-3.1-8b", "--hardware", "h20_sxm", *ONE)
    output, printed = answered_once(*point)
    assert output["trust"]["borrowed_from"] == "Hopper" and output["trust"]["rows"] == 0
    assert "no measured rows for h20_sxm: coefficients borrowed from Hopper" in lines(printed)
    assert f"~{output['ttft_ms']:.4g}" in printed


def test_a_plan_marks_its_borrowed_rows_and_no_other():
    words = ("plan", "llama-3.1-8b", "--hardware", "h100_sxm", "--hardware", "h20_sxm")
    words += ("--total-gpus", "1", "--isl", "1000", "--osl", "101")
    output, printed = answered_once(*words)
    assert {row["hardware"]: row["borrowed_from"] for row in output["plans"]} == {
        "h100_sxm": None,
        "h20_sxm": "Hopper",
    }
    assert output["trust"]["h100_sxm"]["rows"] > 0 == output["trust"]["h20_sxm"]["rows"]
    rows = [line for line in printed.splitlines() if "x TP1" in line and " 1 " in line]
    assert rows
    for line in rows:
        if "h20_sxm" in line or "h100_sxm" in line:
            assert line.startswith("~") == ("h20_sxm" in line)


def test_compare_marks_the_column():
    words = ("compare", "llama-3.1-8b", "--hardware", "h20_sxm", *ONE, "--estimator",
             "economics.planned")  # fmt: skip
    output, printed = answered_once(*words)
    one, two = output["estimators"]
    assert one["trust"]["borrowed_from"] == "Hopper" and two["trust"]["borrowed_from"] is None
    assert "serving ~" in printed and "economics.planned ~" not in printed
    assert "second over first" in lines(printed)


def test_a_sweep_marks_its_rows_and_asks_no_energy_of_a_chip_whose_power_is_unknown(tmp_path):
    (tmp_path / "dark.toml").write_text(DARK)
    file = tmp_path / "space.toml"
    file.write_text(SPACE.replace('by = "cost"', 'by = "energy"'))
    refused = run("sweep", "space.toml")
    assert refused.code == 2 and "dark has none" in refused.err
    file.write_text(SPACE)
    output, printed = answered_once("sweep", "space.toml")
    borrowed = {one["hardware"]: one["borrowed_from"] for one in output["trust"]}
    assert borrowed["h100_sxm"] is None and borrowed["h20_sxm"] == "Hopper"
    assert "~ h20_sxm" in printed and "~ h100_sxm" not in printed
    energies = {row["hardware"]: row.get("energy") for row in output["rows"]}
    assert energies["dark"] is None


def test_a_command_is_of_the_release_that_it_names():
    words = ("estimate", "llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "1")
    old = answer(*words, "--engine-version", "0.12.0")
    assert old["engine_version"] == "0.12.0" and old["tpot_ms"] > answer(*words)["tpot_ms"]
    assert "vLLM 0.12.0 of 2025-12, 6 months older than" in old["trust"]["says"]
    wrong = run(*words, "--engine-version", "0.5.0")
    known = "a release of vLLM from 0.6.0 to 0.33.0, or a month from 2024-09 on\n"
    assert wrong.code == 2
    assert wrong.err == f"infer-jax: --engine-version is '0.5.0'; allowed: {known}"
    assert "of 2026-06" in " ".join(run("estimate", "--help").out.split())


def test_a_measured_system_is_told_by_its_errors_and_marked_nowhere():
    point = ("llama-3.1-8b", "--hardware", "h100_sxm", *ONE)
    for verb in ("estimate", "sensitivity"):  # which lists other chips, too
        answered, printed = answered_once(verb, *point)
        assert answered["trust"]["says"] in lines(printed)
        assert verb != "estimate" or "~" not in printed
