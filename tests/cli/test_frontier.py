"""`infer-jax frontier` and `sweep`: points of the estimator, limits, files, mistakes."""

import json
import re
from typing import Any

import jax
import numpy as np
import pytest

import infer_jax as ij
from infer_jax.physics.cost import usd_per_million_tokens
from infer_jax.verbs.frontier_result import FrontierResult, FrontiersResult
from tests.cli.report.reading import Reader
from tests.cli.running import answer, answered_once, as_command, close, run

POINT = ("llama-3.1-8b", "h100_sxm")
WORDS = ("frontier", "llama-3.1-8b", "--hardware", "h100_sxm", "--total-gpus", "8")
COST, SPEED = "output_cost_per_mtok_usd", "speed_tokens_per_s"


@pytest.fixture(scope="module")
def best():
    return ij.frontier(*POINT, total_gpus=8)


@pytest.fixture(scope="module")
def printed():
    """(JSON, text) of the command."""
    return answered_once(*WORDS, "--no-picture")


def test_the_command_prints_what_the_verb_answers(best, printed):
    said, text = printed
    assert {"schema": said["schema"], **as_command(best)[0]} == said
    assert as_command(best)[1].split() == text.split()
    assert text.count("\n*  ") == 1 and f"25 of {said['frontier_points']} points" in text
    for row in (said["rows"][0], said["preferred"], said["rows"][-1]):
        assert f"{row[COST]:.3g}" in text
    assert said["estimator"] == "economics.planned" and said["trust"]["rows"] == 0
    assert "an ideal machine" in said["trust"]["says"]
    assert said["trust"]["says"] in " ".join(text.split())
    assert best._repr_html_().count("<tr style") == 1  # the preferred point
    every = ij.frontier(*POINT, total_gpus=8, all=True)
    assert len(str(every).splitlines()) - len(str(best).splitlines()) == len(best.points) - 25
    given = ij.frontier(ij.load_model(POINT[0]), ij.load_system(POINT[1]), total_gpus=8)
    assert given.to_dict() == best.to_dict()
    pytest.importorskip("pandas")
    frame = best.to_pandas()
    assert frame[COST].tolist() == best.points.cost.tolist()
    assert {"terms.memory_ms", "binds", "tp"} <= set(frame)


def test_it_is_a_frontier_of_its_own_points_whose_layouts_engines_run(printed):
    output, _ = printed
    rows, system = output["rows"], ij.load_system(POINT[1])
    speed, cost = (np.array([row[name] for row in rows]) for name in (SPEED, COST))
    assert len(rows) == output["frontier_points"] > 25
    assert (np.diff(speed) < 0).all() and (np.diff(cost) < 0).all()
    liked = max(rows, key=lambda r: r[SPEED] ** 3 / r[COST])
    assert output["preferred"] == liked
    for row in rows:  # of a model of 32 query heads
        assert row["gpus"] == row["tp"] * row["pp"] * row["ep"] and row["batch"] % 1 == 0
        assert row["tp"] in (1, 2, 4, 8) and row["pp"] % 1 == 0
    arch, hardware = ij.load_model(POINT[0]).architecture, system.hardware
    step = jax.jit(ij.make("economics.planned", system.coefficients).step)
    for row in (rows[0], liked, rows[-1]):
        one = ij.ForwardPass.of(
            sequences=float(row["batch"]), new_tokens=1.0, cached_tokens=4096 + 511 / 2
        )
        plan = ij.Plan.of(**{name: float(row[name]) for name in ("tp", "pp", "ep")})
        phase = step(arch, hardware, one, plan)
        price = usd_per_million_tokens(row["gpus"], hardware.price, phase.time, row["batch"])
        assert close(row["tpot_ms"], 1e3 * phase.time) and close(row[COST], price)
        assert close(row["mfu"], phase.mfu)
        assert close(row["terms"][f"{row['binds']}_ms"], 1e3 * max(phase.terms.values()))
    # of real degrees more are tried, as in the paper: none of them is beaten at its speed
    real = answer(*WORDS, "--no-picture", "--real-degrees")
    assert any(row["tp"] % 1 for row in real["rows"])
    most = real["preferred"]
    faster = [r[COST] for r in rows if r[SPEED] >= most[SPEED]]
    assert min(faster, default=np.inf) >= most[COST] * (1 - 1e-6)


def test_limits_and_demand(printed):
    every = printed[0]["rows"]
    within = answer(*WORDS, "--no-picture", "--tpot", "8ms")["rows"]
    assert within == [
        dict(row, preferred=p["preferred"]) for row, p in zip(every, within, strict=False)
    ]
    assert within[-1]["tpot_ms"] <= 8 < every[len(within)]["tpot_ms"]
    served = answer(*WORDS, "--no-picture", "--demand", "500")["rows"]
    assert all(row["batch"] * row[SPEED] <= 500 for row in served)


