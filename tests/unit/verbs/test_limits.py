"""Limits of time: in seconds from Python, with a unit from the command line."""

import infer_jax as ij
from tests.cli.running import run

POINT = ("llama-3.1-8b", "h100_sxm")
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
