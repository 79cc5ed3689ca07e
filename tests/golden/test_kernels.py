"""The kernels model as published returns its authors' tool's numbers.

The look-ups read the authors' measured tables, which the project does not carry: without a
folder named ``shared`` beside the checkout there is nothing to look up in.
"""

from pathlib import Path

import pytest

from experiments import _check
from experiments._kernels import points

SHARED = Path(__file__).resolve().parents[3] / "shared"


def test_runs_of_the_authors_tool(x64):
    golden, data = SHARED / "golden" / "kernels_points.csv", SHARED / "data"
    if not golden.exists():
        pytest.skip("no shared/golden/kernels_points.csv beside the checkout")
    recipe, evaluation = points.recipe(data / "infersim_bench", data / "infersim_configs")
    report = _check.compare(golden, recipe)
    assert report.agrees, report.misses[:3]
    assert report.compared == report.read.rows > 0
    assert evaluation.refused
    assert evaluation.defaults
