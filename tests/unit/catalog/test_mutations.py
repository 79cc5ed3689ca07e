"""Damaged files of every format are read or refused in one sentence, quickly and without a crash.

200 mutations for every reader; 20,000 with the slow tests.
"""

import copy
import json
import random
import resource
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infer_jax.catalog.acceptance import read_acceptance
from infer_jax.catalog.foreign import read_toml
from infer_jax.catalog.kernel_tables import load_kernel_tables
from infer_jax.catalog.measurements import read_kernels, read_runs
from infer_jax.catalog.measurements.silicon import published_rows
from infer_jax.catalog.models import BUNDLED, load_model
from infer_jax.catalog.systems import load_system, profiles_folder
from infer_jax.catalog.traces import read_trace
from infer_jax.design.toml import load_spec, spec_of
from infer_jax.errors import InputError
from infer_jax.sweeps.toml import space_of
from tests.cli.test_frontier import SPACE
from tests.unit.design.test_toml import GOOD as SPEC

SECONDS = 2.0  # of the processor, for one file of some kilobytes

WORDS = [b"null", b"[]", b"{}", b"-1", b"0", b"1e999", b"NaN", b"true", b'"', b",", b"\n", b"\xff"]
WORDS += [b"\x1b[31m", b"\x00", b"[" * 70, b'{"a":' * 70, b"9" * 400, b"&a [*a]", b"!!binary x"]
WORDS += [b"1e-320", b"\xc2\xb2", b"\xd9\xa3", b"2020-99-99", b"re:(a*)*$", b"%", b"..", b"\r"]
WORDS += [b"1_0", b"0x1F", b"inf", b"-0", b'"\\ud800"', b"=1+1", b"'''", b"#", b"- ", b": ", b"\t"]
VALUES: list[Any] = [None, True, False, 0, -1, 1, 3.7, 1e308, 1e-320, 10**30, 10**310, "", "x"]
VALUES += ["\x1b]0;t\x07", "\ud800", "nan", "1e999", [], {}, [[]], [{}], [None], ["x"], {"a": {}}]
VALUES += [{"": None}, [1, "x"], "x" * 5000, "9" * 5000, float("inf"), float("nan"), -1e300]
VALUES += [json.loads("[" * 60 + "]" * 60)]


def outcome(read: Callable[..., Any], *arguments: Any) -> str:
    """What a reader makes of a file: "read", or the sentence with which it is refused."""
    begun = time.process_time()
    try:
        read(*arguments)
        said = "read"
    except InputError as error:
        said = str(error)
        assert "\n" not in said and said.isprintable() and len(said) <= 3000, said
        assert "allowed: " in said
    assert time.process_time() - begun < SECONDS
    return said


