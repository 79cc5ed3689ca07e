"""Gradients that design: elasticities, lifetimes and case studies."""

import json
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax
import jax.numpy as jnp
import numpy as np
import typer
from jax import Array

import infer_jax as ij
from experiments import _report
from infer_jax.catalog import load_model, load_system
from infer_jax.catalog.files import write_text
from infer_jax.catalog.foreign import read_toml
from infer_jax.catalog.models import template
from infer_jax.design import QualityWrapper, export, optimise
from infer_jax.design.quality import Chinchilla, compute_optimal
from infer_jax.design.sensitivity import elasticities, what_if
from infer_jax.design.toml import DesignSpec, spec_of
from infer_jax.estimators import Speculative, make
from infer_jax.physics import decoder
from infer_jax.physics.network.collectives import fastest_instance
from infer_jax.specs import Architecture, Plan, Workload
from infer_jax.sweeps import Axis, Best, Constraint, Space
from infer_jax.sweeps.paths import Point
from infer_jax.verbs.codesign_result import CodesignResult

app = _report.program(__doc__, no_args_is_help=True)
# what is searched, and what is to be known of each result
STUDIES: dict[str, Any] = read_toml(Path(__file__).parent / "_codesign" / "studies.toml")
HOP, REDUCES = 2e-6, 4.0  # Erdil 2025 (arXiv 2506.04645), Section 2.2 and Table 1
BANDWIDTH = 3.3e12  # bytes/s, as the paper's Table 1 has the H100
GRID = np.geomspace(1.0, 512.0, 200)  # GPUs among which level 4 is fastest
MODEL, SYSTEM = "llama-3.1-70b", "h100_sxm"


def closed_form(tree: dict[str, Array]) -> dict[str, Array]:
    """Time of a token of the fastest instance, seconds: Section 2.2.3, Eq. 14."""
    hops = tree["layers"] * REDUCES * tree["hop"]
    return {"tpot": fastest_instance(hops, tree["bytes"] / tree["bandwidth"]).time}


def closed_point() -> dict[str, Any]:
    """Llama 3 70B in 16 bits on the paper's H100."""
    arch = load_model(MODEL).architecture
    size = decoder.total(decoder.parameters(arch).values())
    numbers = {"layers": 80.0, "hop": HOP, "bytes": 2.0 * float(size), "bandwidth": BANDWIDTH}
    return {k: np.asarray(v) for k, v in numbers.items()}


def analytic(hops: float, read: float) -> tuple[float, float]:
    """(-X / (3X - a), (2X - a) / (3X - a)): of bandwidth and of latency, a = hops, m = read.

    X = (a/2)^(2/3) m^(1/3). Source: Erdil 2025 (arXiv 2506.04645), Eq. 14, differentiated.
    """
    x = (hops / 2.0) ** (2.0 / 3.0) * read ** (1.0 / 3.0)
    return -x / (3.0 * x - hops), (2.0 * x - hops) / (3.0 * x - hops)


def tpot(point: Point) -> dict[str, Array]:
    """TPOT as planned, seconds."""
    one = point.estimator.estimate(point.arch, point.hardware, point.workload, point.plan)
    return {"tpot": one.tpot}


def _times(point: Point) -> Array:
    def at(chips: Array) -> Array:
        return tpot(point._replace(plan=point.plan.replace(tp=chips)))["tpot"]

    return jax.vmap(at)(jnp.asarray(GRID))


def fastest(point: Point) -> dict[str, Array]:
    """TPOT at the fastest number of GPUs, seconds: everything is laid out anew."""
    return {"tpot": jnp.min(_times(point))}


def level4() -> Point:
    """Level 4 with one request and no context, at the GPUs at which it is fastest."""
    system, arch = load_system(SYSTEM), load_model(MODEL).architecture
    economics = make("economics.level4", system.coefficients)
    point = Point(economics, arch, system.hardware, Workload.of(), Plan.of())
    with jax.enable_x64(True):
        times = np.asarray(jax.jit(_times)(point))
    return point._replace(plan=Plan.of(tp=GRID[int(np.argmin(times))]))


