"""Hardware profiles: what ships is whole, cited and plausible; what is wrong is one sentence."""

import math
import re
import tomllib

import pytest

from infer_jax.catalog.systems import list_systems, load_system, profiles_folder
from infer_jax.errors import InputError
from infer_jax.specs import Hierarchy, Torus, leaves
from tests.unit.catalog.test_profiles import GOOD, load_text, message

SHIPPED = list_systems()


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_number_has_a_dated_source_and_is_plausible(name):
    system = load_system(name)
    assert system.name == name and system.title
    text = (profiles_folder() / f"{name}.toml").read_text(encoding="utf-8")
    assert set(tomllib.loads(text)["sources"]) == set(re.findall(r'source = "([^"]+)"', text))
    for path, meta, value in leaves(system.hardware):
        if path in system.sources:
            assert re.search(r"\b(19|20)\d\d\b", system.sources[path]), path
        else:  # only what a spec declares optional may be left out, and it is then zero
            optional = path.startswith("host.") or path in ("power", "network.pair_bandwidth")
            assert value == 0.0 and optional, path
        assert meta["low"] <= value <= meta["high"]
    for estimator, table in system.coefficients.items():
        for field in table:
            assert f"{estimator}.{field}" in system.sources
    hardware, chip = system.hardware, system.hardware.chip
    assert chip.flops_16 <= chip.flops_8 <= chip.flops_4
    # native narrow rates are 1, 2, 3 (FP4 of Blackwell Ultra) or 4 (INT8 of Groq) times wider ones
    for wide, narrow in ((chip.flops_16, chip.flops_8), (chip.flops_8, chip.flops_4)):
        assert min(abs(narrow / wide - k) for k in (1, 2, 3, 4)) < 0.06
    assert 0.2e9 < chip.memory < 400e9
    assert 0.3e12 <= chip.memory_bandwidth <= 80e12
    assert 0.1 < hardware.price < 20 and (hardware.power == 0 or 50 < hardware.power < 2000)
    network = hardware.network
    if isinstance(network, Hierarchy):
        assert network.network_bandwidth <= network.domain_bandwidth < chip.memory_bandwidth
        pairs = network.pair_bandwidth * (network.domain - 1)
        assert pairs == 0.0 or pairs == pytest.approx(network.domain_bandwidth)
    else:
        assert isinstance(network, Torus) and network.axes in (2, 3)
        assert network.link_bandwidth < chip.memory_bandwidth


COUNTS = {"one": 1, "four": 4, "six": 6, "seven": 7, "eight": 8}
UNITS = {"TB": 1e3, "GB": 1.0, "Gb": 1.0 / 8.0}


@pytest.mark.parametrize("name", SHIPPED)
def test_every_link_is_the_printed_rate_of_one_direction(name):
    """The number of the note: times links and lanes, over GPUs, half where it is of both ways."""
    text = (profiles_folder() / f"{name}.toml").read_text(encoding="utf-8")
    file = tomllib.loads(text)
    for table in ("network", "host"):
        for field, link in file.get(table, {}).items():
            if not re.search("(domain|network|link)_bandwidth", field):
                continue
            assert link["source"] in file["sources"]
            note, _, _ = link["note"].partition(";")
            found = re.search(r"([\d.]+) (TB|GB|Gb)/s", note)
            assert found is not None
            rate, unit = found.groups()
            before, after = note.split(f"{rate} {unit}/s")
            times = [COUNTS[word] for word in before.split() if word in COUNTS]
            among = re.search(r"for (\w+)(,| GPUs)", after)
            over = COUNTS.get(among[1]) or float(among[1]) if among else 1.0
            both = "both directions" in after
            assert both == ("halved" in after)
            assert both or field == "network_bandwidth_gb_per_s" or "one way" in after
            printed = float(rate) * UNITS[unit] * math.prod(times) / over
            assert link["value"] == pytest.approx(printed / (2.0 if both else 1.0), rel=4e-3)


