"""Printed tables of Pope et al. 2022 (arXiv 2211.05102), Erdil 2025 (arXiv 2506.04645), InferSim.

``economics_points.csv`` is a small draw of the points of the authors' program; the cited runs of
kernels are on devices that nobody measured, for which their tool takes default efficiencies: every
equation and unit, no look-up. The whole sets and the authors' measured tables are compared where a
folder named shared lies beside the checkout.
"""

from pathlib import Path

import numpy as np
import pytest

from experiments import _check, kernels
from experiments._claims import beside
from experiments._columns import printed_rows
from experiments._economics import claims, fronts, points
from experiments._kernels import points as runs
from experiments._partitioning import measured, tables as pope
from experiments._partitioning.measured import CHIPS, GPUS, OWN, SUM, cells, own
from experiments._report import SHARED

PEAK = 275e12
ROWS = cells()


@pytest.mark.parametrize("cell", [c for c in ROWS if c.series in (*OWN[:2], SUM)], ids=str)
def test_printed_mfu_follows_from_printed_time(cell):
    assert abs(cell.mfu_of(cell.seconds, CHIPS, PEAK) - cell.mfu) <= 1.0


@pytest.mark.parametrize("setting", printed_rows("partitioning_tables.csv"), ids=str)
def test_printed_mfu_of_tables_2_and_3_follows_from_printed_time(setting):
    tokens = float(setting["batch"]) * float(setting["tokens"])
    flops = 2.0 * measured.partitioning_parameters(setting["model"]) * tokens
    ours = flops / (float(setting["chips"]) * PEAK * float(setting["latency_s"]))
    assert abs(100.0 * ours - float(setting["mfu_percent"])) <= 1.0


def test_the_two_totals_of_table_d4_are_swapped_in_the_paper():
    """PaLM's prefill and generate add up to the column headed MT-NLG, in all nine rows."""
    rows = {(c.batch, c.series): c.seconds for c in ROWS if c.table == "D.4"}
    for batch in sorted({b for b, series in rows if series == SUM}):
        both = rows[batch, OWN[0]] + rows[batch, OWN[1]]
        assert both == pytest.approx(rows[batch, OWN[2]], abs=1.5e-3)


@pytest.mark.parametrize("context", pope.contexts(), ids=lambda c: f"{c.attention}-{c.batch:g}")
def test_table_1_contexts_within_two_per_cent(context):
    assert context.ours == pytest.approx(context.theirs, rel=0.02)


def test_tables_2_and_3_are_predicted_with_the_winning_layout(x64):
    settings = pope.settings()
    errors = np.abs([s.error for s in settings])
    assert len(settings) == 8
    assert errors.max() <= 0.25
    assert np.median(errors) <= 0.12
    assert [s.label for s in settings if not s.right] == []


def _errors(rows, system):
    ours = pope.times(rows, system)
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


HERE = Path(__file__).parent


def whole(name: str) -> Path:
    """A file of the whole set, or a skip where it is not there."""
    path = SHARED / "golden" / name
    if not path.is_file():
        pytest.skip(f"no shared/golden/{name} beside the checkout")
    return path


def agree(path: Path, least: int) -> _check.Report:
    """The comparison of a file, which must agree on at least so many rows."""
    report = _check.compare(path, points.RECIPE)
    assert report.agrees, report.misses[:5]
    assert report.compared >= least and not report.skipped
    return report


def test_points_of_the_authors_program():
    report = agree(HERE / "economics_points.csv", 60)
    assert report.turned == 1, "the row on which the program's last tick is an ulp above B"


@pytest.mark.slow
def test_all_points_of_the_authors_program():
    report = agree(whole("economics_points.csv"), 9000)
    assert report.worst["latency_s"][0] < 1e-9 and report.turned < 0.01 * report.compared


