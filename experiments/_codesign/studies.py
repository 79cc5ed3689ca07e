"""Three designs: a dense 70B for two systems, a mixture for two balances, a draft for three curves.

Each is searched under one estimator and priced again by another; a gain that only one of them sees
is said so. No model here was trained: equal parameters are not equal quality. What is searched, and
what is to be known of each result, stands in ``studies.toml``.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments import _report
from infer_jax.catalog import load_model, load_system
from infer_jax.catalog.files import write_text
from infer_jax.catalog.foreign import read_toml
from infer_jax.design import Design, QualityWrapper, export, optimise
from infer_jax.design.config_json import template
from infer_jax.design.problem import estimate_of
from infer_jax.design.toml import DesignSpec, spec_of
from infer_jax.estimators import Speculative, Wrapper, make
from infer_jax.physics import decoder
from infer_jax.plots.path import plot_path
from infer_jax.plots.style import save
from infer_jax.specs import Architecture, Plan, Workload
from infer_jax.sweeps import Axis, Best, Constraint, Space
from infer_jax.verbs.codesign_result import search_of

STUDIES: dict[str, Any] = read_toml(Path(__file__).with_name("studies.toml"))
SHIPPED = ("llama-3.1-70b", "llama-3.1-405b", "qwen2.5-72b", "qwen3-32b", "mistral-large-2")
SHIPPED += ("opt-66b",)
TERMS = ("ttft", "tpot", "speed", "throughput", "cost")


def dense(out: Path) -> dict[str, Any]:
    """(a) A dense model of 70B parameters reshaped for H100 and for GB200 NVL72."""
    size = _parameters(load_model("llama-3.1-70b").architecture)
    shapes = np.array([_proportions(name) for name in SHIPPED])
    lows = (0.99 * size, *shapes.min(axis=0).tolist())
    highs = (1.01 * size, *shapes.max(axis=0).tolist())
    reports = {}
    for system, limit, chips in (("h100_sxm", 0.030, 8), ("gb200_nvl72", 0.012, 64)):
        table = _bounded("a", system, lows, highs)
        table["limits"] = {"tpot": limit}
        table["free"] |= {"tp": [1, chips]}
        reports[system] = _searched(f"a-{system}", table, out)
    return _reported("a", reports, out)


def mixture(out: Path) -> dict[str, Any]:
    """(b) A mixture of DeepSeek-V3's class redesigned for H20 and for H800."""
    reports = {}
    arch = load_model("deepseek-v3").architecture
    sizes = np.array([_parameters(arch), float(decoder.active_parameters(arch))])
    for system in ("h20_sxm", "h800_sxm"):
        table = _bounded("b", system, (0.98 * sizes).tolist(), (1.02 * sizes).tolist())
        result = _searched(f"b-{system}", table, out)
        chip = load_system(system).hardware.chip
        ratio = float(chip.flops_8 / chip.memory_bandwidth)
        layer, design = "arch.blocks.1.feedforward", result["design"]
        result["balance"] = {
            "FLOP per byte at 8 bits": ratio,
            "heads at balance (R/4)": ratio / 4.0,
            "heads of the design": design["arch.blocks.0.attention.query_heads"],
            "tokens of a layer at balance (R/2 E/k)": ratio
            / 2.0
            * (design[f"{layer}.experts"] / design[f"{layer}.active"]),
            "tokens of the design's step": design["workload.batch"],
        }
        reports[system] = result
    return _reported("b", reports, out)


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
    arch = load_model(name).architecture
    (block,) = arch.blocks
    attention: Any = block.attention
    layer: Any = block.feedforward
    heads = attention.query_heads * attention.head_width / 128.0
    return (
        float(arch.width / block.count),
        float(heads / arch.width),
        float(layer.width / arch.width),
    )


