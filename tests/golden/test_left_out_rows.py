"""Rows left out of the fit: folds of a file, files of predictions, and choices under limits."""

import csv

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments._validation import decisions, folds, split_scores
from experiments._validation.decisions import Loops
from experiments._validation.split_scores import Predicted
from experiments.validation import app
from infer_jax.calibration.pooled.likelihood import PooledTimes
from infer_jax.calibration.pooled.publishers import shared_variance
from infer_jax.calibration.pooled.rows import BF16, PooledRow, ServedModel, StoredFormats
from infer_jax.errors import InputError
from infer_jax.estimators.serving import Deployment, ServingWorkload
from infer_jax.physics.chance import Spread

AS_STORED = StoredFormats(BF16, BF16, BF16, 2.0, 0.0)


def row(name, *, system="h100_sxm", tpot=0.01, load=8.0, tp=1.0):
    return PooledRow(
        id=name, dataset="silicon (fitted)", measured={"tpot": tpot, "ttft": 0.1},
        group=f"Llama {system} vllm", system=system, engine="vllm",
        served=ServedModel("llama-3.1-8b", AS_STORED), plan=Deployment.of(tp=tp),
        workload=ServingWorkload.of(isl=1024.0, osl=1024.0, batch=load),
    )  # fmt: skip


ROWS = [row("a"), row("b"), row("c", system="b200_sxm"), row("d", system="b200_sxm")]


@pytest.fixture(autouse=True)
def second_entries(monkeypatch):
    """As aiconfigurator-core would have them: "a again" repeats "a", "x" is of no use."""
    first = {name: name for name in "abcdx"} | {"a again": "a"}
    monkeypatch.setattr(folds, "_first_entries", lambda: first)


def written(tmp_path, text):
    path = tmp_path / "folds.csv"
    path.write_text(text)
    return path


def test_a_measurement_listed_twice_is_in_one_fold(tmp_path):
    named = folds.folds_of(written(tmp_path, "id,fold\na again,two\na,one\nb,one\nx,one\n"), ROWS)
    assert named == {
        "a again": ("two", "a"),
        "a": ("two", "a"),
        "b": ("one", "b"),
        "x": ("one", ""),
    }
    times = PooledTimes.of(ROWS)
    found = {f.name: sorted(set(times.row[~f.seen])) for f in folds.split_by_file(named, times)}
    assert found == {"one": [1], "two": [0]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,fold\nz,one\na,two\n", "line 2: id is 'z'"),
        ("id,fold\na,one\na,two\n", "each row once"),
        ("id,fold\na,\nb,two\n", "line 2: fold"),
        ("id,fold\na,one\nb,one\n", "two folds or more"),
        ("id,fold\na,one\nx,two\n", "two folds or more"),
        ("id,part\na,one\n", "column is 'fold'"),
        ("id,fold\na,one,more\n", "cells"),
        ("", "an empty file"),
    ],
)
def test_a_file_of_folds_that_cannot_be_is_refused(tmp_path, text, said):
    with pytest.raises(InputError, match=said) as caught:
        folds.folds_of(written(tmp_path, text), ROWS)
    assert "\n" not in str(caught.value)


