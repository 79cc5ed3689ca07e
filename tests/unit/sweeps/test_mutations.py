"""Damaged SPACE and SPEC files are read or refused in one sentence, and nothing is compiled.

250 mutations of each; 20,000 with the slow tests.
"""

import random
import tomllib
from collections import Counter

import pytest

from infer_jax.catalog import load_system
from infer_jax.catalog.sense import sensible_changes
from infer_jax.design.toml import load_spec, spec_of
from infer_jax.errors import InputError
from infer_jax.sweeps.toml import load_space, space_of
from tests.unit.catalog.mutations import damaged, other, outcome

SPACE = """
estimator = "economics.planned"
feasible = "decode.feasible"
zip = [["plan.pp", "plan.dp"]]
[arch]
models = ["llama-3.1-8b", "qwen3-30b-a3b"]
quant = "fp8"
[hardware]
systems = ["h100_sxm", "h200_sxm"]
price = { linear = [1.5, 6, 10] }
[workload]
isl = 4096
osl = 512
batch = { log2 = [1, 1024, 10] }
[plan]
tp = { values = [1, 2, 4, 8] }
pp = { integers = [1, 2] }
dp = { values = [1, 2] }
[[where]]
product = ["plan.tp", "plan.pp"]
at_most = 16
[keep]
KEEP
"""
KEEPS = ('pareto = ["speed", "cost"]\nper = ["hardware"]\nepsilon = 0.01', 'top = 3\nby = "cost"',
         'best = "cost"\nunder = { ttft = 0.3 }\nmisses = 3', 'histogram = "tpot"\nedges = [0, 1]',
         'quantiles = "tpot"\nq = [0.1, 0.5]')  # fmt: skip
SPEC = """
estimator = "economics.planned"
second = "economics.planned"
[arch]
model = "llama-3.1-8b"
quant = "fp8"
[hardware]
system = "h100_sxm"
[workload]
isl = 8192
osl = 1024
[free]
width = [2048, 8192]
depth = [16, 128]
kv_heads = { values = [4, 8, 16] }
tp = [1, 8]
batch = [1, 512]
[start]
batch = 32
tp = 8
[objective]
best = "cost"
along = { tpot = [0.01, 0.02] }
[limits]
tpot = 0.030
[quality]
law = "chinchilla"
tokens = 15e12
served = 1e14
[search]
restarts = 2
steps = 10
[[where]]
value = "parameters"
at_least = 1e9
"""
READERS = {
    "space": (load_space, space_of, [SPACE.replace("KEEP", keep) for keep in KEEPS]),
    "spec": (load_spec, spec_of, [SPEC]),
}


def tried(reader, count, path, seed):
    """Half of them damaged as text, half as values of other types, depths and sizes."""
    load, of, good = READERS[reader]
    result = []
    for index, whole in enumerate(good):
        dice, table = random.Random(seed + index), tomllib.loads(whole)
        share = count // (2 * len(good))
        for data in damaged(whole.encode(), share, seed=seed + index):
            path.write_bytes(data)
            try:
                result.append(outcome(load, path))
            except Exception as error:
                raise AssertionError(data.decode("utf-8", "replace")) from error
        for _ in range(share):
            changed = other(table, dice)
            if not isinstance(changed, dict):  # which no TOML file is
                continue
            try:
                result.append(outcome(of, "x.toml", changed))
            except Exception as error:
                raise AssertionError(str(changed)) from error
    return result


@pytest.mark.parametrize("reader", READERS)
def test_mutations(reader, tmp_path):
    load, _, good = READERS[reader]
    for whole in good:
        (tmp_path / "x.toml").write_text(whole)
        load(tmp_path / "x.toml")
    counts = Counter(said == "read" for said in tried(reader, 250, tmp_path / "x.toml", 0))
    assert counts[False] > 125 and counts[True] > 5, counts


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_ten_times_as_many(reader, tmp_path):
    tried(reader, 20_000, tmp_path / "x.toml", 1)


def test_an_integer_beyond_every_float_is_out_of_bounds():
    with pytest.raises(InputError, match=r"chip\.memory_bandwidth.*allowed: 1e\+08 to 1e\+16"):
        sensible_changes("x.toml", "hardware", load_system("h100_sxm").hardware,
                         {"chip.memory_bandwidth": [10**400]})  # fmt: skip
