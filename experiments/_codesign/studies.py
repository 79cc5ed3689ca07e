"""Three designs: a dense 70B for two systems, a mixture for two balances, a draft for three curves.

Each is searched under one estimator and priced again by another; a gain that only one of them sees
is said so. No model here was trained: equal parameters are not equal quality.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments import _report
from infer_jax.catalog import load_model, load_system
from infer_jax.catalog.files import write_text
from infer_jax.design import Design, QualityWrapper, export, optimise
from infer_jax.design.config_json import template
from infer_jax.design.toml import DesignSpec, spec_of
from infer_jax.design.violations import estimate_of
from infer_jax.estimators import Speculative, Wrapper, make
from infer_jax.physics import decoder
from infer_jax.plots.path import plot_path
from infer_jax.plots.style import save
from infer_jax.specs import Plan, Workload
from infer_jax.sweeps import Axis, Best, Constraint, Space
from infer_jax.verbs.codesign_figure import search_of

SHIPPED = (
    "llama-3.1-70b",
    "llama-3.1-405b",
    "qwen2.5-72b",
    "qwen3-32b",
    "mistral-large-2",
    "opt-66b",
)
TERMS = ("ttft", "tpot", "speed", "throughput", "cost")
CAVEATS = {
    "a": (
        "Equal parameters, eight key-value heads and proportions within those of "
        f"{', '.join(SHIPPED)} (width over layers, query and feedforward width over width) are the "
        "only guard of quality: no law with shape was fitted at 70B, so none is used.",
        "The start is Llama 3.1 70B at a batch and split of its own best, so that the gain is the "
        "shape's and not the batch's.",
        "The second estimator mixes prompts into the batch: it sees nearly the same saving, "
        "and a TPOT far above the limit, for start and design alike.",
        "Designs run to the bounds that shipped proportions set (feedforward 5 times the width, "
        "141 of at most 144 for width over layers): the gain is what these bounds allow.",
    ),
    "b": (
        "Total and active parameters are held within 2 %; that experts of another width, fewer "
        "heads or a narrower latent learn as well is assumed, not known.",
        "Heads and the latent's rank run to the least that the file allows: no estimate of time "
        "holds them back. Read it as what fewer heads are worth, not as advice.",
        "The second estimator sees nearly the same saving, and a TPOT above the limit: under it "
        "the batch would have to be smaller, for start and design alike.",
        "The balance points ask how much arithmetic is free beside memory; they say nothing of "
        "time, and designs need not sit on them: batch, exchange and launches weigh as well.",
        "The curves of H20 and H800 were fitted to kernels of shapes near DeepSeek-V3's; a design "
        "far from these is an extrapolation.",
    ),
    "c": (
        "Only the anchor is published: 0.8 of an 8B draft's tokens (Erdil 2025, arXiv 2506.04645, "
        "Section 4.1). The three slopes are scenarios: rejections that fall as the parameter term "
        "of the corrected Chinchilla law (exponent 0.3478, arXiv 2404.10102), as the root of the "
        "size, and acceptance that is linear in the logarithm of the size (the form of arXiv "
        "2505.07858; 0.1 a decade is ours).",
        "Drafted tokens are taken to be accepted independently.",
        "Where acceptance is a function of size alone, depth is pure cost, and drafts come out "
        "wide and shallow, at the last curve with a single layer: the curves say nothing of shape.",
    ),
}


def dense(out: Path) -> dict[str, Any]:
    """(a) A dense model of 70B parameters reshaped for H100 and for GB200 NVL72."""
    shapes = np.array([_proportions(name) for name in SHIPPED])
    low, high = shapes.min(axis=0).tolist(), shapes.max(axis=0).tolist()
    reports = {}
    for system, limit, chips in (("h100_sxm", 0.030, 8), ("gb200_nvl72", 0.012, 64)):
        size = _parameters("llama-3.1-70b")["parameters"]
        table = {
            "estimator": "economics.planned",
            "second": "serving",
            "arch": {"model": "llama-3.1-70b", "quant": "fp8"},
            "hardware": {"system": system},
            "workload": {"isl": 8192, "osl": 1024},
            "free": {
                "width": [4096, 16384],
                "depth": [24, 128],
                "heads": [32, 160],
                "feedforward_width": [8192, 65536],
                "tp": [1, chips],
                "batch": [1, 512],
            },
            "where": [
                {"value": "parameters", "at_least": 0.99 * size, "at_most": 1.01 * size},
                {"value": "aspect", "at_least": low[0], "at_most": high[0]},
                {
                    "ratio": ["arch.blocks.0.attention.query_heads", "arch.width"],
                    "at_least": low[1],
                    "at_most": high[1],
                },
                {
                    "ratio": ["arch.blocks.0.feedforward.width", "arch.width"],
                    "at_least": low[2],
                    "at_most": high[2],
                },
            ],
            "start": {"batch": 32, "tp": 8},
            "objective": {"best": "cost"},
            "limits": {"tpot": limit},
        }
        reports[system] = _searched(f"a-{system}", table, out)
    return _reported("a", "A dense model of 70B parameters, least $/Mtok at a speed", reports, out)


def mixture(out: Path) -> dict[str, Any]:
    """(b) A mixture of DeepSeek-V3's class redesigned for H20 and for H800."""
    reports = {}
    sizes = _parameters("deepseek-v3")
    for system in ("h20_sxm", "h800_sxm"):
        table = {
            "estimator": "kernels",
            "second": "serving",
            "feasible": "decode.feasible",
            "arch": {"model": "deepseek-v3", "kv_dtype": "fp8"},
            "hardware": {"system": system},
            "workload": {"isl": 4096, "osl": 2048},
            "free": {
                "heads": [32, 256],
                "kv_rank": [256, 1024],
                "experts": [64, 512],
                "active": [4, 16],
                "expert_width": [1024, 4096],
                "ep": [8, 128],
                "batch": [64, 16384],
            },
            "where": [
                {
                    "value": "parameters",
                    "at_least": 0.98 * sizes["parameters"],
                    "at_most": 1.02 * sizes["parameters"],
                },
                {
                    "value": "active",
                    "at_least": 0.98 * sizes["active"],
                    "at_most": 1.02 * sizes["active"],
                },
            ],
            "start": {"batch": 2048, "ep": 32},
            "objective": {"best": "cost"},
            "limits": {"tpot": 0.050},
        }
        result = _searched(f"b-{system}", table, out)
        chip = load_system(system).hardware.chip
        ratio = float(chip.flops_8 / chip.memory_bandwidth)
        layer = "arch.blocks.1.feedforward"
        spread = result["design"][f"{layer}.experts"] / result["design"][f"{layer}.active"]
        tokens = result["design"]["workload.batch"]
        result["balance"] = {
            "FLOP per byte at 8 bits": ratio,
            "heads at balance (R/4)": ratio / 4.0,
            "heads of the design": result["design"]["arch.blocks.0.attention.query_heads"],
            "tokens of a layer at balance (R/2 E/k)": ratio / 2.0 * spread,
            "tokens of the design's step": tokens,
        }
        reports[system] = result
    return _reported("b", "A mixture of DeepSeek-V3's class, least $/Mtok at 50 ms", reports, out)