def test_it_tells_why_there_is_nothing():
    words = ("frontier", "llama-3.1-405b", "--hardware", "h100_sxm", "--total-gpus", "8")
    output = answer(*words, "--no-picture")
    assert output["rows"] == [] and output["preferred"] is None
    # 405 853 388 800 parameters in 2 bytes over 8 GPUs are 101.46 GB of each; activations, the
    # runtime and a little cache come on top
    assert "8 GPUs and a batch of 1, memory needs 1" in output["why"]
    assert 101.46 < float(re.findall(r"needs ([0-9.]+) GB of 78.2 GB", output["why"])[0]) < 112
    assert "pipeline" not in output["why"] and "GB short" in output["why"]
    none = ij.frontier(*POINT, total_gpus=8, tpot=1e-6)
    assert isinstance(none, FrontierResult)
    assert none.preferred is None and none.rows() == []
    assert "the fastest takes" in none.why and none.why in str(none)
    with pytest.raises(ij.InputError, match="points"):
        none.plot()


def test_a_picture_is_written_and_said(best, tmp_path):
    pytest.importorskip("matplotlib")
    for words, name in (((), "frontier.png"), (("--out", "a.svg"), "a.svg")):
        assert run(*WORDS, *words).out.splitlines()[-1] == f"- Picture: {name}."
    assert {path.name for path in tmp_path.iterdir()} == {"frontier.png", "a.svg"}
    (axes,) = best.plot(tmp_path / "b.svg").axes
    line = max(axes.lines, key=lambda one: len(one.get_xdata()))
    np.testing.assert_array_equal(np.sort(best.points.speed), line.get_xdata())
    assert (tmp_path / "b.svg").read_text().startswith("<?xml")


def test_without_matplotlib_it_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("infer_jax.verbs.pictures.find_spec", lambda name: None)
    ran = run(*WORDS)
    assert ran.code == 0 and "matplotlib is not installed" in ran.out
    assert list(tmp_path.iterdir()) == []


def test_several_systems_answer_and_are_drawn_together(best, tmp_path):
    systems = [POINT[1], "h200_sxm"]
    both = ij.frontier(POINT[0], systems, total_gpus=8)
    assert isinstance(both, FrontiersResult) and [*both.fronts] == systems
    assert both.fronts[POINT[1]].to_dict() == best.to_dict()
    assert [{k: x for k, x in row.items() if k not in ("series", "hardware", "formats")}
            for row in both.rows() if row["series"] == POINT[1]] == best.rows()  # fmt: skip
    printed = run(*WORDS, "--hardware", systems[1], "--no-picture").out
    assert as_command(both)[1].split() == printed.split()
    rows = [line for line in printed.splitlines() if line.startswith(tuple(systems))]
    assert [line.split()[1] for line in rows] == ["cheapest", "preferred", "fastest"] * 2
    assert rows[1].split()[2] == f"{best.points.speed[best.preferred]:.4g}"
    pytest.importorskip("matplotlib")
    axes: Any = both.plot().axes[0]
    drawn = [set(line.get_xdata()) for line in axes.lines]
    assert all(set(one.points.speed) in drawn for one in both.fronts.values())
    assert [x.get_text() for x in axes.get_legend().get_texts()] == systems
    pytest.importorskip("vl_convert")
    both.draw(tmp_path / "both.html")
    plans = Reader((tmp_path / "both.html").read_text()).plans
    for label, one in both.fronts.items():
        mine = [plan for plan in plans if plan["series"] == label]
        assert [plan["speed"] for plan in mine] == one.points.speed.tolist()
        assert [plan["usd_out"] for plan in mine] == one.points.cost.tolist()


def test_formats_are_series_of_their_own():
    both = ij.frontier(*POINT, quant=["bf16", "fp8"], total_gpus=2)
    assert isinstance(both, FrontiersResult)
    assert [*both.fronts] == [f"{POINT[1]}, bf16", f"{POINT[1]}, fp8"]
    speeds = [one.points.speed.max() for one in both.fronts.values()]
    assert speeds[1] > 1.5 * speeds[0]  # half the bytes are read


SPACE = """
feasible = "decode.feasible"
zip = [["plan.pp", "plan.dp"]]
[arch]
models = ["llama-3.1-8b", "llama-3.1-70b"]
quant = "fp8"
[hardware]
systems = ["h100_sxm", "h200_sxm"]
price = { linear = [2, 4, 3] }
[workload]
isl = 4096
osl = 512
batch = { log2 = [1, 64, 4] }
[plan]
tp = { values = [1, 2, 4, 8] }
pp = { values = [1, 2] }
dp = { values = [2, 1] }
[[where]]
product = ["plan.tp", "plan.pp", "plan.dp"]
at_most = 8
[keep]
pareto = ["speed", "cost"]
"""


@pytest.fixture
def space(tmp_path):
    path = tmp_path / "space.toml"
    path.write_text(SPACE)
    return path