RENT_CLASSES = {
    "a GPU cloud": {"Hyperstack", "CoreWeave", "Crusoe", "Lambda"},
    "a hyperscaler": {"Oracle", "Google"},
    "the maker's cloud": {"Google", "Amazon"},
    "a marketplace": {"RunPod"},
    "a quotation": {"TensorWave"},
    "an estimate": {"Signwl", "E."},
}


@pytest.mark.parametrize("name", SHIPPED)
def test_every_rent_is_of_one_class_of_provider_or_names_another(name):
    system = load_system(name)
    provider, source = system.sources["price"].split()[0], system.sources["price"]
    assert provider in RENT_CLASSES[system.rent_class], source
    if system.rent_class == "a GPU cloud":
        assert "price list, on demand" in source and re.search(r"read 2026-0[89]-\d\d", source)


def test_a_class_of_rent_is_that_of_its_price_alone(tmp_path):
    based = 'base = "mi355x"\ntitle = "mine"\n'
    own = 'price_usd_per_hour = { value = 4.0, source = "us", __ }\n[sources]\nus = "we, 2026"\n'
    assert load_text(tmp_path, based).rent_class == "a hyperscaler"
    assert load_text(tmp_path, based + own.replace(", __", "")).rent_class == ""
    named = based + own.replace("__", 'class = "ours"')
    assert load_text(tmp_path, named).rent_class == "ours"
    assert "class" in message(tmp_path, based + own.replace("__", 'class = ""'))
    power = own.replace("price_usd_per_hour", "power_w").replace("__", 'class = "ours"')
    assert "power_w.class is 'unknown'" in message(tmp_path, based + power)


# Facts from elsewhere than the profiles: papers that measure on these machines.


def test_peaks_and_bandwidths_of_the_economics_paper():
    """Erdil 2025 (arXiv:2506.04645): rounded peaks (2 %), A100 at 2.0 TB/s."""
    for name, peak_8, peak_16, bandwidth, memory, link in (
        ("h100_sxm", 2e15, 1e15, 3.3e12, 8e10, 2.25e11),
        ("h200_sxm", 2e15, 1e15, 4.8e12, 1.41e11, 2.25e11),
        ("h800_sxm", 2e15, 1e15, 3.3e12, 8e10, 1e11),
        ("h20_sxm", 2.96e14, 1.48e14, 4e12, 9.6e10, 2.25e11),
        ("a100_sxm", 6.24e14, 3.12e14, 2e12, 8e10, 1.5e11),
    ):
        hardware = load_system(name).hardware
        assert hardware.chip.flops_8 == pytest.approx(peak_8, rel=0.02), name
        assert hardware.chip.flops_16 == pytest.approx(peak_16, rel=0.02), name
        assert hardware.chip.memory_bandwidth == pytest.approx(bandwidth, rel=0.02), name
        assert hardware.chip.memory == memory, name
        assert isinstance(hardware.network, Hierarchy)
        # its all-reduce bandwidth is half of one direction of NVLink
        assert hardware.network.domain_bandwidth / 2 == pytest.approx(link), name


def test_caps_are_those_of_the_economics_paper():
    tables = {name: load_system(name).coefficients.get("economics") for name in SHIPPED}
    pairs = {name: (c["flop_cap"], c["memory_cap"]) for name, c in tables.items() if c}
    assert pairs.pop("v100_sxm_16gb") == pairs["v100_sxm"]
    assert pairs.pop("a100_sxm_40gb") == pairs["a100_sxm"]
    assert pairs == {
        "h100_sxm": (0.7, 0.75), "h800_sxm": (0.7, 0.75), "h20_sxm": (1.0, 0.75),
        "h200_sxm": (0.6, 0.75), "a100_sxm": (0.8, 0.75), "v100_sxm": (0.8, 0.75),
    }  # fmt: skip


