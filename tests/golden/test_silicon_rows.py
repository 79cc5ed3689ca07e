"""The cleaning of aiconfigurator's measured rows: rules on rows written here, then all rows.

The rows themselves lie in the optional package ``aiconfigurator-core``; what needs them is skipped
where it is absent.
"""

import csv
from collections import Counter
from importlib.util import find_spec
from typing import Any

import pytest

from infer_jax.calibration.pooled.readers import silicon, silicon_cleaning as cleaning
from infer_jax.calibration.pooled.rows import ServedModel
from infer_jax.catalog.measurements.silicon import COLUMNS, DEGREES
from infer_jax.errors import InputError

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
GAP = "source_file=/x/gap-analysis/data/y.csv; silicon_concurrency="


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


def architecture(run):
    """What a row served, in its number formats."""
    return ServedModel(run.model, run.formats).architecture()


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


def test_fixed_length_rows_keep_their_labels_and_the_smaller_concurrency(table):
    fixed = MIXTURE | {"silicon_data_source": GAP + "64", "batch_size": "16"}
    (row,) = cleaning.aggregated(table(fixed | degrees(4, 4, 4, 4)))
    assert row.layout == (4, 4, 4, 4) and row.published.fixed_length
    assert row.concurrency == 64  # 16 per rank on 4 ranks
    (row,) = cleaning.aggregated(table(fixed | degrees(4, 1, 4, 1)))
    assert row.concurrency == 16  # several replicas were counted together


def test_a_run_slower_than_twice_its_load_is_an_anomaly(table):
    def at(load, tpot, **more):
        source = f"silicon_concurrency={load}; measured=2026-01-01"
        return DENSE | {"silicon_data_source": source, "silicon_tpot_ms": tpot} | more

    result = cleaning.aggregated(
        table(
            at(8, 20), at(16, 12), at(4, 14), at(8, 99, backend_version="2.0"), at(8, 13, isl=2048)
        )
    )
    # 20 > 1.25 x 12 at twice the load; 14 is not; another version or prompt is another run
    assert [row.anomaly for row in result] == ["slower_than_double_load", "", "", "", ""]


def test_a_server_looks_for_requests_as_its_script_says(table):
    def passes(load, **more):
        sglang = DENSE | {"backend": "sglang", "system": "b200_sxm", "batch_size": load}
        sglang |= {"model_path": "deepseek-ai/DeepSeek-R1"}
        sglang |= {"silicon_data_source": f"silicon_concurrency={load}"}
        (run,) = cleaning.aggregated(table(sglang | more))
        return silicon.polling_passes(run)

    assert [passes("15"), passes("16")] == [10.0, 30.0]
    for other in ({"backend": "vllm"}, {"model_path": "zhipuai/GLM-5"}, {"system": "h200_sxm"}):
        assert passes("16", **other) == 1.0
    assert passes("16", silicon_data_source=GAP + "16") == 1.0


def test_a_build_that_often_answers_less_at_a_higher_load_is_erratic(table):
    def at(load, tpot, image):
        source = f"silicon_concurrency={load}; measured=2026-01-01; image={image}"
        return DENSE | {"silicon_data_source": source, "silicon_tpot_ms": tpot}

    steady = [at(load, 8.0 + load / 8.0, "a") for load in (1, 2, 4, 8)]
    # 4 requests in 60 ms are fewer tokens a second than 1 in 8 ms: of six pairs two
    erratic = [at(*x, "b") for x in ((1, 8.0), (2, 10.0), (4, 60.0), (8, 61.0))]
    runs = cleaning.aggregated(table(*steady, *erratic))
    assert silicon.erratic_builds(runs) == {("vllm", "1.0", "b")}


def test_qwen_drafts_on_two_days_without_saying_so(table):
    def tokens(**more):
        source = "silicon_concurrency=8; measured=2026-03-20T00:00Z"
        row = DENSE | {"backend": "sglang", "model_path": "Qwen/Qwen3.5-397B-A17B"}
        row |= {"silicon_data_source": source, "moe_tp_size": "4", "moe_ep_size": "1"}
        (run,) = cleaning.aggregated(table(row | more))
        return silicon.drafts(run)

    assert tokens() == 3.0
    others = {"backend": "vllm"}, {"moe_tp_size": "1", "moe_ep_size": "4"}, {"precision": "bf16"}
    day = {"silicon_data_source": "silicon_concurrency=8; measured=2026-03-24T00:00Z"}
    assert [tokens(**other) for other in (*others, day)] == [0.0] * 4


def test_formats_reach_the_architecture(table):
    fp4 = {"precision": "fp4", "system": "b200_sxm"}
    deepseek, dense = cleaning.aggregated(
        table(DENSE | fp4 | {"model_path": "deepseek-ai/DeepSeek-V3"}, DENSE | fp4)
    )
    built: Any = architecture(deepseek)
    assert float(built.cache.bytes) == 1.0
    assert float(built.blocks[-1].attention.weights.bytes) == 1.1
    assert float(built.blocks[-1].feedforward.weights.bits) == 4.0
    assert float(built.blocks[-1].feedforward.shared.weights.bytes) == 0.5625
    assert float(built.blocks[0].feedforward.weights.bytes) == 1.1  # a dense layer is no expert
    built = architecture(dense)
    assert float(built.blocks[0].feedforward.weights.bytes) == 0.5625
    assert dense.formats.dynamic == 2.0


def test_worker_counts_are_recovered_from_the_same_measurement(table):
    pools = {f"prefill_{k}": v for k, v in degrees(1, 4, 4, 1).items()}
    pools |= {f"decode_{k}": v for k, v in degrees(4, 1, 0, 0).items()}
    counts = {"prefill_num_workers": 1, "prefill_batch_size": 1}
    counts |= {"decode_num_workers": 2, "decode_batch_size": 4}
    bare = MIXTURE | {"mode": "disagg", "batch_size": "", "tp_size": ""}
    scored, left = cleaning.disaggregated(
        table(bare, bare | pools | counts, bare | {"silicon_tpot_ms": "11"})
    )
    assert [row.published.id for row in scored] == ["row0", "row1"]
    assert [row.source for row in scored] == ["row1", "row1"]
    assert scored[0].prefill.gpus + scored[0].decode.gpus == 1 * 4 + 2 * 4
    assert scored[0].decode.layout == (4, 1, 4, 1)  # the expert grid is unlabelled
    assert [row.id for row in left] == ["row2"]


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
    assert sum(row.clean for row in result) == 2762
    assert len({row.published.model_path for row in result}) == 15
    scored, left = cleaning.disaggregated()
    assert len(scored) + len(left) == 5221 - 3619
    given = [row for row in scored if row.source == row.published.id]
    assert len(given) == 274
    # what the pools can hold at once is the load that the rows were measured under
    slots = [row.decode.count * row.decode.layout.dp * row.decode.batch for row in given]
    assert [row.concurrency for row in given] == slots