def test_a_frontier_and_its_points_again(space):
    output = answer("sweep", "space.toml", "--out", "out.json")
    assert output["points"] == str(2 * 2 * 3 * 4 * 4 * 2)
    rows = output["rows"]
    assert {row["arch"] for row in rows} == {"llama-3.1-8b"}
    assert {row["hardware.price"] for row in rows} == {2.0}
    speeds = [row["speed"] for row in rows]
    assert speeds == sorted(speeds, reverse=True)
    assert [row["cost"] for row in rows] == sorted((r["cost"] for r in rows), reverse=True)
    body = json.loads((space.parent / "out.json").read_text())
    assert set(body["provenance"]["sources"]) == {"llama-3.1-8b", "llama-3.1-70b",
                                                  "h100_sxm", "h200_sxm"}  # fmt: skip
    assert body["columns"]["speed"] == {"unit": "tokens/s", "values": speeds}
    assert sorted(p.name for p in space.parent.iterdir()) == ["out.json", "space.toml"]
    # the estimate of one verb is the estimate of the other
    first = rows[0]
    words = ["--isl", "4096", "--osl", "512", "--batch", f"{first['workload.batch']:g}"]
    words += ["--tp", f"{first['plan.tp']:g}", "--pp", f"{first['plan.pp']:g}", "--quant", "fp8"]
    one = answer("estimate", first["arch"], "--hardware", first["hardware"], *words)
    assert one["tpot_ms"] == pytest.approx(1e3 * first["tpot"], rel=1e-9)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("quant", "quantt", "arch.quantt"),
        ("tp =", "tpp =", "plan.tpp"),
        ("tp = { values = [1, 2, 4, 8] }", "tp = { values = [] }", "plan.tp"),
        ("log2 = [1, 64, 4]", "log2 = [1, 64]", "workload.batch.log2"),
        ("log2 = [1, 64, 4]", "log2 = [0, 64, 4]", "workload.batch"),
        ('"h200_sxm"', '"h200_xm"', "h200_xm"),
        ("price = { linear = [2, 4, 3] }", "chip.memory_bandwidth = 0", "1e+08 to 1e+16"),
        ("price = { linear = [2, 4, 3] }", "chip.memory = { values = [1e3, 8e10] }", "1e+06 to"),
        ("product", "products", "where.products"),
        ("at_most = 8", "at_most = 0.5", "none of 384"),
        ('pareto = ["speed", "cost"]', 'pareto = ["speed", "costs"]', "costs"),
        ('pareto = ["speed", "cost"]', "", "keep"),
        ('feasible = "decode.feasible"', 'estimator = "economist"', "economist"),
        ("isl = 4096", "isl = true", "workload.isl"),
        ("isl = 4096", "isl = -1", "isl"),
        ("[keep]", "[kept]", "kept"),
    ],
)
def test_mistakes_in_the_file(space, old, new, named):
    space.write_text(SPACE.replace(old, new))
    ran = run("sweep", "space.toml", "--out", "out.json")
    assert ran.code == 2 and ran.out == "" and named in ran.err and ran.err.count("\n") == 1, ran
    assert "Traceback" not in ran.err


def test_nothing_is_overwritten(space):
    other = space.parent / "out.csv"
    other.write_text("mine")
    ran = run("sweep", "space.toml", "--out", "out.csv")
    assert ran.code == 2 and "not of this sweep" in ran.err and other.read_text() == "mine"
    ran = run("sweep", "space.toml", "--out", "none/out.csv")
    assert ran.code == 2 and "none/out.csv" in ran.err and "can be written" in ran.err
    ran = run("sweep", "space.toml", "--out", "out.xls")
    assert ran.code == 2 and ".parquet" in ran.err
    ran = run("sweep", "space.toml", "--at", "384")
    assert ran.code == 2 and "383" in ran.err


def test_stopped_it_says_how_to_go_on(space, monkeypatch):
    from infer_jax.sweeps.engine import Stopped

    def stopped(*_, checkpoint, **__):
        raise Stopped(5, 10, checkpoint, 15)

    monkeypatch.setattr("infer_jax.sweeps.start", stopped)
    ran = run("sweep", "space.toml", "--out", "out.json")
    assert ran.code == 143 and "5 of 10" in ran.err and "goes on from .out.json" in ran.err
    assert ran.err.count("\n") == 1 and not (space.parent / "out.json").exists()


def test_a_grid_that_nobody_can_wait_for(space):
    many = "{ integers = [1, 200000] }"
    text = SPACE.replace("batch = { log2 = [1, 64, 4] }", f"batch = {many}\nprefix = {many}")
    space.write_text(text.replace("isl = 4096", f"isl = {many}"))
    ran = run("sweep", "space.toml", "--out", "out.json")
    assert ran.code == 2 and "at most 1e+15" in ran.err and ran.err.count("\n") == 1
