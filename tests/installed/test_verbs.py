"""Each verb's main question, asked of the installed command in an empty folder.

The answers are held to figures that do not come from our own output: sizes of published models,
data sheets, the limits that were asked for, and what must add up.
"""

import json
import re
import tomllib
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
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
# 8,030,261,248 parameters (the model's card) of 2 bytes, and an H100's 3.35 TB/s (NVIDIA)
CHATS = "arrival_s,prompt_tokens,output_tokens,session\n" + "".join(
    f"{3 * i + 20 * turn},{500 + 250 * turn},50,{i}\n" for i in range(100) for turn in range(4)
)  # conversations of four turns, 20 s apart, each with 200 new tokens
READING_MS = 8.030e9 * 2 / 3.35e12 * 1e3
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
    holds: Callable[[str, Path], None] = lambda out, folder: None
    takes: dict[str, str] = {}  # noqa: RUF012
    makes: tuple[str, ...] = ()


def number(pattern: str, out: str) -> float:
    """The one number that a pattern with a group finds."""
    result = re.search(pattern, out, re.MULTILINE)
    assert result, f"no {pattern!r} in:\n{out}"
    return float(result[1].replace(",", ""))


def rows(out: str, first: str, *columns: int) -> list[list[float]]:
    """Numbers of the given columns, counted from the end, of lines that begin with ``first``."""
    lines = [line.split() for line in out.splitlines() if re.match(first, line)]
    assert lines, f"no line begins with {first!r}:\n{out}"
    return [[float(cells[column]) for column in columns] for cells in lines]


def estimates(out: str, folder: Path) -> None:
    tpot = number(r"^time per output token +([\d.]+)  ms", out)
    assert READING_MS < tpot < 10 * READING_MS


def arrives(out: str, folder: Path) -> None:
    # 1,200 requests, four a second, of 100 to 106 tokens
    assert number(r"([\d.]+) requests/s in the mean", out) == pytest.approx(4.0, rel=0.02)
    assert 100.0 <= number(r"^prompt +([\d.]+)", out) <= 106.0


def returns(out: str, folder: Path) -> None:
    assert number(r"sessions of ([\d.]+) turns", out) == 4.0
    # turns of 550, 800, 1,050 and 1,300 tokens, of which three quarters are followed by another
    assert number(r"finds ([\d,.]+) tokens", out.replace(",", "")) == pytest.approx(925, rel=0.2)
    assert number(r"^device +[\d.e+]+ +([\d.]+)", out) > 99.0  # 20 s of 5 x 925 tokens fit an H100


def is_bound(out: str, folder: Path) -> None:
    # four requests a second are one GPU's, all day at its rent
    usd = number(r"^perfect autoscaler +([\d.]+)", out)
    assert usd == pytest.approx(24 * 3.2, abs=0.5)
    assert number(r"^static +1 replica +([\d.]+)", out) >= usd


def is_done(out: str, folder: Path) -> None:
    # 16 GB of weights are read for a token of each of 1,024 requests at most
    hours = number(r"replica: ([\d.]+) hours", out)
    assert hours > 1e6 * 256 / 1024 * READING_MS / 3.6e6


def replays(out: str, folder: Path) -> None:
    tpot = number(r"^time per output token +([\d.]+)", out)
    assert READING_MS < tpot < 10 * READING_MS
    # 400 requests of 128 tokens at 8 a second, and no faster than they come
    assert 0.9 * 8 * 128 < number(r"^throughput +([\d.]+)", out) < 1.02 * 8 * 128


def compares(out: str, folder: Path) -> None:
    pattern = r"^time per output token +ms +([\d.]+) +([\d.]+) +([\d.]+)"
    result = re.search(pattern, out, re.MULTILINE)
    assert result, out
    serving, ideal, ratio = map(float, result.groups())
    assert READING_MS < ideal < serving < 10 * READING_MS
    assert ratio == pytest.approx(ideal / serving, rel=2e-3)


def remembers(out: str, folder: Path) -> None:
    # 70,553,706,496 parameters of 2 bytes over 4 GPUs, norms on each
    assert number(r"^weights +([\d,]+)", out) == pytest.approx(70_553_706_496 * 2 / 4, rel=1e-3)
    tokens = number(r"^GPU KV cache size: ([\d,]+) tokens", out)
    output = number(r"^Maximum concurrency for 8,192 tokens per request: ([\d.]+)x", out)
    assert output == pytest.approx(tokens / 8192, abs=0.01)


def plans(out: str, folder: Path) -> None:
    first = out.split("\n\n")[1]
    tpot = [float(x) for x in re.findall(r"TP\d.*?  +\d+ +\d+ +\d+ +([\d.]+) ", first)]
    assert tpot and max(tpot) <= 30.0


def fronts(out: str, folder: Path) -> None:
    points = rows(out.replace("\n*", "\n "), r" +[\d.]+ +[\d.]+ +\d", 0, 1)
    assert len(points) > 5 and out.count("\n*  ") == 1
    assert all(a[0] > b[0] and a[1] > b[1] for a, b in pairwise(points))


