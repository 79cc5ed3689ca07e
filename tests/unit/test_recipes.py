"""The recipes of the docs, done: their files in one copy of the package, and tried there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import infer_jax
from infer_jax.estimators import Serving

ROOT = Path(infer_jax.__file__).parents[1]
STEP = re.compile(r"^### \d+\. `([^`]+)`$(.*?)(?=^##|\Z)", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```(python|json|diff)\n(.*?)^```$", re.DOTALL | re.MULTILINE)

# each recipe, and at most how many files it takes
RECIPES = {"write-an-estimator": 3, "add-a-serving-term": 4, "add-an-output": 2}
RECIPES |= {"add-an-engine": 3, "add-a-kind-of-attention": 8}
pytestmark = pytest.mark.skipif(
    not (ROOT / "docs").exists(), reason="installed without the checkout"
)


class Change(NamedTuple):
    """What a recipe does to one file: its whole text, or lines to find and what becomes of them."""

    path: str
    kind: str
    text: str


def recipe(page: str) -> list[Change]:
    """The changes of a page, in order: of each step its blocks, but those that show a session."""
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    return [
        Change(path, kind, block)
        for path, body in STEP.findall(text)
        for kind, block in BLOCK.findall(body)
        if not block.startswith(">>> ")
    ]


@pytest.fixture(scope="module")
def house(tmp_path_factory) -> Path:
    """A copy of the house with every recipe followed; what they do not touch is linked."""
    folder = tmp_path_factory.mktemp("house")
    for name in ("hw_profiles", "pyproject.toml"):
        (folder / name).symlink_to(ROOT / name)
    for name in ("infer_jax", "tests"):
        shutil.copytree(ROOT / name, folder / name)  # with what Python has compiled of them
    for path, kind, text in (change for page in RECIPES for change in recipe(page)):
        file = folder / path
        if kind != "diff":
            assert not file.exists(), f"{path} is there already"
            file.write_text(text, encoding="utf-8")
            continue
        before = "".join(line[1:] + "\n" for line in text.splitlines() if line[0] in " -")
        after = "".join(line[1:] + "\n" for line in text.splitlines() if line[0] in " +")
        known = file.read_text(encoding="utf-8")
        assert known.count(before) == 1, f"{path} has not, or more than once: {before}"
        file.write_text(known.replace(before, after), encoding="utf-8")
    given = {"acceptance": float(Serving.of().acceptance).hex()}
    for name, lines in (("everywhere", ANSWERS), ("a_new_engine", ENGINE)):
        test = f"LINES, GIVEN = {lines!r}, {given!r}\n\n\ndef test_{name}(tmp_path):\n"
        test += "    exec(LINES, {'folder': tmp_path / 'toy', **GIVEN})\n"
        (folder / "tests" / f"test_{name}.py").write_text(test, encoding="utf-8")
    return folder


@pytest.mark.parametrize("page", RECIPES)
def test_a_recipe_is_few_files(page):
    files = {change.path for change in recipe(page)}
    assert 1 < len(files) <= RECIPES[page]


# the estimator under the contract, the term, and the kind of attention with its bundled model
ASKED = (
    "(test_contract and (roofline or declared or variant)) or test_sampling"
    " or (test_attention and hort) or (test_models and (say_what or lfm2 or LFM2 or every_bundled))"
    " or (test_house and (kinds_of_attention or branches)) or everywhere or new_engine"
)


def test_their_tests_pass_and_every_verb_and_estimator_answers(house):
    """A new output is computed by all estimators, and all take a new kind of attention.

    A new engine borrows coefficients and says so; pools without a router are not planned for it.
    """
    files = ("contract/test_contract.py", "unit/physics/test_attention.py")
    files += ("unit/estimators/test_sampling.py", "unit/catalog/test_models.py")
    files += ("unit/test_house.py", "test_everywhere.py", "test_a_new_engine.py")
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", ASKED]
    words += [f"tests/{file}" for file in files]
    env = {**os.environ, "PYTHONPATH": str(house), "JAX_ENABLE_X64": "1"}
    ran = subprocess.run(words, cwd=house, env=env, capture_output=True, text=True)
    passed = re.search(r"(\d+) passed", ran.stdout)
    assert ran.returncode == 0 and passed, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert int(passed[1]) > 20, ran.stdout


ANSWERS = """
import jax
from infer_jax import Plan, Workload
from infer_jax.catalog import load_model, load_system
from infer_jax.estimators import Disaggregated, Offload, Pools, make
from infer_jax.specs import ShortConvolution
from tests.cli.running import answer, run
from tests.contract.cases import ESTIMATORS, JOBS, block, dense, nodes, offloaded, plan
from tests.unit.physics.derivatives import agree_at, finite_at
from tests.unit.physics.test_attention import CACHE, SHORT, everything

