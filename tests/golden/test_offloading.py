"""The published offloading models return their authors' numbers.

The cited tables hold a few rows; the whole ones lie in a folder named ``shared`` beside the
checkout, where there is one.
"""

from pathlib import Path

import pytest

from experiments import _check
from experiments._offloading import policies, searches, tables
from experiments._offloading.predicted import BOUNDS, constants

HERE = Path(__file__).parent
SHARED = Path(__file__).resolve().parents[3] / "shared" / "golden"


def shared(name):
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"no {name} in a folder named shared beside the checkout")
    return path


@pytest.mark.parametrize("path", [HERE / "offloading_policies.csv", None])
def test_policies_of_both_published_models(path, x64):
    report = _check.compare(path or shared("offloading_policies.csv"), policies.RECIPE)
    assert report.agrees, report.misses[:3]
    assert report.compared == report.read.rows > 0
    assert max(error for error, _ in report.worst.values()) < 1e-10
    assert len(report.read.columns) == 60
    assert report.read.ignored == ["id", "model", "bls"]


def test_a_changed_number_is_noticed(tmp_path, x64):
    lines = (HERE / "offloading_policies.csv").read_text().splitlines()
    header, cells = lines[0].split(","), lines[1].split(",")
    at = header.index("a3_Tgen")
    cells[at] = str(float(cells[at]) * (1 + 1e-8))
    changed = tmp_path / "changed.csv"
    changed.write_text("\n".join([lines[0], ",".join(cells)]))
    report = _check.compare(changed, policies.RECIPE)
    assert [miss.column for miss in report.misses] == ["a3_Tgen"]


@pytest.mark.parametrize("path", [HERE / "offloading_search.csv", None])
def test_searches_reach_the_recorded_throughput(path, x64):
    found = searches.compare(path or shared("offloading_search.csv"))
    assert found
    assert all(f.reaches for f in found), [f for f in found if not f.reaches]


@pytest.fixture(scope="module")
def lines():
    return tables.lines()


def test_predictions_are_within_thirty_percent_or_named(lines):
    """Fitted on Table 2 at 512 tokens and Table 4; the rest are predictions."""
    predictions = [x for x in lines if not x.run.fitted]
    assert len(predictions) == 25
    off = [x for x in predictions if abs(x.error) > 0.30]
    assert {(x.run.model, x.run.label) for x in off} == {
        ("opt-6.7b", "4 GPUs"), ("opt-175b", "DeepSpeed policy"),
    }  # fmt: skip
    assert all(x.named for x in off)
    assert tables.ordered(lines)


def test_ten_constants_within_the_machine():
    model = tables.improved()
    values = constants(model)
    assert len(values) == 10
    for name, value in values.items():
        low, high = BOUNDS[name]
        assert low <= float(value) <= high, name
    assert float(model.rates.memory) * 300e9 <= 320e9
    assert float(model.rates.link) <= 1.0


def test_the_released_model_misses_the_disk_and_the_bandwidth(lines):
    """The two findings: one constant explains the disk runs, a missing term OPT-6.7B."""
    found = tables.print_findings(lines)
    assert all(abs(ratio - 1.0) < 0.03 for ratio in found["disk"].values())
    assert min(found["bandwidth"].values()) > 1.9
    assert abs(found["bandwidth"]["512 Table 3, decode"] - 4.0) < 0.05


def test_tokens_per_dollar():
    """Section 6.3 prints 49680 and 12142 token/$, and 4.2 for their quotient."""
    dollars = tables.tokens_per_dollar()
    assert round(dollars["T4 at home"]) == 49680
    assert round(dollars["8 A100"]) == 12142
    assert round(dollars["times"], 2) == 4.09
