"""What did FlexGen's authors measure, on which machine, with which models, under which policies?

Figures: Tables 1 to 5 of the paper (arXiv 2303.06865); OPT models: arXiv 2205.01068, Table 1. A T4
with 16 GB, a host of 208 GB and a 1.5 TB SSD. Policies: Table 5 and the benchmark suite of the
released code, which gives the block and percentages (weights, cache, hidden states on GPU and CPU)
of every cell of the tables. Every run generates 32 tokens.
"""

from typing import Any, NamedTuple

import numpy as np

from experiments._columns import printed_rows
from infer_jax.catalog import load_system
from infer_jax.estimators.offloading.published import GIB
from infer_jax.specs import Architecture, Block, Dense, GroupedQuery, Hardware

TOKENS = 32.0
SHAPES = {  # layers, width, heads; the hidden layer is 4 widths
    "opt-1.3b": (24, 2048, 32),
    "opt-2.7b": (32, 2560, 32),
    "opt-6.7b": (32, 4096, 32),
    "opt-13b": (40, 5120, 40),
    "opt-30b": (48, 7168, 56),
    "opt-66b": (64, 9216, 72),
    "opt-175b": (96, 12288, 96),
}


def t4(gpu: float = 15.0, cpu: float = 204.0, disk: float = 1500.0) -> Hardware:
    """The machine with so many GiB of each memory; those of the released configuration."""
    system = load_system("t4_host").hardware
    return system.replace(
        chip=system.chip.with_(memory=gpu * GIB),
        host=system.host.with_(memory=cpu * GIB, disk=disk * GIB),
    )


def opt(layers: Any, width: Any, hidden: Any, heads: Any) -> Architecture:
    """An OPT model in 16 bits: the matrices of its layers alone, which is all that counts here."""
    head = width / heads
    attention = GroupedQuery.of(query_heads=1, kv_heads=1, head_width=1, value_width=1).replace(
        query_heads=heads, kv_heads=heads, head_width=head, value_width=head
    )
    feedforward = Dense.of(width=1, inward=1).replace(width=hidden)
    block = Block.of(count=1, attention=attention, feedforward=feedforward).replace(count=layers)
    arch = Architecture.of(width=1, vocabulary=50272, tied=1, blocks=(block,))
    return arch.replace(width=width)


def opt_model(model: str) -> Architecture:
    """The OPT model of that name."""
    layers, width, heads = (np.asarray(x, np.float64) for x in SHAPES[model])
    return opt(layers, width, 4.0 * width, heads)


class Run(NamedTuple):
    """A measured run: the model, the prompt, the policy, and tokens per second.

    ``decode``: whether the rate is of decoding alone; ``where``: its table; ``fitted``: whether
    the constants of ``improved`` were fitted to it, else it is a prediction; ``repeats``: the
    fitted table that has its figure, too, so that it is none.
    """

    where: str
    label: str
    model: str
    prompt: float
    block: tuple[float, float]  # GPU batch, batches
    percent: tuple[float, ...]  # wg wc cg cc hg hc
    measured: float
    fitted: bool = False
    decode: bool = False
    compress: str = ""  # "cache", or "both" weights and cache
    cpu_attention: bool = True
    overlap: bool = True
    schedule: str = "zig-zag"
    gpus: float = 1.0
    repeats: str = ""


CPU, DISK = (0.0, 100.0, 0.0, 100.0, 0.0, 100.0), (0.0, 50.0, 0.0, 0.0, 0.0, 100.0)
# weights on the CPU or on disk, all else on the GPU: the policy of DeepSpeed and Accelerate
HOST, NVME = (0.0, 100.0, 100.0, 0.0, 100.0, 0.0), (0.0, 0.0, 100.0, 0.0, 100.0, 0.0)


def row_by_row(model: str, batch: float) -> Run:
    """A run under the policy of DeepSpeed and Accelerate, of which nothing was measured."""
    percent = NVME if model == "opt-175b" else HOST
    run = Run("", "", model, 512.0, (batch, 1.0), percent, 1.0, schedule="row-by-row")
    return run._replace(cpu_attention=False)


def _run(row: dict[str, str]) -> Run:
    block, percent = (float(row["gpu_batch"]), float(row["batches"])), row["percent"].split()
    numbers = {name: float(row[name]) for name in ("prompt", "measured", "gpus")}
    names = ("fitted", "decode", "cpu_attention", "overlap")
    flags = {name: bool(int(row[name])) for name in names}
    named = ("where", "label", "model", "compress", "schedule", "repeats")
    texts = {name: row[name] for name in named}
    shares = tuple(map(float, percent))
    return Run(**texts, **numbers, **flags, block=block, percent=shares)  # pyright: ignore


RUNS = list(map(_run, printed_rows("offloading_measured.csv")))
# Table 4: seconds of a block of 32 x 8 prompts of 512 tokens on OPT-175B, nothing overlapped
BREAKDOWN: dict[str, dict[str, float]] = {}
for _part in printed_rows("offloading_breakdown.csv"):
    BREAKDOWN.setdefault(_part["phase"], {})[_part["component"]] = float(_part["seconds"])
# Table 2: tokens/s of Accelerate and DeepSpeed by prompt and system; none where out of memory
BASELINES = {
    (float(row["prompt"]), row["system"]): {m: float(row[m]) for m in list(SHAPES) if row.get(m)}
    for row in printed_rows("offloading_baselines.csv")
}