def test_balance_points_of_infersim():
    """InferSim 2025: FP8 peak over bandwidth is 591 for the H800 and 74 for the H20."""
    for name, balance in (("h800_sxm", 591), ("h20_sxm", 74)):
        chip = load_system(name).hardware.chip
        assert round(float(chip.flops_8 / chip.memory_bandwidth)) == balance


def test_tpu_v4_of_pope():
    """Pope et al. 2022: 275 TFLOP/s, 32 GiB, 1200 GB/s, 270 GB/s of links (ours: 6 x 50)."""
    hardware = load_system("tpu_v4").hardware
    assert hardware.chip.flops_16 == 275e12 and hardware.chip.memory == 32 * 2**30
    assert hardware.chip.memory_bandwidth == 1.2e12
    assert isinstance(hardware.network, Torus)
    assert hardware.network.link_bandwidth == pytest.approx(270e9, rel=0.12)


def test_machine_of_flexgen():
    """Sheng et al. 2023, table 1: T4 16 GB, 208 GB of host memory, 1.5 TB SSD at 2 and 1 GB/s."""
    hardware = load_system("t4_host").hardware
    assert hardware.chip.memory == 16e9
    host = hardware.host
    assert (host.memory, host.disk, host.disk_read, host.disk_write) == (208e9, 1.5e12, 2e9, 1e9)
    # the bandwidth its authors fitted, 12.89 GiB/s, is below the data sheet's
    assert 12.89 * 2**30 < host.link_bandwidth < 20e9


def test_rates_are_dense():
    """The tensor-core peak of Ampere is 1024 FMA per SM and clock: 108 SM at 1.41 GHz."""
    a100 = load_system("a100_sxm").hardware.chip.flops_16
    assert a100 == pytest.approx(108 * 1.41e9 * 1024 * 2, rel=0.01)
    # Hopper has twice that: 132 SM at 1.83 GHz; a sparse rate would be off by two
    h100 = load_system("h100_sxm").hardware.chip.flops_16
    assert h100 == pytest.approx(132 * 1.83e9 * 2048 * 2, rel=0.01)
    # eight matrix units of 128 x 128 at 1.05 GHz (Jouppi et al. 2023)
    tpu = load_system("tpu_v4").hardware.chip.flops_16
    assert tpu == pytest.approx(8 * 128 * 128 * 1.05e9 * 2, rel=0.01)


# What a file says is what is loaded.


def test_units_kinds_and_sources(tmp_path):
    system = load_text(tmp_path, GOOD)
    hardware = system.hardware
    assert system.name == "mine" and system.path == tmp_path / "mine.toml"
    assert hardware.chip.flops_16 == 1e14 and hardware.chip.memory == 2**35
    assert hardware.chip.memory_bandwidth == pytest.approx(3.35e12, rel=1e-15)
    assert hardware.host.memory == 0.0
    assert system.coefficients == {"kernels": {"launch": 4 * 1e-6, "flop_cap": 0.7}}
    assert system.sources["chip.flops_8"] == "A data sheet, 2025 (FP8)"
    assert system.sources["kernels.launch"] == "A data sheet, 2025"


def test_missing_rates_are_filled_and_said(tmp_path):
    system = load_text(tmp_path, GOOD)
    assert system.filled == ("flops_4 missing: filled with flops_8",)
    assert system.hardware.chip.flops_4 == 2e14
    assert system.sources["chip.flops_4"].startswith("filled with flops_8: A data sheet")
    system = load_text(tmp_path, GOOD.replace("flops_8_tflops", "flops_4_tflops"))
    assert system.filled == ("flops_8 missing: filled with flops_16",)
    assert (system.hardware.chip.flops_8, system.hardware.chip.flops_4) == (1e14, 2e14)