# the estimator: products in fp8 are at twice the rate, but for the head
asked = ("estimate", "llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "2")
asked += ("--estimator", "roofline")
wide, narrow = answer(*asked), answer(*asked, "--quant", "fp8")
assert "Estimator roofline: nothing but the data sheet." in wide["trust"]["says"]
short, long = (x["prefill"]["terms"]["compute_ms"] for x in (narrow, wide))
assert 0.5 < short / long < 0.56, (short, long)

# the output, of estimators of every kind, and in the rows of verbs
work, each = Workload.of(isl=1000, osl=100, batch=8), Plan.of(tp=2)
pools = Pools.of(prefill=each, decode=each, prefill_copies=1, decode_copies=2, prefill_batch=1)
cases = [(ESTIMATORS[name].make(), nodes(), plan()) for name in
         ("partitioning.planned", "serving")]
cases.append((Disaggregated.of(target=ESTIMATORS["serving"].make()), nodes(), pools))
cases.append((JOBS["offloading.planned"].make(), offloaded(), block()))
for estimator, hardware, split in cases:
    def both(hardware, work, split):
        estimate = estimator.estimate(dense(), hardware, work, split)
        return estimate.gpu_hours, estimate.throughput
    hours, rate = jax.jit(both)(hardware, work, split)
    assert abs(hours * rate * 3600.0 / 1e6 - 1.0) < 1e-6, (estimator, hours, rate)

asked = ("llama-3.1-8b", "--hardware", "h100_sxm", "--isl", "1024", "--osl", "128")
one = answer("estimate", *asked, "--tp", "1", "--batch", "16")
per_hour = one["throughput_per_gpu_tokens_per_s"] * 3600.0
assert abs(one["gpu_hours_per_mtok_h"] * per_hour / 1e6 - 1.0) < 1e-6
assert "GPU hours of output tokens" in run("estimate", *asked, "--tp", "1", "--batch", "16").out
found = answer("plan", *asked, "--total-gpus", "2", "--mode", "aggregated")["plans"][0]
rate = found["throughput_per_gpu_tokens_per_s"]
assert abs(found["gpu_hours_per_mtok_h"] * rate * 3600.0 / 1e6 - 1.0) < 1e-3
# the kind of attention: its slopes, and every estimator
agree_at(everything, (SHORT, CACHE, 7.3, 3001.7, 640.0))
bad = ((0.0, 0.0), (1.0, 0.0), (0.0, 10.0), (1.0, 2.0**30))
finite_at(everything, *((SHORT, CACHE, *tokens, 64.0) for tokens in bad))
arch = load_model("LiquidAI/LFM2-1.2B").architecture
work, two = Workload.of(isl=6000, osl=400, batch=24), Plan.of(tp=2)
asked = dict.fromkeys(("serving", "kernels", "partitioning.planned", "economics.planned"), two)
asked["offloading.planned"] = Offload.of(gpu_batch=4, batches=3, compress_cache=1)
wide = arch.replace(blocks=tuple(
    block.replace(attention=block.attention.with_(conv_width=3e3))
    if isinstance(block.attention, ShortConvolution) else block for block in arch.blocks))
for name, plan in asked.items():
    system = load_system("t4_host" if isinstance(plan, Offload) else "h20_sxm")
    estimator = make(name, system.coefficients)
    tpot = jax.jit(lambda arch: estimator.estimate(arch, system.hardware, work, plan).tpot)
    assert 1e-5 < 1.05 * float(tpot(arch)) < float(tpot(wide)), (name, tpot(arch), tpot(wide))

held = answer("memory", "lfm2-1.2b", "--hardware", "h20_sxm", "--max-model-len", "4096")
# six layers of 8 heads of 64 keys and values, ten of two inputs of 2,048 channels
assert held["kv_per_token_bytes"] == 6 * 2 * 8 * 64 * 2, held
assert held["kv_per_request_bytes"] >= 4096 * held["kv_per_token_bytes"] + 10 * 2 * 2048 * 2, held
"""


ENGINE = """
from infer_jax.estimators import Serving
from tests.cli.running import answer

asked = ("plan", "qwen3-30b-a3b", "--hardware", "h100_sxm", "--total-gpus", "4", "--engine", "toy")
found = answer(*asked, "--out", str(folder))
says = found["trust"]["h100_sxm"]["says"]
assert "(Toy): no measured rows: coefficients of vLLM" in says, says
assert {plan["mode"] for plan in found["plans"]} == {"aggregated"}, found["plans"]
assert {plan["degrees"]["pp"] for plan in found["plans"]} == {1}
notes = " ".join(found["notes"])
assert "Every layout that Toy can start" in notes and "no router before two pools of Toy" in notes
command = found["launch"]["Toy"]["commands"][0]["command"]
assert command.startswith("toy serve Qwen/Qwen3-30B-A3B"), command
assert "--host" in (folder / "start.sh").read_text() and (folder / "compose.yaml").exists()
readme = (folder / "README.md").read_text()
assert "A container image of Toy for this GPU" in readme, readme
one = ("estimate", "llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "1", "--batch", "8")
own, like = (answer(*one, "--engine", engine) for engine in ("toy", "vllm"))
assert abs(own["tpot_ms"] / like["tpot_ms"] - 1) < 1e-9 and own["trust"]["engine"] == "toy"
assert answer(*one, "--engine", "toy", "--engine-version", "1.0.0")["tpot_ms"] > own["tpot_ms"]
replayed = ("replay", "llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "1", "--prompts", "40")
assert answer(*replayed, "--concurrency", "4", "--engine", "toy")["engine"] == "toy"
# no number of before changes, and what is saved reads the same
names = ("trtllm", "sglang", "vllm", "toy")
assert [Serving.of(engine=name).engine for name in names] == [0, 1, 2, 3]
assert float(Serving.of().acceptance).hex() == acceptance
"""
