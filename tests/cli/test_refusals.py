"""Bad input ends in exit code 2 and one sentence, and nothing is written."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from tests.cli.running import program, run

H100 = ("--hardware", "h100_sxm")
LLAMA = ("llama-3.1-8b", *H100)

LONG = "x" * 5000
NEW = str(Path(__file__).parents[1] / "data/configs/new.json")
RUNS = str(Path(__file__).parents[1] / "data/server/runs.csv")
REPLAY = ("replay", *LLAMA, "--tp", "1")
ESTIMATE, FRONTIER, MEMORY = (("estimate", *LLAMA), ("frontier", *LLAMA), ("memory", *LLAMA))
ONE = (*ESTIMATE, "--tp", "1")
PLAN = ("plan", *LLAMA, "--isl", "2000", "--osl", "200")
FOUR, ANY = (*PLAN, "--total-gpus", "4"), ("plan", *LLAMA, "--total-gpus", "4")
SENSITIVITY = ("sensitivity", "llama-3.2-1b", *H100, "--tp", "1")
KERNELS = ("kernels", "qwen3-30b-a3b", "--hardware", "h20_sxm")
LAYOUT = ("layout", "palm-540b-padded", "--hardware", "tpu_v4", "--total-gpus")
OFFLOAD = ("offload", "opt-6.7b", "--isl", "512", "--osl", "32", "--no-picture")
CALIBRATE = ("calibrate", RUNS, "--config", *LLAMA, "--out")
COMPARE, MEASURED = ("compare", *LLAMA), ("compare", *LLAMA, "--measured", RUNS)
LOOP = ("codesign", "--model", "llama-3.2-1b", *H100)
REPORT = ("report", *LLAMA, "--tp", "2", "--batch", "32")
BLOCKS = ("qwen3-235b-a22b", "--quant", "fp8_block", "--hardware", "h200_sxm")
# a command, and what its one sentence names
REFUSED = {
    "requests that no memory holds": ((*REPLAY, "--concurrency", "1e10"), ""),
    "more in flight than a run": ((*REPLAY, "--concurrency", "1e10", "--prompts", "20"), ""),
    "a ramp without end": ((*REPLAY, "--request-rate", "1", "--ramp-up", "1e-300"), ""),
    "a rate without end": ((*REPLAY, "--request-rate", "1e-300"), ""),
    "bursts of no length": ((*REPLAY, "--request-rate", "1", "--burstiness", "1e-300"), ""),
    "no prompt": ((*ONE, "--isl", "0"), "--isl"),
    "a long option": (("estimate", f"--{LONG}", *LLAMA), ""),
    "a long file": ((*COMPARE, "--measured", LONG), ""),
    "no such verb": (("nothing",), "nothing"),
    "the near verb": (("estimat",), "'estimate'"),
    "no model": (("frontier",), ""),
    "no hardware": (("frontier", "llama-3.1-8b"), ""),
    "systems with commas": (
        ("plan", "llama-3.1-8b", "--hardware", "h100,h200"), "--hardware is given for each"
    ),
    "unknown hardware": (("estimate", "llama-3.1-8b", "--hardware", "h1000"), "h100_sxm"),
    "unknown model": (("memory", "llama-9", *H100), "llama-9"),
    "missing file": (("memory", "nowhere/config.json", *H100), "nowhere"),
    "null byte": (("memory", "a\0b.json", *H100), ""),
    "unknown format": ((*MEMORY, "--quant", "fp9"), "fp9"),
    "negative": ((*FRONTIER, "--isl", "-3"), "--isl"),
    "not a number": ((*FRONTIER, "--isl", "nan"), "--isl"),
    "digits of another script": ((*FRONTIER, "--isl", "٤"), "--isl"),
    "no time": ((*FRONTIER, "--tpot", "5parsec"), "--tpot"),
    "seconds for milliseconds": ((*ONE, "--tpot", "0.02"), "0.02s or 0.02ms"),
    "an unknown shape": (("memory", NEW, *H100), "--as llama, which reads it as the nearest"),
    "no such shape": (("memory", NEW, *H100, "--as", "lama"), "--as is 'lama'; allowed: one of"),
    "two layouts": ((*ONE, "--layout", "TP2"), "--layout is 'TP2'; allowed: alone, without --tp"),
    "no such estimator": ((*FRONTIER, "--estimator", "magic"), "magic"),
    "picture nowhere": ((*FRONTIER, "--out", "nowhere/picture.png"), "--out"),
    "draft alone": ((*FRONTIER, "--draft", "llama-3.2-1b"), ""),
    "acceptance alone": ((*FRONTIER, "--acceptance", "0.5"), ""),
    "estimator does not search": ((*FRONTIER, "--estimator", "economics.planned"), "planned"),
    "prefix beyond the prompt": ((*FRONTIER, "--isl", "10", "--prefix", "11"), "at most --isl, 10"),
    "paper's grid is fixed": ((*FRONTIER, "--paper", "--total-gpus", "9"), ""),
    "no split": (ESTIMATE, ""),
    "an option of one value with two": ((*ONE, "--tp", "2"), "--tp is given twice; allowed: once"),
    "nothing to compare": ((*COMPARE, "--layout", "TP1"), "a second --hardware or --layout"),
    "copies to compare": (
        (*COMPARE, "--tp", "1", "--dp", "2", "--layout", "TP2"), "alone, without --tp, --dp"
    ),
    "two loads to compare": (
        (*COMPARE, "--layout", "TP1", "--layout", "TP2", "--batch", "1", "--concurrency", "1"),
        "allowed: one of --batch, --concurrency",
    ),
    "two splits": ((*ESTIMATE, "--tp", "2", "--total-gpus", "4"), ""),
    "heads do not divide": ((*ESTIMATE, "--tp", "3"), "1, 2, 4, 8, 16, 32"),
    "more stages than layers": ((*ESTIMATE, "--tp", "8", "--pp", "99"), ""),
    "no experts": ((*MEMORY, "--tp", "8", "--ep", "2"), ""),
    "experts do not divide": (
        ("estimate", "mixtral-8x7b", *H100, "--tp", "1", "--ep", "3"), "1, 2, 4, 8"
    ),
    "copies do not divide": ((*ESTIMATE, "--total-gpus", "9", "--dp", "2"), ""),
    "two loads": (
        (*ONE, "--batch", "4", "--concurrency", "8"), "allowed: one of --batch, --concurrency"
    ),
    "a batch of arrivals": (
        (*ONE, "--request-rate", "1", "--batch", "4"), "one of --batch, --concurrency"
    ),
    "searches, given a split": ((*ONE, "--estimator", "economics"), ""),
    "plans, given a total": (
        (*ESTIMATE, "--total-gpus", "4", "--estimator", "economics.planned"), ""
    ),
    "no such entry": (("hardware", "h10"), "h100_sxm"),
    "one word too many": (("estimators", "all"), ""),
    "attention that the authors' program does not know": (
        (*("estimate", "deepseek-v4-flash", "--hardware", "h200_sxm", "--tp", "8"),
         *("--estimator", "kernels.published")), "Compressed",
    ),
    "no whole blocks": (("estimate", *BLOCKS, "--tp", "8"), "not in 8 slices of 192"),
    "no layout of blocks": (
        ("plan", "gpt-oss-120b", *BLOCKS[1:], "--total-gpus", "8"), "no layout"
    ),
    "no whole slices": (
        ("memory", "Qwen/Qwen3-30B-A3B-FP8", *H100, "--tp", "8"),
        "infer-jax: --tp is '8'; allowed: degrees that cut an expert",
    ),
    "kernels, no number": ((*KERNELS, "--prefill-tokens", "many"), "many"),
    "kernels, no curves": (("kernels", "qwen3-30b-a3b", "--hardware", "l4"), "[kernels]"),
    "measure, no profile": (("measure", "--out", "chip.txt"), "--out"),
    "measure, nowhere": (("measure", "--out", "no/such/chip.toml"), "--out"),
    "measure, no base": (("measure", "--out", "chip.toml", "--base", "no_chip"), "no_chip"),
    "measure, no file": (("measure",), "--out"),
    "layout, no mesh": ((*LAYOUT, "7"), "chips is 7"),
    "layout, no chips": (LAYOUT[:-1], "How many chips"),
    "no such layout": ((*LAYOUT, "64", "--layout", "3d"), "--layout is '3d'"),
    "no such phase": ((*LAYOUT, "64", "--phase", "training"), "prefill or decode"),
    "layout, gathers in decode": (
        (*LAYOUT, "64", "--phase", "decode", "--layout", "wg_x"), "in decode ws_1d, ws_2d"
    ),
    "layout of experts": (
        ("layout", "mixtral-8x7b", "--hardware", "tpu_v4", "--total-gpus", "8"),
        "infer-jax: CONFIG is 'a model with experts",
    ),
    "no such schedule": ((*OFFLOAD, "--schedule", "sideways"), "zig-zag"),
    "no such compression": ((*OFFLOAD, "--compress", "all"), "none, weights, cache, both"),
    "no offloading": ((*OFFLOAD, "--estimator", "economics"), "offloading.released"),
    "offload, too many": ((*OFFLOAD, "--gpus", "99"), "at most the 32 layers"),
    "calibrate, no profile": ((*CALIBRATE, "mine.txt"), "--out"),
    "calibrate, nowhere": ((*CALIBRATE, "no/such/mine.toml"), "--out"),
    "calibrate, no runs": (("calibrate", "none/*.json", *CALIBRATE[2:], "mine.toml"), "none/"),
    "a fact contradicted": ((*CALIBRATE, "m.toml", "--tp", "2"), "tp"),
    "no such engine of runs": ((*CALIBRATE, "m.toml", "--engine", "abacus"), "abacus"),
    "requests of runs without any": ((*CALIBRATE, "m.toml", "--prompts", "4"), "--prompts"),
    "no estimators": (COMPARE, ""),
    "one estimator": ((*COMPARE, "--tp", "1"), "What is to be compared"),
    "one estimator twice": (
        (*COMPARE, "--tp", "1", "--estimator", "serving", "--estimator", "serving"),
        "--estimator is 'serving, serving'; allowed: two that differ",
    ),
    "one that searches": ((*MEASURED, "--estimator", "economics"), "economics"),
    "runs of another layout": (
        (*MEASURED, "--tp", "8"), "tp is 1; allowed: 8, as an option or a sidecar says"
    ),
    "batch with runs": ((*MEASURED, "--batch", "4"), "--batch"),
    "facts without runs": (
        (*COMPARE, "--tp", "1", "--prompts", "640"), "only with --measured"
    ),
    "copies without runs": (
        (*COMPARE, "-tp", "4", "-dp", "2"), 'copies are of --layout "2 x TP4"'
    ),
    "no such number": ((*SENSITIVITY, "--set", "hardware.chip.memory_bandwith=1"), "bandwith"),
    **{
        path: ((*ONE, "--set", path), said)
        for path, said in (
            ("hardware.chip.speed=1", "no number of this"),
            ("hardware.chip.memory=-1", "a number from"),
            ("estimator.weight_read=0", "1e-06 to"),
            ("plan.tp=2", "begins as one of"),
            ("hardware.chip.memory=__import__('os')", "PATH=NUMBER"),
            ("hardware.chip.memory_bandwidth=*1e9", "1e+08 to 1e+16"),
            ("hardware.network.domain_bandwidth=0", "as of any machine"),
        )
    },
    "along a given split": ((*SENSITIVITY, "--along", "3"), "--along"),
    "slopes of a searched split": (
        (*SENSITIVITY, "--estimator", "economics"), "economics'; allowed: one that takes a split"
    ),
    "slopes of no search": (
        ("sensitivity", "llama-3.2-1b", *H100, "--total-gpus", "8", "--estimator", "serving"),
        "serving'; allowed: one that searches the split",
    ),
    "no design": (("codesign",), "SPEC.toml"),
    "a design without limits": (LOOP, "--tpot"),
    "plan, no GPUs": (PLAN, "How many GPUs are there"),
    "plan, two loads": ((*PLAN, "--concurrency", "8", "--request-rate", "2"), "one of --conc"),
    "no such mode": ((*FOUR, "--mode", "split"), "aggregated, disaggregated"),
    "no such engine": ((*FOUR, "--engine", "hf"), "vllm, sglang, trtllm"),
    "plan, long prefix": ((*FOUR, "--prefix", "3000"), "--prefix"),
    "plan, no probability": ((*FOUR, "--heads", "--acceptance", "2"), "from 0 to 1"),
    "plan, no heads": ((*FOUR, "--acceptance", "0.8"), "num_nextn_predict_layers"),
    "plan, heads alone": ((*FOUR, "--heads"), "How much"),
    "plan, no curves": ((*FOUR, "--heads", "--acceptance", "no-such-file"), "a file of curves"),
    "plan, a spread of a loop": ((*ANY, "--isl", "2200±600"), "--request-rate"),
    "plan, no spread": ((*ANY, "--isl", "2200±-1"), "2200±600"),
    "plan, trace and lengths": ((*FOUR, "--trace", "no-such-file"), "--isl"),
    "plan, a draft alone": ((*FOUR, "--draft", "qwen3-0.6b"), "probability"),
    "plan, chunks of pools": (
        (*FOUR, "--chunk", "512", "--mode", "disaggregated"), "pools"
    ),
    "plan, a currency alone": ((*FOUR, "--currency", "EUR"), "with --price"),
    "plan, a currency of one price": (
        (*FOUR, "--hardware", "h200_sxm", "--price", "h100=2", "--currency", "EUR"), "of every"
    ),
    "plan, p95 of a loop": ((*FOUR, "--p95-ttft", "1s"), "--p95-ttft is '1'; allowed: with --req"),
    "plan, goodput by law": ((*FOUR, "--goodput", "0.95"), "with --replay"),
    "plan, goodput of a frontier": (
        (*FOUR, "--goodput", "0.95", "--replay", "--frontier"), "without --frontier"
    ),
    "plan, goodput of no limit": (
        (*FOUR, "--goodput", "0.95", "--replay", "--ttft", "none"), "with --ttft or --tpot"
    ),
    "plan, no goodput": ((*FOUR, "--goodput", "1.5"), "a share of the requests from 0.5 to"),
    "plan, other rates of none": ((*FOUR, "--other-rates"), "with --request-rate"),
    "plan, unknown pool": (("plan", *LLAMA, "--decode-hardware", "h1000"), "h1000"),
    "page without a kind": ((*REPORT, "--out", "report"), "--out"),
    "page nowhere": ((*REPORT, "--out", "none/report.html"), "--out"),
    "page of a search": ((*REPORT, "--estimator", "economics"), "economics.planned"),
    "page without a split": (
        ("report", *LLAMA, "--estimator", "economics.planned"), "--tp"
    ),
}  # fmt: skip


def sentence(text: str) -> bool:
    """Whether stderr holds exactly one line, and no traceback."""
    return text.count("\n") == 1 and "Traceback" not in text


@pytest.mark.parametrize(("words", "said"), REFUSED.values(), ids=REFUSED)
def test_refused(words, said, tmp_path):
    ran = run(*words)
    assert (ran.code, ran.out) == (2, "")
    assert sentence(ran.err) and said in ran.err, ran.err
    assert len(ran.err) < 2000  # of 5,000 characters typed, too
    assert list(tmp_path.iterdir()) == []


def test_program_refuses_without_traceback():
    ended = program("estimate", "llama")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert sentence(ended.stderr)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
def test_full_disk_is_told_without_traceback():
    with open("/dev/full", "w") as full:
        ended = program("estimators", stdout=full)
    assert ended.returncode == 1
    assert sentence(ended.stderr) and "cannot be written" in ended.stderr


BASE = ["estimate", *LLAMA, "--tp", "1", "--batch", "8", "--isl", "100", "--osl", "10"]
JUNK = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["0", "-1", "1e9", "1e300", "nan", "inf", "1e-300", "--tp", "--json", "8" * 400]
    ),
)


@settings(derandomize=True, max_examples=75, deadline=None)
@given(st.integers(1, len(BASE) - 1), JUNK, st.sampled_from(["replace", "insert", "drop"]))
def test_no_traceback_whatever_is_typed(at, junk, how):
    words = list(BASE)
    words[at : at + (how != "insert")] = [] if how == "drop" else [junk]
    ran = run(*words)
    assert ran.code in (0, 2), ran.err
    assert (ran.code == 2) == (ran.err != "")
    assert ran.err == "" or sentence(ran.err), ran.err