def lays_out(out: str, folder: Path) -> None:
    times = rows(out, r"w\w+ .* \d+ \d+ \d+ ", 5)
    # 540e9 parameters, 2 FLOP each, 512 x 2048 tokens, 64 chips of 275 TFLOP/s (Google)
    floor = 2 * 540e9 * 512 * 2048 / (64 * 275e12) * 1e3
    assert min(times)[0] > floor


def adds_up(out: str, folder: Path) -> None:
    whole = number(r"^time per output token +([\d.]+)  ms", out)
    decode = out.split("decode  ")[-1]
    parts = [line.split() for line in decode.splitlines() if re.match(r"[a-z ]+\d+ +[\d.]+ ", line)]
    at = [next(i for i, cell in enumerate(line) if cell.isdigit()) for line in parts]
    kernels = sum(float(x[i]) * float(x[i + 1]) for x, i in zip(parts, at, strict=True)) / 1e3
    assert 0.0 < kernels <= whole * 1.01


def places(out: str, folder: Path) -> None:
    for kind in ("weights", "cache", "hidden"):
        shares = rows(out, f"{kind} .*[0-9]$", -3, -2, -1)[0]
        assert sum(shares) == pytest.approx(100.0, abs=0.2)


def is_whole(out: str, folder: Path) -> None:
    text = (folder / "report.html").read_text(encoding="utf-8")
    ids: list[str] = []
    reader = HTMLParser()
    reader.handle_starttag = lambda tag, attrs: ids.extend(v for k, v in attrs if k == "id" and v)
    reader.feed(text)
    assert {"plan", "flags", "tradeoff", "time", "memory", "sensitivity"} <= set(ids)
    assert {"cost", "trust", "sources"} <= set(ids)
    assert text.count("http-equiv") == 1 and "Traceback" not in text  # its policy


def is_dear(out: str, folder: Path) -> None:
    """What is paid is proportional to the price, and a decode step reads memory."""
    dollars = out.split("$/Mtok")[1].split("\n\n")[0]
    assert rows(dollars, r"rent of a GPU ", -3)[0] == [1.0]
    assert -1.0 < rows(dollars, r"memory bandwidth ", -3)[0][0] < -0.2


def is_fitted(out: str, folder: Path) -> None:
    with (folder / "my_h100.toml").open("rb") as file:
        assert "serving" in tomllib.load(file)
    before = number(r"^profile as it was +([\d.]+)", out)
    assert number(r"^calibrated +([\d.]+)", out) < before


def is_kept(out: str, folder: Path) -> None:
    output = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    kept = [column["values"] for column in output["columns"].values()]
    assert 2 <= len(kept[0]) < 12 and all(len(column) == len(kept[0]) for column in kept)
    assert number(r"^(\d+) points", out) == 12


def is_chip(out: str, folder: Path) -> None:
    # the die as NVIDIA says it is, within the ends of the draws
    assert re.search(r"^die +\d+ +[\d.]+ to [\d.]+ +814 +yes +mm2", out, re.M)
    low, high = (float(x) for x in re.findall(r"^die +\d+ +([\d.]+) to ([\d.]+)", out, re.M)[0])
    assert low < 814 < high


def is_designed(out: str, folder: Path) -> None:
    config = json.loads((folder / "design" / "config.json").read_text(encoding="utf-8"))
    assert config["hidden_size"] == 2048  # not free: as on the model's card
    assert rows(out, "tpot +s ", 3)[0][0] <= 0.002
    start, design = rows(out, "cost +USD/Mtok ", 2, 3)[0]
    assert design <= start


def is_measured(out: str, folder: Path) -> None:
    """Every family is timed and fitted, and another verb takes the profile."""
    for family in ("gemm", "grouped", "gqa_decode", "gqa_prefill", "copy"):
        assert rows(out, rf"{family} +\d+ ", 1)[0][0] > 3
    system = load_system(folder / "my_chip.toml")
    output = number(r"shares of ([\d.e+]+)\s+TFLOP/s", out)
    assert float(system.hardware.chip.flops_16) == pytest.approx(output * 1e12, rel=0.01)
    assert "gqa_prefill_compute" in system.coefficients["kernels"]
    words = ("kernels", "qwen3-0.6b", "--hardware", str(folder / "my_chip.toml"))
    assert answer(*words, "--isl", "64", "--osl", "8")["tpot_ms"] > 0
    assert [path.name for path in folder.iterdir()] == ["my_chip.toml"]  # nothing half-written


def is_deployed(out: str, folder: Path) -> None:
    """Four servers of two GPUs each, and up to three loads that the server takes."""
    text = (folder / "my_service" / "start.sh").read_text(encoding="utf-8")
    gpus = re.findall(r"CUDA_VISIBLE_DEVICES=(\S+) vllm serve Qwen/Qwen3-32B-FP8", text)
    assert gpus == ["0,1", "2,3", "4,5", "6,7"] and text.count("start router vllm-router") == 1
    bench = (folder / "my_service" / "bench.sh").read_text(encoding="utf-8")
    loads = re.findall(r'^run one-\d "\$instance" (\d+) (\d+) \d+ concurrency (\d+)$', bench, re.M)
    assert 1 <= len(loads) <= 3
    assert all(int(i) + int(o) <= 2300 and int(n) <= 1024 for i, o, n in loads)


