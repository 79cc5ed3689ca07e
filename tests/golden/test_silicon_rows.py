"""The cleaning of aiconfigurator's measured rows: rules on rows written here, then all rows.

The rows themselves lie in the optional package ``aiconfigurator-core``; what needs them is skipped
where it is absent.
"""

import csv
from collections import Counter
from importlib.util import find_spec

import pytest

from infer_jax.calibration.pooled.readers import silicon_cleaning as cleaning
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