@_report.command(app, name="elasticities")
def elasticity_tables() -> dict[str, Any]:
    """The closed form's elasticities, level 4's beside them, and three changes of hardware."""
    point, at = closed_point(), level4()
    slopes = {e.path: e.slope for e in elasticities(closed_form, point)}
    ours = slopes["bandwidth"], slopes["hop"]
    hops = float(point["layers"]) * REDUCES * HOP
    theirs = analytic(hops, float(point["bytes"] / point["bandwidth"]))
    reports = elasticities(tpot, at)
    four = {e.path: e.slope for e in reports}
    latencies = [e for e in reports if e.path.startswith("estimator.protocols.*") and e.unit == "s"]
    level = four["hardware.chip.memory_bandwidth"], sum(e.slope for e in latencies)
    names = ("memory bandwidth", "latency of an all-reduce")
    rows = [
        (name, f"{a:.6f}", f"{b:.6f}", f"{c:.3f}")
        for name, a, b, c in zip(names, theirs, ours, level, strict=True)
    ]
    rows.append(("kernel launch", "", "", f"{four['estimator.launch']:.3f}"))
    columns = ("elasticity of TPOT", "formula", "closed form", "level 4, fastest")
    note = (
        f"Llama 3 70B, 16 bits, one request. As latency goes to 0 they go to -1/3 and 2/3. Level 4 "
        f"is fastest at {float(at.plan.tp):.0f} GPUs; its latency row scales all latencies of "
        "NCCL's protocols."
    )
    _report.show("Elasticities", columns, rows, note)
    half = dict.fromkeys(
        ("arch.blocks.*.*.weights.bytes", "arch.embedding.bytes", "arch.head.bytes"),
        lambda x: 0.5 * x,
    )
    changes = {
        "half the bytes of every weight": half,
        "NVLink domain 8 to 72": {"hardware.network.domain": 72.0},
        "kernel launch 4 to 2 microseconds": {"estimator.launch": 2e-6},
    }
    held, anew = (
        {name: x["tpot"] for name, x in what_if(law, at, changes).items()}
        for law in (tpot, fastest)
    )
    shown = [
        (name, *(f"{100 * (1 / (1 + found[name]) - 1):+.1f}" for found in (held, anew)))
        for name in changes
    ]
    _report.show(
        "What it is worth in tokens per second, level 4, %",
        ("change", "same GPUs", "fastest anew"),
        shown,
        "The paper's rule of thumb for half the weight bytes: 2^(1/3), +26 %.",
    )
    worst = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    keys = ("bandwidth", "latency")
    return {
        "closed_form": dict(zip(keys, ours, strict=True)),
        "formula": dict(zip(keys, theirs, strict=True)),
        "worst_difference": worst,
        "level4": {**dict(zip(keys, level, strict=True)), "gpus": float(at.plan.tp)},
        "what_if_same_gpus": held,
        "what_if_fastest_anew": anew,
        "agrees": worst < 1e-9,
    }


SERVED = (0.0, 1e12, 1e13, 1e14)  # output tokens over a life


# Chinchilla's answer is for training alone. With tokens to serve, a smaller model that is trained
# longer costs less in all: Sardana et al. 2024 (arXiv 2401.00448), there with FLOP, here in USD of
# training and of serving as the economics model prices it
@_report.command(app, x64=True)
def lifetimes() -> dict[str, Any]:
    """Training and serving: how large a model and how long trained, by the tokens it serves."""
    study: Any = STUDIES["lifetime"]
    spec_table, caveats = study["spec"], study["caveats"]
    reports, rows = {}, []
    for served in SERVED:
        table = spec_table | {"quality": spec_table["quality"] | {"served": served}}
        spec = spec_of(f"{served:g} tokens", table)
        result = optimise(spec.estimator, spec.space, spec.keeps[0], start=spec.start)
        law = spec.estimator.law
        size, tokens = result.terms["active"], result.values["estimator.tokens"]
        own, trained = compute_optimal(Chinchilla.of(), 6.0 * size * tokens)
        reports[f"{served:g}"] = row = {
            "parameters": size,
            "tokens": tokens,
            "tokens_per_parameter": tokens / size,
            "chinchilla_ratio": trained / own,
            **{name: result.terms[name] for name in ("training", "lifetime", "cost", "loss")},
            "design": {k: v for k, v in result.values.items() if "vectors" not in k},
            "notes": list(law.warnings(result.point.arch, tokens)) if law else [],
        }
        ratios = (f"{row[name]:.0f}" for name in ("tokens_per_parameter", "chinchilla_ratio"))
        prices = (f"{x:,.0f}" for x in (row["training"], row["lifetime"] - row["training"]))
        sizes = (f"{served:.0e}", f"{size / 1e9:.2f}e9", f"{tokens:.3g}")
        rows.append((*sizes, *ratios, *prices, f"{row['loss']:.4f}"))
    columns = ("output tokens served", "parameters", "training tokens", "per parameter",
               "Chinchilla's", "training $", "serving $", "loss")  # fmt: skip
    work, limits = spec_table["workload"], spec_table["limits"]
    bounds = f"TPOT at most {1e3 * limits['tpot']:g} ms, loss at most {limits['loss']:g}."
    note = f"{spec_table['arch']['model']} class on {spec_table['hardware']['system']}, "
    note += f"{work['isl']} in, {work['osl']} out, {bounds}"
    _report.show(study["title"], columns, rows, note)
    for text in dict.fromkeys(n for x in reports.values() for n in x["notes"]):
        _report.console().print(f"- {text}.")
    for caveat in caveats:
        _report.console().print(f"- {caveat}")
    result = list(reports.values())
    falls = all(a["parameters"] > b["parameters"] for a, b in pairwise(result))
    over = all(x["tokens_per_parameter"] > x["chinchilla_ratio"] for x in result[1:])
    return {"lifetimes": reports, "caveats": caveats, "agrees": falls and over}


