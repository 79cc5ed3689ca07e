"""ij.sweep is what the command prints, of a file or of a Space, and draws itself."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import infer_jax as ij
from infer_jax.sweeps import (
    Axis,
    Best,
    Constraint,
    Everything,
    Histogram,
    Pareto,
    Quantiles,
    Space,
    TopK,
)
from infer_jax.sweeps.chart import SweepChart
from tests.cli.running import answer, as_command, run

FILE = """
estimator = "economics.planned"
feasible = "decode.feasible"
[arch]
model = "llama-3.1-70b"
quant = "fp8"
[hardware]
systems = ["h100_sxm", "h200_sxm"]
[workload]
isl = 4096
osl = 512
batch = { log2 = [1, 64, 7] }
[plan]
tp = { values = [1, 2, 4, 8] }
[[where]]
value = "plan.tp"
at_least = 2
[keep]
pareto = ["speed", "cost"]
"""
VARYING = ("seconds", "devices")  # of one run


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("spaces") / "space.toml"
    path.write_text(FILE)
    return path


@pytest.fixture(scope="module")
def space():
    work = ij.Workload.of(isl=4096, osl=512).replace(batch=Axis.log2(1, 64, 7))
    return Space(
        ij.load_model("llama-3.1-70b", quant="fp8"),
        [ij.load_system(name) for name in ("h100_sxm", "h200_sxm")],
        work,
        ij.Plan.of().replace(tp=Axis.values(1, 2, 4, 8)),
        where=[Constraint(value="plan.tp", at_least=2)],
    )


@pytest.fixture(scope="module")
def swept(file):
    return ij.sweep(file)


def test_it_answers_what_the_command_prints(file, swept):
    said, output = answer("sweep", str(file)), as_command(swept)[0]
    assert {k: x for k, x in said.items() if k not in VARYING} == {
        k: x for k, x in output.items() if k not in VARYING
    }
    printed = run("sweep", str(file)).out.split("\n", 1)[1]  # the first line tells seconds
    assert as_command(swept)[1].split("\n", 1)[1].split() == printed.split()
    assert "<table>" in swept._repr_html_() and "56 points" in swept._repr_html_()


def test_a_file_and_a_space_answer_alike(space, swept):
    given = ij.sweep(
        space,
        keep=Pareto("speed", "cost"),
        estimator="economics.planned",
        feasible="decode.feasible",
    )
    assert given.index == swept.index and given.provenance["sources"] == swept.provenance["sources"]
    for name, column in swept.columns.items():
        np.testing.assert_array_equal(given.columns[name], column)
    assert [one.says for one in given.trust] == [one.says for one in swept.trust]


def test_what_is_said_beside_a_file_replaces_what_it_says(file):
    best = ij.sweep(file, keep=Best("cost"), estimator=["economics.level1", "economics.level2"])
    assert best.axes(0)["estimator"] in (0, 1) and len(best) == 1
    assert best.provenance["keep"].startswith("Best(by='cost'")


def test_near_misses_say_what_they_break(file):
    """Also where one phase is asked about: of the other one some limits are not known."""
    none = ij.sweep(file, keep=Best("cost", under={"tpot": 1e-5}))
    assert not none.met and "Nothing meets the limits" in str(none)
    assert all("tpot" in text and "over 1e-05 s" in text for text in none.columns["violates"])


def test_a_summary_prints_its_answer(file):
    spread = ij.sweep(file, keep=Quantiles("tpot"))
    assert spread.answer is not None and str(spread.answer["points"]) in str(spread)
    assert spread.rows() == [] and spread.columns == {}
    with pytest.raises(ij.InputError, match="a histogram"):
        spread.plot()


def test_files_are_written_and_a_picture_drawn(file, swept, tmp_path):
    pytest.importorskip("matplotlib")
    out, picture = tmp_path / "rows.csv", tmp_path / "rows.svg"
    written = ij.sweep(str(file), out=[out, picture])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["rows.csv", "rows.svg"]
    assert len(out.read_text().splitlines()) == 2 + len(written)
    said = " ".join(str(written).split())
    assert f"Written to {out}." in said and f"Picture: {picture}." in said
    assert written.to_dict()["picture"] == str(picture)
    speed = np.concatenate([line.get_xdata() for line in swept.plot().axes[0].lines])
    assert set(speed) == set(swept.columns["speed"])


def test_the_picture_is_of_what_was_kept(space, tmp_path):
    """Two other objectives: points; one: bars of rows; a histogram: its counts."""
    pytest.importorskip("matplotlib")
    one = replace(space, hardware=ij.load_system("h100_sxm"))
    asked: Any = {"estimator": "economics.level3", "feasible": "decode.feasible"}
    points = ij.sweep(one, keep=Pareto("tpot", "throughput"), **asked)
    axes: Any = points.plot(tmp_path / "points.png").axes[0]
    drawn = sorted(map(tuple, axes.lines[0].get_xydata()))
    want = zip(1e3 * points.columns["tpot"], points.columns["throughput"], strict=True)
    assert len(drawn) > 2 and drawn == [pytest.approx(one) for one in sorted(want)]
    assert axes.get_xlabel() == "time per output token, ms"
    assert axes.get_ylabel() == "throughput per GPU, tokens/s"
    best = ij.sweep(one, keep=TopK(5, "tpot"), **asked)
    axes = best.plot(tmp_path / "bars.png").axes[0]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx(1e3 * best.columns["tpot"])
    assert axes.get_yticklabels()[0].get_text().startswith("1. batch ")
    counts = ij.sweep(one, keep=Histogram("tpot", (0.005, 0.01, 0.02)), **asked)
    axes = counts.plot(tmp_path / "counts.png").axes[0]
    widths = sum(bar.get_width() for bar in axes.patches)
    assert counts.answer is not None and widths == sum(counts.answer["counts"])
    assert len(list(tmp_path.iterdir())) == 3


def test_problems_are_of_keyword_arguments(file, space, tmp_path):
    with pytest.raises(ij.InputError, match=r"^sweep: keep is missing"):
        ij.sweep(space)
    with pytest.raises(ij.InputError, match=r"^sweep: out is .*\.csv.* picture .*\.svg"):
        ij.sweep(file, out=tmp_path / "a.txt")
    with pytest.raises(ij.InputError, match=r"^sweep: out is .*a second picture alone"):
        ij.sweep(file, out=[tmp_path / "a.csv", tmp_path / "a.png", tmp_path / "a.json"])
    with pytest.raises(ij.InputError, match=r"^sweep: out is .*keeps rows, or a histogram"):
        ij.sweep(file, keep=Quantiles("ttft"), out=tmp_path / "a.svg")


def test_a_point_again(swept, file):
    one = swept.explain(0)
    assert one.terms["speed"][0] == swept.columns["speed"][0]
    assert f"infer-jax sweep {file} --at {swept.index[0]}" in str(one)
    said = answer("sweep", str(file), "--at", str(swept.index[0]))
    assert {"schema": said["schema"], **as_command(one)[0]} == said


def test_a_grid_of_several_systems_is_a_map_of_each():
    """On one scale; a cell without a feasible point is empty."""
    pytest.importorskip("matplotlib")
    cells = [(s, i, b) for s in ("one", "two") for i in (1.0, 2.0) for b in (1.0, 4.0, 8.0)][:-1]
    system, isl, batch = (np.array(x) for x in zip(*cells, strict=True))
    columns = {"hardware": system, "workload.isl": isl, "workload.batch": batch}
    columns["tpot"] = 1e-3 * isl * batch
    axes = ("hardware", "workload.isl", "workload.batch")
    drawn: Any = SweepChart(Everything("tpot"), columns, {}, axes, None).figure()
    one, two, _ = drawn.axes
    assert [x.get_title(loc="left") for x in (one, two)] == ["one", "two"]
    assert [x.get_text() for x in one.texts] == ["1", "4", "8", "2", "8", "16"]
    assert len(two.texts) == 5 and two.collections[0].get_array().mask.sum() == 1
    assert one.collections[0].norm.vmax == two.collections[0].norm.vmax == 16.0


def test_all_points_lie_behind_the_frontier_of_each_system():
    """Faster and cheaper is better: the frontier is what brute force says."""
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    speed, cost = rng.uniform(10, 100, 200), rng.uniform(1, 5, 200)
    columns = {"hardware": np.repeat(["one", "two"], 100), "speed": speed, "cost": cost}
    columns["a"], columns["b"], columns["c"] = (rng.uniform(size=200) for _ in range(3))
    kept = SweepChart(Everything("speed", "cost"), columns, {}, ("hardware", "a", "b", "c"), None)
    axes: Any = kept.figure().axes[0]
    assert axes.collections[0].get_array().sum() == 200
    for line, mine in zip(axes.lines, (slice(0, 100), slice(100, 200)), strict=True):
        points = list(zip(speed[mine], cost[mine], strict=True))
        best = {p for p in points if not any(q[0] > p[0] and q[1] < p[1] for q in points)}
        assert set(map(tuple, line.get_xydata())) == best
    assert axes.get_ylabel() == "USD per million output tokens"
