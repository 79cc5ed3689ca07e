"""The scoreboard of measured rows of others: what it reads, cleans, leaves out, refuses; power.

aiconfigurator's rows lie in the optional package ``aiconfigurator-core``; what needs them is
skipped where it is absent.
"""

import csv
from collections import Counter
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

from experiments import power, validation
from experiments._validation import board, estimates, folds, kinds
from experiments.power import ML_ENERGY
from infer_jax.calibration.pooled.answers import TRACES, shipped_fit
from infer_jax.calibration.pooled.readers import silicon_cleaning as cleaning
from infer_jax.calibration.pooled.rows import PooledRow, rows_of, system_named
from infer_jax.catalog import list_systems, load_system
from infer_jax.catalog.measurements.silicon import COLUMNS, DEGREES
from infer_jax.catalog.published import measured_rates, power_errors, power_shares
from infer_jax.errors import InputError
from infer_jax.estimators import make
from infer_jax.estimators.serving import GENERATIONS, Deployment, Serving

INFERENCEX = """\
id,date,hardware,framework,image,model,precision,spec_method,disagg,is_multinode,prefill_tp,\
prefill_ep,prefill_dp_attention,prefill_num_workers,decode_tp,decode_ep,decode_dp_attention,\
decode_num_workers,num_prefill_gpu,num_decode_gpu,isl,osl,conc,mean_ttft,median_ttft,mean_tpot,\
median_tpot,mean_e2el,median_e2el,output_tput_per_gpu,avg_power_w
a,2026-06-11,mi355x,sglang,,dsr1,fp4,none,False,False,8,1,False,0,8,1,False,0,8,8,1024,1024,8,\
0.15,0.1,0.0102,0.0103,9.7,9.8,94,560
b,2026-01-11,h200,trt,,dsr1,fp8,mtp,False,False,8,8,True,0,8,8,True,0,64,64,8192,1024,64,\
,2.0,,0.03,,30,220,
c,2026-02-11,gb200,dynamo-trt,,dsr1,fp4,none,True,True,4,4,True,2,8,8,True,3,8,24,8192,1024,96,\
1.5,1.2,0.011,0.011,12,12,250,
d,2026-02-11,b200,sglang,,dsr1,fp8,none,False,False,8,1,False,0,8,1,False,0,8,8,1024,1024,4,\
,lots,,0.009,,9,50,
e,2026-02-11,b200,sglang,,unheard-of,fp8,none,False,False,8,1,False,0,8,1,False,0,8,8,1024,1024,4,\
,0.1,,0.009,,9,50,
f,2026-02-11,gb200,dynamo-trt,,dsr1,fp4,none,True,False,28,1,False,0,28,1,False,0,28,28,8192,\
1024,96,1.5,1.2,0.011,0.011,12,12,250,
g,2026-02-11,b200,sgl
"""
ROCM = """\
kind,model,tp,batch,isl,osl,value
thr,llama-3.1-70b,8,3200,128,2048,13383.3
lat,llama-3.1-70b,8,1,128,2048,17.236
lat,llama-3.1-70b,8,1,128,2048,-1
"""
FILES = {"inferencex.csv": INFERENCEX, "rocm.csv": ROCM}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    where = tmp_path_factory.mktemp("measured")
    for name, text in FILES.items():
        (where / name).write_text(text)
    return where


@pytest.fixture(scope="module")
def read(folder):
    return {name: kinds.read(folder / name) for name in FILES}


@pytest.fixture(scope="module")
def answers(read):
    """The shipped fit and the roofline on all rows of the files, in one program each."""
    rows = [row for one in read.values() for row in one.rows]
    with jax.enable_x64(True):
        TRACES.clear()
        return rows, estimates.answers(rows, shipped_fit()), estimates.roofline(rows)


def test_rows_are_left_out_with_a_reason_each(read):
    assert read["inferencex.csv"].skipped == Counter(
        {
            "median_ttft is no number": 1,
            "model 'unheard-of' is not known here": 1,
            "workers of the pools are missing": 1,
            "model is missing": 1,  # a line that is cut
        }
    )
    assert read["rocm.csv"].skipped == Counter({"value is not above 0": 1})