SHIPPED = ("llama-3.1-70b", "llama-3.1-405b", "qwen2.5-72b", "qwen3-32b", "mistral-large-2")
SHIPPED += ("opt-66b",)


def dense(out: Path) -> dict[str, Any]:
    """(a) A dense model of 70B parameters reshaped for H100 and for GB200 NVL72."""
    size = _parameters(load_model("llama-3.1-70b").architecture)
    shapes = np.array([_proportions(name) for name in SHIPPED])
    lows = (0.99 * size, *shapes.min(axis=0).tolist())
    highs = (1.01 * size, *shapes.max(axis=0).tolist())
    found = {}
    for system, limit, chips in (("h100_sxm", 0.030, 8), ("gb200_nvl72", 0.012, 64)):
        table = _bounded("a", system, lows, highs)
        table["limits"] = {"tpot": limit}
        table["free"] |= {"tp": [1, chips]}
        found[system] = _designed(table, out / f"a-{system}")
    return _reported("a", found)


def mixture(out: Path) -> dict[str, Any]:
    """(b) A mixture of DeepSeek-V3's class redesigned for H20 and for H800."""
    found, rows = {}, []
    arch = load_model("deepseek-v3").architecture
    sizes = np.array([_parameters(arch), float(decoder.active_parameters(arch))])
    for system in ("h20_sxm", "h800_sxm"):
        table = _bounded("b", system, (0.98 * sizes).tolist(), (1.02 * sizes).tolist())
        found[system] = _designed(table, out / f"b-{system}")
        chip, values = load_system(system).hardware.chip, found[system].designs[0].values
        ratio, layer = float(chip.flops_8 / chip.memory_bandwidth), "arch.blocks.1.feedforward"
        sparsity = values[f"{layer}.experts"] / values[f"{layer}.active"]
        heads = values["arch.blocks.0.attention.query_heads"], ratio / 4.0
        tokens = values["workload.batch"], ratio / 2.0 * sparsity
        rows.append((system, *(f"{x:,.5g}" for x in (ratio, *heads, *tokens))))
    result = _reported("b", found)
    columns = ("system", "FLOP per byte R", "heads", "at balance, R/4", "tokens of a step")
    _report.show("Balance at 8 bits", (*columns, "at balance, R/2 E/k of a layer"), rows)
    return result | {"balance": rows}


def _bounded(case: str, system: str, lows: Any, highs: Any) -> dict[str, Any]:
    """The table of a case on a system, each of its constraints within two bounds."""
    spec = STUDIES[case]["spec"]
    where = [
        constraint | {"at_least": low, "at_most": high}
        for constraint, low, high in zip(spec["where"], lows, highs, strict=True)
    ]
    return spec | {"hardware": {"system": system}, "where": where, "free": dict(spec["free"])}


def _proportions(name: str) -> tuple[float, float, float]:
    """Width over layers, query heads of 128 and feedforward units over the width."""
    arch: Any = load_model(name).architecture
    (block,) = arch.blocks
    heads = block.attention.query_heads * block.attention.head_width / 128.0
    shares = (arch.width / block.count, heads / arch.width, block.feedforward.width / arch.width)
    return tuple(map(float, shares))  # pyright: ignore[reportReturnType]


CURVES: dict[str, Callable[[Array], Array]] = {
    "Chinchilla exponent": lambda size: 1.0 - 0.2 * (8e9 / size) ** 0.3478,
    "square root": lambda size: 1.0 - 0.2 * (8e9 / size) ** 0.5,
    "0.1 a decade": lambda size: 0.8 + 0.1 * jnp.log10(size / 8e9),
}