def damaged(whole: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    """``count`` damaged copies of a file; those of JSON also get values of other kinds."""
    dice = random.Random(seed)
    documents = _documents(whole)
    for _ in range(count):
        if documents and dice.random() < 0.6:
            changed = [other(one, dice) for one in documents]
            yield "\n".join(json.dumps(one) for one in changed).encode("utf-8", "surrogatepass")
        else:
            yield _cut(whole, dice)


def _documents(whole: bytes) -> list[Any]:
    try:
        return [json.loads(whole)]
    except ValueError:
        pass
    try:
        return [json.loads(line) for line in whole.splitlines() if line.strip()]
    except ValueError:
        return []


def _cut(whole: bytes, dice: random.Random) -> bytes:
    """Words put in, cells and lines replaced, doubled or left out, at one to four places."""
    for _ in range(dice.choice((1, 1, 2, 4))):
        at = dice.randrange(len(whole) + 1)
        kind = dice.randrange(4)
        if kind == 0:
            whole = whole[:at] + dice.choice(WORDS) + whole[at + dice.choice((0, 0, 1, 20)) :]
        elif kind == 1:  # a cell or a word
            start = max(whole.rfind(mark, 0, at) for mark in b",\n \t:") + 1
            ends = [whole.find(mark, at) for mark in b",\n \t:"]
            end = min((one for one in ends if one >= 0), default=len(whole))
            whole = whole[:start] + dice.choice(WORDS) + whole[end:]
        else:
            lines = whole.split(b"\n")
            line = dice.randrange(len(lines))
            lines[line : line + 1] = dice.choice(([], [lines[line]] * 2, [dice.choice(WORDS)]))
            whole = b"\n".join(lines)
    return whole


def other(value: Any, dice: random.Random) -> Any:
    """A copy with one to three values, keys or containers replaced."""
    value = json.loads(json.dumps(value))
    for _ in range(dice.choice((1, 1, 2, 3))):
        places = [(None, None), *_places(value)]
        owner, key = dice.choice(places)
        if owner is None:
            if dice.random() < 0.1:
                return copy.deepcopy(dice.choice(VALUES))
        elif dice.random() < 0.15:
            del owner[key]
        else:
            owner[key] = copy.deepcopy(dice.choice(VALUES))
            if isinstance(owner, dict) and dice.random() < 0.1:
                owner[dice.choice(("", "x\x1b[2J", "p99_ttft_ms", "re:(a+)+"))] = 1
    return value


def _places(value: Any) -> list[tuple[Any, Any]]:
    result, level = [], [value] if isinstance(value, dict | list) else []
    while level:
        owner = level.pop()
        for key in list(owner) if isinstance(owner, dict) else range(len(owner)):
            result.append((owner, key))
            if isinstance(owner[key], dict | list):
                level.append(owner[key])
    return result


DATA = Path(__file__).resolve().parents[2] / "data"
FEW, MANY = 200, 20_000
MEMORY = 512 * 1024  # kB above what the process had: nothing swells


def _files(folder, *names):
    return [(DATA / folder / name).read_bytes() for name in names]


def _bundled(*names):
    return [json.dumps(json.loads((BUNDLED / f"{n}.json").read_text())["config"]).encode()
            for n in names]  # fmt: skip


RUNS = ("vllm.json", "sglang.jsonl", "aiperf.json", "aiperf.csv", "aiperf_records.jsonl")
RUNS += ("inferencex.json", "mlperf_log_detail.txt", "runs.csv")
KERNELS = ("nccl_all_gather.json", "nccl_all_reduce.txt", "microbenchmarks.json")
TRACES = ("azure.csv", "burstgpt.csv", "mooncake.jsonl", "vidur.csv", "vllm_detailed.json")
TRACES += ("llmservingsim.jsonl", "llmservingsim_run.jsonl", "apex.jsonl", "sharegpt.json")
MODELS = ("llama-3.1-8b", "deepseek-v3", "qwen3-30b-a3b", "gpt-oss-120b", "kimi-k2.5")
MODELS += ("nemotron-h-8b", "qwen3-next-80b-a3b", "gemma-3-27b", "minimax-m2.5", "opt-13b")
TABLE = b"""m,k,n,latency_us,mfu
128,4096,4096,10.5,0.31
256,4096,4096,19.0,0.42
"""
DECODE = b"""kv_dtype,batch_size,kv_len,latency_us,mfu
bf16,1,1024,12.5,0.05
fp8,16,4096,80,0.2
"""
SILICON = b"id,silicon_data_source,backend,backend_version,model_path,system,precision,mode,isl,"
SILICON += b"osl,batch_size,tp_size,attention_dp_size,moe_tp_size,moe_ep_size,pp_size,"
SILICON += b"silicon_ttft_ms,silicon_tpot_ms,prefill_num_workers,decode_num_workers,prefill_tp_size"
SILICON += b"""
a,measured=2025-01-01;silicon_concurrency=8,trtllm,1,Qwen/Qwen3-32B,h200_sxm,fp8,agg,1024,128,8,2,\
1,1,1,1,100,10,,,
b,x,trtllm,1,deepseek-ai/DeepSeek-V3,gb200,fp4,disagg,1024,128,,,,,,,100,10,1,2,4
"""
SIDECAR = b'engine = "vllm"\ntp = 2\n[run]\nchips = 4\ndate = "2025-01-01"\n'
MODELOPT = b"""{"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "MIXED_PRECISION",
"kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head", "model.layers.0*", "re:.*gate$"],
"quantized_layers": {"model.layers.1.mlp": {"quant_algo": "NVFP4", "group_size": 16},
"model.layers.*.self_attn*": {"quant_algo": "FP8"}}}}"""
BASE = b'base = "h100_sxm"\ntitle = "mine"\n[chip]\nmemory_gb = { value = 96, source = "a" }\n'
BASE += b'[sources]\na = "assumed, 2025"\n'

KEPT = SPACE.partition("pareto")[0]
KEEPS = ('pareto = ["speed", "cost"]\nper = ["hardware"]\nepsilon = 0.01', 'top = 3\nby = "cost"',
         'best = "cost"\nunder = { ttft = 0.3 }\nmisses = 3', 'histogram = "tpot"\nedges = [0, 1]',
         'quantiles = "tpot"\nq = [0.1, 0.5]')  # fmt: skip


def _profiles():
    names = ("h100_sxm", "tpu_v5e", "t4_host")
    return [*((profiles_folder() / f"{n}.toml").read_bytes() for n in names), BASE]


def _sidecar(path):
    return read_runs(DATA / "measurements" / "vllm.json", sidecar=path)


def _gemm(path):
    return load_kernel_tables(path.parents[2], "h20")


def _attention(path):
    return load_kernel_tables(path.parents[3], "h20")


def _exported(path):
    """A model whose formats stand in a file beside its config."""
    config = path.with_name("config.json")
    if not config.exists():
        config.write_bytes(_bundled("llama-3.2-1b")[0])
    return load_model(config)


# reader: (how it is called, the name its file has, files that are good)
READERS = {
    "runs": (read_runs, "run", lambda: _files("measurements", *RUNS)),
    "kernels": (read_kernels, "kernels", lambda: _files("measurements", *KERNELS)),
    "gemm tables": (_gemm, "gemm/h20/data.csv", lambda: [TABLE]),
    "attention tables": (_attention, "mha/decode/h20/32-8-128.csv", lambda: [DECODE]),
    "traces": (read_trace, "trace", lambda: _files("traces", *TRACES)),
    "acceptance": (read_acceptance, "curves.yaml", lambda: _files(".", "acceptance.yaml")),
    "silicon": (published_rows, "rows.csv", lambda: [SILICON]),
    "silicon runs": (read_runs, "rows.csv", lambda: [SILICON]),
    "sidecar": (_sidecar, "facts.toml", lambda: [SIDECAR]),
    "models": (load_model, "config.json", lambda: _bundled(*MODELS)),
    "formats": (_exported, "hf_quant_config.json", lambda: [MODELOPT]),
    "profiles": (load_system, "mine.toml", _profiles),
    "space": (
        lambda path: space_of(str(path), read_toml(path)),
        "x.toml",
        lambda: [(KEPT + k).encode() for k in KEEPS],
    ),
    "spec": (load_spec, "x.toml", lambda: [SPEC.encode()]),
}
TABLES = {"space": space_of, "spec": spec_of}  # what is made of a table, values of other types too


def tried(reader: str, count: int, folder: Path, seed: int) -> list[str]:
    """The outcomes of ``count`` mutations, shared between the reader's good files."""
    read, name, good = READERS[reader]
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    wholes, dice = good(), random.Random(seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = []
    for index, whole in enumerate(wholes):
        share = len(range(index, count, len(wholes)))
        for data in damaged(whole, share, seed=seed + index):
            path.write_bytes(data)
            call: tuple[Any, ...] = read, path
            if reader in TABLES and dice.random() < 0.5:
                changed = other(tomllib.loads(whole.decode()), dice)
                if isinstance(changed, dict):  # as every TOML file is
                    call = TABLES[reader], "x.toml", changed
            try:
                result.append(outcome(*call))
            except Exception as error:
                raise AssertionError(f"{reader}: {call[-1]} {data[:300]!r}") from error
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY
    return result


@pytest.mark.parametrize("reader", READERS)
def test_mutations(reader, tmp_path):
    if reader == "acceptance":
        pytest.importorskip("yaml", reason="PyYAML is not installed")
    read, name, good = READERS[reader]
    for whole in good():  # what is damaged is good to begin with
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(whole)
        if b"conversations" not in whole:
            assert outcome(read, path) == "read"
    said = tried(reader, FEW, tmp_path, seed=0)
    assert len(said) == FEW
    # neither all is believed nor all refused, and for many reasons
    assert 0.02 * FEW < said.count("read") < 0.98 * FEW
    assert len(set(said)) > 20


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_many_mutations(reader, tmp_path):
    if reader == "acceptance":
        pytest.importorskip("yaml", reason="PyYAML is not installed")
    assert len(tried(reader, MANY, tmp_path, seed=1000)) == MANY