def test_layouts_and_loads_are_those_of_the_rows(read):
    alone, drafted, pools = read["inferencex.csv"].rows
    assert [row.dataset for row in (alone, drafted, pools)] == [
        "inferencex amd", "inferencex nvidia drafts", "inferencex nvidia pools",
    ]  # fmt: skip
    assert float(alone.plan.tp) == 8 and float(alone.plan.drafts) == 0
    assert (float(drafted.plan.tp), float(drafted.plan.attention_dp)) == (1, 8)
    assert float(drafted.plan.drafts) == 1
    assert float(pools.plan.prefill.attention_dp) == 4 and float(pools.plan.decode_copies) == 3
    assert float(pools.workload.batch) == 32 and pools.chip_share == 24 / 32
    # medians where there are no means; a mean is never scored against a median
    assert alone.measured["ttft"] == 0.15 and alone.measured["ttft_median"] == 0.1
    assert drafted.measured["ttft"] == 2.0 and "ttft_mean" not in drafted.measured


def test_all_rows_of_a_question_are_one_program_and_every_measured_number_is_predicted(answers):
    rows, fitted, roofline = answers
    # or none, where another test has compiled it before
    once = Counter(closed_loop=1, two_pools=1, one_batch=1, ideal=3)
    assert not Counter(TRACES) - once
    for i, row in enumerate(rows):
        assert all(np.isfinite(fitted[metric][i]) for metric in row.measured), row.id
        # a roofline reads and computes what the fit does, faster
        shown = {"tpot", "ttft", "latency"} & set(row.measured)
        assert all(0 < roofline[metric][i] < fitted[metric][i] for metric in shown), row.id


def test_a_plain_roofline_of_one_request_reads_weights_and_cache_once_a_token(answers):
    rows, _, roofline = answers
    (i,) = (i for i, row in enumerate(rows) if row.mode == "batch")
    chip = system_named("mi300x").hardware.chip
    # Llama 3.1 70B: 80 layers of width 8192, GQA with 8 of 64 heads, FFN 28672, vocabulary 128256
    attention, feed = 8192 * (2 * 8192 + 2 * 1024), 3 * 8192 * 28672
    weights = 80 * (attention + feed) * 1.0 + 8192 * 128256 * 2.0
    cache = 80 * 2 * 1024 * 2.0 * (128 + 1024)
    each = (weights + cache) / 8 / float(chip.memory_bandwidth)
    flop = 2.0 * 80 * (attention + feed) * 128 / 8 / float(chip.flops_8)
    assert roofline["latency"][i] == pytest.approx(2047 * each + max(each, flop), rel=2e-3)


def test_scores_are_those_of_the_definitions():
    predicted = np.asarray([1.1, 0.8, 2.0, np.nan, 1.0])
    measured = np.asarray([1.0, 1.0, 1.0, 1.0, np.nan])
    low, high = predicted * np.asarray([0.9, 0.9, 0.6, 1, 1]), predicted * 1.2
    one = board.score(predicted, measured, low, high)
    assert one is not None
    assert (one.rows, one.banded) == (3, 3)
    assert one.median == pytest.approx(20.0) and one.mean == pytest.approx(130 / 3)
    assert one.bias == pytest.approx(100 * ((1.1 * 0.8 * 2.0) ** (1 / 3) - 1))
    assert one.cover80 == pytest.approx(100 / 3)  # the first alone
    assert one.width80 == pytest.approx(1.2 / 0.9)
    widths, outside = np.log([1.2 / 0.9, 1.2 / 0.9, 1.2 / 0.6]), np.log([1.0 / 0.96, 1.2])
    assert one.winkler80 == pytest.approx((widths.sum() + 10.0 * outside.sum()) / 3)
    assert board.score(predicted[3:], measured[3:]) is None


