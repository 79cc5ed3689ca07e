"""`infer-jax calibrate` and `compare`: what they answer, what they write, what they refuse."""

import csv
import json
import statistics
from pathlib import Path

import jax.numpy as jnp
import pytest
from jax import Array

import infer_jax as ij
from infer_jax.catalog import load_system
from infer_jax.estimators.estimate import Limit, Phase
from infer_jax.estimators.estimator import Estimator
from infer_jax.physics import decoder
from infer_jax.physics.decoder import total
from infer_jax.specs import number, spec
from tests.cli.running import answer, answered_once, as_command, run

RUNS = Path(__file__).parent.parent / "data" / "server" / "runs.csv"
SERVER = ("--config", "llama-3.1-8b", "--hardware", "h100_sxm")
POINT = ("llama-3.1-8b", "--tp", "1", "--isl", "1000", "--osl", "200", "--batch", "8")


def test_runs_become_a_profile_that_estimate_takes(tmp_path):
    actual = answer("calibrate", str(RUNS), *SERVER, "--out", "mine.toml", "--out", "mine.png")
    errors = actual["errors"]
    kinds = ("sheet", "before", "after", "held_out")
    tpot, ttft = ([errors[k][n]["median_percent"] for k in kinds] for n in ("tpot", "ttft"))
    assert tpot[0] > tpot[1] > tpot[3] > tpot[2] and ttft[0] > max(ttft[1:])
    assert tpot[3] < 10 and ttft[3] < 20
    for one in actual["parameters"]:
        assert one["interval95"][0] < one["interval80"][0] < one["value"] < one["interval80"][1]
        assert one["verdict"]
    assert len(actual["worst"]) == 5 and "line" in actual["worst"][0]["run"]
    assert actual["next"]
    assert {p.name for p in tmp_path.iterdir()} == {"mine.toml", "mine.png"}

    system, sheet = load_system("mine.toml"), load_system("h100_sxm")
    assert system.hardware.chip == sheet.hardware.chip
    fitted = {one["name"]: one["value"] for one in actual["parameters"]}
    for name, value in fitted.items():
        assert system.coefficients["serving"][name] == pytest.approx(value, rel=1e-3)

    # the runs stand in it, each a point of a report's chart
    names = ("concurrency", "isl", "osl", "ttft_mean_ms", "tpot_mean_ms")
    with RUNS.open() as rows:
        runs = [[float(row[name]) for name in names] for row in csv.DictReader(rows)]
    kept = [(m.concurrency, m.isl, m.osl, 1e3 * m.ttft, 1e3 * m.tpot) for m in system.measured]
    assert kept == [pytest.approx(row) for row in runs]
    assert {(m.model, m.gpus) for m in system.measured} == {("llama-3.1-8b", 1.0)}

    # every other verb reads it; estimate shows the interval that the profile holds
    plain = answer("estimate", *POINT, "--hardware", "h100_sxm", "--estimator", "serving")
    output = answer("estimate", *POINT, "--hardware", "mine.toml", "--estimator", "serving")
    with RUNS.open() as rows:
        measured = next(float(r["tpot_mean_ms"]) for r in csv.DictReader(rows)
                        if (r["concurrency"], r["isl"]) == ("8", "1000"))  # fmt: skip
    assert abs(output["tpot_ms"] / measured - 1) < abs(plain["tpot_ms"] / measured - 1)
    low, high = output["tpot_interval80_ms"]
    assert low < output["tpot_ms"] < high and low < measured < high
    assert (low, high) != pytest.approx(tuple(plain["tpot_interval80_ms"]))
    assert output["trust"]["calibrated_to_layouts"] == ["TP1"]
    assert "outside" not in output["trust"]["says"]
    for word, changed in (
        ("qwen3-8b", ("qwen3-8b", *POINT[1:])),
        ("TP2", ("llama-3.1-8b", "--tp", "2", *POINT[3:])),
        ("fp8", (*POINT, "--quant", "fp8")),
        ("a changed number", (*POINT, "--set", "hardware.chip.memory_bandwidth=2e12")),
    ):
        outside = answer("estimate", *changed, "--hardware", "mine.toml", "--estimator", "serving")
        assert f"Here, {word}" in outside["trust"]["says"]
        assert "is outside of what was measured" in outside["trust"]["says"]
        assert outside["trust"]["calibrated_to_layouts"] == []
        for name in ("tpot", "ttft"):  # no narrower than on the system as it ships
            shipped, own = plain, output
            ends = [[x / y[f"{name}_ms"] for x in y[f"{name}_interval80_ms"]]
                    for y in (outside, shipped, own)]  # fmt: skip
            assert ends[0][1] >= max(ends[1][1], ends[2][1]) * 0.99
            assert ends[0][0] <= min(ends[1][0], ends[2][0]) * 1.01
    Path("faster.toml").write_text(
        'title = "faster"\nbase = "mine.toml"\n[chip]\n'
        'memory_bandwidth_gb_per_s = { value = 4000, source = "me" }\n[sources]\nme = "a test"\n'
    )
    faster = answer("estimate", *POINT, "--hardware", "faster.toml", "--estimator", "serving")
    assert "does not say which model and layouts" in faster["trust"]["says"]
    other = run("estimate", *POINT, "--hardware", "mine.toml", "--estimator", "serving.sglang")
    assert other.code == 2 and "another engine" in other.err
    assert answer("hardware", "mine.toml")["hardware"][0]["title"].endswith("llama-3.1-8b")

    beside = answer("compare", "llama-3.1-8b", "--hardware", "mine.toml", "--measured", str(RUNS))
    one = beside["runs"][1]
    assert one["measured"]["tpot_ms"] == measured
    assert one["predicted"]["answers"]["tpot_ms"] == pytest.approx(output["tpot_ms"], rel=1e-9)
    terms = one["predicted"]["decode_ms"]
    assert sum(terms.values()) == pytest.approx(output["tpot_ms"], rel=1e-6)


