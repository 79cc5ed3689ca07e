"""The economics paper (Erdil 2025, arXiv 2506.04645): its program's points, fronts and tables.

``economics_points.csv`` is a small draw of the points of the authors' program. The whole set and
its fronts are compared where a folder named shared lies beside the checkout.
"""

from pathlib import Path

import pytest

from experiments import _check
from experiments._claims import beside
from experiments._economics import claims, fronts, points, tables
from experiments._report import SHARED

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
    table = tables.rows(number)
    assert len(table) >= 3
    for row in table:
        assert row.agrees, (row, row.texts)


def test_elasticities_of_the_toy_model():
    """-0.383 in bandwidth and 0.617 in latency of a hop: Llama 3 70B, 16 bits, H100."""
    a, m = tables.hops("Llama_3_70B"), tables.reads("Llama_3_70B")
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
