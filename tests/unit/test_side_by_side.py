"""Tests of one file run in one process, so that each program is compiled once."""

import os

import pytest

from tests.conftest import group


def test_a_file_is_a_group_and_so_is_each_estimator_of_the_contract():
    law = "tests/contract/test_contract.py::test_vmap_equals_loop"
    assert group(f"{law}[kernels]") == group(f"{law}[decode-kernels-mixture-nodes]")
    assert group(f"{law}[kernels]") != group(f"{law}[serving]") != group(law)
    other = "tests/cli/test_plan.py::test"
    assert group(f"{other}[kernels]") == group(other)
    page = "tests/cli/report/test_page.py::test"
    assert group(page) == group("tests/cli/report/test_browser.py::test") != group(other)


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="one process runs all")
@pytest.mark.parametrize("turn", range(6))
def test_one_process_runs_a_file(turn, tmp_path_factory):
    """Each turn leaves its process where all processes of this run look."""
    seen = tmp_path_factory.getbasetemp().parent / "processes"
    seen.mkdir(exist_ok=True)
    (seen / str(os.getpid())).touch()
    assert [path.name for path in seen.iterdir()] == [str(os.getpid())]
