"""Plans chosen of measured rows at a confidence, and whether their limits are kept."""

from dataclasses import replace

import numpy as np
import pytest

from experiments._validation import kept_limits
from experiments._validation.split_scores import SHARES, mean_of_label
from infer_jax.calibration.pooled.likelihood import PooledTimes
from infer_jax.calibration.pooled.rows import BF16, PooledRow, ServedModel, StoredFormats
from infer_jax.estimators.serving import Deployment, ServingWorkload

TPOTS = np.asarray([0.01, 0.011, 0.013, 0.016])  # of 1, 2, 4 and 8 requests in flight
ROW = PooledRow(
    id="", dataset="here", measured={}, group="llama-3.1-8b h100_sxm vllm bf16", system="h100_sxm",
    engine="vllm", served=ServedModel("llama-3.1-8b", StoredFormats(BF16, BF16, BF16, 2.0, 0.0)),
    plan=Deployment.of(),
)  # fmt: skip
TIMES = PooledTimes.of(
    [
        replace(ROW, measured={"tpot": t}, workload=ServingWorkload.of(isl=9, osl=9, batch=2.0**i))
        for i, t in enumerate(TPOTS)
    ]
)


def kept(errors, width=0.0):
    """Choices under the three quartiles of TPOT, and the share of them that is kept."""
    ends = width * np.asarray([-1.0, 1.0])[None, :, None] * np.ones((len(SHARES), 1, len(TPOTS)))
    found = kept_limits.table(TIMES, np.asarray(errors), ends, 0.8)
    return tuple(found["TPOT"]["NVIDIA"].values()) if found else (0, None)


def test_a_limit_is_kept_where_the_chosen_row_was_measured_within_it():
    assert kept([0.0] * 4) == (3, 100.0)
    # the row of most requests is predicted at 9 ms and was measured at 16: no limit keeps it
    assert kept([0.0, 0.0, 0.0, np.log(16 / 9)]) == (3, 0.0)


def test_wider_bands_leave_fewer_rows_and_keep_more_limits():
    wrong = [0.0, 0.0, 0.0, 0.25]  # predicted at 12.5 ms, within the largest limit alone
    assert kept(wrong) == (3, pytest.approx(66.7))
    assert kept(wrong, width=0.1) == (2, 100.0)
    assert kept([0.0] * 4, width=2.0) == (0, None)


def test_a_constant_width_has_the_mean_of_the_ends_of_its_kind():
    ends = np.asarray([2.0, 8.0, 3.0, np.nan])
    means = mean_of_label(ends, np.asarray([0, 0, 1, 1]))
    assert means == pytest.approx([4.0, 4.0, 3.0, np.nan], nan_ok=True)
