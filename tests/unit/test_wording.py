"""Options in notes are keyword arguments where Python asks, and stay options for the command."""

from typing import Any

import pytest

import infer_jax as ij
from infer_jax.results import Lines, Notes, Result, Table
from infer_jax.results.wording import from_command

NOTE = "--ttft none takes it away, --isl 2200±600 spreads; `sglang --port 4`, --json has all."


class Advice(Result):
    def fields(self):
        return {"launch": "vllm serve --port 80", "notes": [NOTE]}

    def parts(self):
        yield "no --max-model-len is given"
        yield Lines("vllm serve --port 80")
        yield Notes([NOTE])


def test_notes_name_what_the_reader_writes():
    said = 'ttft="none" takes it away, isl="2200±600" spreads; `sglang --port 4`, '
    said += "to_dict() has all."
    assert Advice().to_dict() == {"schema": 2, "launch": "vllm serve --port 80", "notes": [said]}
    text = " ".join(str(Advice()).split())
    assert said in text and "no max_model_len is given" in text
    assert "vllm serve --port 80" in text, "a command is printed as it is typed"
    assert "ttft=&quot;none&quot;" in Advice()._repr_html_()
    with from_command():
        assert Advice().to_dict()["notes"] == [NOTE] and NOTE in " ".join(str(Advice()).split())


@pytest.mark.parametrize("none", ["none", float("inf")])
def test_a_plan_says_how_its_usual_limit_is_taken_away(none):
    asked: dict[str, Any] = {
        "total_gpus": 2,
        "mode": "aggregated",
        "isl": 2000,
        "osl": 200,
        "tpot": "12ms",
    }
    usual = ij.plan("llama-3.1-8b", "h100_sxm", **asked)
    assert 'ttft="none" takes it away' in " ".join(str(usual).split())
    without = ij.plan("llama-3.1-8b", "h100_sxm", **asked, ttft=none).to_dict()
    assert without["usual_ttft_ms"] is None and "takes it away" not in str(without["notes"])


@pytest.mark.parametrize("time", ["soon", "300", "-3ms", "0s", "nan ms", "none"])
def test_a_time_without_a_unit_or_a_sense_is_refused(time):
    with pytest.raises(ij.InputError, match=r"^estimate: ttft is .*; allowed: a number above 0"):
        ij.estimate("llama-3.1-8b", "h100_sxm", tp=1, ttft=time)


def test_times_with_units_are_limits():
    other = ij.estimate("llama-3.1-8b", "h100_sxm", tp=1, ttft=0.3)
    text: Any = "300ms"
    one = ij.estimate("llama-3.1-8b", "h100_sxm", tp=1, ttft=text)
    assert one.limits == other.limits == {"ttft": 0.3}


def test_the_best_plan_is_one_line():
    best = ij.plan("llama-3.1-8b", "h100_sxm", total_gpus=2, tpot=0.012, mode="aggregated").best
    assert best is not None and len(repr(best)) < 160 and "\n" not in repr(best)
    assert "1 x TP2 on h100_sxm" in repr(best) and f"TPOT {1e3 * best.tpot:.4g} ms" in repr(best)


def test_no_two_rows_of_an_estimate_have_the_same_title():
    parts = ij.estimate("llama-3.1-8b", "h100_sxm", tp=1, batch=16).parts()
    table = next(part for part in parts if isinstance(part, Table))
    titles = [row[0] for row in table.rows]
    assert len(titles) == len({*titles}) and "GPU energy of output tokens" in titles
