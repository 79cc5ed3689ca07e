"""`ij.report` and `ij.sensitivity`: the page of the command, and what other chips would change."""

import html
import re
from typing import Any

import pytest

import infer_jax as ij
from tests.cli.running import answered_once, as_command

MODEL, SYSTEM = "llama-3.1-8b", "h100_sxm"
WORDS = ("report", MODEL, "--hardware", SYSTEM, "--tp", "1", "--batch", "16")


def but_its_command(page: str) -> str:
    """A page without the row that says who asked for it."""
    return re.sub(r"<tr>(<td[^>]*>)command</td>.*?</tr>", "", page)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("nothing")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield ij.report(MODEL, SYSTEM, tp=1, batch=16)
        assert not list(folder.iterdir())  # it writes only where it is asked to


def test_it_is_the_page_and_the_answer_of_the_command(report, tmp_path):
    out = str(tmp_path / "page.html")
    printed, text = answered_once(*WORDS, "--out", out)
    mine = {**as_command(report)[0], "report": out}
    assert {"schema": printed["schema"], **mine} == printed
    page = (tmp_path / "page.html").read_text()
    assert but_its_command(page) == but_its_command(report.page) != page
    written = ij.report(MODEL, SYSTEM, tp=1, batch=16, out=tmp_path / "mine.html")
    assert (tmp_path / "mine.html").read_text() == written.page == report.page
    mine, theirs = (x.partition("Report:")[0].split() for x in (as_command(written)[1], text))
    assert mine == theirs  # but for the name of the file


def test_its_picture_has_the_plan_and_every_frontier(report, tmp_path):
    pytest.importorskip("matplotlib")
    (axes,) = report.plot(tmp_path / "plan.png").axes
    seen = {(float(x), float(y)) for line in axes.lines for x, y in line.get_xydata()}
    mine, rows = report.answers.chosen, report.to_dict()["frontiers"]
    assert (1.0 / mine.tpot, mine.usd_per_mtok) in seen
    columns = ("speed_tokens_per_s", "blended_cost_per_mtok_usd")
    assert {tuple(row[name] for name in columns) for row in rows} <= seen
    assert report.answers.chosen.layout in axes.texts[0].get_text()
    assert (tmp_path / "plan.png").exists()


def test_profiles_answer_as_names_do_and_name_no_command(report):
    system, model = ij.load_system(SYSTEM), ij.load_model(MODEL)
    given = ij.report(model, system, tp=1, batch=16)
    theirs, mine = given.to_dict(), report.to_dict()
    their_rows, rows = theirs.pop("frontiers"), mine.pop("frontiers")
    assert isinstance(their_rows, list) and isinstance(rows, list)
    assert not any(row.pop("command") for row in their_rows)
    assert all(row.pop("command") for row in rows) and their_rows == rows
    assert {**theirs, "launch": None} == {**mine, "launch": None}
    assert "its name or config.json" in given.page and "infer-jax memory" not in given.page
    assert "infer-jax memory" in report.page


def test_a_notebook_shows_its_page(report):
    shown = report._repr_html_()
    frame = re.fullmatch(
        r'<iframe sandbox="allow-scripts" style="[^"<>]*" srcdoc="([^"]*)"></iframe>', shown
    )
    assert frame and html.unescape(frame[1]) == report.page
    assert report.to_dict()["plan"]["chunk"] is None, "prompts are not cut"


LOADED: dict[str, Any] = {"isl": 2000, "osl": 200, "tp": 2, "batch": 24}


# a change of the model is of all chips, one of the system is of this one alone
CHANGES = ["arch.blocks.*.feedforward.width=*0.5", "hardware.power=*2"]


@pytest.mark.parametrize("options", [{}, {"price": 2.0, "set": CHANGES}])
def test_a_row_of_another_chip_is_what_estimate_answers_there(options: dict[str, Any]):
    """At that chip's own rent, also of a torus, of borrowed coefficients and where it is full."""
    result = ij.sensitivity(MODEL, SYSTEM, **LOADED, **options)
    here: Any = ij.estimate(MODEL, SYSTEM, **LOADED, **options).estimate
    chips = {chip.name: chip for chip in result.chips}
    assert chips.keys() == {*ij.list_systems()} - {SYSTEM}
    of_model: dict[str, Any] = {"set": CHANGES[0]} if options else {}
    for name in ("h200_sxm", "mi300x", "l4", "tpu_v6e", "v100_sxm_16gb"):
        answer = ij.estimate(MODEL, name, **LOADED, **of_model)
        chip = chips[name]
        there: Any = answer.estimate
        assert chip.feasible == bool(there.feasible)
        assert chip.borrowed == answer.trust.borrowed_from
        for output in ("ttft", "tpot", "cost"):
            ratio = float(getattr(there, output)) / float(getattr(here, output))
            assert 1.0 + chip.changes[output] == pytest.approx(ratio, rel=1e-12)
        power = float(ij.load_system(name).hardware.power)
        assert ("energy" in chip.changes) == (power > 0.0)
        per_token = float(there.blended_cost) / float(here.blended_cost)
        assert 1.0 + chip.changes["blended_cost"] == pytest.approx(per_token, rel=1e-12)
    costs = [chip.changes["blended_cost"] for chip in result.chips]
    assert costs == sorted(costs)


def test_half_the_bytes_of_the_weights_are_named_by_their_bits():
    """Of a model in 4 bits there is no half that an engine stores."""
    for quant, change in (("bf16", "8 bits"), ("fp8", "4 bits"), ("int4", None)):
        result = ij.sensitivity(MODEL, SYSTEM, **LOADED, quant=quant)
        named = [x.partition(": ")[2] for x in result.what_if if x.startswith("weights at half")]
        assert named == ([change] if change else [])
        assert ("their matmuls stay" in " ".join(str(result).split())) == bool(change)


def test_an_output_that_it_has_not_is_refused_with_those_that_it_has():
    result = ij.sensitivity(MODEL, SYSTEM, **LOADED)
    with pytest.raises(ij.InputError, match=r"output is 'p99_ttft'; allowed: .*tpot"):
        result.elasticity("hardware.chip.memory_bandwidth", "p99_ttft")
    with pytest.raises(ij.InputError, match=r"hardware\.colour is 'no number of this'"):
        result.elasticity("hardware.colour", "tpot")
