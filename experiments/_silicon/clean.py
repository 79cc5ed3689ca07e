"""What is a measured row worth? The cleaning rules, each decided from the rows themselves.

No decision on a single row is stored here: every value follows from what the row says, from
other rows of the same run, or from the architecture that was served. The rules were written down
in a study of these rows; where a rule is a convention of that study it is said so.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from infer_jax.catalog import load_model, load_system
from infer_jax.catalog.measurements.silicon import Published
from infer_jax.catalog.measurements.silicon_runs import ServerDegrees
from infer_jax.errors import InputError
from infer_jax.physics import decoder
from infer_jax.specs import Architecture, Experts, Format, Sparse


class Served(NamedTuple):
    """A model path's family (rows of one family are of one shape) and bundled architecture."""

    family: str
    architecture: str


MODELS = {
    "deepseek-ai/DeepSeek-R1": Served("DeepSeek-R1/V3", "deepseek-r1"),
    "deepseek-ai/DeepSeek-V3": Served("DeepSeek-R1/V3", "deepseek-r1"),
    "nvidia/DeepSeek-R1-NVFP4": Served("DeepSeek-R1/V3", "deepseek-r1"),
    "nvidia/DeepSeek-V3.1-NVFP4": Served("DeepSeek-R1/V3", "deepseek-r1"),
    "MiniMaxAI/MiniMax-M2.5": Served("MiniMax-M2.5", "minimax-m2.5"),
    "Qwen/Qwen3-235B-A22B-FP8": Served("Qwen3-235B-A22B-FP8", "qwen3-235b-a22b"),
    "Qwen/Qwen3-32B": Served("Qwen3-32B", "qwen3-32b"),
    "nvidia/Qwen3-32B-NVFP4": Served("Qwen3-32B", "qwen3-32b"),
    "Qwen/Qwen3.5-397B-A17B": Served("Qwen3.5-397B-A17B", "qwen3.5-397b-a17b"),
    "meta-llama/Llama-3.1-70B": Served("Llama-3.1-70B", "llama-3.1-70b"),
    "meta-llama/Llama-3.1-8B-Instruct": Served("Llama-3.1-8B", "llama-3.1-8b"),
    "nvidia/Llama-3.1-8B-Instruct-FP8": Served("Llama-3.1-8B", "llama-3.1-8b"),
    "moonshotai/Kimi-K2.5": Served("Kimi-K2.5", "kimi-k2.5"),
    "openai/gpt-oss-120b": Served("gpt-oss-120b", "gpt-oss-120b"),
    "zhipuai/GLM-5": Served("GLM-5", "glm-5"),
}
SYSTEMS = {"gb200": "gb200_nvl72", "gb300": "gb300_nvl72"}  # profiles named otherwise


class Formats(NamedTuple):
    """Bytes per weight, bytes per cached number, matmul bits, and quantised GEMM classes.

    ``dynamic`` counts the classes (attention, feedforward) whose activations are quantised at
    run time: NVFP4 and block FP8. Bytes: 0.5625 is NVFP4 and int4 with a 16-bit scale per 32,
    0.53 MXFP4, 1.6 DeepSeek's NVFP4 checkpoint (attention in bf16 but for the output).
    """

    attention: float
    feedforward: float
    shared: float
    cache: float
    attention_bits: float
    feedforward_bits: float
    dynamic: float


def served(row: Published) -> Served:
    """What a row's model path is.

    Raises:
        InputError: a path that is not among ``MODELS``.
    """
    if row.model_path not in MODELS:
        raise InputError(row.id, "model_path", row.model_path, ", ".join(MODELS))
    return MODELS[row.model_path]


def system_profile(system: str) -> str:
    """The bundled hardware profile of a row's system."""
    return SYSTEMS.get(system, system)


@cache
def architecture(name: str) -> Architecture:
    """A bundled architecture, loaded once."""
    return load_model(name).architecture


@cache
def mixture(name: str) -> bool:
    """True for a mixture of experts."""
    return any(isinstance(b.feedforward, Experts) for b in architecture(name).blocks)


