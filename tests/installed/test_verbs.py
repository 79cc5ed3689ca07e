"""Each verb's main question, asked of the installed command in an empty folder.

What the answers say is held to account by tests/cli, in one process; here is that a user gets them:
from the installed package, with the files that were asked for.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from infer_jax.catalog import load_system
from infer_jax.cli.table import VERBS
from tests.cli.running import answer
from tests.installed.program import call, program
from tests.installed.runs import TRACE

RUNS = Path(__file__).parents[1] / "data" / "server" / "runs.csv"
PLAN = Path(__file__).parents[1] / "data" / "plan.json"
CHATS = "arrival_s,prompt_tokens,output_tokens,session\n" + "".join(
    f"{3 * i + 20 * turn},{500 + 250 * turn},50,{i}\n" for i in range(100) for turn in range(4)
)  # conversations of four turns, 20 s apart, each with 200 new tokens
SPACE = """
estimator = "economics.planned"
[arch]
model = "llama-3.1-8b"
[hardware]
systems = ["h100_sxm", "h200_sxm"]
[workload]
batch = { values = [1, 8, 64] }
[plan]
tp = { values = [1, 2] }
[keep]
pareto = ["speed", "cost"]
"""
SPEC = """
estimator = "economics.planned"
[arch]
model = "llama-3.2-1b"
[hardware]
system = "h100_sxm"
[workload]
isl = 1024
osl = 128
[free]
batch = [1, 64]
[start]
batch = 8
[objective]
best = "cost"
[limits]
tpot = 0.002
[search]
restarts = 8
steps = 32
"""


class Asked(NamedTuple):
    """The words after ``infer-jax``, what must be in the answer, and the files it takes and makes.

    ``holds`` is given the text and the folder, and asserts.
    """

    words: str
    says: str
    takes: dict[str, str] = {}  # noqa: RUF012
    makes: tuple[str, ...] = ()
    holds: Callable[[str, Path], None] = lambda out, folder: None


def number(pattern: str, out: str) -> float:
    """The one number that a pattern with a group finds."""
    result = re.search(pattern, out, re.MULTILINE)
    assert result, f"no {pattern!r} in:\n{out}"
    return float(result[1].replace(",", ""))


def arrives(out: str, folder: Path) -> None:
    # 1,200 requests, four a second, of 100 to 106 tokens
    assert number(r"([\d.]+) requests/s in the mean", out) == pytest.approx(4.0, rel=0.02)
    assert 100.0 <= number(r"^prompt +([\d.]+)", out) <= 106.0


def is_measured(out: str, folder: Path) -> None:
    """Every family is timed and fitted, and another verb takes the profile."""
    for family in ("gemm", "grouped", "gqa_decode", "gqa_prefill", "copy"):
        assert number(rf"^{family} +(\d+) ", out) > 3
    system = load_system(folder / "my_chip.toml")
    output = number(r"shares of ([\d.e+]+)\s+TFLOP/s", out)
    assert float(system.hardware.chip.flops_16) == pytest.approx(output * 1e12, rel=0.01)
    assert "gqa_prefill_compute" in system.coefficients["kernels"]
    words = ("kernels", "qwen3-0.6b", "--hardware", str(folder / "my_chip.toml"))
    assert answer(*words, "--isl", "64", "--osl", "8")["tpot_ms"] > 0
    assert [path.name for path in folder.iterdir()] == ["my_chip.toml"]  # nothing half-written


ASKED = {
    "frontier": Asked(
        "frontier llama-3.1-70b --hardware h100_sxm --quant fp8 --isl 4096",
        r"speed +cost", makes=("frontier.png",),
    ),
    "estimate": Asked(
        "estimate llama-3.1-8b --hardware h100_sxm --tp 1 --batch 32 --out estimate.png",
        "llama-3.1-8b on 1 h100_sxm", makes=("estimate.png",),
    ),
    "memory": Asked(
        "memory llama-3.1-70b --hardware h100_sxm --tp 4 --max-model-len 8192 --batch 32"
        " --out memory.png",
        "KV cache size", makes=("memory.png",),
    ),
    "chip": Asked(
        "chip h100_sxm --out chip.png", "by the laws of silicon", makes=("chip.png",),
    ),
    "layout": Asked(
        "layout palm-540b --hardware tpu_v4 --total-gpus 64 --batch 512 --out layout.png",
        "Fastest by batch", makes=("layout.png",),
    ),
    "kernels": Asked(
        "kernels deepseek-v3 --hardware h800_sxm --ep 32 --deepep --batch 64 --out kernels.png",
        "largest batch that fits", makes=("kernels.png",),
    ),
    "measure": Asked(
        "measure --out my_chip.toml --toy", "my_chip.toml", makes=("my_chip.toml",),
        holds=is_measured,
    ),
    "offload": Asked(
        "offload opt-175b --hardware t4_host --isl 512 --osl 32", "kept on",
        makes=("offload.png",),
    ),
    "plan": Asked(
        "plan llama-3.1-70b --hardware h200_sxm --total-gpus 8 --tpot 30ms", "blended"
    ),
    "deploy": Asked(
        "deploy PLAN.json --out my_service", r"my_service starts qwen3-32b: 4 x TP2",
        {"PLAN.json": PLAN.read_text(encoding="utf-8")},
        ("my_service/start.sh", "my_service/kubernetes.yaml", "my_service/README.md"),
    ),
    "report": Asked(
        "report llama-3.1-70b --hardware h100_sxm --quant fp8 --tpot 30ms", r"report\.html",
        makes=("report.html",),
    ),
    "replay": Asked(
        "replay llama-3.1-8b --hardware h100_sxm --tp 1 --request-rate 8 --prompts 400",
        r"time to first token",
    ),
    "traffic": Asked(
        "traffic TRACE.csv --period 60 --out traffic.png", "requests/s in the mean",
        {"TRACE.csv": TRACE}, ("traffic.png",), arrives,
    ),
    "sessions": Asked(
        "sessions llama-3.1-8b --hardware h100_sxm --tp 1 --traffic TRACE.csv"
        " --request-rate 5 --tier host=1024,55,0.5",
        "fetches as fast as the replica computes", {"TRACE.csv": CHATS},
    ),
    "fleet": Asked(
        "fleet llama-3.1-8b --hardware h100_sxm --traffic TRACE.csv --period 60 --tp 1",
        "over the bound", {"TRACE.csv": TRACE},
    ),
    "offline": Asked(
        "offline llama-3.1-8b --hardware h100_sxm --tp 1 --prompts 1m --isl 512 --osl 256+-256",
        "output tokens/s",
    ),
    "models": Asked("models llama-3.1-8b", r"llama-3\.1-8b +llama +32 +8\.03"),
    "hardware": Asked("hardware h100_sxm", r"chip\.memory_bandwidth +3350000000000 +bytes/s"),
    "estimators": Asked("estimators", r"economics +level 4"),
    "doctor": Asked("doctor", r"float64 +24 .* yes"),
    "calibrate": Asked(
        "calibrate runs.csv --config llama-3.1-8b --hardware h100_sxm --tp 1 --out my_h100.toml"
        " --out my_h100.png",
        "calibrated, run left out", {"runs.csv": RUNS.read_text(encoding="utf-8")},
        ("my_h100.toml", "my_h100.png"),
    ),
    "compare": Asked(
        "compare llama-3.1-8b --hardware h100_sxm --tp 1 --estimator serving"
        " --estimator economics.planned --out compare.png",
        r"serving +economics\.planned", makes=("compare.png",),
    ),
    "sensitivity": Asked(
        "sensitivity llama-3.1-70b --hardware h100_sxm --tp 8 --batch 32",
        "1.5 times the memory bandwidth",
    ),
    "codesign": Asked(
        "codesign SPEC.toml --out design --out design.png", "Objective: cost",
        {"SPEC.toml": SPEC}, ("design/config.json", "design.png"),
    ),
    "sweep": Asked(
        "sweep SPACE.toml --out result.json", "kept", {"SPACE.toml": SPACE},
        ("result.json",),
    ),
}  # fmt: skip


def test_every_verb_is_asked():
    """A new verb needs a row in ASKED."""
    assert set(ASKED) == set(VERBS)
    assert all(row.words.split()[0] == verb for verb, row in ASKED.items())


@pytest.mark.parametrize("name", ASKED)
def test_verb_answers(name, tmp_path, home, imported):
    row = ASKED[name]
    for file, text in row.takes.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    words, columns = row.words.split(), "120"  # what does not fit is printed row by row
    if name == "estimate":  # a user's first command finds nothing compiled
        alone = home | {"COLUMNS": columns}
        alone.pop("JAX_COMPILATION_CACHE_DIR", None)
        ended = call([str(program()), *words], tmp_path, alone)
    else:
        ended = imported.call(words, tmp_path, columns)
    assert "Traceback" not in ended.out + ended.err, ended.err
    assert ended.code == 0, ended.err
    assert re.search(row.says, ended.out), ended.out
    for file in row.makes:
        assert (tmp_path / file).stat().st_size > 0, file
    row.holds(ended.out, tmp_path)
