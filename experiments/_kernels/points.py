"""How is a file of InferSim's runs evaluated? As published, all rows of a model in one call.

A row in which the tool crashes is refused here, with a reason that names the table; both count
as ``refused``. Of warnings the set is compared, by the table that each of them is about.

Its reading of a config.json differs from ours (see ``catalog/huggingface``): all layers are experts
where the config has ``num_routed_experts`` or ``num_experts``, none where it spells the count
otherwise; embedding, head, norms, router, shared expert widths and output gates are not seen.
"""

import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments._check import Answer, Recipe
from experiments._columns import Input, Output, Value, count, flag, positive, quantity
from experiments._kernels.columns import COLUMNS, KIND, KINDS, Lack, columns_of, lacks
from experiments._report import GOLDEN, SHARED
from infer_jax.catalog.foreign import read_json
from infer_jax.catalog.huggingface.attention import LATENT, RECURRENT
from infer_jax.catalog.huggingface.facts import Facts
from infer_jax.catalog.kernel_tables import KernelTables, load_kernel_tables
from infer_jax.catalog.published import kernels_constants
from infer_jax.catalog.published.tables import hardware_of, row_of, tables
from infer_jax.compiling import quick
from infer_jax.errors import InputError
from infer_jax.estimators.kernels import Kernels, Tables
from infer_jax.specs import (
    Architecture,
    Block,
    Dense,
    Experts,
    Format,
    GroupedQuery,
    Hardware,
    Latent,
    Linear,
)


class Files(NamedTuple):
    """A CSV of runs, a folder of kernel tables in the authors' layout, one of NAME_config.json."""

    points: Path
    tables: Path
    configs: Path


DATA = SHARED / "data"
ALL = Files(
    SHARED / "golden" / "kernels_points.csv", DATA / "infersim_bench", DATA / "infersim_configs"
)
# the runs that the project carries: on devices without tables, of models with cited configs
CITED = Files(GOLDEN / "kernels_points.csv", GOLDEN / "infersim", GOLDEN / "infersim")


def stored(*given: Path | None) -> Files:
    """What was given; the rest from all the authors' files where they lie, else from the cited."""
    known = ALL if all(path.exists() for path in ALL) else CITED
    return Files(*(one or other for one, other in zip(given, known, strict=True)))


def measured(given: Path | None, option: str) -> Path:
    """The folder of ``--tables`` or ``--configs``, else that beside the checkout.

    Raises:
        InputError: neither is there.
    """
    folder = given or getattr(ALL, option.removeprefix("--"))
    if given is None and not folder.exists():
        raise InputError("command line", option, "missing", "a folder of the authors' files")
    return folder


FP8, BF16 = Format.of(bytes=1.0, bits=8.0), Format.of(bytes=2.0, bits=16.0)
NESTED = ("qwen3_5", "qwen3_5_moe")
ROUTED = ("num_routed_experts", "num_experts")


class PublishedChip(NamedTuple):
    """A device of the tool's table: its hardware and the MFU taken where no table has one."""

    hardware: Hardware
    default_mfu: float


def kernels_hardware(name: str) -> PublishedChip:
    """A device of the tool by its name; no price is known: 0."""
    row = row_of("kernels", "hardware", name)
    return PublishedChip(hardware_of(row), row["mfu"])


def kernels_model(
    path: str | os.PathLike[str], *, fp8_gemm: bool = True, fp8_kv: bool = False
) -> Architecture:
    """The architecture that the tool sees in a config.json.

    ``fp8_gemm``: all weights in one byte and FP8 products, else bfloat16; ``fp8_kv``: a cache of
    one byte per element, else two.

    Raises:
        InputError: unreadable, a key that it needs missing or wrong.
    """
    config = Facts(read_json(path), str(path))
    if config.values.get("model_type") in NESTED:
        nested = config.section("text_config")
        if nested is None:
            raise config.error("text_config", "missing", "the language model's object")
        config = nested
    weights = FP8 if fp8_gemm else BF16
    layers, width = config.count("num_hidden_layers"), config.count("hidden_size")
    attention, feedforward = _attention(config, weights), _feedforward(config, weights)
    if "full_attention_interval" in config:
        full = layers // config.count("full_attention_interval")
        linear = Linear.of(**vars(config.counts(RECURRENT)), weights=weights)
        blocks = (
            Block.of(count=full, attention=attention, feedforward=feedforward),
            Block.of(count=layers - full, attention=linear, feedforward=feedforward),
        )
    else:
        blocks = (Block.of(count=layers, attention=attention, feedforward=feedforward),)
    return Architecture.of(
        width=width, vocabulary=0.0, tied=1.0, blocks=blocks, cache=FP8 if fp8_kv else BF16
    )


