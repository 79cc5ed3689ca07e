"""The optional package's own rows and tables, read where it is installed."""

from importlib.util import find_spec

import pytest

from infer_jax.catalog.measurements import read_runs, silicon, silicon_runs
from infer_jax.errors import InputError

needs_package = pytest.mark.skipif(
    find_spec("aiconfigurator_core") is None, reason="aiconfigurator-core is not installed"
)


@needs_package
def test_rows_as_runs():
    result = read_runs(silicon.package_folder() / silicon.TABLE)
    whole = [run for run in result if not run.pools]
    split = [run for run in result if run.pools]
    # 55 flattened and 15 unlabelled rows left out; second entries of a measurement dropped
    assert len(list(silicon_runs.runs())) == 5221 - 55 - 15 - (1602 - 274)
    assert len(split) == 274 and 0.75 * 3549 < len(whole) <= 3549
    assert all(run.chips == (run.tp or 0.0) * (run.dp or 0.0) for run in whole)
    assert all(run.loop == "closed" for run in whole)
    assert {run.system for run in whole} >= {"h100_sxm", "h200_sxm", "b200_sxm", "b300_sxm"}
    assert all(pool.chips for run in split for pool in run.pools)


def test_absent_package(monkeypatch):
    monkeypatch.setattr(silicon, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"not installed.*infer_jax\[silicon\]"):
        silicon.published_rows()