CURVES: dict[str, Callable[[Array], Array]] = {
    "Chinchilla exponent": lambda size: 1.0 - 0.2 * (8e9 / size) ** 0.3478,
    "square root": lambda size: 1.0 - 0.2 * (8e9 / size) ** 0.5,
    "0.1 a decade": lambda size: 0.8 + 0.1 * jnp.log10(size / 8e9),
}


def draft(out: Path) -> dict[str, Any]:
    """(c) A draft model for Llama 3 70B, fastest at batch 8 on 8 H100, under three curves."""
    system = load_system("h100_sxm")
    target = load_model("llama-3.1-70b", quant="fp8").architecture
    small = load_model("llama-3.2-1b", quant="fp8").architecture
    block = "estimator.target.draft.blocks.0"
    reports = {}
    for name, curve in CURVES.items():

        def acceptance(_: Any, point: Any, curve: Any = curve) -> Array:
            size = decoder.total(decoder.parameters(point.estimator.target.draft).values())
            return jnp.clip(curve(size), 0.01, 0.99)

        def drafting(kind: str) -> Any:
            inner = make(kind, system.coefficients)
            return QualityWrapper.of(target=Speculative.bonus(inner, small, 0.8, most=8))

        axes = {
            "estimator.target.draft.width": Axis.integers(256, 4096, 128),
            f"{block}.count": Axis.integers(1, 40),
            f"{block}.feedforward.width": Axis.integers(512, 16384, 512),
            f"{block}.attention.query_heads": Axis.values(4, 8, 16, 32),
            f"{block}.attention.kv_heads": Axis.values(1, 2, 4, 8),
            "estimator.target.acceptance": Axis.dependent(acceptance),
        }
        start = {
            "estimator.target.draft.width": float(small.width),
            f"{block}.count": float(small.blocks[0].count),
            f"{block}.feedforward.width": float(small.blocks[0].feedforward.width),  # pyright: ignore
            f"{block}.attention.query_heads": 32.0,
            f"{block}.attention.kv_heads": 8.0,
        }
        where = (
            Constraint(
                value=f"{block}.attention.kv_heads", divides=f"{block}.attention.query_heads"
            ),
            Constraint(ratio=("estimator.target.draft.width", f"{block}.count"), at_least=32.0),
        )
        work, plan = Workload.of(isl=2048, osl=512, batch=8), Plan.of(tp=8)
        space = Space(target, system.hardware, work, plan, axes=axes, where=where)
        result = optimise(drafting("economics.planned"), space, Best("speed"), start=start)
        report = _of(result, drafting("kernels"))
        assert isinstance(result.point.estimator, QualityWrapper)
        chosen = result.point.estimator.target
        assert isinstance(chosen, Speculative) and chosen.draft is not None
        report["draft"] = {
            "parameters": _parameters(chosen.draft),
            "acceptance": float(chosen.acceptance),
            "drafts a pass": float(result.estimate.decode.layout["drafts"]),
        }
        config, _ = export(chosen.draft, template("llama-3.2-1b"), quant="fp8")
        _write(out / f"c-{name.replace(' ', '-')}", report, config, result)
        reports[name] = report
    return _reported("c", reports, out)


CASES: dict[str, Callable[[Path], dict[str, Any]]] = {"a": dense, "b": mixture, "c": draft}


def _parameters(arch: Architecture) -> float:
    return float(decoder.total(decoder.parameters(arch).values()))


def _searched(name: str, table: dict[str, Any], out: Path) -> dict[str, Any]:
    """Search a table, from the model at the batch and split that are best for it alone."""
    spec = spec_of(name, table)
    own = _own_best(spec)
    result = optimise(spec.estimator, spec.space, spec.keeps[0], feasible=spec.feasible, start=own)
    report = _of(result, spec.second)
    config, _ = export(result.point.arch, template(spec.model), **spec.formats)
    _write(out / name, report, config, result)
    return report


