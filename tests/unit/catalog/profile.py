"""A hardware profile to change a little, and what is said of it then."""

import pytest

from infer_jax.catalog.systems import load_system
from infer_jax.errors import InputError

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
