"""The two designs of LLMCompass (Zhang et al. 2024, ISCA, arXiv 2312.03134, Section V, Table IV).

Their speed is of a simulator of tiles and mappings; here it is a roofline of the same operators, of
which each takes the longer of its arithmetic and its traffic: one that the authors' figures must
be near, not equal to. Cases and batches are those of the authors' scripts (ae/figure10, figure12).
"""

from itertools import product

import numpy as np
import pytest

from infer_jax.silicon import area, nodes, power
from infer_jax.silicon.nodes import node
from tests.golden.test_chips import BARE, die_and_ends, lines

WIDTH, HEADS, LAYERS = 12288, 96, 12  # of GPT-3, one of eight stages
CASES = tuple(product((256, 512, 1024, 2048), range(256, 2049, 256)))  # prompts, outputs
PRINTED = {"latency": 0.95, "throughput": 1.42}  # of an A100's, means over the cases
HBM_USD = 560  # 80 GB, Table IV
CHEAPER = 0.583  # the throughput design, Section V-B: with its die, its memory is what remains


def design(where):
    """FLOP/s of fp16 and the cost of a die, USD, of a row of the table of areas."""
    row = next(x for x in lines("llmcompass_areas") if x["where"].endswith(where))
    count = nodes.dies_per_wafer(
        area.die_area(*die_and_ends(row), node("n7")).total, nodes.Wafer.of(**BARE)
    )
    speed = power.flops(
        float(row["cores"]), float(row["lanes"]), float(row["array"]), float(row["array"]), 1.41e9
    )
    return float(speed), float(nodes.die_cost(float(np.floor(count)), 1.0, node("n7")))


def layer_time(batch, new, context, flops, bandwidth):
    """Seconds of a layer: ``new`` tokens a sequence attend to ``context``, 16 bits a number."""
    tokens = batch * new

    def operator(work, numbers):
        return np.maximum(work / flops, 2 * numbers / bandwidth)

    time = 0.0
    for inner, outer in ((1, 3), (1, 1), (1, 4), (4, 1)):  # QKV, output, up, down
        k, n = inner * WIDTH, outer * WIDTH
        time += operator(2 * tokens * k * n, tokens * k + k * n + tokens * n)
    scores = HEADS * tokens * context
    keys = batch * context * WIDTH
    time = time + 2 * operator(2 * tokens * context * WIDTH, tokens * WIDTH + keys + scores)
    elementwise = 2 * scores + 2 * 2 * tokens * WIDTH + 2 * 4 * tokens * WIDTH
    return time + operator(0, elementwise)  # softmax, two norms, GELU: read and written


def request_time(batch, prompt, output, flops, bandwidth):
    """Seconds a layer from a prompt to its last token, decoding at every 64th length."""
    lengths = np.arange(prompt, prompt + output + 1, 64)
    decoding = np.trapezoid(layer_time(batch, 1, lengths, flops, bandwidth), lengths)
    return layer_time(batch, prompt, prompt, flops, bandwidth) + decoding


A100 = {"flops": design("192 KB")[0], "bandwidth": 5 * 1024 * 3.2e9 / 8}


def test_half_the_arrays_decode_as_fast():
    slower = {"flops": design("Table IV, latency")[0], "bandwidth": A100["bandwidth"]}
    found = {
        case: request_time(16, *case, **A100) / request_time(16, *case, **slower) for case in CASES
    }
    assert np.mean(list(found.values())) == pytest.approx(PRINTED["latency"], abs=0.02)
    # Section V-A: 80 % at the longest prompt with the shortest output, 99 % the other way about
    assert found[2048, 256] == pytest.approx(0.80, abs=0.05)
    assert found[256, 2048] == pytest.approx(0.99, abs=0.005)


def test_the_headline_is_3_41_times_the_performance_of_an_a100_by_cost():
    flops, die = design("Table IV, throughput")
    cheap = {"flops": flops, "bandwidth": 256 * 32e9 / 8}

    def throughput(capacity, case, **chip):
        weights = 2 * 12 * WIDTH**2 * LAYERS
        # keys and values of all layers, inputs and outputs of one, 16 bits a number
        token = (2 * 2 * LAYERS + 8) * WIDTH
        batch = np.floor((capacity - weights) / (token * sum(case)))
        return batch * case[1] / request_time(batch, *case, **chip)

    speeds = [throughput(512e9, x, **cheap) / throughput(80e9, x, **A100) for x in CASES]
    faster = float(np.exp(np.mean(np.log(speeds))))
    assert faster == pytest.approx(PRINTED["throughput"], rel=0.08)

    whole = design("192 KB")[1] + HBM_USD
    memory = whole * (1 - CHEAPER) - die
    assert 0.29 < memory / 512 < 0.31  # USD/GB: DDR's average spot price
    assert faster * whole / (die + memory) == pytest.approx(3.41, rel=0.08)