QUICK = ("gpus_comparison | H100",)  # every time; all on each release
SETTINGS = [f"{c} | {label}" for c, settings in fronts.COMPARISONS.items() for label in settings]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in SETTINGS]
)
def test_fronts_of_the_authors_program(name):
    theirs = fronts.stored(whole("economics_fronts.json"))
    result = fronts.compare(name, theirs[name])
    assert result.points > 8 and result.worst <= 1e-3


@pytest.mark.parametrize(
    "number", [1, 4, 6, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3))]
)
def test_tables_equal_the_printed_digits(number):
    table = fronts.rows(number)
    assert len(table) >= 3
    for row in table:
        assert row.agrees, (row, row.texts)


def test_elasticities_of_the_toy_model():
    """-0.383 in bandwidth and 0.617 in latency of a hop: Llama 3 70B, 16 bits, H100."""
    a, m = fronts.hops("Llama_3_70B"), fronts.reads("Llama_3_70B")
    x = (a / 2) ** (2 / 3) * m ** (1 / 3)
    bandwidth = claims.elasticity(lambda w: claims.toy_time(a, m / w), 1.0)
    hop = claims.elasticity(lambda t: claims.toy_time(t, m), a)
    assert bandwidth == pytest.approx(-x / (3 * x - a), rel=1e-12)
    assert hop == pytest.approx((2 * x - a) / (3 * x - a), rel=1e-12)
    assert (round(bandwidth, 3), round(hop, 3)) == (-0.383, 0.617)
    limit = claims.elasticity(lambda w: claims.toy_time(1e-12, 1.0 / w), 1.0)
    assert limit == pytest.approx(-1 / 3, rel=1e-3)


def test_claims_whose_figures_are_lost_stand_beside_another_source():
    """The toy model's: by the closed form, brute force or Table 6; what has none says why."""
    file = Path(claims.__file__).with_name("claims.csv")
    found = beside(file, claims._scaling() | claims._bandwidth())
    assert sum(claim.theirs.startswith("lost; ") for claim in found) == 3
    for claim in found:
        assert claim.verdict == "pass" or claim.why, claim.name
    assert [c.name for c in found if c.verdict == "not reachable"] == [
        "growth of depth with size for that law"
    ]


BENCH = runs.ALL.tables


def bench():
    if not BENCH.exists():
        pytest.skip("no kernel tables in a folder named shared beside the checkout")
    return BENCH


def agrees(file, tables, configs):
    recipe, evaluation = runs.recipe(tables, configs)
    report = _check.compare(file, recipe)
    assert report.agrees, report.misses[:3]
    assert report.compared == report.read.rows > 0
    assert max(error for error, _ in report.worst.values()) < 1e-12
    return evaluation


def test_runs_without_look_ups(x64):
    evaluation = agrees(*runs.CITED)
    assert not evaluation.refused
    assert len(evaluation.defaults) > 5


def test_runs_of_the_authors_tool(x64):
    bench()
    evaluation = agrees(*runs.ALL)
    assert evaluation.refused
    assert evaluation.defaults


def test_table_2(x64):
    """The tool's throughputs to the digit, and curves within a tenth of them."""
    for cell in kernels.table_2(bench(), runs.ALL.configs):
        assert round(cell.tables) == int(cell.row["tool"]), cell.row
        assert abs(cell.curves / cell.tables - 1) < 0.10, cell.row


def test_balance_points(x64):
    """Section 2.3 of the report: sizes at which H800 and H20 are balanced; the tool's below."""
    result = {(b.device, b.whose): b.rounded for b in kernels.balances()}
    assert result["H800", "paper"] == (296, 148, 9456, 74)
    assert result["H20", "paper"] == (37, 19, 1184, 19)
    # the tool's bandwidths are 3430 and 4096 GB/s
    assert result["H800", "tool"][:2] == (288, 144)
    assert result["H20", "tool"][:3] == (36, 18, 1156)


def test_stored_curves_describe_the_tables(x64):
    """Median errors in sample are no worse than those of an earlier fit of the same forms."""
    for line in kernels.stored(bench()):
        output = kernels.EARLIER.get((line.system, line.family))
        assert output is None or line.seen[0] <= output[0] + 0.05, line
