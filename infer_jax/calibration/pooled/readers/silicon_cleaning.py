"""Which of aiconfigurator-core's measured rows can be used, and what was served?

No decision on a single row is stored here: every value follows from what the row says, from
other rows of the same run, or from the architecture that was served. The rules were written down
in a study of these rows; a rule that is a convention of that study is marked as one.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from infer_jax.calibration.pooled.rows import (
    BF16,
    FP8,
    StoredFormats,
    architecture_named,
    gpt_oss_formats,
    is_mixture,
    nvfp4_formats,
    system_named,
)
from infer_jax.catalog.measurements import silicon
from infer_jax.catalog.measurements.silicon import Published, PublishedPool, ServerDegrees
from infer_jax.errors import InputError
from infer_jax.physics import decoder

# by model path: the family (rows of one family have one shape) and the bundled architecture
MODELS = {
    "deepseek-ai/DeepSeek-R1": ("DeepSeek-R1/V3", "deepseek-r1"),
    "deepseek-ai/DeepSeek-V3": ("DeepSeek-R1/V3", "deepseek-r1"),
    "nvidia/DeepSeek-R1-NVFP4": ("DeepSeek-R1/V3", "deepseek-r1"),
    "nvidia/DeepSeek-V3.1-NVFP4": ("DeepSeek-R1/V3", "deepseek-r1"),
    "MiniMaxAI/MiniMax-M2.5": ("MiniMax-M2.5", "minimax-m2.5"),
    "Qwen/Qwen3-235B-A22B-FP8": ("Qwen3-235B-A22B-FP8", "qwen3-235b-a22b"),
    "Qwen/Qwen3-32B": ("Qwen3-32B", "qwen3-32b"),
    "nvidia/Qwen3-32B-NVFP4": ("Qwen3-32B", "qwen3-32b"),
    "Qwen/Qwen3.5-397B-A17B": ("Qwen3.5-397B-A17B", "qwen3.5-397b-a17b"),
    "meta-llama/Llama-3.1-70B": ("Llama-3.1-70B", "llama-3.1-70b"),
    "meta-llama/Llama-3.1-8B-Instruct": ("Llama-3.1-8B", "llama-3.1-8b"),
    "nvidia/Llama-3.1-8B-Instruct-FP8": ("Llama-3.1-8B", "llama-3.1-8b"),
    "moonshotai/Kimi-K2.5": ("Kimi-K2.5", "kimi-k2.5"),
    "openai/gpt-oss-120b": ("gpt-oss-120b", "gpt-oss-120b"),
    "zhipuai/GLM-5": ("GLM-5", "glm-5"),
}
SYSTEMS = {"gb200": "gb200_nvl72", "gb300": "gb300_nvl72"}  # profiles of another name


@dataclass(frozen=True, kw_only=True)
class SiliconRun:
    """A row as published, what was served, and what the cleaning decides.

    ``first``: the id of the first entry of the same measurement. ``layout`` and ``concurrency``
    are None of rows that cannot be read as one server (``anomaly`` "flattened_disaggregated").
    """

    published: Published
    formats: StoredFormats
    first: str
    anomaly: str = ""
    layout: ServerDegrees | None = None
    concurrency: float = 0.0

    @property
    def model_family(self) -> str:
        """The family of models of one shape."""
        return model_family(self.published)

    @property
    def model(self) -> str:
        """The bundled architecture."""
        return MODELS[self.published.model_path][1]

    @property
    def system(self) -> str:
        """The bundled profile."""
        return SYSTEMS.get(self.published.system, self.published.system)

    @property
    def unique(self) -> bool:
        """True for the first entry of the measurement of a single server."""
        return self.first == self.published.id and self.layout is not None

    @property
    def clean(self) -> bool:
        """True where a fit may use the row."""
        return self.unique and not self.anomaly

    @property
    def hidden_drafts(self) -> bool:
        """True for DeepSeek runs of TensorRT-LLM that drafted tokens without saying so.

        The twin runs of other days have the same TTFT and 1.5 to 2.4 times the TPOT: two days'
        runs, and one release candidate.
        """
        row = self.published
        if self.model_family != "DeepSeek-R1/V3" or row.backend != "trtllm" or self.layout is None:
            return False
        return row.date in ("2026-01-14", "2026-02-06") or row.version == "1.2.0rc6.post3"

    @property
    def configuration(self) -> tuple:
        """What was served on what and how, but for the load."""
        row = self.published
        return (self.model_family, row.system, row.backend, self.layout, row.isl, row.osl)


class WorkerGroup(NamedTuple):
    """One pool: equal workers, each of ``layout``; ``batch`` is requests per attention rank."""

    count: float
    batch: float
    layout: ServerDegrees

    @property
    def gpus(self) -> float:
        """GPUs of the whole pool."""
        return self.count * self.layout.gpus


@dataclass(frozen=True, kw_only=True)
class SiliconPools(SiliconRun):
    """A row of two pools; ``concurrency`` is of all of them.

    ``source``: the id of the entry of the same measurement that gives the worker counts.
    """

    prefill: WorkerGroup
    decode: WorkerGroup
    source: str

    @property
    def unique(self) -> bool:
        """True for the first entry of the measurement."""
        return self.first == self.published.id


def model_family(row: Published) -> str:
    """The family of a row's model path.

    Raises:
        InputError: a path that is not among ``MODELS``.
    """
    if row.model_path not in MODELS:
        raise InputError(row.id, "model_path", row.model_path, ", ".join(MODELS))
    return MODELS[row.model_path][0]


def is_blackwell(system: str) -> bool:
    """True for B200, B300, GB200, GB300."""
    return "b200" in system or "b300" in system


def formats(row: Published) -> StoredFormats:
    """Number formats of the checkpoint and engine, of which rows state one precision alone.

    NVFP4 checkpoints of mixtures keep attention in bf16 (DeepSeek all but one projection: 1.6
    bytes), and Qwen3.5's its shared expert. gpt-oss is MXFP4 in whatever precision a row is
    labelled; Hopper multiplies it in bf16, Blackwell in fp8. Mixtures in FP8 and Qwen's own
    checkpoints (Qwen/Qwen3-32B-FP8, config.json: weight_block_size 128 x 128) are block-scaled,
    other dense ones scaled per tensor. int4 has a 16-bit scale per 32. An 8-bit cache is a
    convention of the study: NVFP4 everywhere; FP8 on Blackwell, TensorRT-LLM, Llama-70B and
    NVIDIA's checkpoints.
    """
    kind, path, blackwell = model_family(row), row.model_path, is_blackwell(row.system)
    experts = is_mixture(MODELS[path][1])
    if kind == "gpt-oss-120b":
        return gpt_oss_formats(8.0 if blackwell else 16.0)
    if row.precision == "fp8":
        short = blackwell or row.backend == "trtllm" or kind == "Llama-3.1-70B"
        short |= path.startswith("nvidia/")
        blocks = experts or path.startswith("Qwen/")
        return StoredFormats(FP8, FP8, FP8, 1.0 if short else 2.0, 2.0 if blocks else 0.0)
    if row.precision == "fp4":
        stored = nvfp4_formats(MODELS[path][1])
        return stored._replace(shared=(2.0, 4.0)) if kind == "Qwen3.5-397B-A17B" else stored
    if row.precision == "int4":
        return StoredFormats(BF16, (0.5625, 16.0), BF16, 2.0, 0.0)
    return StoredFormats(BF16, BF16, BF16, 2.0, 0.0)


def aggregated(path: str | os.PathLike[str] | None = None) -> tuple[SiliconRun, ...]:
    """Every row of one pool in file order, cleaned.

    Raises:
        InputError: the package is not installed, or its table is malformed.
    """
    runs, seen = [], {}
    for row in silicon.published_rows(path):
        if row.disaggregated:
            continue
        run = SiliconRun(published=row, formats=formats(row), first=row.id)
        if silicon.is_flattened_pair(row):
            runs.append(replace(run, anomaly="flattened_disaggregated"))
            continue
        layout = silicon.layout(row, is_mixture(run.model))
        load = silicon.concurrency(row, layout.dp)
        run = replace(run, layout=layout, concurrency=load)
        key = (*run.configuration, load, row.precision, *_times(row))
        runs.append(replace(run, first=seen.setdefault(key, row.id)))
    verdicts = anomalies([run for run in runs if run.unique])
    return tuple(replace(run, anomaly=run.anomaly or verdicts.get(run.first, "")) for run in runs)


def _times(row: Published) -> tuple[int, int]:
    """Times to 0.01 ms and 0.1 ms, equal for two entries of one measurement."""
    return round(row.tpot_ms * 100.0), round(row.ttft_ms * 10.0)


def anomalies(runs: Sequence[SiliconRun]) -> dict[str, str]:
    """Why runs are not used in fits, by id; "" of most."""
    slow = set(_slower(runs))
    verdicts = {}
    for run in runs:
        row, verdict = run.published, ""
        if (row.system, run.model_family, row.precision) == ("gb200", "Qwen3-32B", ""):
            verdict = "unlabelled_precision"
        elif (row.system, row.backend, run.model_family) == ("h100_sxm", "vllm", "gpt-oss-120b"):
            verdict = "unrecorded_max_seqs" if run.concurrency == 512.0 else ""
        if not verdict and utilisation(run) > 0.5:
            verdict = "implausible_flops"
        if not verdict and row.id in slow:
            verdict = "slower_than_double_load"
        verdicts[row.id] = verdict
    return verdicts


def _slower(runs: Sequence[SiliconRun]) -> Iterator[str]:
    """Runs whose TPOT is above 1.25 times that of the same run at 1.9 times the load or more."""
    groups: dict[tuple, list[SiliconRun]] = {}
    for run in runs:
        row = run.published
        key = (*run.configuration, row.precision, row.version, row.date)
        groups.setdefault(key, []).append(run)
    for group in groups.values():
        for run in group:
            heavier = (o for o in group if o.concurrency >= 1.9 * run.concurrency)
            if any(run.published.tpot_ms > 1.25 * o.published.tpot_ms for o in heavier):
                yield run.published.id


def utilisation(run: SiliconRun) -> float:
    """Share of peak FLOP/s that the layers' matrix products need at the measured throughput.

    Requests per second by Little's law, C / (TTFT + (O - 1) TPOT), times 2 FLOP per weight of
    the layers that a token meets, times I + O tokens; embedding, head and attention's core are
    left out, so this is a lower bound.
    """
    row = run.published
    attention, feedforward = _weights(run.model)
    chip = system_named(run.system).hardware.chip
    rates = {16.0: float(chip.flops_16), 8.0: float(chip.flops_8), 4.0: float(chip.flops_4)}
    seconds = 2.0 * (
        attention / rates[run.formats.attention[1]]
        + feedforward / rates[run.formats.feedforward[1]]
    )
    requests = 1e3 * run.concurrency / (row.ttft_ms + (row.osl - 1.0) * row.tpot_ms)
    assert run.layout is not None
    return requests * (row.isl + row.osl) * seconds / run.layout.gpus


@cache
def _weights(name: str) -> tuple[float, float]:
    """Weights of attention and of feedforward that one token meets, all layers."""
    arch = architecture_named(name)
    kinds = decoder.parameters(arch)
    idle = sum(kinds.values()) - decoder.active_parameters(arch)
    visited = kinds["feedforward"] + kinds["shared"] + kinds["experts"] - idle
    return float(kinds["attention"]), float(visited)


def disaggregated(
    path: str | os.PathLike[str] | None = None,
) -> tuple[tuple[SiliconPools, ...], tuple[Published, ...]]:
    """The rows of two pools whose workers are known, in file order, and the others.

    Some entries give the workers of both pools. Others are a second entry of the same measurement
    (equal model family, system, engine, precision, lengths, load and both times), from which the
    worker counts are recovered.

    Raises:
        InputError: the package is not installed, or its table is malformed.
    """
    published = [row for row in silicon.published_rows(path) if row.disaggregated]
    sources = {_measurement(row): row for row in published if _has_workers(row)}
    first: dict[tuple, str] = {}
    usable, unknown = [], []
    for row in published:
        key = _measurement(row)
        source = row if _has_workers(row) else sources.get(key)
        if source is None:
            unknown.append(row)
        else:
            usable.append(_pools(row, source, first.setdefault(key, row.id)))
    return tuple(usable), tuple(unknown)


def _has_workers(row: Published) -> bool:
    return all(pool.workers and pool.batch for pool in (row.prefill, row.decode))


def _measurement(row: Published) -> tuple:
    """Equal for two entries of one measurement; layouts, which importers differ on, left out."""
    load = row.fact(silicon.LOAD)
    place = (model_family(row), row.system, row.backend, row.precision)
    return (*place, row.isl, row.osl, load, *_times(row))


def _pools(row: Published, source: Published, first: str) -> SiliconPools:
    prefill, decode = _workers(source.prefill), _workers(source.decode)
    load = row.fact(silicon.LOAD)
    slots = decode.count * decode.layout.dp * decode.batch
    return SiliconPools(
        published=row,
        formats=formats(row),
        first=first,
        prefill=prefill,
        decode=decode,
        concurrency=float(load) if load else slots,
        source=source.id,
    )


def _workers(pool: PublishedPool) -> WorkerGroup:
    """A pool as run; where the expert grid does not cover the GPUs, the attention grid holds."""
    assert pool.workers and pool.batch
    tp, dp, moe_tp, moe_ep = (x or 1.0 for x in pool.degrees)
    if moe_tp * moe_ep != tp * dp:
        moe_tp, moe_ep = tp * dp, 1.0
    return WorkerGroup(pool.workers, pool.batch, ServerDegrees(tp, dp, moe_tp, moe_ep))