def draft(out: Path) -> dict[str, Any]:
    """(c) A draft model for Llama 3 70B, fastest at batch 8 on 8 H100, under three curves."""
    system = load_system("h100_sxm")
    target = load_model("llama-3.1-70b", quant="fp8").architecture
    small: Any = load_model("llama-3.2-1b", quant="fp8").architecture
    block = "estimator.target.draft.blocks.0"
    inner, second = (make(kind, system.coefficients) for kind in ("economics.planned", "kernels"))
    estimator = QualityWrapper.of(target=Speculative.bonus(inner, small, 0.8, most=8))
    found, rows = {}, []
    for name, curve in CURVES.items():

        def acceptance(_: Any, point: Any, curve: Any = curve) -> Array:
            size = decoder.total(decoder.parameters(point.estimator.target.draft).values())
            return jnp.clip(curve(size), 0.01, 0.99)

        width = "estimator.target.draft.width"
        free = {  # an axis, and where the search starts
            width: (Axis.integers(256, 4096, 128), small.width),
            f"{block}.count": (Axis.integers(1, 40), small.blocks[0].count),
            f"{block}.feedforward.width": (
                Axis.integers(512, 16384, 512), small.blocks[0].feedforward.width
            ),
            f"{block}.attention.query_heads": (Axis.values(4, 8, 16, 32), 32.0),
            f"{block}.attention.kv_heads": (Axis.values(1, 2, 4, 8), 8.0),
        }  # fmt: skip
        start = {name: float(value) for name, (_, value) in free.items()}
        axes = {name: axis for name, (axis, _) in free.items()}
        axes["estimator.target.acceptance"] = Axis.dependent(acceptance)
        heads, kv_heads = (f"{block}.attention.{x}_heads" for x in ("query", "kv"))
        many = Constraint(value=kv_heads, divides=heads)
        where = (many, Constraint(ratio=(width, f"{block}.count"), at_least=32.0))
        work, plan = Workload.of(isl=2048, osl=512, batch=8), Plan.of(tp=8)
        spec = DesignSpec(
            estimator, second, Space(target, system.hardware, work, plan, axes=axes, where=where),
            (Best("speed"),), start, search={}, feasible="feasible", model="", formats={},
            names=("economics.planned", "kernels"), system=system.name,
        )  # fmt: skip
        folder = out / f"c-{name.replace(' ', '-')}"
        found[name] = _drawn(spec, folder)
        design = found[name].designs[0].design
        chosen: Any = design.point.estimator.target  # pyright: ignore
        config, _ = export(chosen.draft, template("llama-3.2-1b"), quant="fp8")
        write_text(folder / "config.json", json.dumps(config, indent=2) + "\n")
        drafts = float(design.estimate.decode.layout["drafts"])
        sizes = (_parameters(chosen.draft), float(chosen.acceptance), drafts)
        rows.append((name, *(f"{x:,.5g}" for x in sizes)))
    result = _reported("c", found)
    _report.show("Drafts", ("curve", "parameters", "acceptance", "drafts a pass"), rows)
    return result | {"drafts": rows}


CASES: dict[str, Callable[[Path], dict[str, Any]]] = {"a": dense, "b": mixture, "c": draft}


# each design is found under one estimator and priced again by another; no model here was trained:
# equal parameters are not equal quality
@_report.command(app, x64=True)
def cases(
    only: Annotated[list[str] | None, typer.Option(help="a, b or c; all if none.")] = None,
    out: Annotated[Path, typer.Option(help="Folder to write into.")] = _report.OUT / "codesign",
) -> dict[str, Any]:
    """Three case studies, with pictures, a second estimator and caveats."""
    names = _report.chosen_keys("case", only or list(CASES), CASES)
    return {"cases": {name: CASES[name](out) for name in names}}


def _parameters(arch: Architecture) -> float:
    return float(decoder.total(decoder.parameters(arch).values()))


def _designed(table: dict[str, Any], folder: Path) -> CodesignResult:
    """The design of a table, from the model at the batch and split that are best for it alone."""
    held = {name: x for name, x in table["free"].items() if name in ("tp", "ep", "batch")}
    start = {name: x for name, x in table["start"].items() if name in held}
    alone = ij.codesign(spec=table | {"free": held, "start": start, "where": []}).designs[0]
    best = {path.rpartition(".")[2]: float(x) for path, x in alone.design.values.items()}
    return _drawn(table | {"start": table["start"] | best}, folder)


def _drawn(spec: Any, folder: Path) -> CodesignResult:
    """The design of a spec; its files and the path of its search go into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return ij.codesign(spec=spec, out=[folder, folder / "path.png"])


def _reported(case: str, found: dict[str, CodesignResult]) -> dict[str, Any]:
    """Print the designs of a case with what is to be known of them; the headline."""
    for name, result in found.items():
        _report.console().print(f"\n[bold]({case}) {STUDIES[case]['title']}: {name}[/]")
        print(result)
    for caveat in STUDIES[case]["caveats"]:
        _report.console().print(f"- {caveat}")
    designs = {name: result.to_dict() for name, result in found.items()}
    return {"designs": designs, "caveats": STUDIES[case]["caveats"]}


if __name__ == "__main__":
    app()
