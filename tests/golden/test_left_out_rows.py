"""Rows left out of the fit: folds of a file, files of predictions, and choices under limits."""

import csv
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments._validation import (
    decisions,
    estimates,
    folds,
    split_scores,
)
from experiments._validation.split_scores import Predicted
from experiments.validation import app
from infer_jax.calibration.pooled import answers
from infer_jax.calibration.pooled.likelihood import PooledTimes
from infer_jax.calibration.pooled.publishers import shared_variance
from infer_jax.calibration.pooled.rows import BF16, PooledRow, ServedModel, StoredFormats
from infer_jax.errors import InputError
from infer_jax.estimators.serving import Deployment, ServingWorkload

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
        "a again": ("two", "a"), "a": ("two", "a"), "b": ("one", "b"), "x": ("one", ""),
    }  # fmt: skip
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


def plan(name, system, load, tpot, rate, date="2026-01-01"):
    measured = {"tpot": tpot, "throughput": rate}
    return replace(row(name, system=system, load=load), measured=measured, date=date)


PLANS = [
    plan("a", "h100_sxm", 4.0, 0.009, 100.0), plan("b", "h100_sxm", 16.0, 0.020, 300.0),
    plan("c", "b200_sxm", 4.0, 0.007, 150.0), plan("d", "b200_sxm", 32.0, 0.030, 900.0),
]  # fmt: skip
TPOT, RATES = (np.asarray([r.measured[k] for r in PLANS]) for k in ("tpot", "throughput"))


@pytest.fixture
def three_limits(monkeypatch):
    monkeypatch.setattr(decisions, "LIMITS", np.asarray([0.008, 0.025, 0.040]))


LATER = replace(PLANS[2], date="2026-03-01", measured={**PLANS[2].measured, "throughput": 75.0})
OTHER = [*PLANS[:2], replace(PLANS[2], date="2026-02-01"), PLANS[3]]
HOPEFUL, ALIKE = TPOT * [1, 1, 1, 2 / 3], {"tpot": np.full(4, 0.007), "throughput": np.full(4, 150)}


@pytest.mark.parametrize(
    ("rows", "answers", "losses", "broken"),
    [
        # measured times lose nothing
        (PLANS, {"tpot": TPOT}, (0, 0, 0), 0),
        # at 25 ms d is chosen, which takes 30: turned down to c it gives 150 where b gives 300
        (PLANS, {"tpot": HOPEFUL}, (0, 50, 0), 1),
        # without a lower load of that build it is worth nothing
        (OTHER, {"tpot": HOPEFUL}, (0, 100, 0), 1),
        # none at 8 ms, where c keeps it; b of 300 tokens/s at 25 and, where d gives 900, at 40
        (PLANS, {"tpot": TPOT * [1, 1, 2, 2]}, (100, 0, 200 / 3), 0),
        # of equal plans the newest is chosen: 75 where 150, 300 and 300 could be had
        ([*PLANS[:3], LATER], ALIKE, (50, 75, 75), 0),
        # a bound is what a limit holds: c at 9.1 ms, b at 26 and d at 39; none at 8, then c, then d
        (PLANS, {"tpot": TPOT, "bound": TPOT * 1.3}, (100, 50, 0), 0),
    ],
)
def test_what_a_choice_loses_of_the_best_that_was_measured(
    three_limits, rows, answers, losses, broken
):
    """Per cent of the tokens a second at limits of 8, 25 and 40 ms of TPOT, and limits broken."""
    found = decisions.regret(rows, {"throughput": RATES, **answers}, "all chips")
    expected = (3, np.median(losses), np.mean(losses), 100 * broken / 3)
    assert found[:4] == pytest.approx(expected)


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
        ["--peer", "-1"],
    ],
)
def test_bad_options_end_with_one_sentence_and_code_2(options, tmp_path):
    file = tmp_path / "rocm.csv"
    file.write_text("kind,model,tp,batch,isl,osl,value\nlat,llama-3.1-70b,8,1,128,2048,17.236\n")
    done = CliRunner().invoke(app, [str(file), *options])
    assert done.exit_code == 2
    assert "Traceback" not in done.output


def test_five_runs_of_a_server_tell_of_its_other_rows(x64):
    """A server whose launches take three times as long: predicted too fast before, right after."""
    shipped = answers.shipped_fit()
    slow = shipped.with_(vllm=shipped.vllm.with_(layer_gap=3.0 * shipped.vllm.layer_gap))
    every = [row(f"{i}", load=2.0**i) for i in range(5)] * 2
    found = answers.answers(every, slow)
    made = [
        replace(r, measured={k: float(found[k][i]) for k in estimates.OUTPUTS})
        for i, r in enumerate(every)
    ]
    after = estimates.five_runs(made)
    scored = np.isfinite(after["tpot"])
    assert scored.sum() == 5
    for name in estimates.OUTPUTS:
        off = [
            np.abs(x[name] / found[name] - 1.0)[scored]
            for x in (estimates.answers(made, shipped), after)
        ]
        assert np.median(off[1]) < 0.5 * np.median(off[0])