def test_a_file_of_another_kind_is_refused_in_one_sentence(tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("speed,price\n1,2\n")
    answer = CliRunner().invoke(validation.app, [str(other)])
    assert answer.exit_code == 2
    assert "allowed: those of InferenceX: hardware" in answer.stderr.replace("\n", " ")
    assert answer.stderr.count("\n") == 1
    with pytest.raises(InputError, match="no measured server"):
        kinds.read(tmp_path)
    empty = tmp_path / "empty.csv"
    empty.write_text(ROCM.splitlines()[0] + "\n")
    assert CliRunner().invoke(validation.app, [str(empty)]).exit_code == 2


def test_every_file_beside_the_checkout_is_read():
    rows: list[PooledRow] = []
    for name, reader in kinds.sources().items():
        result = reader()
        assert result.rows or result.skipped, name
        rows += result.rows
    datasets = {row.dataset for row in rows}
    assert {"inferencex amd", "inferencex nvidia pools", "open loop h100"} <= datasets
    with (kinds.MEASURED / "inferencex_deepseek_r1.csv").open(newline="") as file:
        shown = {line["id"] for line in csv.DictReader(file)}
    assert len([row for row in rows if row.id in shown]) >= 0.95 * len(shown)


def test_published_nodes_of_wide_experts_are_predicted_within_a_fifth():
    """DeepSeek's and LMSYS's nodes of H800 and H100: all but the one that decodes in one batch."""
    rows = [r for r in kinds.read(kinds.WIDE_EXPERTS).rows if r.system in ("h800_sxm", "h100_sxm")]
    assert len(rows) == 9
    found = estimates.answers(rows, shipped_fit())["throughput"]
    wrong = np.abs(found / board.measured(rows, "throughput") - 1.0)
    assert np.all(np.sort(wrong)[:-1] < 0.2) and wrong.max() < 0.26 and np.median(wrong) < 0.1


def lines(text):
    return list(csv.DictReader(StringIO(text)))


def test_rows_of_ml_energy_are_those_that_are_published():
    read = kinds.read(ML_ENERGY)
    assert len(read.rows) == 129 and not read.skipped
    one = next(row for row in read.rows if row.id == "gpt-oss-120b b200_sxm mxfp4 2 128")
    assert one.measured == pytest.approx({"tpot": 12.12e-3, "power": 1517.8 / 2})
    assert isinstance(one.plan, Deployment) and one.workload is not None
    assert float(one.plan.tp) == 2.0 and float(one.workload.osl) == 1760.0
    assert {row.dataset for row in read.rows} == {"ml.energy h100", "ml.energy b200"}
    assert not rows_of(lines("gpu_model,model\na40,qwen3-8b\n"), kinds._power_row).rows


def test_every_chip_draws_what_its_generation_does_and_others_the_mean():
    unseen = Serving.of().draw
    assert float(unseen.idle) == power_shares()["idle"]
    for name in list_systems():
        system = load_system(name)
        own = system.coefficients.get("serving", {})
        serving = make("serving", system.coefficients)
        assert isinstance(serving, Serving)
        drawn = serving.draw
        which = GENERATIONS[int(own["generation"])] if "generation" in own else "unseen"
        if which == "unseen":  # a chip of Hopper that has no generation would draw the mean
            assert "H100" not in system.title and "H200" not in system.title
        expected = power_shares(which)
        assert {n: float(getattr(drawn, n)) for n in power.FIELDS} == expected, name
        low, high = power_errors(which).within[80]
        assert low < 1.0 < high


def test_the_band_of_power_is_that_of_the_chip():
    (row, *_) = kinds.read(ML_ENERGY).rows
    ends = board.bands([row], {"power": np.array([500.0])})
    factors = power_errors("hopper").within[80]
    assert (ends.low["power"][0], ends.high["power"][0]) == pytest.approx(500.0 * np.array(factors))


def test_every_figure_is_of_a_bundled_chip_and_below_what_it_could_be():
    for one in measured_rates():
        assert one.source and one.what
        for name, value in one.measured.items():
            share = value / folds._sheet(one.quantity, name)
            # switches that add beside the GPUs: an all-reduce is faster than its links' ring
            assert 0.3 < share < (1.1 if one.quantity == "link" else 1.0), (one.quantity, name)


def test_a_ratio_is_of_shares_of_data_sheets_in_the_same_benchmark():
    ratio = folds.ratio
    assert ratio("gemm_16", "mi300x") == pytest.approx((758.3 / 1307.4) / (792.1 / 989.4), rel=1e-3)
    assert ratio("gemm_16", "mi355x") == pytest.approx((1610 / 2516.6) / (1570 / 2250), rel=1e-3)
    h100, h200 = 2.984 / 3.35, 4.158 / 4.8
    memory = (4.094 / 5.3) / np.sqrt(h100 * h200)
    assert ratio("memory", "mi300x") == pytest.approx(memory, rel=1e-3)
    # no benchmark of its memory or links is known: its make's
    assert ratio("memory", "mi355x") == ratio("memory", "mi300x")
    assert ratio("launch", "mi300x") == 1.0


needs_package = pytest.mark.skipif(
    find_spec("aiconfigurator_core") is None, reason="aiconfigurator-core is not installed"
)

HEADER = [*COLUMNS]
for stage in ("prefill", "decode"):
    HEADER += [f"{stage}_{name}" for name in ("batch_size", "num_workers", *DEGREES)]

DENSE = {
    "silicon_data_source": "source_file=a.csv; silicon_concurrency=8; measured=2026-01-01T00:00Z",
    "backend": "vllm",
    "backend_version": "1.0",
    "model_path": "Qwen/Qwen3-32B",
    "system": "h100_sxm",
    "precision": "fp8",
    "mode": "agg",
    "isl": "1024",
    "osl": "512",
    "batch_size": "8",
    "tp_size": "4",
    "pp_size": "1",
    "silicon_ttft_ms": "100.0",
    "silicon_tpot_ms": "10.0",
}
MIXTURE = DENSE | {"model_path": "MiniMaxAI/MiniMax-M2.5"}


@pytest.fixture
def table(tmp_path):
    """Writes rows (dicts over ``DENSE``'s cells) as the package's table and gives its path."""

    def write(*given):
        path = tmp_path / "silicon.csv"
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, HEADER, restval="")
            writer.writeheader()
            for index, row in enumerate(given):
                writer.writerow({"id": f"row{index}", **row})
        return path

    return write


