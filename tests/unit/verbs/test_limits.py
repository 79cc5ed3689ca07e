"""What verbs refuse and note of a question, in the words of who asks, and while they compute."""

import re
import time

import numpy as np
import pytest

import infer_jax as ij
from infer_jax import InputError, legal
from infer_jax.results import option
from infer_jax.results.problems import from_command
from infer_jax.specs import UNBOUNDED, Workload
from infer_jax.verbs import progress
from tests.cli.running import run

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
