"""Bad input ends in exit code 2 and one sentence, and nothing is written."""

import os
import signal
import subprocess
import sys

import pytest
from hypothesis import given, settings, strategies as st

from tests.cli.running import run

H100 = ("--hardware", "h100_sxm")
LLAMA = ("llama-3.1-8b", *H100)

LONG = "x" * 5000
REPLAY = ("replay", *LLAMA, "--tp", "1")
REFUSED = {
    "requests that no memory holds": (*REPLAY, "--concurrency", "1e10"),
    "more in flight than a run": (*REPLAY, "--concurrency", "1e10", "--prompts", "20"),
    "a ramp without end": (*REPLAY, "--request-rate", "1", "--ramp-up", "1e-300"),
    "a rate without end": (*REPLAY, "--request-rate", "1e-300"),
    "bursts of no length": (*REPLAY, "--request-rate", "1", "--burstiness", "1e-300"),
    "no prompt": ("estimate", *LLAMA, "--tp", "1", "--isl", "0"),
    "no prompt to plan for": ("plan", *LLAMA, "--total-gpus", "1", "--isl", "0"),
    "no prompt in memory": ("memory", *LLAMA, "--isl", "0"),
    "a long stray argument": ("estimate", *LLAMA, LONG),
    "a long verb": (LONG,),
    "a long option": ("estimate", f"--{LONG}", *LLAMA),
    "a long file": ("compare", *LLAMA, "--measured", LONG),
    "no such verb": ("nothing",),
    "no model": ("frontier",),
    "no hardware": ("frontier", "llama-3.1-8b"),
    "unknown hardware": ("estimate", "llama-3.1-8b", "--hardware", "h1000", "--tp", "1"),
    "unknown model": ("memory", "llama-9", *H100),
    "missing file": ("memory", "nowhere/config.json", *H100),
    "null byte": ("memory", "a\0b.json", *H100),
    "unknown format": ("memory", *LLAMA, "--quant", "fp9"),
    "unknown cache format": ("memory", *LLAMA, "--kv-dtype", "int2"),
    "unknown option": ("frontier", *LLAMA, "--nope"),
    "no value": ("frontier", *LLAMA, "--isl"),
    "negative": ("frontier", *LLAMA, "--isl", "-3"),
    "fraction": ("frontier", *LLAMA, "--isl", "1.5"),
    "not a number": ("frontier", *LLAMA, "--isl", "nan"),
    "too large": ("frontier", *LLAMA, "--isl", "1e400"),
    "digits of another script": ("frontier", *LLAMA, "--isl", "٤"),
    "zero GPUs": ("frontier", *LLAMA, "--total-gpus", "0"),
    "no time": ("frontier", *LLAMA, "--tpot", "5parsec"),
    "negative time": ("estimate", *LLAMA, "--tp", "1", "--ttft", "-5ms"),
    "free": ("frontier", *LLAMA, "--price", "0"),
    "no such estimator": ("frontier", *LLAMA, "--estimator", "magic"),
    "estimator does not search": ("frontier", *LLAMA, "--estimator", "economics.planned"),
    "picture of no known kind": ("frontier", *LLAMA, "--out", "picture.gif"),
    "picture nowhere": ("frontier", *LLAMA, "--out", "nowhere/picture.png"),
    "draft alone": ("frontier", *LLAMA, "--draft", "llama-3.2-1b"),
    "acceptance alone": ("frontier", *LLAMA, "--acceptance", "0.5"),
    "acceptance above 1": ("frontier", *LLAMA, "--draft", "opt-13b", "--acceptance", "2"),
    "prefix beyond the prompt": ("frontier", *LLAMA, "--isl", "10", "--prefix", "11"),
    "paper's grid is fixed": ("frontier", *LLAMA, "--paper", "--total-gpus", "9"),
    "no split": ("estimate", *LLAMA),
    "two splits": ("estimate", *LLAMA, "--tp", "2", "--total-gpus", "4"),
    "heads do not divide": ("estimate", *LLAMA, "--tp", "3"),
    "more stages than layers": ("estimate", *LLAMA, "--tp", "8", "--pp", "99"),
    "no experts": ("memory", *LLAMA, "--tp", "8", "--ep", "2"),
    "experts do not divide": ("estimate", "deepseek-v3", *H100, "--tp", "1", "--ep", "3"),
    "copies do not divide": ("estimate", *LLAMA, "--total-gpus", "9", "--dp", "2"),
    "two batches": ("estimate", *LLAMA, "--tp", "1", "--batch", "2", "--concurrency", "4"),
    "a batch of arrivals": ("estimate", *LLAMA, "--tp", "1", "--request-rate", "1", "--batch", "4"),
    "searches, given a split": ("estimate", *LLAMA, "--tp", "1", "--estimator", "economics"),
    "plans, given a total": (
        *("estimate", *LLAMA, "--total-gpus", "4"),
        *("--estimator", "economics.planned"),
    ),
    "share above 1": ("memory", *LLAMA, "--gpu-memory-utilization", "1.5"),
    "no context": ("memory", *LLAMA, "--max-model-len", "0"),
    "no such entry": ("hardware", "h1000"),
    "one word too many": ("estimators", "all"),
}