def _attention(config: Facts, weights: Format) -> GroupedQuery | Latent:
    if "kv_lora_rank" in config:
        n, query_rank = config.counts(LATENT), config.count("q_lora_rank")
        return Latent.of(**vars(n), query_rank=query_rank, weights=weights)
    heads = config.count("num_attention_heads")
    head = config.count("head_dim", default=config.count("hidden_size") // heads, silent=True)
    return GroupedQuery.of(
        query_heads=heads,
        kv_heads=config.count("num_key_value_heads"),
        head_width=head,
        value_width=head,
        weights=weights,
    )


def _feedforward(config: Facts, weights: Format) -> Dense | Experts:
    if not any(key in config for key in ROUTED):
        return Dense.of(width=config.count("intermediate_size"), inward=2.0, weights=weights)
    width = config.count("moe_intermediate_size")
    shared = config.count("num_shared_experts", default=0, low=0, silent=True)
    return Experts.of(
        experts=config.count(*ROUTED),
        active=config.count("num_experts_per_tok"),
        width=width,
        inward=2.0,
        router=0.0,
        shared=Dense.of(width=width * shared, inward=2.0, weights=weights),
        weights=weights,
    )


CHUNK = 16  # rows of a call: one program a structure
CHOSEN = "from target_tgs and target_tpot"
OK, REFUSED = "ok", "refused"
# kinds of kernels that the tool has worked out when the look-up of one of another makes it crash
BEFORE = {"attn_core": (), "lin_core": ("full",), "moe": ("full", "linear")}


def status(cell: str) -> str:
    """'ok', or 'refused' for any crash."""
    return OK if cell == OK else REFUSED


def warnings(cell: str) -> str:
    """The tables that the tool warns about, in order of their names."""
    result = re.findall(r"bench_data/([\w./-]+)\.csv|(grouped_gemm \w+) mfu not found", cell)
    return ", ".join(sorted({(file or rows).lower() for file, rows in result}))


KNOWN = kernels_constants()
INPUTS = {
    "config": Input(),
    "device_type": Input(),
    "world_size": Input(count),
    "num_nodes": Input(count, absent=1.0),
    "tp_size": Input(count, absent=1.0),
    "target_isl": Input(count, absent=4096.0),
    "target_osl": Input(count, absent=2048.0),
    "decode_bs": Input(count, absent=CHOSEN, blank=CHOSEN),
    "max_prefill_tokens": Input(count, absent=KNOWN["prefill_tokens"]),
    "target_tgs": Input(positive, absent=KNOWN["target_tgs"]),
    "target_tpot": Input(positive, absent=KNOWN["target_tpot_ms"]),
    **dict.fromkeys(
        ("use_fp8_gemm", "use_fp8_kv", "enable_deepep", "enable_tbo"), Input(flag, absent=False)
    ),
    "sm_ratio": Input(positive, absent=KNOWN["sm_share"]),
}
TEXTS: Mapping[str, Callable[[str], Value]] = {
    "model_class": str,
    **{f"status_{name}": status for name in ("static", "prefill", "decode")},
    **{f"warn_{name}": warnings for name in ("prefill", "decode")},
}
NUMBERS = ("world_size", "num_nodes", "tp_size", "target_isl", "target_osl", "batch")
NUMBERS += ("max_prefill_tokens", "enable_deepep", "enable_tbo", "sm_ratio")


# a few programs of a few rows each: compiling takes all the time, so compile quickly
@partial(jax.jit, compiler_options=quick("cpu"))
def _columns(model: Kernels, archs: Architecture, hardware: Any, numbers: Any) -> Any:
    """Every column of the file, and every kernel, of rows of one structure and device."""

    def columns_of_row(arch: Architecture, row: Any) -> Any:
        return columns_of(model, arch, hardware, dict(zip(NUMBERS, row, strict=True)))

    return jax.vmap(columns_of_row)(archs, numbers)


def columns(
    model: Kernels, archs: Sequence[Architecture], hardware: Hardware, rows: Sequence[Any]
) -> tuple[Any, Any]:
    """(columns, kernels) of at most ``CHUNK`` rows, each with its model, in float64.

    The last row fills the call up, so that rows of one structure share one program.
    """
    filler = CHUNK - len(rows)
    stacked = jax.tree.map(lambda *x: np.stack(x), *archs, *[archs[-1]] * filler)
    numbers = np.array([[row[name] for name in NUMBERS] for row in [*rows, *[rows[-1]] * filler]])
    with jax.enable_x64(True):
        return jax.device_get(_columns(model, stacked, hardware, numbers))


class Evaluation:
    """Evaluates rows against one folder of tables and one of configs; keeps what it refused."""

    def __init__(self, tables: Path, configs: Path):
        self.folder, self.configs = tables, configs
        self.tables: dict[str, KernelTables] = {}
        self.models: dict[tuple[str, bool, bool], Architecture | str] = {}
        self.refused: dict[str, int] = defaultdict(int)
        self.defaults: dict[str, Counter[str]] = defaultdict(Counter)

    def model(self, name: str, gemm: bool, cache: bool) -> Architecture | str:
        """The architecture of a config, or the reason why there is none."""
        key = (name, gemm, cache)
        if key not in self.models:
            path = self.configs / f"{name}_config.json"
            if Path(name).name != name or not path.is_file():
                self.models[key] = f"no {name}_config.json in {self.configs}"
            else:
                self.models[key] = kernels_model(path, fp8_gemm=gemm, fp8_kv=cache)
        return self.models[key]

    def group(self, row: dict[str, Any]) -> Hashable:
        """The device and the structure of the model; or the reason why there is no answer."""
        arch = self.model(row["config"], row["use_fp8_gemm"], row["use_fp8_kv"])
        if isinstance(arch, str):
            return arch
        if row["device_type"] not in tables("kernels")["hardware"]:
            return f"device '{row['device_type']}' is not the tool's"
        return row["device_type"], jax.tree.structure(arch)

    def evaluate(self, key: tuple[str, Any], rows: list[dict[str, Any]]) -> Iterator[Answer]:
        """At most ``CHUNK`` rows of models of one structure on one device."""
        name, chip = key[0].lower(), kernels_hardware(key[0])
        if name not in self.tables:
            self.tables[name] = load_kernel_tables(self.folder, name)
        tables, missing = self.tables[name], kernels_constants()["missing_prefill"]
        model = Kernels.as_published(Tables.pack(tables, chip.default_mfu, missing))
        archs: list[Any] = [
            self.model(r["config"], r["use_fp8_gemm"], r["use_fp8_kv"]) for r in rows
        ]
        # the decode batch per GPU: given, or what the target throughput keeps in flight
        filled = [
            {"batch": float(math.ceil(r["target_tgs"] * r["target_tpot"] / 1000))
             if r["decode_bs"] == CHOSEN else r["decode_bs"]} | r
            for r in rows
        ]  # fmt: skip
        values, kernels = columns(model, archs, chip.hardware, filled)
        for i, row in enumerate(rows):
            mine = jax.tree.map(lambda x, i=i: float(x[i]), (values, kernels))
            yield self._answer(tables, archs[i], row, *mine)

    def _answer(self, tables: KernelTables, arch: Any, row: Any, values: Any, kernels: Any):
        """One row: numbers, statuses and warnings; a refused phase has what came before."""
        hybrid = len(arch.blocks) > 1
        answer: dict[str, Value] = {"model_class": "hybrid" if hybrid else "plain"}
        answer |= {"status_static": OK} | values["static"]
        for stage in ("prefill", "decode"):
            result = lacks(tables, arch, kernels[stage], stage, row["tp_size"])
            fatal = next((lack for lack in result if lack.error), None)
            if fatal is not None and fatal.error is not None and fatal.headless:
                raise fatal.error
            for lack in result:
                if lack.error is None:
                    self.defaults[lack.sentence][lack.kernel] += 1
            reason, before = (str(fatal.error), BEFORE[fatal.kernel]) if fatal else ("", ())
            if fatal is None and row["tp_size"] > row["world_size"]:
                reason, before = "tp_size is above world_size: experts have no GPU", BEFORE["moe"]
            answer[f"status_{stage}"] = REFUSED if reason else OK
            answer[f"warn_{stage}"] = warned(result, before if reason else None)
            if reason:
                self.refused[f"{stage}: {reason}"] += 1
                answer |= {k: v for k, v in values[stage].items() if KINDS.get(k) in before}
            else:
                answer |= values[stage]
        slow = values["decode"]["decode_tpot_ms"] > row["target_tpot"]
        return Answer(answer | {"slo_flag": float(slow and answer["status_decode"] == OK)})


def warned(result: Iterable[Lack], before: tuple[str, ...] | None) -> str:
    """The tables that the tool warns about; of a refused phase, by the kinds ``before`` it."""
    said = [x for x in result if x.warned and x.error is None]
    return ", ".join(sorted({x.table for x in said if before is None or KIND[x.kernel] in before}))


def recipe(tables: Path, configs: Path) -> tuple[Recipe, Evaluation]:
    """The comparison against these folders, and what will tell what it refused.

    Raises:
        InputError: a folder that is none.
    """
    for option, folder in (("--tables", tables), ("--configs", configs)):
        if not folder.is_dir():
            raise InputError("command line", option, str(folder), "a folder")
    evaluation = Evaluation(tables, configs)
    outputs = {name: Output(0.0, read) for name, read in TEXTS.items()}
    outputs |= {name: Output(1e-9, quantity) for name in COLUMNS}
    source = "InferSim (https://github.com/alibaba/InferSim), runs of its program in float64"
    recipe = Recipe(source, INPUTS, outputs, evaluation.evaluate, evaluation.group, CHUNK)
    return recipe, evaluation
