"""Splits that leave out what a row is of: folds, shared coefficients, nested offsets."""

import tomllib
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from experiments._validation import board, folds, splits
from infer_jax.calibration.pooled import likelihood, publishers, shipping
from infer_jax.calibration.pooled.__main__ import app
from infer_jax.calibration.pooled.likelihood import PooledProblem, PooledTimes
from infer_jax.calibration.pooled.publishers import NewErrors
from infer_jax.calibration.pooled.readers import silicon
from infer_jax.calibration.pooled.rows import BF16, Mode, PooledRow, ServedModel, StoredFormats
from infer_jax.catalog.published import unseen_errors
from infer_jax.errors import InputError
from infer_jax.estimators.serving import Serving, ServingWorkload

PACKAGE = Path(__file__).parents[2] / "infer_jax"
SHIPPED = PACKAGE / "catalog" / "published" / "serving.toml"
AS_STORED = StoredFormats(BF16, BF16, BF16, 2.0, 0.0)


def row(system, engine, date, isl=1024.0, model="llama-3.1-8b", mode: Mode = "loop"):
    work = ServingWorkload.of(isl=isl, osl=256.0, batch=8.0)
    times = {"tpot": 0.01, "ttft": 0.1, "throughput": 50.0}
    return PooledRow(
        id="", dataset="inferencex here", measured=times, group=f"{model} {system} {engine} fp8",
        system=system, engine=engine, served=ServedModel(model, AS_STORED), workload=work,
        mode=mode, date=date,
    )  # fmt: skip


ROWS = [
    row("h100_sxm", "vllm", "2026-01-10"),
    row("h100_sxm", "sglang", "2026-05-02", isl=8192.0),
    row("mi300x", "sglang", "2025-12-11"),
    row("mi355x", "sglang", "2026-06-11", isl=512.0),
    row("b200_sxm", "trtllm", "", isl=2048.0),
]


@pytest.mark.parametrize(
    ("way", "left"),
    [
        ("make", [[2, 3]]),
        ("engine", [[4], [1, 2, 3], [0]]),
        ("time", [[1, 3]]),
        ("source", []),  # all are of one
    ],
)
def test_a_fold_has_seen_nothing_of_what_it_predicts(way, left):
    times = PooledTimes.of(ROWS)
    found = [sorted({int(i) for i in times.row[~f.seen]}) for f in folds.split(way, times)]
    assert found == left


def test_what_cannot_be_left_out_is_refused():
    with pytest.raises(InputError, match="rows of two kinds"):
        splits.run("make", ROWS[:2])
    with pytest.raises(InputError, match="--split"):
        splits.run("colour", ROWS)


def test_a_row_counts_by_its_data_set_and_of_two_pools_the_pace_alone():
    times = PooledTimes.of([*ROWS[:2], row("h100_sxm", "vllm", "", mode="pools")])
    assert times.row.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    counted = likelihood.weights(times)
    by_kind = dict(zip(times.kind[:3].tolist(), counted[:3].tolist(), strict=True))
    assert by_kind == pytest.approx(
        {likelihood.RATE: 0.0, likelihood.TTFT: 0.45, likelihood.PACE: 1.5}
    )
    assert counted[6:].tolist() == np.where(times.kind[6:] == likelihood.PACE, 1.0, 0.0).tolist()
    rates = times.predicted({"throughput": np.full(3, 4.0)})
    assert rates[times.kind == likelihood.RATE].tolist() == [0.25] * 3  # TPOT is the pace
    median = {"tpot": 0.01, "ttft": 0.1, "ttft_median": 0.1, "e2e": 3.0}
    other = PooledTimes.of([replace(ROWS[0], measured=median)])
    assert sorted(other.kind) == [likelihood.PACE, likelihood.WHOLE, likelihood.MEDIAN]
    both = PooledTimes.of([replace(ROWS[0], measured=median | {"ttft_mean": 0.1})])
    assert sorted(both.kind) == [likelihood.PACE, likelihood.TTFT, *sorted(other.kind)[1:]]
    alone = PooledTimes.of([replace(ROWS[0], measured={"throughput": 50.0})])
    assert alone.seconds.tolist() == [0.02]
    assert alone.predicted({"throughput": np.full(1, 4.0)}).tolist() == [0.25]


@pytest.fixture(scope="module")
def problem():
    def predict(model: Serving):
        return jnp.stack([model.weight_read * model.cdna3.gap, model.vllm.front + model.hop])

    with jax.enable_x64(True):
        yield PooledProblem.of(
            predict, np.ones(2), Serving.of(), likelihood.NAMES, priors=likelihood.PRIORS
        )


