"""Profiles: numbers of no machine, misspelt tables, measured runs; and one to change a little."""

import pytest

from infer_jax.catalog import load_system, sheets
from infer_jax.catalog.systems import list_systems
from infer_jax.errors import InputError
from infer_jax.pages import charts
from infer_jax.plots.plan_chart import PlanChart, PlanPoint, PlanSeries
from infer_jax.specs import Workload, leaves
from infer_jax.verbs import inputs
from infer_jax.verbs.report_answers import measured_runs

GOOD = """\
title = "A chip"
price_usd_per_hour = { value = 2, source = "sheet" }
power_w = { value = 700, source = "sheet" }

[chip]
flops_16_tflops = { value = 100, source = "sheet" }
flops_8_tflops = { value = 0.2e3, source = "sheet", note = "FP8" }
memory_gib = { value = 32, source = "sheet" }
memory_bandwidth_tb_per_s = { value = 3.35, source = "sheet" }

[network]
kind = "hierarchy"
domain = { value = 8, source = "sheet" }
domain_bandwidth_gb_per_s = { value = 450, source = "sheet" }
network_bandwidth_gb_per_s = { value = 50, source = "sheet" }

[kernels]
launch_us = { value = 4, source = "sheet" }
flop_cap = { value = 0.7, source = "sheet" }

[sources]
sheet = "A data sheet, 2025"
"""


def load_text(folder, text, name="mine.toml"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return load_system(str(path))


def message(folder, text):
    with pytest.raises(InputError) as caught:
        load_text(folder, text)
    said = str(caught.value)
    assert "mine.toml" in said and "allowed:" in said and "\n" not in said
    return said


SLIPS = [
    # (what stands in GOOD, what a slip makes of it, the field)
    ("memory_bandwidth_tb_per_s = { value = 3.35", 3.35e-9, "chip.memory_bandwidth"),
    ("memory_bandwidth_tb_per_s = { value = 3.35", 3.35e9, "chip.memory_bandwidth"),
    ("flops_16_tflops = { value = 100", 1e-12, "chip.flops_16"),
    ("flops_16_tflops = { value = 100", 989e12, "chip.flops_16"),
    ("memory_gib = { value = 32", 32e9, "chip.memory"),
    ("domain = { value = 8", 1e9, "network.domain"),
    ("domain_bandwidth_gb_per_s = { value = 450", 0, "network.domain_bandwidth"),
    ("network_bandwidth_gb_per_s = { value = 50", 0, "network.network_bandwidth"),
    ("network_bandwidth_gb_per_s = { value = 50", 5e-20, "network.network_bandwidth"),
    ("price_usd_per_hour = { value = 2", 1e20, "price"),
    ("power_w = { value = 700", 1e-9, "power"),
    ("launch_us = { value = 4", 1e200, "kernels.launch"),
    ("flop_cap = { value = 0.7", 1e-30, "kernels.flop_cap"),
    ("flop_cap = { value = 0.7", 0, "kernels.flop_cap"),
]


@pytest.mark.parametrize(("entry", "slip", "field"), SLIPS)
def test_numbers_of_no_machine_are_refused_unless_named(tmp_path, entry, slip, field):
    assert entry in GOOD
    text = GOOD.replace(entry, entry[: entry.rindex(" ")] + f" {slip}")
    said = message(tmp_path, text)
    assert f'unchecked = ["{field}"]' in said and f"{field}" in said
    assert "machine" in said
    named = f'unchecked = ["{field}"]\n{text}'
    assert load_text(tmp_path, named).name == "mine"
    # the name lets pass this field and no other, and holds for this file alone
    other = named.replace("memory_gib = { value = 32", "memory_gib = { value = 1e30")
    if field != "chip.memory":
        assert "chip.memory_gib is 1e+30" in message(tmp_path, other)
    (tmp_path / "below.toml").write_text(named)
    assert load_text(tmp_path, 'title = "x"\nbase = "below.toml"\n').title == "x"


@pytest.mark.parametrize("name", list_systems())
def test_shipped_numbers_are_two_powers_of_ten_within_bounds(name):
    """So that no machine of the next years, or of the last ten, needs an exception."""
    for path, meta, value in leaves(load_system(name).hardware):
        low, high = sheets.FIELD_BOUNDS.get(path, sheets.UNIT_BOUNDS[meta["unit"]])
        if value and path not in ("network.domain", "network.axes", "price"):
            assert 100 * low <= value <= high / 100, path


def test_what_unchecked_names_is_in_the_profile(tmp_path):
    assert "chip.memory" in message(tmp_path, f'unchecked = ["chip.memry"]\n{GOOD}')
    assert "a list of fields" in message(tmp_path, f"unchecked = true\n{GOOD}")
    assert "did you mean unchecked?" in message(tmp_path, f"uncheked = []\n{GOOD}")


@pytest.mark.parametrize(
    ("table", "near"),
    [("kernals", "kernels"), ("econmics", "economics"), ("servings", "serving"),
     ("serving_band", "serving_bands"), ("ofloading", "offloading")],
)  # fmt: skip
def test_misspelt_tables_are_refused(tmp_path, table, near):
    assert f"[{near}]" in message(tmp_path, GOOD.replace("[kernels]", f"[{table}]"))


def test_tables_of_own_estimators_are_taken(tmp_path):
    for table in ("mine", "economics_mine", "serving_v2"):
        system = load_text(tmp_path, GOOD.replace("[kernels]", f"[{table}]"))
        assert system.coefficients[table]["flop_cap"] == 0.7


def test_an_integer_beyond_every_float_is_out_of_bounds():
    changes = {"chip.memory_bandwidth": [10**400]}
    with pytest.raises(InputError, match=r"chip\.memory_bandwidth.*allowed: 1e\+08 to 1e\+16"):
        sheets.sensible_changes("x.toml", "hardware", load_system("h100_sxm").hardware, changes)


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


def test_runs_are_read_and_a_file_above_keeps_them(tmp_path):
    one, other = load_text(tmp_path, HEAD + RUN + RUN.replace("= 8", "= 9")).measured
    assert one == ("llama-3.1-8b", 2.0, 8.0, 1000.0, 201.0, 0.1, 0.01)
    assert (other.concurrency, one.latency) == (9.0, pytest.approx(2.1))
    above = load_text(tmp_path, 'title = "above"\nbase = "mine.toml"\n', "above.toml")
    assert above.measured == (one, other)
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
    with pytest.raises(InputError, match=said):
        load_text(tmp_path, HEAD + RUN.replace(old, new))


def test_a_report_draws_the_runs_of_its_model_and_lengths(tmp_path):
    other = RUN.replace("llama-3.1-8b", "llama-3.1-70b")
    longer = RUN.replace("isl_tokens = 1000", "isl_tokens = 2000")
    path = load_text(tmp_path, HEAD + RUN + other + longer).path
    system = inputs.setup("llama-3.1-8b", str(path), None, None, 3.6)
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
