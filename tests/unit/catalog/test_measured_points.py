"""Measured runs of a profile: they are read, refused in one sentence, and drawn in a report."""

import pytest

from infer_jax.catalog import load_system
from infer_jax.errors import InputError
from infer_jax.pages import charts
from infer_jax.plots.plan_chart import PlanChart, PlanPoint, PlanSeries
from infer_jax.specs import Workload
from infer_jax.verbs import inputs
from infer_jax.verbs.report_answers import measured_runs

HEAD = 'title = "mine"\nbase = "h100_sxm"\n'
RUN = """[[measured]]
model = "llama-3.1-8b"
gpus = 2
concurrency = 8
isl_tokens = 1000
osl_tokens = 201
ttft_ms = 100
tpot_ms = 10
"""


def profile(folder, text):
    path = folder / "mine.toml"
    path.write_text(HEAD + text, encoding="utf-8")
    return str(path)


def test_runs_are_read_and_a_file_above_keeps_them(tmp_path):
    system = load_system(profile(tmp_path, RUN + RUN.replace("concurrency = 8", "concurrency = 9")))
    one, other = system.measured
    assert one == ("llama-3.1-8b", 2.0, 8.0, 1000.0, 201.0, 0.1, 0.01)
    assert (other.concurrency, one.latency) == (9.0, pytest.approx(2.1))
    above = tmp_path / "above.toml"
    above.write_text('title = "above"\nbase = "mine.toml"\n', encoding="utf-8")
    assert load_system(str(above)).measured == system.measured
    assert load_system("h100_sxm").measured == ()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("gpus = 2\n", "", "measured.1 is 'gpus'; allowed: model, gpus"),
        ("gpus = 2\n", "gpus = 2\nchips = 2\n", "measured.1 is 'chips'"),
        ("gpus = 2", "gpus = 0", "measured.1.gpus is 0; allowed: a number above 0"),
        ("ttft_ms = 100", "ttft_ms = nan", "measured.1.ttft_ms is nan"),
        ("tpot_ms = 10", 'tpot_ms = "10"', "measured.1.tpot_ms is '10'"),
        ("tpot_ms = 10", "tpot_ms = true", "measured.1.tpot_ms is True"),
        ('model = "llama-3.1-8b"', "model = 8", "measured.1.model is 8"),
        (RUN, "measured = 3\n", "measured is 'int'"),
    ],
)
def test_a_run_that_cannot_be_is_refused_in_one_sentence(tmp_path, old, new, said):
    with pytest.raises(InputError, match=said) as wrong:
        load_system(profile(tmp_path, RUN.replace(old, new)))
    assert "\n" not in str(wrong.value)


def test_a_report_draws_the_runs_of_its_model_and_lengths(tmp_path):
    other = RUN.replace("llama-3.1-8b", "llama-3.1-70b")
    longer = RUN.replace("isl_tokens = 1000", "isl_tokens = 2000")
    path = profile(tmp_path, RUN + other + longer)
    system = inputs.setup("llama-3.1-8b", path, None, None, 3.6)
    work = Workload.of(isl=1050, osl=200, batch=1.0)
    (run,) = measured_runs({"mine": system, "mine, fp8": system}, work)
    # 8 requests take 2.1 s: two GPUs at 3.6 USD/h cost 0.002 USD/s
    assert run.numbers["speed"] == pytest.approx(100.0)
    assert run.numbers["rate"] == pytest.approx(8 * 201 / 2.1 / 2)
    assert run.numbers["usd"] == pytest.approx(1e6 * 0.002 * 2.1 / (8 * 1201))
    assert "8 requests in flight on 2 GPUs" in run.what
    numbers: dict[str, float | None] = {"speed": 50.0, "tpot": 20.0, "usd": 1.0}
    shown = PlanChart([PlanSeries("mine", 0)], [PlanPoint("mine", "TP1", 1, 1, numbers)], 0, [run])
    layers = charts.tradeoff(shown, still=True)["layer"]
    assert isinstance(layers, list) and "runs" in [layer.get("name") for layer in layers]
