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


class WorkerGroup(NamedTuple):
    """One pool: equal workers, each of ``layout``; ``batch`` is requests per attention rank."""

    count: float
    batch: float
    layout: ServerDegrees


@dataclass(frozen=True, kw_only=True)
class SiliconRun:
    """A row as published, and what the cleaning decides.

    ``first``: the id of the first entry of the same measurement. ``layout``: of one server;
    ``pools``: those that prefill and decode, ``concurrency`` then of all of them. A row that cannot
    be read as one server (``anomaly`` "flattened_disaggregated") has none of the three.
    """

    published: Published
    first: str
    anomaly: str = ""
    layout: ServerDegrees | None = None
    pools: tuple[WorkerGroup, WorkerGroup] | None = None
    concurrency: float = 0.0

    @property
    def model_family(self) -> str:
        """The family of models of one shape."""
        return served(self.published)[0]

    @property
    def model(self) -> str:
        """The bundled architecture."""
        return served(self.published)[1]

    @property
    def system(self) -> str:
        """The bundled profile."""
        return SYSTEMS.get(self.published.system, self.published.system)

    @property
    def unique(self) -> bool:
        """True for the first entry of a measurement whose servers are known."""
        return self.first == self.published.id and bool(self.layout or self.pools)

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


def served(row: Published) -> tuple[str, str]:
    """The family of a row's model path, and the bundled architecture.

    Raises:
        InputError: a path that is not among ``MODELS``.
    """
    if row.model_path not in MODELS:
        raise InputError(row.id, "model_path", row.model_path, ", ".join(MODELS))
    return MODELS[row.model_path]


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
    (kind, model), path, blackwell = served(row), row.model_path, is_blackwell(row.system)
    experts = is_mixture(model)
    if kind == "gpt-oss-120b":
        return gpt_oss_formats(8.0 if blackwell else 16.0)
    if row.precision == "fp8":
        short = blackwell or row.backend == "trtllm" or kind == "Llama-3.1-70B"
        short |= path.startswith("nvidia/")
        blocks = experts or path.startswith("Qwen/")
        return StoredFormats(FP8, FP8, FP8, 1.0 if short else 2.0, 2.0 if blocks else 0.0)
    if row.precision == "fp4":
        stored = nvfp4_formats(model)
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
        run = SiliconRun(published=row, first=row.id)
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
    slow, verdicts = set(_slower(runs)), {}
    for run in runs:
        row, served = run.published, (run.published.system, run.model_family)
        reasons = {
            "unlabelled_precision": served == ("gb200", "Qwen3-32B") and not row.precision,
            "unrecorded_max_seqs": (*served, row.backend, run.concurrency)
            == ("h100_sxm", "gpt-oss-120b", "vllm", 512.0),
            "implausible_flops": utilisation(run) > 0.5,
            "slower_than_double_load": row.id in slow,
        }
        verdicts[row.id] = next((reason for reason, holds in reasons.items() if holds), "")
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
    (attention, feedforward), stored = _weights(run.model), formats(row)
    chip = system_named(run.system).hardware.chip
    rates = {16.0: float(chip.flops_16), 8.0: float(chip.flops_8), 4.0: float(chip.flops_4)}
    seconds = 2.0 * (
        attention / rates[stored.attention[1]] + feedforward / rates[stored.feedforward[1]]
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
) -> tuple[tuple[SiliconRun, ...], tuple[Published, ...]]:
    """The rows of two pools whose workers are known, in file order, and the others.

    Some entries give the workers of both pools. Others are a second entry of the same measurement
    (equal model family, system, engine, precision, lengths, load and both times), from which the
    worker counts are recovered.

    Raises:
        InputError: the package is not installed, or its table is malformed.
    """
    published = [row for row in silicon.published_rows(path) if row.disaggregated]
    sources = {_measurement(row): row for row in published if has_workers(row)}
    first: dict[tuple, str] = {}
    usable, unknown = [], []
    for row in published:
        key, load = _measurement(row), row.fact(silicon.LOAD)
        source = row if has_workers(row) else sources.get(key)
        if source is None:
            unknown.append(row)
            continue
        pools = _workers(source.prefill), _workers(source.decode)
        slots = pools[1].count * pools[1].layout.dp * pools[1].batch
        usable.append(
            SiliconRun(
                published=row,
                first=first.setdefault(key, row.id),
                pools=pools,
                concurrency=float(load) if load else slots,
            )
        )
    return tuple(usable), tuple(unknown)


def has_workers(row: Published) -> bool:
    """True where a row gives the workers of both pools."""
    return all(pool.workers and pool.batch for pool in (row.prefill, row.decode))


def _measurement(row: Published) -> tuple:
    """Equal for two entries of one measurement; layouts, which importers differ on, left out."""
    load = row.fact(silicon.LOAD)
    place = (served(row)[0], row.system, row.backend, row.precision)
    return (*place, row.isl, row.osl, load, *_times(row))


def _workers(pool: PublishedPool) -> WorkerGroup:
    """A pool as run; where the expert grid does not cover the GPUs, the attention grid holds."""
    assert pool.workers and pool.batch
    tp, dp, moe_tp, moe_ep = (x or 1.0 for x in pool.degrees)
    if moe_tp * moe_ep != tp * dp:
        moe_tp, moe_ep = tp * dp, 1.0
    return WorkerGroup(pool.workers, pool.batch, ServerDegrees(tp, dp, moe_tp, moe_ep))