def degrees(tp, dp, moe_tp, moe_ep):
    return dict(zip(DEGREES, (tp, dp, moe_tp, moe_ep), strict=True))


@pytest.mark.parametrize(
    "model, published, run",
    [
        (MIXTURE, (64, 1, 8, 8), (8, 1, 1, 8)),  # tp was multiplied by ep
        (MIXTURE, (1, 64, 8, 8), (1, 8, 1, 8)),  # dp was
        (MIXTURE, (4, 4, 1, 16), (1, 4, 1, 4)),  # both are the same GPUs
        (MIXTURE, (8, 1, 8, 1), (8, 1, 8, 1)),
        (MIXTURE, (2, "", 4, 1), (2, 2, 4, 1)),  # missing dp follows from the experts
        (MIXTURE, (8, "", 0, 0), (8, 1, 1, 1)),
        (DENSE, (4, "", 0, 0), (4, 1, 4, 1)),  # a dense model has no experts
    ],
)
def test_parallel_labels_are_repaired(table, model, published, run):
    (row,) = cleaning.aggregated(table(model | degrees(*published)))
    assert row.layout == run


@pytest.mark.parametrize(
    "cells, said",
    [
        ({"silicon_tpot_ms": "fast"}, "line 2, silicon_tpot_ms is 'fast'"),
        ({"silicon_ttft_ms": ""}, "line 2, silicon_ttft_ms"),
        ({"isl": "-1"}, "line 2, isl is '-1'"),
        ({"mode": "both"}, "line 2, mode is 'both'"),
        ({"pp_size": "2"}, "line 2, pp_size is '2'"),
        ({"batch_size": "", "silicon_data_source": "x"}, "row0: batch_size is missing"),
        ({"model_path": "some/model"}, "row0: model_path is 'some/model'"),
    ],
)
def test_malformed_cells_are_named(table, cells, said):
    with pytest.raises(InputError) as raised:
        cleaning.aggregated(table(DENSE | cells))
    assert said in str(raised.value)


@needs_package
def test_counts_are_those_of_the_study():
    result = cleaning.aggregated()
    assert len(result) == 3619
    assert Counter(row.anomaly == "flattened_disaggregated" for row in result)[True] == 55
    assert sum(row.unique for row in result) == 2794
    assert sum(row.hidden_drafts for row in result) == 161
    assert sum(row.unique and row.hidden_drafts for row in result) == 99
    assert sum(row.unique and bool(row.anomaly) for row in result) == 32
    assert sum(row.unique and not row.anomaly for row in result) == 2762
    assert len({row.published.model_path for row in result}) == 15
    scored, left = cleaning.disaggregated()
    assert len(scored) + len(left) == 5221 - 3619
    given = [row for row in scored if cleaning.has_workers(row.published)]
    assert len(given) == 274
    # what the pools can hold at once is the load that the rows were measured under
    decode = [row.pools[1] for row in given if row.pools]
    slots = [pool.count * pool.layout.dp * pool.batch for pool in decode]
    assert [row.concurrency for row in given] == slots