def test_the_verb_is_what_the_command_prints(tmp_path):
    fit = ij.calibrate(*POINT[:1], "h100_sxm", RUNS, out="a.toml", parameter="decode_factor")
    assert (tmp_path / "a.toml").exists() and not (tmp_path / "a.png").exists()
    words = ("calibrate", str(RUNS), *SERVER, "--out", "a.toml", "--parameter", "decode_factor")
    said, text = answered_once(*words)
    assert {"schema": said["schema"], **as_command(fit)[0]} == said
    assert as_command(fit)[1].split() == text.split()
    assert any("closed form" in note and "--save-detailed" in note for note in said["notes"])
    for one in said["parameters"]:
        assert fit.intervals[one["name"]] == tuple(one["interval80"])
    assert len(fit.plot().axes) == 2
    model, system = ij.load_model("llama-3.1-8b"), ij.load_system("h100_sxm")
    with pytest.raises(ij.InputError, match=r"^calibrate: out is"):
        ij.calibrate(model, system.hardware, RUNS, out="b.toml")
    with pytest.raises(ij.InputError, match="another file than hardware"):
        ij.calibrate(model, ij.load_system("a.toml"), RUNS, out="a.toml")


def test_a_fit_that_is_no_better_than_what_it_started_from_says_so(tmp_path):
    """Runs as slow as the profile says leave nothing to fit."""
    fit = ij.calibrate("llama-3.1-8b", "h100_sxm", RUNS, parameter="decode_factor")
    assert not any("no better" in note for note in fit.notes)
    with RUNS.open() as lines:
        rows = list(csv.DictReader(lines))
    for row, tpot, ttft in zip(rows, *fit.server.times.predictions["before"], strict=True):
        row |= {"tpot_mean_ms": str(1e3 * tpot), "ttft_mean_ms": str(1e3 * ttft)}
    with Path("same.csv").open("w") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    fit = ij.calibrate("llama-3.1-8b", "h100_sxm", "same.csv", parameter="decode_factor")
    assert sum("no better than what it started from" in note for note in fit.notes) == 1