def blackwell(system: str) -> bool:
    """True for B200, B300, GB200, GB300."""
    return "b200" in system or "b300" in system


def formats(row: Published) -> Formats:
    """Number formats of the checkpoint and engine, which rows tell only by one precision.

    NVFP4 checkpoints of mixtures keep attention in bf16 (DeepSeek all but one projection), and
    Qwen3.5's its shared expert. gpt-oss is MXFP4 in whatever precision a row is labelled;
    Hopper multiplies it in bf16, Blackwell in fp8. Mixtures in FP8 and Qwen's own checkpoints
    (Qwen/Qwen3-32B-FP8, config.json: weight_block_size 128 x 128) are block-scaled, other dense
    ones scaled per tensor. An 8-bit cache is a convention of the study:
    NVFP4 everywhere; FP8 on Blackwell, TensorRT-LLM, Llama-70B and NVIDIA's checkpoints.
    """
    family, name = served(row)
    experts = mixture(name)
    if family == "gpt-oss-120b":
        return Formats(2.0, 0.53, 2.0, 2.0, 16.0, 8.0 if blackwell(row.system) else 16.0, 0.0)
    if row.precision == "fp8":
        short = blackwell(row.system) or row.backend == "trtllm"
        short |= family == "Llama-3.1-70B" or row.model_path.startswith("nvidia/")
        blocks = experts or row.model_path.startswith("Qwen/")
        return Formats(1.0, 1.0, 1.0, 1.0 if short else 2.0, 8.0, 8.0, 2.0 if blocks else 0.0)
    if row.precision == "fp4" and not experts:
        return Formats(0.5625, 0.5625, 0.5625, 1.0, 4.0, 4.0, 2.0)
    if row.precision == "fp4":
        attention = 1.6 if family == "DeepSeek-R1/V3" else 2.0
        shared = 2.0 if family == "Qwen3.5-397B-A17B" else 0.5625
        return Formats(attention, 0.5625, shared, 1.0, 16.0, 4.0, 1.0)
    if row.precision == "int4":
        return Formats(2.0, 0.5625, 2.0, 2.0, 16.0, 16.0, 0.0)
    return Formats(2.0, 2.0, 2.0, 2.0, 16.0, 16.0, 0.0)


def hidden_mtp(row: Published) -> bool:
    """True for DeepSeek runs of TensorRT-LLM that drafted tokens without saying so.

    The twin runs of other days have the same TTFT and 1.5 to 2.4 times the TPOT: two days'
    runs, and one release candidate.
    """
    if served(row).family != "DeepSeek-R1/V3" or row.backend != "trtllm":
        return False
    return row.date in ("2026-01-14", "2026-02-06") or row.version == "1.2.0rc6.post3"


@dataclass(frozen=True)
class Run:
    """What the verdicts of one row are drawn from."""

    row: Published
    served: Served
    layout: ServerDegrees
    concurrency: float
    formats: Formats

    @property
    def configuration(self) -> tuple:
        """What was served on what and how, but for the load."""
        row = self.row
        layout = tuple(self.layout)
        return (self.served.family, row.system, row.backend, layout, row.isl, row.osl)

    @property
    def measurement(self) -> tuple:
        """Equal for two entries of one measurement: times to 0.01 ms and 0.1 ms."""
        row = self.row
        times = (round(row.tpot_ms * 100.0), round(row.ttft_ms * 10.0))
        return (*self.configuration, self.concurrency, row.precision, *times)


def first_of(runs: Sequence[Run]) -> list[int]:
    """For each run, the index of the first entry of the same measurement."""
    seen: dict[tuple, int] = {}
    return [seen.setdefault(run.measurement, index) for index, run in enumerate(runs)]


