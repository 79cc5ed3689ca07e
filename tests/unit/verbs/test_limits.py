"""What verbs refuse, note and report of a question, in the words of who asks."""

import html
import re
import time
from typing import Any

import numpy as np
import pytest

import infer_jax as ij
from infer_jax import InputError, legal
from infer_jax.results import option
from infer_jax.results.problems import from_command
from infer_jax.specs import UNBOUNDED, Workload
from infer_jax.verbs import progress
from tests.cli.running import answered_once, as_command, run

POINT = ("llama-3.1-8b", "h100_sxm")  # a context of 131072 tokens
ONE = ("estimate", "llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "1", "--batch", "16")


def test_a_limit_so_long_that_its_unit_may_be_wrong_is_noted_and_usual_ones_are_not():
    notes = ij.estimate(*POINT, tp=1, batch=16, tpot=30, ttft=300).to_dict()["notes"]
    assert isinstance(notes, list)
    assert 'The limit of TPOT is 30 s; tpot="30ms", with a unit, is 30 milliseconds.' in notes
    assert any('ttft="300ms"' in note for note in notes)
    said = " ".join(run(*ONE, "--tpot", "30s").out.split())
    assert "The limit of TPOT is 30 s; --tpot 30ms, with a unit" in said
    said = " ".join(run(*ONE, "--ttft", "2").out.split())  # of who means seconds, as in Python
    assert "The limit of TTFT is 2 ms; --ttft 2s, with a unit, is 2 seconds." in said
    assert "with a unit" not in run(*ONE, "--tpot", "30", "--ttft", "300").out
    result = ij.estimate(*POINT, tp=1, batch=16, tpot=0.03, ttft="30s")
    assert "with a unit" not in str(result)
    # terms are said in the field's words, and keep their short names in JSON
    fields = result.to_dict()
    assert isinstance(fields["prefill"], dict) and "admission_ms" in fields["prefill"]["terms"]
    assert "network and tokeniser" in str(result) and "wait until scheduled" in str(result)
    assert "admission" not in str(result) and "MFU, waits included" in str(result)


VERBS = {
    "estimate": {"tp": 1},
    "plan": {"total_gpus": 1},
    "memory": {"batch": 1, "tp": 1},
    "frontier": {"total_gpus": 1},
    "sensitivity": {"tp": 1},
    "compare": {"tp": 1, "estimator": "economics.planned"},
    "report": {"tp": 1},
    "offload": {},
}


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_refuses_more_than_the_longest_context(name):
    with pytest.raises(InputError) as refused:
        getattr(ij, name)(*POINT, isl=131072, osl=1, **VERBS[name])
    assert "isl is '131072'" in str(refused.value)
    assert "at most 131072 tokens together" in str(refused.value)


def test_a_longer_context_may_be_given_and_equal_is_within():
    fits = ij.memory(*POINT, tp=1, batch=1, isl=131071, osl=1)
    assert fits.filled is not None
    longer = ij.memory(*POINT, tp=1, batch=1, isl=131072, osl=1, set="arch.max_positions=200000")
    assert longer.filled is not None and longer.filled.used > fits.filled.used
    with pytest.raises(InputError, match="max_model_len"):
        ij.memory(*POINT, tp=1, max_model_len=131073)


def test_an_unknown_context_is_not_checked():
    arch = ij.load_model(POINT[0]).architecture
    unknown = arch.replace(max_positions=np.asarray(UNBOUNDED))
    work = Workload.of(isl=1e6, osl=1e6)
    assert legal.context(unknown, work).holds and not legal.context(arch, work).holds


def test_a_server_that_is_sent_too_much_completes_what_it_can():
    """Throughput and dollars are of its capacity; below it, of what arrives."""
    hardware = ij.load_system(POINT[1]).hardware
    for rate in (100.0, 1.0):
        answer = ij.estimate(*POINT, tp=1, request_rate=rate, isl=4096, osl=512)
        estimate, limit = answer.estimate, answer.estimate.decode.limits["arrivals"]
        done = min(rate, float(limit.capacity))
        assert (done < rate) == (rate == 100.0) == (not estimate.feasible)
        np.testing.assert_allclose(estimate.throughput, 512 * done, rtol=1e-9)
        dollars = (estimate.cost * 512 + estimate.input_cost * 4096) / 1e6
        np.testing.assert_allclose(dollars, hardware.price / 3600 / done, rtol=1e-9)
        said = [part for part in answer.parts() if "requests/s arrive" in str(part)]
        assert len(said) == (1 if rate == 100.0 else 0)


# an option as a shell has it, outside of commands and of what engines call theirs
SHELL = re.compile(r"`[^`]*`|infer-jax .*|(?<![\w-])--[a-z]")


def test_an_option_is_spelled_as_its_reader_writes_it():
    assert option("enable_prefix_caching") == "enable_prefix_caching"
    assert option("no-enable-prefix-caching") == "enable_prefix_caching=False"
    assert option("isl", "2200±600") == 'isl="2200±600"' and option("json") == "to_dict()"
    with from_command():
        assert option("no_overlap") == "--no-overlap" and option("tp", 2) == "--tp 2"


@pytest.mark.parametrize(
    ("ask", "options"),
    [
        (ij.estimate, {"tp": 1, "request_rate": 2.0}),
        (ij.estimate, {"total_gpus": 1, "batch": 4}),
        (ij.memory, {"batch": 8, "isl": 100, "osl": 50}),
        (ij.replay, {"tp": 1, "concurrency": 4, "prompts": 20}),
        (ij.sensitivity, {"tp": 1}),
    ],
)
def test_what_python_prints_names_no_option_of_the_shell(ask, options):
    text = str(ask("llama-3.1-8b", "h100_sxm", **options))
    assert [x for x in SHELL.findall(text) if x.startswith("--")] == []


@pytest.mark.parametrize("time", ["soon", "300", "-3ms", "0s", "nan ms", "none"])
def test_a_time_without_a_unit_or_a_sense_is_refused(time):
    with pytest.raises(ij.InputError, match=r"^estimate: ttft is .*; allowed: a number above 0"):
        ij.estimate("llama-3.1-8b", "h100_sxm", tp=1, ttft=time)


def test_a_long_computation_says_once_what_it_does_unless_quiet(capsys, monkeypatch):
    said = "infer-jax: searching; --quiet leaves this out\n"
    for shown, patience, text in ((True, 0.01, said), (True, 30.0, ""), (False, 0.01, "")):
        progress.show_progress(shown)
        monkeypatch.setattr(progress, "PATIENCE", [patience])
        with progress.busy("searching"):
            time.sleep(0.2)
        progress.show_progress(False)
        assert capsys.readouterr().err == text


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