@spec
class Reading(Estimator):
    """A user's estimator: a pass reads the weights once, and each token takes some time more."""

    table = "reading"
    reached: Array = number("share of bandwidth reached", kind="fraction", high=1, default=0.9)
    token: Array = number("of a token", unit="s", kind="time", default=1e-5)
    unused: Array = number("of nothing", unit="s", kind="time", default=1e-3)

    def step(self, arch, hardware, forward, plan):
        """Seconds of a pass."""
        weights = total(decoder.weight_bytes(arch).values()) / plan.instance
        reading = weights / (hardware.chip.memory_bandwidth * self.reached)
        tokens = forward.sequences * forward.new_tokens * self.token
        limits = {"memory": Limit(need=weights, capacity=hardware.chip.memory)}
        terms = {"weights": reading, "tokens": tokens}
        return Phase(
            time=reading + tokens, terms=terms, limits=limits, mfu=jnp.zeros_like(reading),
            layout={},
        )  # fmt: skip


def test_an_estimator_of_a_user_is_calibrated(tmp_path):
    """Its own numbers are fitted within their bounds, written to a profile and read from it."""
    fit = ij.calibrate("llama-3.1-8b", "h100_sxm", RUNS, estimator=Reading.of(), out="mine.toml")
    values = fit.server.fit.values
    assert set(values) == {"reached", "token", "unused"} and 0.0 < values["reached"] <= 1.0
    errors = fit.errors
    assert set(errors) == {"before", "after", "held_out"}  # it has no data sheet of its own
    before, after = errors["before"]["ttft"], errors["after"]["ttft"]
    assert before and after and after.median < before.median
    verdicts = {one["name"]: one["verdict"] for one in fit.rows()}
    assert verdicts["token"] == "identified" != verdicts["unused"]
    assert values["unused"] == pytest.approx(1e-3) and "closed form" in str(fit)
    read = Reading.of().fitted_to(load_system("mine.toml").coefficients)
    assert float(read.token) == pytest.approx(values["token"], rel=1e-3)
    assert set(load_system("mine.toml").bands("reading")) == {"ttft", "tpot"}


def test_a_misspelt_coefficient_of_an_engine_is_refused(tmp_path):
    entry = 'layer_gapp_us = { value = 60, source = "me" }'
    lines = ('title = "mine"', 'base = "h100_sxm"', "[serving.vllm]", entry)
    lines += ("[sources]", 'me = "a guess"')
    (tmp_path / "mine.toml").write_text("\n".join(lines))
    ran = run("estimate", *POINT, "--hardware", "mine.toml", "--estimator", "serving")
    assert ran.code == 2 and "layer_gapp" in ran.err and ran.err.count("\n") == 1


def test_errors_of_predictions_are_summed_up_by_what_was_measured():
    words = ("compare", "llama-3.1-8b", "--hardware", "h100_sxm", "--measured", str(RUNS))
    said, printed = answered_once(*words)
    rows = {row["answer"]: row for row in said["errors"]}
    assert {"ttft_ms", "tpot_ms"} <= rows.keys()
    for name, row in rows.items():
        pairs = [(x["predicted"]["answers"], x["measured"]) for x in said["runs"]]
        each = [100 * (a[name] / b[name] - 1) for a, b in pairs if name in b]
        assert row["runs"] == len(each)
        assert row["mean_error_percent"] == pytest.approx(sum(map(abs, each)) / len(each))
        assert row["median_error_percent"] == pytest.approx(statistics.median(map(abs, each)))
        assert row["median_signed_error_percent"] == pytest.approx(statistics.median(each))
    assert "errors of predictions" in printed


def result(**changes):
    """A file of vLLM's client with some fields changed."""
    source = RUNS.parent.parent / "measurements" / "vllm.json"
    table = json.loads(source.read_text())
    plain = {k: v for k, v in table.items() if not k.startswith("spec_decode")}
    return {k: v for k, v in {**plain, **changes}.items() if v != "absent"}


HEAD = "engine,model,precision,tp,isl,osl,concurrency,tpot_mean_ms\n"
FILES = {
    "another kind": ({"hello": 1}, "unrecognised"),
    "failed": (result(failed=20, completed=44), "failed"),
    "no load": (result(max_concurrency=None), "concurrency"),
    "another model": (result(model_id="Qwen/Qwen3-32B"), "Qwen3-32B"),
    "drafts": (result(spec_decode_num_drafts=10), "drafts"),
    "two engines": (HEAD + "vllm,,,1,1000,100,8,10\nsglang,,,1,1000,100,8,10\n", "line 3"),
    "some with drafts": (
        HEAD.replace("\n", ",itl_mean_ms\n")
        + "vllm,,,1,1000,100,8,10,10\nvllm,,,1,1000,100,16,6,13\n",
        "1 of 2 runs",
    ),
    "another format": (HEAD + "vllm,,fp8,1,1000,100,8,10\n", "precision"),
    "a contradiction": (HEAD + "vllm,,,1,1000,100,8,10\nvllm,,,1,1000,100,8,30\n", "line 2"),
    "too few": (HEAD + "vllm,,,1,1000,100,8,10\n", "at least 2"),
}