def anomalies(runs: Sequence[Run], first: Sequence[int]) -> list[str]:
    """Why each run is kept out of fits; "" for most. Two entries of a run share its verdict."""
    originals = [index for index, one in enumerate(first) if one == index]
    slow = set(_slower([(index, runs[index]) for index in originals]))
    verdicts = {}
    for index in originals:
        run = runs[index]
        row, family = run.row, run.served.family
        verdict = ""
        if (row.system, family, row.precision) == ("gb200", "Qwen3-32B", ""):
            verdict = "unlabelled_precision"
        elif (row.system, row.backend, family) == ("h100_sxm", "vllm", "gpt-oss-120b"):
            verdict = "unrecorded_max_seqs" if run.concurrency == 512.0 else ""
        if not verdict and utilisation(run) > 0.5:
            verdict = "implausible_flops"
        if not verdict and index in slow:
            verdict = "slower_than_double_load"
        verdicts[index] = verdict
    return [verdicts[one] for one in first]


def _slower(runs: Iterable[tuple[int, Run]]) -> Iterable[int]:
    """Runs whose TPOT is above 1.25 times that of the same run at 1.9 times the load or more."""
    groups: dict[tuple, list[tuple[int, Run]]] = {}
    for index, run in runs:
        key = (*run.configuration, run.row.precision, run.row.version, run.row.date)
        groups.setdefault(key, []).append((index, run))
    for group in groups.values():
        for index, run in group:
            heavier = (o for _, o in group if o.concurrency >= 1.9 * run.concurrency)
            if any(run.row.tpot_ms > 1.25 * other.row.tpot_ms for other in heavier):
                yield index


def utilisation(run: Run) -> float:
    """Share of peak FLOP/s that the layers' matrix products need at the measured throughput.

    Requests per second by Little's law, C / (TTFT + (O - 1) TPOT), times 2 FLOP per weight of
    the layers that a token meets, times I + O tokens; embedding, head and attention's core are
    left out, so this is a lower bound.
    """
    row, kinds = run.row, _weights(run.served.architecture)
    rates = _rates(system_profile(row.system))
    attention, feedforward_ = run.formats.attention_bits, run.formats.feedforward_bits
    seconds = 2.0 * (kinds[0] / rates[attention] + kinds[1] / rates[feedforward_])
    requests = 1e3 * run.concurrency / (row.ttft_ms + (row.osl - 1.0) * row.tpot_ms)
    return requests * (row.isl + row.osl) * seconds / run.layout.gpus


@cache
def _weights(name: str) -> tuple[float, float]:
    """Weights of attention and of feedforward that one token meets, all layers."""
    kinds = decoder.parameters(architecture(name))
    idle = sum(kinds.values()) - decoder.active_parameters(architecture(name))
    visited = kinds["feedforward"] + kinds["shared"] + kinds["experts"] - idle
    return float(kinds["attention"]), float(visited)


@cache
def _rates(profile: str) -> dict[float, float]:
    """Peak FLOP/s by matmul bits."""
    chip = load_system(profile).hardware.chip
    return {16.0: float(chip.flops_16), 8.0: float(chip.flops_8), 4.0: float(chip.flops_4)}


def in_formats(arch: Architecture, given: Formats) -> Architecture:
    """The architecture in a row's number formats: projections, experts and cache."""
    attention = Format.of(bytes=given.attention, bits=given.attention_bits)
    routed = Format.of(bytes=given.feedforward, bits=given.feedforward_bits)
    shared = Format.of(bytes=given.shared, bits=given.feedforward_bits)
    blocks = []
    for block in arch.blocks:
        tokens, channels = block.attention, block.feedforward
        if isinstance(tokens, Sparse):
            tokens = tokens.replace(base=tokens.base.replace(weights=attention))
        elif tokens is not None:
            tokens = tokens.replace(weights=attention)
        if isinstance(channels, Experts):
            one = channels.shared.replace(weights=shared)
            channels = channels.replace(weights=routed, shared=one)
        elif channels is not None:
            channels = channels.replace(weights=attention)
        blocks.append(block.replace(attention=tokens, feedforward=channels))
    cache_format = arch.cache.replace(bytes=np.asarray(given.cache))
    return arch.replace(blocks=tuple(blocks), cache=cache_format)