def test_a_base_is_overridden_number_by_number(tmp_path):
    text = """
    base = "h100_sxm"
    title = "H100 with more memory"
    [chip]
    memory_tb = { value = 0.1, low = 0.08, high = 0.12, source = "guess" }
    [sources]
    guess = "assumed, 2026"
    """
    system, base = load_text(tmp_path, text), load_system("h100_sxm")
    assert system.hardware.chip.memory == 1e11
    assert system.hardware.chip.flops_16 == base.hardware.chip.flops_16
    assert system.coefficients == base.coefficients
    assert system.sources["chip.memory"] == "assumed, 2026 (80 % interval 0.08 to 0.12)"
    assert system.intervals == {"chip.memory": (8e10, 1.2e11)}
    assert system.sources["chip.flops_16"] == base.sources["chip.flops_16"]
    # and from a file beside it, whose rates are filled after the change
    (tmp_path / "child.toml").write_text(
        'base = "mine.toml"\ntitle = "faster"\n'
        '[chip]\nflops_8_pflops = { value = 4, source = "guess" }\n'
    )
    assert load_system(tmp_path / "child.toml").hardware.chip.flops_4 == 4e15
    assert load_system(tmp_path / "child.toml").hardware.chip.memory == 1e11
    # another value leaves the interval of the base's behind
    text = text.replace("h100_sxm", "mine.toml").replace(", low = 0.08, high = 0.12", "")
    (tmp_path / "known.toml").write_text(text)
    assert not load_system(tmp_path / "known.toml").intervals


def test_another_network_replaces_that_of_the_base(tmp_path):
    text = """
    base = "h100_sxm"
    title = "H100 on a torus"
    [network]
    kind = "torus"
    axes = { value = 3, source = "guess" }
    link_bandwidth_gb_per_s = { value = 300, source = "guess" }
    [sources]
    guess = "assumed, 2026"
    """
    network = load_text(tmp_path, text).hardware.network
    assert isinstance(network, Torus) and network.link_bandwidth == 3e11
    without = message(tmp_path, re.sub(r"link_bandwidth.*", "", text))
    assert "network.link_bandwidth is missing" in without


def test_the_examples_of_the_documentation_load(tmp_path):
    page = profiles_folder().parent / "docs" / "hardware-profiles.md"
    if not page.exists():
        pytest.skip("an installation without its documentation")
    examples = re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 2
    chip, faster = (load_text(tmp_path, text) for text in examples)
    assert chip.hardware.power == 700 and chip.coefficients["economics"]["flop_cap"] == 0.7
    twice = 2 * load_system("h100_sxm").hardware.chip.memory_bandwidth
    assert faster.hardware.chip.memory_bandwidth == pytest.approx(twice)


# What is wrong is told in one sentence with file, field, value and what is allowed.
BANDWIDTH = "memory_bandwidth_tb_per_s"


