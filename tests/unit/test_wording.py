"""Options in notes are keyword arguments where Python asks, and stay options for the command."""

import re

import pytest

import infer_jax as ij
from infer_jax.results import option
from infer_jax.results.problems import from_command

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