@pytest.mark.parametrize(("contents", "said"), FILES.values(), ids=FILES)
def test_a_bad_file_is_one_sentence(contents, said, tmp_path):
    text = contents if isinstance(contents, str) else json.dumps(contents)
    (tmp_path / "run.txt").write_text(text)
    ran = run("calibrate", "run.txt", *SERVER, "--tp", "1", "--out", "mine.toml",
              "--parameter", "decode_factor", "--parameter", "vllm.front")  # fmt: skip
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err and ran.err.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["run.txt"]


def test_a_run_and_estimate_differ_by_what_is_said_beside_it(tmp_path):
    """A benchmark's start counts in its prediction; what `estimate` says stands below it."""
    (tmp_path / "run.csv").write_text(
        "engine,model,system,chips,tp,isl,osl,concurrency,completed,ttft_mean_ms,tpot_mean_ms\n"
        "vllm,llama-3.1-8b,h100_sxm,1,1,1000,200,64,640,300,12\n"
    )
    words = ("compare", "llama-3.1-8b", "--hardware", "h100_sxm", "--measured", "run.csv")
    printed, text = answered_once(*words)
    (said,) = printed["runs"]
    lone = answer("estimate", "llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "1", "--isl",
                  "1000", "--osl", "200", "--concurrency", "64")  # fmt: skip
    for name in ("ttft_ms", "tpot_ms"):
        assert said["predicted_running_on"][name] == pytest.approx(lone[name], rel=2e-6)
    start = said["predicted"]["prefill_ms"]["first wave"]
    assert start > 0.2 * lone["ttft_ms"]
    assert said["predicted"]["answers"]["ttft_ms"] == pytest.approx(lone["ttft_ms"] + start)
    assert "its first 64 requests come all at once" in " ".join(text.split())


def test_what_a_file_lacks_of_a_benchmark_is_an_option(tmp_path):
    """Requests of the run and looks for new ones, as the file that says them and as `estimate`."""
    head = "engine,model,system,chips,tp,isl,osl,concurrency"
    times, row = ",ttft_p50_ms,tpot_mean_ms\n", "sglang,llama-3.1-8b,h100_sxm,1,1,1000,200,64"
    (tmp_path / "said.csv").write_text(f"{head},completed,polling{times}{row},640,9,150,12\n")
    (tmp_path / "run.csv").write_text(f"{head}{times}{row},150,12\n")
    base = ("compare", "llama-3.1-8b", "--hardware", "h100_sxm", "--measured")
    given = ("--prompts", "640", "--polling", "9")
    (said,), (asked,) = (
        answer(*base, *words)["runs"] for words in (("said.csv",), ("run.csv", *given))
    )
    assert said["predicted"] == asked["predicted"]
    # a median is set against a median, in which there is nothing of the start
    assert "ttft_ms" not in said["measured"] and said["measured"]["ttft_median_ms"] == 150.0
    predicted = said["predicted"]["answers"]
    point = (*("estimate", "llama-3.1-8b", "--hardware", "h100_sxm", "--tp", "1", "--isl", "1000"),
             *("--osl", "200", "--concurrency", "64", "--estimator", "serving.sglang"))  # fmt: skip
    lone = answer(*point, *given)
    for name in ("ttft_ms", "ttft_median_ms", "tpot_ms"):
        assert predicted[name] == pytest.approx(lone[name], rel=2e-6)
    looks = ("--polling", "9", "--parameter", "decode_factor")
    words = ("calibrate", "run.csv", "--config", "llama-3.1-8b", "--hardware", "h100_sxm")
    notes = answer(*words, "--out", "mine.toml", *looks)["notes"]
    assert any(note.startswith("TTFT of a run is a median") for note in notes)
