"""What did FlexGen's authors measure, and what do the models say of these runs?

Figures: Tables 1 to 5 of the paper (arXiv 2303.06865); OPT models: arXiv 2205.01068, Table 1. A T4
with 16 GB, a host of 208 GB and a 1.5 TB SSD. Policies: Table 5 and the benchmark suite of the
released code, which gives the block and percentages (weights, cache, hidden states on GPU and CPU)
of every cell of the tables. Every run generates 32 tokens.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments._columns import printed_rows
from infer_jax.calibration import Fit, fit
from infer_jax.catalog import load_system
from infer_jax.catalog.foreign import read_toml
from infer_jax.estimators.offloading import Offload, Offloading
from infer_jax.estimators.offloading.published import GIB
from infer_jax.specs import Architecture, Block, Dense, GroupedQuery, Hardware, Workload

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


TEXTS: Any = read_toml(Path(__file__).with_name("texts.toml"))  # captions and notes
HARDWARE = t4(16e9 / 2**30, 208e9 / 2**30, 1.5e12 / 2**30)  # Table 1 of the paper
# what T4 physics leaves: shares of PCIe at 16 GB/s, of 320 GB/s, of 65 TFLOP/s; the SSD reads
# "about 2" and writes "about 1" GB/s, printed to one digit: up to 2.5 and 1.5. The tenth
# constant, attention on the GPU, is the released model's: these data do not see it
BOUNDS = {
    "rates.link": (0.05, 1.0),
    "rates.cache_link": (0.05, 1.0),
    "rates.read": (0.75, 1.25),
    "rates.write": (0.5, 1.5),
    "rates.matmul": (0.05, 1.0),
    "rates.host_memory": (0.02, 1.0),
    "rates.opening": (0.002, 1.0),
    "rates.step": (1e-6, 1e-2),
    "hidden": (0.1, 1.0),
}


def inputs(run: Run) -> tuple[Any, Workload, Offload]:
    """(architecture, workload, plan) of a run."""
    g, k = run.block
    fractions = np.reshape(run.percent, (3, 2)) / 100.0
    kinds = ("weights", "cache", "hidden")
    triples: Any = {
        name: (a, b, 1.0 - a - b) for name, (a, b) in zip(kinds, fractions, strict=True)
    }
    plan = Offload.placed(
        **triples,
        gpu_batch=g,
        batches=k,
        pp=run.gpus,
        schedule=run.schedule,
        overlap=float(run.overlap),
        cpu_attention=float(run.cpu_attention),
        compress_weights=float(run.compress == "both"),
        compress_cache=float(run.compress != ""),
    )
    return opt_model(run.model), Workload.of(isl=run.prompt, osl=TOKENS), plan


def stacked(runs: Sequence[Run]) -> Any:
    """The inputs of many runs as one batch."""
    return jax.tree.map(lambda *x: np.stack(x), *[inputs(run) for run in runs])


def rates(model: Offloading, batch: Any) -> tuple[Any, Any, Any]:
    """Tokens per second over all GPUs of every run: (generation, decode, whether it fits)."""

    def rates_of(arch: Any, work: Any, plan: Any) -> Any:
        one = model.estimate(arch, HARDWARE, work, plan)
        return one.throughput * one.chips, one.decode_throughput * one.chips, one.feasible

    return jax.vmap(rates_of)(*batch)


def predict(model: Offloading, runs: Sequence[Run]) -> np.ndarray:
    """Tokens per second of every run, of decoding alone where the run is of that."""
    with jax.enable_x64(True):
        whole, decode, _ = jax.jit(rates)(model, stacked(runs))
    return np.where([run.decode for run in runs], decode, whole)


def breakdown(model: Offloading) -> dict[str, dict[str, Any]]:
    """Table 4: seconds of each component of a block of OPT-175B, in prefill and in decode."""
    run = next(r for r in RUNS if r.model == "opt-175b" and r.label == "no overlapping")
    arch, work, plan = inputs(run)
    job = model.job(arch, HARDWARE, work, plan)
    answer = model.answer(job, plan.placement)
    layers, steps = job.layer.count, job.layer.count * (TOKENS - 1.0)
    away = plan.placement.disk.weights * job.layer.weights
    parts = {}
    for phase, count, terms, time in (
        ("prefill", layers, answer.prefill, answer.prefill_time),
        ("decode", steps, answer.decode, answer.decode_time),
    ):
        weights = away / (model.rates.read * HARDWARE.host.disk_read)
        parts[phase] = {
            "total": count * time,
            "compute": count * (terms.compute + terms.attend),
            "weights": count * (weights + terms.to_gpu),
            "cache": count * (terms.written if phase == "prefill" else terms.read - weights),
        }
    parts["decode"]["cache written"] = steps * answer.decode.written
    return parts


SCALE = 0.1  # an ordinary residual
FITTED_PARTS = {"prefill": ("total", "compute"), "decode": ("total", "compute", "weights", "cache")}


def data() -> tuple[Any, np.ndarray]:
    """(predictions of a model, measurements): Table 2 at 512 tokens, then Table 4."""
    runs = [run for run in RUNS if run.fitted]
    batch = stacked(runs)

    def fitted(parts: Any) -> list[Any]:
        return [parts[phase][name] for phase, names in FITTED_PARTS.items() for name in names]

    def predictions(model: Offloading) -> Any:
        return jnp.concatenate([rates(model, batch)[0], jnp.stack(fitted(breakdown(model)))])

    return predictions, np.array([run.measured for run in runs] + fitted(BREAKDOWN))


def calibrated(start: Offloading, restarts: int = 4) -> Fit:
    """``improved`` fitted to the 512-token column of Table 2 and to Table 4."""
    with jax.enable_x64(True):
        return fit(*data(), start, list(BOUNDS), bounds=BOUNDS, scale=SCALE, restarts=restarts)
