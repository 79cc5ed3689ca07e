"""The scoring of measured serving: folds, decisions and bad input, without a long fit."""

import csv
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from experiments._silicon import decisions, folds, quantiles, score
from experiments._silicon.believed import by_confidence
from experiments._silicon.rows import Row
from infer_jax.catalog.measurements.silicon_runs import ServerDegrees
from infer_jax.errors import InputError
from infer_jax.physics.chance import Spread


def row(name, *, first="", family="Llama", system="h100_sxm", tpot=0.01, load=8.0, tp=1.0, **more):
    built = {
        "id": name,
        "line": 1,
        "family": family,
        "model": "llama-3.1-8b",
        "model_path": "",
        "system": system,
        "engine": "vllm",
        "version": "",
        "date": "",
        "precision": "fp8",
        "source": "random_length",
        "isl": 1024.0,
        "osl": 1024.0,
        "ttft": 0.1,
        "tpot": tpot,
        "formats": None,
        "first": first or name,
        "unique": not first,
        "anomaly": "",
        "concurrency": load,
        "layout": ServerDegrees(tp, 1.0, tp, 1.0),
    }
    return Row(**{**built, **more})


ROWS = [
    row("a"),
    row("b", family="Qwen"),
    row("a again", first="a"),
    row("c", system="b200_sxm"),
    row("d", family="Qwen", system="b200_sxm"),
]


def written(tmp_path, text):
    path = tmp_path / "folds.csv"
    path.write_text(text)
    return path


def test_a_measurement_listed_twice_is_in_one_fold(tmp_path):
    path = written(tmp_path, "id,fold\na again,two\na,one\nb,two\n")
    inside = folds.given(folds.read(path, ROWS), ROWS)
    assert {name: x.tolist() for name, x in inside.items()} == {
        "one": [True, False, False, False],
        "two": [False, True, False, False],
    }


def test_an_entry_stands_for_its_measurement_where_the_first_is_absent(tmp_path):
    path = written(tmp_path, "fold,id\none,a again\ntwo,d\n")
    inside = folds.given(folds.read(path, ROWS), ROWS)
    assert inside["one"].tolist() == [True, False, False, False]


def test_a_fold_of_rows_that_cannot_be_predicted_is_left_out(tmp_path):
    dropped = row("x", unique=False, layout=None, anomaly="flattened_disaggregated")
    path = written(tmp_path, "id,fold\na,one\nb,two\nx,three\n")
    asked = folds.read(path, [*ROWS, dropped])
    assert set(folds.given(asked, [*ROWS, dropped])) == {"one", "two"}
    with pytest.raises(InputError, match="those to predict is 'one'; allowed: two or more"):
        folds.given({"a": "one", "x": "three"}, [*ROWS, dropped])


def test_ids_of_the_other_mode_are_left_out_with_the_reason(tmp_path):
    pool: Any = SimpleNamespace(id="p")
    path = written(tmp_path, "id,fold\na,one\np,one\nb,two\n")
    asked = folds.read(path, [*ROWS, pool])
    assert set(folds.given(asked, ROWS)) == {"one", "two"}
    assert folds.elsewhere(asked, ROWS) == {"p": "a row of the other --mode"}


def test_no_server_has_five_rows_to_learn_from():
    calibrated = pytest.importorskip("experiments._silicon.calibrated")
    first = [r for r in ROWS if r.unique]
    problem = SimpleNamespace(
        data=np.full(8, 0.02),
        starts=lambda *_: [np.zeros(1)],
        derivatives=lambda _: (np.zeros(8), np.zeros((8, 1))),
    )
    assert calibrated.five_rows(problem, first, np.ones(4, bool)) is None


