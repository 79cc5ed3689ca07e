"""What the verbs print is what the Python API answers, and fits a terminal."""

import io
import re

import jax
import numpy as np
import pytest

import infer_jax as ij
from infer_jax.cli.runtime import set_quiet
from infer_jax.cli.table import VERBS
from infer_jax.estimators import VARIANTS
from infer_jax.footprint import EngineSettings, memory
from infer_jax.physics import decoder
from infer_jax.physics.price import usd_per_million_tokens
from infer_jax.verbs.option import Time
from infer_jax.verbs.progress import watched
from tests.cli.running import answer, run

FRONTIER = ("frontier", "llama-3.1-8b", "--hardware", "h100_sxm", "--total-gpus", "8")
PLANNED = ("estimate", "llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "2", "--isl", "1000")


@pytest.fixture(scope="module")
def world():
    model, system = ij.load_model("llama-3.1-8b"), ij.load_system("h100_sxm")
    return model.architecture, system.hardware, system.coefficients


def close(a, b):
    return a == pytest.approx(float(b), rel=1e-9)


def test_estimate_is_the_estimate(world):
    arch, hardware, coefficients = world
    words = (*PLANNED, "--osl", "101", "--concurrency", "24", "--dp", "3", "--ttft", "0.3s")
    output = answer(*words, "--price", "1.5")
    work = ij.Workload.of(isl=1000, osl=101, batch=8)
    estimator = ij.make("serving", coefficients)
    priced = hardware.with_(price=1.5)
    life = jax.jit(estimator.estimate)(arch, priced, work, ij.Plan.of(tp=2, dp=3))
    assert close(output["ttft_ms"], 1e3 * life.ttft)
    assert close(output["tpot_ms"], 1e3 * life.tpot)
    assert close(output["speed_tokens_per_s"], life.speed)
    assert close(output["output_cost_per_mtok_usd"], life.cost)
    assert close(output["input_cost_per_mtok_usd"], life.input_cost)
    assert close(output["throughput_tokens_per_s"], 6 * life.throughput)
    assert (output["batch"], output["gpus"], output["total_gpus"]) == (8, 2, 6)
    assert output["price_source"] == "given by --price"
    notes = " ".join(answer(*PLANNED)["notes"])
    assert "flops_4 missing: filled with flops_8" in notes
    assert "Hyperstack GPU price list" in notes
    assert output["limits"]["ttft"] == {
        "limit_ms": 300,
        "value_ms": output["ttft_ms"],
        "met": bool(life.ttft <= 0.3),
    }
    for phase, built in (("prefill", life.prefill), ("decode", life.decode)):
        assert output[phase]["feasible"]
        assert set(output[phase]["terms"]) == {f"{name}_ms" for name in built.terms}
        for name, term in built.terms.items():
            assert close(output[phase]["terms"][f"{name}_ms"], 1e3 * term)
        limit = built.limits["memory"]
        assert close(output[phase]["limits"]["memory"]["slack_bytes"], limit.slack)


def test_not_fitting_is_an_answer():
    output = answer("estimate", "llama-3.1-70b", "--hardware", "h100_sxm", "--tp", "1")
    assert not output["feasible"]
    limit = output["decode"]["limits"]["memory"]
    assert limit["slack_bytes"] == limit["capacity_bytes"] - limit["need_bytes"] < 0
    ran = run("estimate", "llama-3.1-70b", "--hardware", "h100_sxm", "--tp", "1")
    assert ran.code == 0
    assert "Not feasible: decode: memory needs" in ran.out


def test_frontier_is_a_frontier_of_its_own_points(world):
    arch, hardware, coefficients = world
    output = answer(*FRONTIER, "--no-picture")
    rows = output["rows"]
    speed = np.array([row["speed_tokens_per_s"] for row in rows])
    cost = np.array([row["output_cost_per_mtok_usd"] for row in rows])
    assert len(rows) == output["frontier_points"] > 25
    assert (np.diff(speed) < 0).all() and (np.diff(cost) < 0).all()
    best = max(rows, key=lambda r: r["speed_tokens_per_s"] ** 3 / r["output_cost_per_mtok_usd"])
    assert output["preferred"] == best
    assert all(row["gpus"] % 1 == 0 and row["batch"] % 1 == 0 for row in rows)

    estimator = ij.make("economics.planned", coefficients)
    for row in (rows[0], best, rows[-1]):
        one = ij.ForwardPass.of(
            sequences=float(row["batch"]), new_tokens=1.0, cached_tokens=4096 + 511 / 2
        )
        plan = ij.Plan.of(**{name: float(row[name]) for name in ("tp", "pp", "ep")})
        phase = jax.jit(estimator.step)(arch, hardware, one, plan)
        price = usd_per_million_tokens(row["gpus"], hardware.price, phase.time, row["batch"])
        assert close(row["tpot_ms"], 1e3 * phase.time)
        assert close(row["output_cost_per_mtok_usd"], price)
        assert close(row["mfu"], phase.mfu)
        assert close(row["terms"][f"{row['binds']}_ms"], 1e3 * max(phase.terms.values()))
        assert close(row["tp"] * row["pp"] * row["ep"], row["gpus"])


def test_frontier_prints_few_rows_and_saves_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    output = answer(*FRONTIER, "--no-picture")
    ran = run(*FRONTIER, "--out", "here.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["here.svg"]
    assert ran.out.count("\n*  ") == 1
    for row in (output["rows"][0], output["preferred"], output["rows"][-1]):
        assert f"{row['output_cost_per_mtok_usd']:.3g}" in ran.out
    assert f"25 of {output['frontier_points']} points" in ran.out
    assert "here.svg was written;" in " ".join(ran.out.split())  # there was none
    again = " ".join(run(*FRONTIER, "--out", "here.svg").out.split()).rpartition("Picture: ")[2]
    assert again.startswith("here.svg was written in place of the earlier file; --out names")
    assert again.endswith("--no-picture writes none.")  # the last line


def test_frontier_without_matplotlib_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("infer_jax.verbs.pictures.find_spec", lambda name: None)
    ran = run(*FRONTIER)
    assert ran.code == 0
    assert "matplotlib is not installed" in ran.out
    assert list(tmp_path.iterdir()) == []


def test_frontier_limits(world):
    whole = answer(*FRONTIER, "--no-picture")["rows"]
    within = answer(*FRONTIER, "--no-picture", "--tpot", "8ms")["rows"]
    assert within == [
        dict(row, preferred=p["preferred"]) for row, p in zip(whole, within, strict=False)
    ]
    assert within[-1]["tpot_ms"] <= 8 < whole[len(within)]["tpot_ms"]
    served = answer(*FRONTIER, "--no-picture", "--demand", "500")["rows"]
    assert all(row["batch"] * row["speed_tokens_per_s"] <= 500 for row in served)


def test_frontier_tells_why_there_is_nothing():
    words = ("frontier", "llama-3.1-405b", "--hardware", "h100_sxm", "--total-gpus", "8")
    output = answer(*words, "--no-picture")
    assert output["rows"] == [] and output["preferred"] is None
    # 405 853 388 800 parameters in 2 bytes over 8 GPUs are 101.46 GB of each; activations, the
    # runtime and a little cache come on top
    assert "8 GPUs and a batch of 1, memory needs 1" in output["why"]
    assert 101.46 < float(re.findall(r"needs ([0-9.]+) GB of 78.2 GB", output["why"])[0]) < 112
    assert "pipeline" not in output["why"]
    assert "GB short" in output["why"]
    slow = answer(*FRONTIER, "--no-picture", "--tpot", "1us")
    assert slow["rows"] == [] and "the fastest takes" in slow["why"]


def test_memory_is_the_memory(world):
    arch, hardware, _ = world
    words = ("memory", "llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "2")
    output = answer(*words, "--max-model-len", "8192", "--gpu-memory-utilization", "0.8")
    shown = ij.load_system("h100_sxm").coefficients["serving"]["visible"]
    engine = EngineSettings.of(visible=shown, utilization=0.8, context=8192)
    held = memory(arch, hardware, ij.Plan.of(tp=2), engine)
    assert close(output["kv_cache_size_tokens"], held.tokens)
    assert close(output["maximum_concurrency"], held.concurrency)
    assert close(output["slack_bytes"], held.slack)
    assert close(sum(output["weights"].values()), held.weight_bytes)
    out = run(*words, "--max-model-len", "8192").out
    assert "GPU KV cache size: " in out
    assert "Maximum concurrency for 8,192 tokens per request: " in out


def test_memory_that_does_not_fit_is_an_answer():
    words = ("memory", "llama-3.1-405b", "--hardware", "h100_sxm", "--tp", "1")
    assert not answer(*words)["fits"]
    ran = run(*words)
    assert ran.code == 0 and "Does not fit: " in ran.out


def test_lists_are_complete():
    models = answer("models")["models"]
    assert tuple(row["name"] for row in models) == ij.list_models()
    llama = next(row for row in models if row["name"] == "llama-3.1-8b")
    arch = ij.load_model("llama-3.1-8b").architecture
    assert close(llama["parameters"], decoder.total(decoder.parameters(arch).values()))
    systems = answer("hardware")["hardware"]
    assert tuple(row["name"] for row in systems) == ij.list_systems()
    one = answer("hardware", "h100_sxm")["hardware"][0]
    assert {x["field"]: x["source"] for x in one["numbers"]}["chip.memory"].startswith("NVIDIA")
    assert [row["name"] for row in answer("estimators")["estimators"]] == list(VARIANTS)


@pytest.mark.parametrize(
    "words",
    [
        (*FRONTIER, "--no-picture"),
        (*PLANNED, "--tpot", "5ms"),
        ("memory", "deepseek-v3", "--hardware", "h200_sxm", "--tp", "8"),
        ("models",),
        ("hardware",),
        ("hardware", "tpu_v5e"),
        ("estimators",),
        ("frontier", "--help"),
    ],
)
def test_fits_eighty_columns_without_colour(words):
    ran = run(*words)
    assert ran.code == 0
    assert "\x1b" not in ran.out and "…" not in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_helps_with_an_example_and_has_what_all_have(verb):
    ran = run(verb, "--help")
    assert ran.code == 0
    assert f"Example: infer-jax {verb}" in ran.out
    assert "--json" in ran.out and "--quiet" in ran.out


def test_quiet_leaves_the_answer_alone(monkeypatch):
    words = ("memory", "llama-3.1-8b", "--hardware", "h100_sxm")
    output, quiet = run(*words), run(*words, "--quiet")
    assert quiet.code == 0
    assert output.out.startswith(quiet.out)
    assert output.out.removeprefix(quiet.out).startswith("\n- ")
    assert run(*words, "--json", "-q") == run(*words, "--json")
    assert run(*words) == output  # it holds for one command
    monkeypatch.setattr("sys.stderr", io.StringIO())
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert watched()
    set_quiet(True)
    assert not watched()
    set_quiet(False)


@pytest.mark.parametrize(
    ("words", "result"),
    [
        ("infer-jax es", {"estimate", "estimators"}),
        ("infer-jax estimate llama-3.3", {"llama-3.3-70b"}),
        ("infer-jax estimate llama-3.3-70b --hardware h200", {"h200_sxm"}),
        ("infer-jax estimate llama-3.3-70b --estimator serving.v", {"serving.vllm"}),
    ],
)
def test_the_tab_key_completes_verbs_and_names(words, result, monkeypatch):
    monkeypatch.setenv("_INFER_JAX_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    assert set(run().out.split()) == result


def test_no_words_are_a_question_for_help():
    assert run().out == run("--help").out


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("300ms", 0.3), ("0.3s", 0.3), ("300", 0.3), ("80us", 8e-5), (" 1e3 ms ", 1.0)],
)
def test_durations(text, seconds):
    kind = Time()
    assert kind.check(kind.parse(text)) == pytest.approx(seconds, rel=1e-12)


def test_a_frontier_is_of_layouts_that_engines_run():
    """Whole degrees, unless real ones are asked for: those are the paper's."""
    output = answer(*FRONTIER, "--no-picture")
    heads = 32  # query heads of the model
    for row in output["rows"]:
        assert row["gpus"] == row["tp"] * row["pp"] * row["ep"]
        assert row["tp"] in (1, 2, 4, 8) and heads % row["tp"] == 0 and row["pp"] % 1 == 0
    real = answer(*FRONTIER, "--no-picture", "--real-degrees")
    assert any(row["tp"] % 1 for row in real["rows"])
    # more layouts are tried among real numbers: none of them is beaten at its speed
    best = real["preferred"]
    faster = [r for r in output["rows"] if r["speed_tokens_per_s"] >= best["speed_tokens_per_s"]]
    cost = "output_cost_per_mtok_usd"
    assert min((r[cost] for r in faster), default=np.inf) >= best[cost] * (1 - 1e-6)