@pytest.mark.parametrize(
    "old, new, output",
    [
        ("memory_gib", "memory_tflops", ("chip.memory_tflops", "memory (bytes)", "memory_gb")),
        ("memory_gib", "memry_gib", ("chip.memry_gib", "did you mean memory_gib?")),
        (BANDWIDTH, "memory_bandwith_tb_per_s", (f"did you mean {BANDWIDTH}?",)),
        (BANDWIDTH, "memory_bandwidth_tb", ("not in a unit of memory_bandwidth (bytes/s)",)),
        ("title =", "titel =", ("titel", "did you mean title?")),
        ("title = 'A chip'", "", ("title is missing", "called")),
        ("power_w", "power", ("not in a unit of power (W)", "power_w")),
        ("[chip]", "[chips]", ("[chips]", "[chip]")),
        ("memory_gib = { value = 32, source = 'sheet' }", "", ("chip.memory is missing",)),
        ("value = 700", "value = 700, low = 600", ("power_w.low is '600'", "two numbers")),
        ("value = 700", "value = 7, low = 9, high = 8", ("power_w.low is '9, 8'", "this order")),
        ("value = 700", "value = -700", ("power_w is -700", "at least 0 W")),
        ("value = 700", "value = nan", ("power_w is nan", "at least 0 W")),
        ("value = 700", "value = '700'", ("power_w is '700'", "a number")),
        ("value = 700", f"value = {'9' * 400}", ("power_w", "below 1e300")),
        ("value = 700", f"value = 0x{'f' * 5000}", ("power_w", "a number")),
        ("launch_us", '"two\\nlines.x"', ("'two lines.x'", "underscores")),
        ("value = 32", "value = 0", ("chip.memory_gib is 0", "a number above 0")),
        ("domain = { value = 8", "domain = { value = 0.5", ("network.domain is 0.5", "least 1")),
        ("{ value = 700, source = 'sheet' }", "700", ("power_w is '700'", "source = key")),
        ("value = 700, source = 'sheet'", "value = 7, source = 'shet'", ("'shet'", "sheet")),
        ("source = 'sheet' }\n\n[chip]", "source = 'sheet', unit = 1 }\n\n[chip]", ("unit",)),
        ("note = 'FP8'", "note = 8", ("flops_8_tflops.note is '8'", "a text")),
        ("'hierarchy'", "'ring'", ("network.kind is 'ring'", "hierarchy or torus")),
        ("kind = 'hierarchy'\n", "", ("network.kind is missing", "hierarchy or torus")),
        ("[network]", "[host]", ("host.kind is 'unknown'", "link_bandwidth")),
        ("launch_us", "launch_kb_per_s", ("kernels.launch_kb_per_s", "gb_per_s")),
        ("launch_us", "launch_ms = { value = 1, source = 'sheet' }\nlaunch_us", ("a second",)),
        ("'A data sheet, 2025'", "''", ("sources.sheet", "not empty")),
        (
            "sheet = 'A data sheet, 2025'",
            "",
            ("chip.flops_16_tflops.source", "[sources], which is empty"),
        ),
        ("title = 'A chip'", "title = 'A chip'\nbase = 'mine.toml'", ("base", "lead back")),
        ("title = 'A chip'", "title = 'A chip'\nbase = 'none.toml'", ("none.toml", "no such file")),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path, old, new, output):
    text = GOOD.replace('"', "'")
    assert old in text
    with pytest.raises(InputError) as caught:
        load_text(tmp_path, text.replace(old, new, 1))
    said = str(caught.value)
    assert ".toml: " in said and "allowed: " in said and "\n" not in said
    assert all(word in said for word in output), said


@pytest.mark.parametrize(
    "name, near", [("h100_nvl", "h100_sxm"), ("TPU_V9", "tpu_v4"), ("", "a100")]
)
def test_an_unknown_name_lists_the_known_ones(name, near):
    with pytest.raises(InputError) as caught:
        load_system(name)
    said = str(caught.value)
    assert f"name is '{name}'" in said and near in said


@pytest.mark.parametrize(
    ("name", "system"),
    [("H100", "h100_sxm"), ("h100-sxm", "h100_sxm"), ("MI300X", "mi300x"), ("GB200", "gb200_nvl72"),
     ("TPU-v5e", "tpu_v5e"), ("H100-PCIe", "h100_pcie")],
)  # fmt: skip
def test_a_close_name_is_its_profile(name, system):
    assert load_system(name).name == system


def test_chains_of_bases_end(tmp_path):
    """A thousand files, each the base of the one before, are not read to the end."""
    (tmp_path / "0.toml").write_text(GOOD)
    for i in range(1, 1000):
        (tmp_path / f"{i}.toml").write_text(f'title = "{i}"\nbase = "{i - 1}.toml"\n')
    assert load_system(tmp_path / "8.toml").title == "8"
    with pytest.raises(InputError, match="at most 8 files"):
        load_system(tmp_path / "9.toml")
    with pytest.raises(InputError, match="at most 8 files"):
        load_system(tmp_path / "999.toml")
