"""Pope et al. 2022 (arXiv 2211.05102): printed MFU from printed time, contexts, settings, cells."""

import numpy as np
import pytest

from experiments._columns import printed_rows
from experiments._partitioning import printed
from experiments._partitioning.measured import CHIPS, GPUS, OWN, SUM, cells, own
from experiments._partitioning.tables import times
from infer_jax.catalog import load_system
from infer_jax.catalog.published import partitioning_parameters

PEAK = 275e12
ROWS = cells()


@pytest.mark.parametrize("cell", [c for c in ROWS if c.series in (*OWN[:2], SUM)], ids=str)
def test_printed_mfu_follows_from_printed_time(cell):
    assert abs(cell.mfu_of(cell.seconds, CHIPS, PEAK) - cell.mfu) <= 1.0


@pytest.mark.parametrize("setting", printed_rows("partitioning_tables.csv"), ids=str)
def test_printed_mfu_of_tables_2_and_3_follows_from_printed_time(setting):
    tokens = float(setting["batch"]) * float(setting["tokens"])
    flops = 2.0 * partitioning_parameters(setting["model"]) * tokens
    ours = flops / (float(setting["chips"]) * PEAK * float(setting["latency_s"]))
    assert abs(100.0 * ours - float(setting["mfu_percent"])) <= 1.0


def test_the_two_totals_of_table_d4_are_swapped_in_the_paper():
    """PaLM's prefill and generate add up to the column headed MT-NLG, in all nine rows."""
    rows = {(c.batch, c.series): c.seconds for c in ROWS if c.table == "D.4"}
    for batch in sorted({b for b, series in rows if series == SUM}):
        both = rows[batch, OWN[0]] + rows[batch, OWN[1]]
        assert both == pytest.approx(rows[batch, OWN[2]], abs=1.5e-3)


@pytest.mark.parametrize("context", printed.contexts(), ids=lambda c: f"{c.attention}-{c.batch:g}")
def test_table_1_contexts_within_two_per_cent(context):
    assert context.ours == pytest.approx(context.theirs, rel=0.02)


def test_tables_2_and_3_are_predicted_with_the_winning_layout(x64):
    settings = printed.settings()
    errors = np.abs([s.error for s in settings])
    assert len(settings) == 8
    assert errors.max() <= 0.25
    assert np.median(errors) <= 0.12
    assert [s.label for s in settings if not s.right] == []


def _errors(rows, system):
    ours = times(rows, system)
    return np.abs([ours[c] / c.seconds - 1.0 for c in rows]), ours


def test_the_fitted_cells_are_within_the_stated_errors():
    rows = own(ROWS)
    errors, _ = _errors(rows, "tpu_v4")
    assert len(rows) == 81
    assert np.median(errors) <= 0.03
    assert errors.max() <= 0.15


def test_gpus_with_their_own_coefficients_and_the_ceiling_of_32_way_tensor_parallelism():
    rows = [c for c in ROWS if c.gpu]
    errors, ours = _errors(rows, "a100_sxm")
    assert np.median(errors) <= 0.15
    most = {
        name: max(c.mfu_of(ours[c], chips * stages, 312e12) for c in rows if c.gpu == name)
        for name, (chips, stages) in GPUS.items()
    }
    assert most["TP32"] == pytest.approx(33.0, abs=2.0)  # Section 5
    assert most["TP16"] > most["TP32"] + 10.0


def test_coefficients_are_physical():
    for system in ("tpu_v4", "a100_sxm"):
        fitted = load_system(system).coefficients["partitioning"]
        assert len(fitted) <= 10
        for name, value in fitted.items():
            if name.endswith("_cap"):
                assert 0.0 < value <= 1.0
        assert 0.0 <= fitted["collective"] <= 50e-6