def sentence(text: str) -> bool:
    """Whether stderr holds exactly one line, and no traceback."""
    return text.count("\n") == 1 and "Traceback" not in text


@pytest.mark.parametrize("words", REFUSED.values(), ids=REFUSED)
def test_refused(words, tmp_path):
    ran = run(*words)
    assert ran.code == 2
    assert ran.out == ""
    assert sentence(ran.err), ran.err
    assert len(ran.err) < 1000
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("estimate", *LLAMA, "--tp", "3"), "1, 2, 4, 8, 16, 32"),
        (("estimate", "mixtral-8x7b", *H100, "--tp", "1", "--ep", "3"), "1, 2, 4, 8"),
        (("frontier", *LLAMA, "--tpot", "1parsec"), "--tpot"),
        (("frontier", *LLAMA, "--isl", "10", "--prefix", "11"), "at most --isl, 10"),
        (("hardware", "h10"), "h100_sxm"),
    ],
)
def test_sentence_names_what_is_allowed(words, named):
    assert named in run(*words).err


def test_program_refuses_without_traceback(tmp_path):
    words = [sys.executable, "-c", "from infer_jax.cli import main; main()", "estimate", "llama"]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert sentence(ended.stderr)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_full_disk_is_told_without_traceback(tmp_path):
    words = [sys.executable, "-c", "from infer_jax.cli import main; main()", "estimators"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(words, cwd=tmp_path, stdout=full, stderr=-1, text=True, timeout=120)
    assert ended.returncode == 1
    assert sentence(ended.stderr) and "cannot be written" in ended.stderr


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_interrupt_is_130(tmp_path):
    # a verb that is still at work when it is interrupted, however fast the machine; what a
    # shell starts in the background ignores the signal unless told otherwise
    code = (
        "import signal, time; from infer_jax.cli import main; from infer_jax.cli.verbs import app\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "app.command('work')(lambda: (print('up', flush=True), time.sleep(100)))\n"
        "main()"
    )
    words = [sys.executable, "-c", code, "work"]
    with subprocess.Popen(words, cwd=tmp_path, stdout=-1, stderr=-1, text=True) as program:
        assert program.stdout is not None and program.stderr is not None
        program.stdout.readline()
        program.send_signal(signal.SIGINT)
        errors = program.communicate(timeout=120)[1]
    assert program.returncode == 130
    assert "Traceback" not in errors


BASE = ["estimate", *LLAMA, "--tp", "1", "--batch", "8", "--isl", "100", "--osl", "10"]
JUNK = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["0", "-1", "1e9", "1e300", "nan", "inf", "1e-300", "--tp", "--json", "8" * 400]
    ),
)


@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.integers(1, len(BASE) - 1), JUNK, st.sampled_from(["replace", "insert", "drop"]))
def test_no_traceback_whatever_is_typed(at, junk, how):
    words = list(BASE)
    words[at : at + (how != "insert")] = [] if how == "drop" else [junk]
    ran = run(*words)
    assert ran.code in (0, 2), ran.err
    assert (ran.code == 2) == (ran.err != "")
    assert ran.err == "" or sentence(ran.err), ran.err