def test_predictions_are_written_for_every_asked_entry_and_for_no_other(tmp_path):
    predictions = pytest.importorskip("experiments._silicon.predictions")
    asked = {"a": "1", "a again": "2", "x": "2"}
    first = [r for r in ROWS if r.unique]
    times = np.asarray([[0.01, 0.02], [0.1, 0.2]])
    held = predictions.Held("1", np.asarray([0, 2]), times, times / 2, times * 2)
    entries = folds.entries(ROWS, asked)
    assert entries == {"a": ["a", "a again"], "b": [], "c": [], "d": []}
    score.write(tmp_path / "out.csv", [held], first, entries, {"x": "no server"})
    with (tmp_path / "out.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    columns = "id,fold,tpot_ms,tpot_lo80,tpot_hi80,ttft_ms,ttft_lo80,ttft_hi80,reason"
    assert list(lines[0]) == columns.split(",")
    assert [line["id"] for line in lines] == ["a", "a again", "x"]
    assert list(lines[1].values()) == ["a again", "1", "10", "5", "20", "100", "50", "200", ""]
    assert list(lines[2].values()) == ["x", *[""] * 7, "no server"]


def test_a_fold_that_leaves_fewer_times_than_parameters_is_refused():
    predictions = pytest.importorskip("experiments._silicon.predictions")
    problem = SimpleNamespace(chosen=SimpleNamespace(names=("one", "two", "three")))
    inside = {"most": np.asarray([True, True, True, False])}
    with pytest.raises(InputError, match=r"fold most: .* to fit is 2; allowed: at least 3"):
        predictions.predicted(problem, ROWS, inside, np.ones(4, bool))


def test_pools_are_shifted_by_what_other_folds_err():
    pools = pytest.importorskip("experiments._silicon.disaggregated")
    ten = [row(str(i), engine=("vllm", "sglang")[i % 2]) for i in range(10)]
    half = np.arange(10) < 5
    measured = np.asarray([[r.tpot for r in ten], [r.ttft for r in ten]])
    # what is predicted of the second half is of no use to it, only to the first
    times = measured / np.where(half, 7.0, 2.0)
    one, other = pools.held(times, ten, {"a": half, "b": ~half}, shifts=True)
    np.testing.assert_allclose(one.times, measured[:, half] * 2.0 / 7.0)
    np.testing.assert_allclose(other.times, measured[:, ~half] * 7.0 / 2.0)
    plain, _ = pools.held(times, ten, {"a": half, "b": ~half}, shifts=False)
    np.testing.assert_allclose(plain.times, times[:, half])
    np.testing.assert_allclose(plain.low, times[:, half] * 2.0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,fold\nz,one\na,two\n", "line 2: id is 'z'"),
        ("id,fold\na,one\na,two\n", "each row once"),
        ("id,fold\na,\nb,two\n", "line 2: fold"),
        ("id,fold\na,one\nb,one\n", "two folds or more"),
        ("id,part\na,one\n", "column is 'fold'"),
        ("id,fold\na,one,more\n", "cells"),
        ("", "column is 'id'"),
    ],
)
def test_a_file_of_folds_that_cannot_be_is_told(tmp_path, text, said):
    with pytest.raises(InputError, match=said) as caught:
        folds.read(written(tmp_path, text), ROWS)
    assert "\n" not in str(caught.value)


def test_one_system_at_a_time_and_none_of_a_few_rows():
    many = [row(f"h{i}") for i in range(12)] + [row(f"b{i}", system="b200_sxm") for i in range(9)]
    inside = folds.folds(many, "system")
    assert set(inside) == {"h100_sxm"} and inside["h100_sxm"].sum() == 12


GROUP = [
    row("1", tpot=0.010, load=4.0, tp=8.0),
    row("2", tpot=0.020, load=32.0, tp=8.0),
    row("3", tpot=0.030, load=16.0, tp=2.0),
    row("4", tpot=0.060, load=64.0, tp=2.0),
]
ALL = np.ones(4, bool)


def test_choices_by_measured_times_break_nothing_and_forgo_nothing():
    tpot, ttft = (np.asarray([getattr(r, n) for r in GROUP]) for n in ("tpot", "ttft"))
    built = decisions.judge(GROUP, decisions.by_model(GROUP, tpot, ttft), ALL)
    assert (built.made, built.broken, built.regret) == (3, 0.0, 0.0)