def _own_best(spec: DesignSpec) -> dict[str, float]:
    """The start with the split and batch that gradients find best for the model as it is."""
    held = {k: v for k, v in spec.space.axes.items() if not k.startswith("arch.")}
    where = [c for c in spec.space.where if not _of_shape(c)]
    system = {"axes": held, "where": where, "zips": ()}
    fields = ("arch", "hardware", "workload", "plan")
    space = Space(**{f: getattr(spec.space, f) for f in fields}, **system)
    start = {k: v for k, v in spec.start.items() if k in held}
    best = optimise(spec.estimator, space, spec.keeps[0], feasible=spec.feasible, start=start)
    return spec.start | {k: float(v) for k, v in best.values.items()}


def _of_shape(constraint: Any) -> bool:
    """Whether a constraint is of the model's shape alone, which the start keeps."""
    names = (constraint.value, *constraint.product, *constraint.sum, *constraint.ratio)
    return all(n in ("", "parameters", "active", "aspect") or n.startswith("arch.") for n in names)


def _of(result: Design, second: Any) -> dict[str, Any]:
    """Start and design under both estimators."""

    def other(point: Any) -> dict[str, Any]:
        other_estimator = second
        if isinstance(second, Wrapper) and isinstance(second.target, Speculative):
            own = point.estimator.target
            other_estimator = second.replace(
                target=second.target.replace(draft=own.draft, acceptance=own.acceptance)
            )
        priced = estimate_of(point._replace(estimator=other_estimator))
        reports: dict[str, Any] = {n: float(getattr(priced, n)) for n in TERMS}
        return reports | {"feasible": bool(priced.decode.feasible)}

    return {
        "objective": result.by,
        "gain": result.gain,
        "start": {path: float(_at(result.start, path)) for path in result.values},
        "design": {k: float(v) for k, v in result.values.items()},
        "terms": {n: (result.start_terms[n], result.terms[n]) for n in TERMS},
        "second": {"start": other(result.start), "design": other(result.point)},
        "counts": result.counts | {"seconds": result.seconds},
        "notes": list(result.notes),
    }


def _at(point: Any, path: str) -> Any:
    for step in path.split("."):
        point = point[int(step)] if step.isdigit() else getattr(point, step)
    return point


def _write(folder: Path, report: dict[str, Any], config: dict[str, Any], result: Design) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in (("design.json", report), ("config.json", config)):
        write_text(folder / name, json.dumps(table, indent=2) + "\n")
    caption = (
        "Every restart of the relaxed problem; thin: a limit is broken. The ring is the rounded "
        "design under the exact model."
    )
    figure = plot_path(search_of(result), {}, title=folder.name, caption=caption)
    save(figure, folder / "path.png")


def _reported(case: str, reports: dict[str, Any], out: Path) -> dict[str, Any]:
    """Print the reports of a case with what is to be known of them; the headline."""
    title, caveats = STUDIES[case]["title"], STUDIES[case]["caveats"]
    for name, report in reports.items():
        rows = [
            (k, f"{report['start'][k]:,.6g}", f"{v:,.6g}", f"{v / report['start'][k]:.3f}")
            for k, v in report["design"].items()
            if report["start"][k]
        ]
        for term, (before, after) in report["terms"].items():
            rows.append((term, f"{before:.5g}", f"{after:.5g}", f"{after / before:.3f}"))
        second = report["second"]
        for term in TERMS:
            before, after = second["start"][term], second["design"][term]
            rows.append((f"{term}, second estimator", f"{before:.5g}", f"{after:.5g}",
                         f"{after / before:.3f}"))  # fmt: skip
        for extra in ("balance", "draft"):
            rows += [(k, "", f"{v:,.5g}", "") for k, v in report.get(extra, {}).items()]
        columns = ("", "start", "design", "ratio")
        _report.show(f"({case}) {title}: {name}", columns, rows, "; ".join(report["notes"]))
    for caveat in caveats:
        _report.console().print(f"- {caveat}")
    _report.console().print(f"Written to {out}.")
    return {"designs": reports, "caveats": caveats}