def test_predictions_are_written_for_every_named_entry_and_for_no_other(tmp_path):
    named = folds.folds_of(written(tmp_path, "id,fold\na,1\na again,2\nc,2\nx,2\n"), ROWS)
    times = PooledTimes.of(ROWS)
    found = Predicted.empty(len(times.seconds))
    found.banded[:] = np.log(0.5)  # predicted twice as long as measured
    found.bands[:] = np.log([0.5, 2.0])[None, :, None]
    parts = list(folds.split_by_file(named, times))
    split_scores.write(tmp_path / "out.csv", times, found, parts, named)
    with (tmp_path / "out.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    columns = "id,fold,tpot_ms,tpot_lo80,tpot_hi80,ttft_ms,ttft_lo80,ttft_hi80,reason"
    assert list(lines[0]) == columns.split(",")
    assert [line["id"] for line in lines] == ["a", "a again", "c", "x"]
    assert list(lines[1].values()) == ["a again", "1", "20", "10", "40", "200", "100", "400", ""]
    assert list(lines[3].values()) == ["x", *[""] * 7, split_scores.UNUSED]


def test_one_system_at_a_time_and_none_of_a_few_times():
    rows = [row(f"h{i}") for i in range(80)] + [row(f"b{i}", system="b200_sxm") for i in range(9)]
    (fold,) = folds.split("system", PooledTimes.of(rows))
    assert fold.name == "h100_sxm" and np.sum(~fold.seen) == 160


GROUP = [
    row("1", tpot=0.010, load=4.0, tp=8.0),
    row("2", tpot=0.020, load=32.0, tp=8.0),
    row("3", tpot=0.030, load=16.0, tp=2.0),
    row("4", tpot=0.060, load=64.0, tp=2.0),
]
ALL, LOOPS = np.ones(4, bool), Loops.of(GROUP)
TPOT, TTFT = LOOPS.measured


def test_choices_by_measured_times_break_nothing_and_forgo_nothing():
    built = decisions.judge(LOOPS, decisions.by_times(LOOPS, LOOPS.measured), ALL)
    assert (built.made, built.broken, built.regret) == (3, 0.0, 0.0)


def test_choices_are_judged_by_what_was_measured():
    hopeful = decisions.judge(LOOPS, decisions.by_times(LOOPS, np.stack([TPOT / 2, TTFT])), ALL)
    assert hopeful.broken == 100.0  # 3, 3 and 4, by hand
    shy = decisions.judge(LOOPS, decisions.by_times(LOOPS, np.stack([TPOT * 1.5, TTFT])), ALL)
    # limits 17.5, 25 and 37.5 ms: 1 of 1, 1 where 2 was within, 2 where 3 was
    rate = LOOPS.throughput(LOOPS.measured)
    regret = [0.0, 1 - rate[0] / rate[1], 1 - rate[1] / max(rate[:3])]
    assert shy.broken == 0.0
    assert shy.regret == pytest.approx(100 * np.mean(regret))
    rule = decisions.judge(LOOPS, decisions.whole_node(LOOPS), ALL)
    assert rule.broken_at == (100.0, 0.0, 0.0)
    assert decisions.judge(LOOPS, decisions.most_load(LOOPS), ALL).broken == 100.0


def test_a_confidence_keeps_a_limit_with_room_for_the_band():
    """Nine tenths of runs are below 1.3 times the prediction: limits count as 1.3 times less."""
    spreads, every = [Spread.of({80: (1 / 1.3, 1.3)})] * 4, np.arange(4)
    for confidence, factor in ((0.9, 1.3), (0.5, 1.0)):
        sure = decisions.by_confidence(LOOPS, LOOPS.measured, spreads, confidence - 1e-9)
        mean = decisions.by_times(LOOPS, LOOPS.measured)
        for limit in (0.005, 0.0125, 0.0131, 0.021, 0.0265, 0.0389, 0.0391, 0.1):
            assert sure(every, limit) == mean(every, limit / factor), (confidence, limit)


def test_the_shared_part_of_errors_is_that_of_the_groups():
    """Variance 0.36 between 300 groups of 10 and 0.64 within: 0.36 of it is shared."""
    random = np.random.default_rng(0)
    of = np.repeat(np.arange(300), 10)
    for _ in range(2):
        errors = 0.6 * random.normal(size=300)[of] + 0.8 * random.normal(size=3000)
        assert shared_variance(errors, of.tolist()) == pytest.approx(0.36, abs=0.06)


@pytest.mark.parametrize(
    "options",
    [
        ["--split", "colour"],
        ["--split", "groups", "--folds", "some.csv"],
        ["--folds", "no-such.csv"],
        ["--out", "some.csv"],
        ["--decisions"],
    ],
)
def test_bad_options_end_with_one_sentence_and_code_2(options, tmp_path):
    file = tmp_path / "rocm.csv"
    file.write_text("kind,model,tp,batch,isl,osl,value\nlat,llama-3.1-70b,8,1,128,2048,17.236\n")
    done = CliRunner().invoke(app, [str(file), *options])
    assert done.exit_code == 2
    assert "Traceback" not in done.output