def test_choices_are_judged_by_what_was_measured():
    tpot, ttft = (np.asarray([getattr(r, n) for r in GROUP]) for n in ("tpot", "ttft"))
    hopeful = decisions.judge(GROUP, decisions.by_model(GROUP, tpot / 2, ttft), ALL)
    assert hopeful.broken == 100.0  # 3, 3 and 4, by hand
    shy = decisions.judge(GROUP, decisions.by_model(GROUP, tpot * 1.5, ttft), ALL)
    # limits 17.5, 25 and 37.5 ms: 1 of 1, 1 where 2 was within, 2 where 3 was
    rate = decisions.throughput(GROUP, tpot, ttft)
    regret = [0.0, 1 - rate[0] / rate[1], 1 - rate[1] / max(rate[:3])]
    assert shy.broken == 0.0
    assert shy.regret == pytest.approx(100 * np.mean(regret))
    rule = decisions.judge(GROUP, decisions.whole_node(GROUP), ALL)
    assert rule.broken_at == (100.0, 0.0, 0.0)
    assert decisions.judge(GROUP, decisions.most_load(GROUP), ALL).broken == 100.0


def test_a_confidence_keeps_a_limit_with_room_for_the_band():
    """Nine tenths of runs are below 1.3 times the prediction: limits count as 1.3 times less."""
    tpot, ttft = (np.asarray([getattr(r, n) for r in GROUP]) for n in ("tpot", "ttft"))
    laws = [Spread.of({80: (1 / 1.3, 1.3)})] * 4
    times, every = np.stack([tpot, ttft]), np.arange(4)
    for confidence, factor in ((0.9, 1.3), (0.5, 1.0)):
        sure = by_confidence(GROUP, times, laws, confidence - 1e-9)
        mean = decisions.by_model(GROUP, tpot, ttft)
        for limit in (0.005, 0.0125, 0.0131, 0.021, 0.0265, 0.0389, 0.0391, 0.1):
            assert sure(every, limit) == mean(every, limit / factor), (confidence, limit)


def test_the_shared_part_of_errors_is_that_of_the_groups():
    """Variance 0.36 between 300 groups of 10 and 0.64 within: 0.36 of it is shared."""
    random = np.random.default_rng(0)
    of = np.repeat(np.arange(300), 10)
    left = 0.6 * random.normal(size=(2, 300))[:, of] + 0.8 * random.normal(size=(2, 3000))
    shares = quantiles.common(left, ["all"] * 3000, of.tolist())
    assert all(share == pytest.approx(0.36, abs=0.06) for share in shares.values())


def test_a_server_looks_for_requests_as_its_script_says():
    served = pytest.importorskip("experiments._silicon.served")
    there: dict[str, Any] = {"engine": "sglang", "family": "DeepSeek-R1/V3", "system": "b200_sxm"}
    printed = [served.polling(row("x", **{**there, "load": load})) for load in (15.0, 16.0)]
    assert printed == [10.0, 30.0]
    for other in ({"engine": "vllm"}, {"family": "GLM-5"}, {"system": "h200_sxm"}):
        assert served.polling(row("x", **{**there, **other})) == 1.0
    assert served.polling(row("x", **there, source="fixed_length")) == 1.0


def test_the_fitted_numbers_are_leaves_of_the_serving_model_and_not_too_many():
    fit = pytest.importorskip("experiments._silicon.fit")
    from infer_jax.calibration import parameters

    chosen = parameters(fit.start(), fit.NAMES, None, fit.TIES)
    assert len(chosen.names) <= 45


@pytest.mark.parametrize(
    "options",
    [
        ["--cv", "fold"],
        [],
        ["--cv", "groups", "--mode", "both"],
        ["--folds", "no-such.csv"],
    ],
)
def test_bad_options_end_with_one_sentence_and_code_2(options):
    pytest.importorskip("aiconfigurator_core", reason="the measured rows are not installed")
    from typer.testing import CliRunner

    from experiments.silicon import app

    done = CliRunner().invoke(app, options)
    assert done.exit_code == 2
    assert "Traceback" not in done.output