def _proportions(name: str) -> tuple[float, float, float]:
    """Width over layers, query heads of 128 and feedforward units over the width."""
    arch = load_model(name).architecture
    (block,) = arch.blocks
    attention: Any = block.attention
    layer: Any = block.feedforward
    heads = attention.query_heads * attention.head_width / 128.0
    shares = (arch.width / block.count, heads / arch.width, layer.width / arch.width)
    return tuple(float(x) for x in shares)  # pyright: ignore[reportReturnType]


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
        size = float(decoder.total(decoder.parameters(chosen.draft).values()))
        report["draft"] = {
            "parameters": size,
            "acceptance": float(chosen.acceptance),
            "drafts a pass": float(result.estimate.decode.layout["drafts"]),
        }
        config, _ = export(chosen.draft, template("llama-3.2-1b"), quant="fp8")
        _write(out / f"c-{name.replace(' ', '-')}", report, config, result)
        reports[name] = report
    return _reported("c", "A draft model for Llama 3 70B, fastest at batch 8", reports, out)


CASES: dict[str, Callable[[Path], dict[str, Any]]] = {"a": dense, "b": mixture, "c": draft}


def _parameters(name: str) -> dict[str, float]:
    arch = load_model(name).architecture
    size = decoder.total(decoder.parameters(arch).values())
    return {"parameters": float(size), "active": float(decoder.active_parameters(arch))}


def _searched(name: str, table: Mapping[str, Any], out: Path) -> dict[str, Any]:
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


def _reported(case: str, title: str, reports: dict[str, Any], out: Path) -> dict[str, Any]:
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
    for caveat in CAVEATS[case]:
        _report.console().print(f"- {caveat}")
    _report.console().print(f"Written to {out}.")
    return {"designs": reports, "caveats": list(CAVEATS[case])}