ASKED = {
    "frontier": Asked(
        "frontier llama-3.1-70b --hardware h100_sxm --quant fp8 --isl 4096",
        r"speed +cost", fronts, makes=("frontier.png",),
    ),
    "estimate": Asked(
        "estimate llama-3.1-8b --hardware h100_sxm --tp 1 --batch 32 --out estimate.png",
        "llama-3.1-8b on 1 h100_sxm", estimates, makes=("estimate.png",),
    ),
    "memory": Asked(
        "memory llama-3.1-70b --hardware h100_sxm --tp 4 --max-model-len 8192 --batch 32"
        " --out memory.png",
        "KV cache size", remembers, makes=("memory.png",),
    ),
    "chip": Asked(
        "chip h100_sxm --out chip.png", "by the laws of silicon", is_chip, makes=("chip.png",),
    ),
    "layout": Asked(
        "layout palm-540b --hardware tpu_v4 --total-gpus 64 --batch 512 --out layout.png",
        "Fastest by batch", lays_out, makes=("layout.png",),
    ),
    "kernels": Asked(
        "kernels deepseek-v3 --hardware h800_sxm --ep 32 --deepep --batch 64 --out kernels.png",
        "largest batch that fits", adds_up, makes=("kernels.png",),
    ),
    "measure": Asked(
        "measure --out my_chip.toml --toy", "my_chip.toml", is_measured, makes=("my_chip.toml",)
    ),
    "offload": Asked(
        "offload opt-175b --hardware t4_host --isl 512 --osl 32", "kept on", places,
        makes=("offload.png",),
    ),
    "plan": Asked(
        "plan llama-3.1-70b --hardware h200_sxm --total-gpus 8 --tpot 30ms", "blended", plans
    ),
    "deploy": Asked(
        "deploy PLAN.json --out my_service", r"my_service starts qwen3-32b: 4 x TP2", is_deployed,
        {"PLAN.json": PLAN.read_text(encoding="utf-8")},
        ("my_service/start.sh", "my_service/kubernetes.yaml", "my_service/README.md"),
    ),
    "report": Asked(
        "report llama-3.1-70b --hardware h100_sxm --quant fp8 --tpot 30ms", r"report\.html",
        is_whole, makes=("report.html",),
    ),
    "replay": Asked(
        "replay llama-3.1-8b --hardware h100_sxm --tp 1 --request-rate 8 --prompts 400",
        r"time to first token", replays,
    ),
    "traffic": Asked(
        "traffic TRACE.csv --period 60 --out traffic.png", "requests/s in the mean", arrives,
        {"TRACE.csv": TRACE}, ("traffic.png",),
    ),
    "sessions": Asked(
        "sessions llama-3.1-8b --hardware h100_sxm --tp 1 --traffic TRACE.csv"
        " --request-rate 5 --tier host=1024,55,0.5",
        "fetches as fast as the replica computes", returns, {"TRACE.csv": CHATS},
    ),
    "fleet": Asked(
        "fleet llama-3.1-8b --hardware h100_sxm --traffic TRACE.csv --period 60 --tp 1",
        "over the bound", is_bound, {"TRACE.csv": TRACE},
    ),
    "offline": Asked(
        "offline llama-3.1-8b --hardware h100_sxm --tp 1 --prompts 1m --isl 512 --osl 256+-256",
        "output tokens/s", is_done,
    ),
    "models": Asked("models llama-3.1-8b", r"llama-3\.1-8b +llama +32 +8\.03"),
    "hardware": Asked("hardware h100_sxm", r"chip\.memory_bandwidth +3350000000000 +bytes/s"),
    "estimators": Asked("estimators", r"economics +level 4"),
    "doctor": Asked("doctor", r"float64 +24 .* yes"),
    "calibrate": Asked(
        "calibrate runs.csv --config llama-3.1-8b --hardware h100_sxm --tp 1 --out my_h100.toml"
        " --out my_h100.png",
        "calibrated, run left out", is_fitted, {"runs.csv": RUNS.read_text(encoding="utf-8")},
        ("my_h100.toml", "my_h100.png"),
    ),
    "compare": Asked(
        "compare llama-3.1-8b --hardware h100_sxm --tp 1 --estimator serving"
        " --estimator economics.planned --out compare.png",
        r"serving +economics\.planned", compares, makes=("compare.png",),
    ),
    "sensitivity": Asked(
        "sensitivity llama-3.1-70b --hardware h100_sxm --tp 8 --batch 32",
        "1.5 times the memory bandwidth", is_dear,
    ),
    "codesign": Asked(
        "codesign SPEC.toml --out design --out design.png", "Objective: cost", is_designed,
        {"SPEC.toml": SPEC}, ("design/config.json", "design.png"),
    ),
    "sweep": Asked(
        "sweep SPACE.toml --out result.json", "kept", is_kept, {"SPACE.toml": SPACE},
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