def test_errors_without_a_publisher_are_those_of_a_fit_to_the_others(problem):
    """On a model whose logs are linear: the linear refit is the fit itself."""
    names = ("weight_read", "link")
    priors = {name: likelihood.PRIORS[name] for name in names}
    rows = [
        PooledRow(**{**vars(r), "dataset": f"{publisher} x", "measured": {"tpot": t, **whole}})
        for publisher, times, whole in (
            ("a", (0.6, 0.7), {}), ("b", (0.5, 0.9), {}), ("c", (0.8, 0.4), {"e2e": 0.9}),
        )
        for r, t in zip(ROWS[:2], times, strict=True)
    ]  # fmt: skip
    times = PooledTimes.of(rows)

    def predict(model: Serving):
        return jnp.stack([model.weight_read, model.link] * 3)[times.row]

    own = PooledProblem.of(
        predict, times.seconds, Serving.of(), names, priors=priors, scale=np.full(8, 0.5)
    )
    sources = times.labels(lambda row: row.publisher)
    seen = sources != "c"
    start = np.asarray(own.starts())
    ends, _ = own.solve(start, likelihood.weights(times, seen), 12)
    found = splits.unseen_errors(times, own, ends[0], seen)
    for left, used in (("a", sources == "b"), ("b", sources == "a"), ("c", seen)):
        refit, _ = own.solve(start, likelihood.weights(times, used), 12)
        want = np.log(times.seconds) - np.asarray(own.logs(jnp.asarray(refit[0])))
        own_rows = sources == left
        # shares have bounds, near which their coordinate is bent
        assert found.errors[own_rows] == pytest.approx(want[own_rows], abs=0.02)
    assert set(found.laws[times.kind == likelihood.PACE]) == {"tpot"}
    ((low, high),) = splits.unseen_ends(found, seen)[[1]]
    assert np.isnan(low[seen]).all() and (low[~seen] < high[~seen]).all()
    # whole requests are of the left-out publisher alone: no offset is known of them
    scored = splits.predicted("source", folds.Fold("c", seen), times, own, start[0])
    alone = times.kind == likelihood.WHOLE
    assert alone.sum() == 2 and np.array_equal(scored.offset[alone], scored.plain[alone])
    low, high = scored.ends()
    assert np.isfinite(scored.offset).all() and (low[alone] < high[alone]).all()


def test_errors_of_what_is_new_end_the_file_of_the_fit_and_are_read_from_there():
    """These tables alone are replaced; the medians are those of the ratios by hand."""
    ratios = NewErrors(2, np.asarray([0.8, 1.0, 1.25]), np.asarray([0.5, 2.0]))
    shipped = SHIPPED.read_text()
    before, _, after = shipped.partition(shipping.UNSEEN)
    assert before.count("[coefficients]") == 1 and after.count("[unseen.") == 5
    text = shipping.with_new_errors(shipped, {"system": ratios, "amd": ratios})
    assert text.partition(shipping.UNSEEN)[0] == before
    found = tomllib.loads(text)["unseen"]
    assert sorted(found) == ["amd", "system"]
    assert found["amd"]["tpot"]["median_error"] == 20.0  # of 25, 0 and 20
    assert found["amd"]["ttft"]["median_error"] == 75.0  # of 100 and 50


@pytest.mark.slow
def test_the_shipped_errors_of_what_is_new_are_what_the_command_computes(tmp_path, x64):
    """Within 0.2 points: fits end within a tolerance."""
    if not silicon.is_installed():
        pytest.skip("aiconfigurator-core is not installed")
    found = publishers.new_errors(board.read([]).rows)
    for kind, errors in unseen_errors().items():
        assert len(found[kind].tpot) == errors.rows
        for name, median in errors.median.items():
            assert found[kind].medians()[name] == pytest.approx(median, abs=0.2), (kind, name)


def test_bad_files_of_the_fit_end_with_one_sentence_and_code_2(tmp_path):
    file = tmp_path / "rocm.csv"
    file.write_text("kind,model,tp,batch,isl,osl,value\nlat,llama-3.1-70b,8,1,128,2048,17.236\n")
    for path, said in ((tmp_path / "nothing", "no such file"), (file, "aiconfigurator-core")):
        done = CliRunner().invoke(app, [str(path)])
        assert done.exit_code == 2 and done.stderr.count("\n") == 1 and said in done.stderr
