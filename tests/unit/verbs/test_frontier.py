"""ij.frontier is what the command prints, by names and by specs, and draws itself."""

from typing import Any

import numpy as np
import pytest

import infer_jax as ij
from infer_jax.verbs.frontier_result import FrontierResult, FrontiersResult
from tests.charts import charts_of
from tests.cli.running import answered_once, as_command, run

POINT = ("llama-3.1-8b", "h100_sxm")
WORDS = ("frontier", "llama-3.1-8b", "--hardware", "h100_sxm", "--total-gpus", "8")


@pytest.fixture(scope="module")
def best():
    return ij.frontier(*POINT, total_gpus=8)


def test_it_answers_what_the_command_prints(best):
    said, text = answered_once(*WORDS, "--no-picture")
    assert {"schema": said["schema"], **as_command(best)[0]} == said
    assert as_command(best)[1].split() == text.split()
    assert best._repr_html_().count("<tr style") == 1  # the preferred point
    every = ij.frontier(*POINT, total_gpus=8, all=True)
    assert len(str(every).splitlines()) - len(str(best).splitlines()) == len(best.points) - 25


def test_its_points_are_columns_rows_and_a_table(best):
    points = best.points
    assert len(best.rows()) == len(points) == len(points.speed) > 25
    assert (np.diff(points.speed) < 0).all() and (np.diff(points.cost) < 0).all()
    liked = np.argmax(points.speed**3 / points.cost)
    assert best.preferred == liked and best.rows()[liked]["preferred"]
    pytest.importorskip("pandas")
    frame = best.to_pandas()
    assert frame["output_cost_per_mtok_usd"].tolist() == points.cost.tolist()
    assert {"terms.memory_ms", "binds", "tp"} <= set(frame)


def test_names_and_specs_answer_alike(best):
    model, system = ij.load_model(POINT[0]), ij.load_system(POINT[1])
    given = ij.frontier(model, system, total_gpus=8)
    assert given.to_dict() == best.to_dict()


def test_a_picture_is_drawn_and_written(best, tmp_path):
    pytest.importorskip("matplotlib")
    figure = best.plot()
    (axes,) = figure.axes
    assert axes.get_title() == "" and best.preferred is not None
    line = max(axes.lines, key=lambda one: len(one.get_xdata()))
    np.testing.assert_array_equal(np.sort(best.points.speed), line.get_xdata())
    best.plot(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")


def test_problems_are_of_keyword_arguments(tmp_path):
    with pytest.raises(ij.InputError, match=r"^frontier: total_gpus is") as wrong:
        ij.frontier(*POINT, paper=True, total_gpus=8)
    assert "--" not in str(wrong.value).replace("--no-picture", "")
    with pytest.raises(ij.InputError, match=r"^frontier: out is"):
        ij.frontier(*POINT, out=tmp_path / "a.txt")
    with pytest.raises(ij.InputError, match=r"^frontier: estimator is 'serving'"):
        ij.frontier(*POINT, estimator="serving")


def test_a_frontier_without_points_says_why():
    none = ij.frontier(*POINT, total_gpus=8, tpot=1e-6)
    assert isinstance(none, FrontierResult)
    assert none.preferred is None and none.rows() == []
    assert "the fastest takes" in none.why and none.why in str(none)
    with pytest.raises(ij.InputError, match="points"):
        none.plot()


def test_several_systems_answer_and_are_drawn_together(best, tmp_path):
    systems = [POINT[1], "h200_sxm"]
    both = ij.frontier(POINT[0], systems, total_gpus=8)
    assert isinstance(both, FrontiersResult) and [*both.fronts] == systems
    assert both.fronts[POINT[1]].to_dict() == best.to_dict()
    assert [{k: x for k, x in row.items() if k not in ("series", "hardware", "formats")}
            for row in both.rows() if row["series"] == POINT[1]] == best.rows()  # fmt: skip
    printed = run(*WORDS[:2], *(w for s in systems for w in ("--hardware", s)),
                  "--total-gpus", "8", "--no-picture").out  # fmt: skip
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
    plans = charts_of((tmp_path / "both.html").read_text())["tradeoff"]["spec"]["datasets"]["plans"]
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
