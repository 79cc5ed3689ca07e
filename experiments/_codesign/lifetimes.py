"""How large a model, and trained for how long, costs least to train and to serve at one loss?

Chinchilla's answer is for training alone. With tokens to serve, a smaller model that is trained
longer costs less in all: Sardana et al. 2024 (arXiv 2401.00448), there with FLOP, here in USD of
training and of serving as the economics model prices it.
"""

from itertools import pairwise
from typing import Any

from experiments import _report
from infer_jax.design import optimise
from infer_jax.design.quality import Chinchilla, compute_optimal
from infer_jax.design.toml import spec_of

MODEL, SYSTEM, LOSS = "llama-3.1-8b", "h100_sxm", 2.15  # a loss within the range of the fit
SERVED = (0.0, 1e12, 1e13, 1e14)
CAVEATS = (
    "The law is Chinchilla's with the corrected constants, fitted up to 16B parameters and 500B "
    "tokens; beyond that it is extrapolated, and the notes say so.",
    "Prices are the profile's rent a GPU-hour; training sustains 40 % of the 16-bit rate; data, "
    "failed runs and staff are free.",
    "All output tokens are served at the one speed, batch and prompt length of the table.",
)


def table_of(served: float) -> dict[str, Any]:
    """The tables of a SPEC.toml for so many output tokens over a life."""
    return {
        "estimator": "economics.planned",
        "arch": {"model": MODEL},
        "hardware": {"system": SYSTEM},
        "workload": {"isl": 1024, "osl": 512},
        "free": {
            "width": [1024, 8192],
            "depth": [12, 64],
            "feedforward_width": [2048, 32768],
            "tokens": [2e10, 2e13],
            "tp": [1, 8],
            "batch": [1, 512],
        },
        "where": [
            {"value": "aspect", "at_least": 64.0, "at_most": 128.0},
            {
                "ratio": ["arch.blocks.0.feedforward.width", "arch.width"],
                "at_least": 2.5,
                "at_most": 4.0,
            },
        ],
        "start": {"batch": 64, "tokens": 1e12},
        "quality": {"law": "chinchilla", "served": served},
        "objective": {"best": "lifetime"},
        "limits": {"tpot": 0.020, "loss": LOSS},
    }


def tables() -> dict[str, Any]:
    """Print and return: the cheapest life by tokens served, beside Chinchilla's own ratio."""
    reports, rows = {}, []
    for served in SERVED:
        spec = spec_of(f"{served:g} tokens", table_of(served))
        result = optimise(spec.estimator, spec.space, spec.keeps[0], start=spec.start)
        law = spec.estimator.law
        size, tokens = result.terms["active"], result.values["estimator.tokens"]
        own, trained = compute_optimal(Chinchilla.of(), 6.0 * size * tokens)
        reports[f"{served:g}"] = {
            "parameters": size,
            "tokens": tokens,
            "tokens_per_parameter": tokens / size,
            "chinchilla_ratio": trained / own,
            "training": result.terms["training"],
            "lifetime": result.terms["lifetime"],
            "cost": result.terms["cost"],
            "loss": result.terms["loss"],
            "design": {k: v for k, v in result.values.items() if "vectors" not in k},
            "notes": list(law.warnings(result.point.arch, tokens)) if law else [],
        }
        row = reports[f"{served:g}"]
        rows.append(
            (
                f"{served:.0e}",
                f"{size / 1e9:.2f}e9",
                f"{tokens:.3g}",
                f"{row['tokens_per_parameter']:.0f}",
                f"{row['chinchilla_ratio']:.0f}",
                f"{row['training']:,.0f}",
                f"{row['lifetime'] - row['training']:,.0f}",
                f"{row['loss']:.4f}",
            )
        )
    columns = ("output tokens served", "parameters", "training tokens", "per parameter",
               "Chinchilla's", "training $", "serving $", "loss")  # fmt: skip
    note = f"{MODEL} class on {SYSTEM}, 1024 in, 512 out, TPOT at most 20 ms, loss at most {LOSS}."
    _report.show("Least cost of a life at one loss", columns, rows, note)
    for text in dict.fromkeys(n for x in reports.values() for n in x["notes"]):
        _report.console().print(f"- {text}.")
    for caveat in CAVEATS:
        _report.console().print(f"- {caveat}")
    result = list(reports.values())
    falls = all(a["parameters"] > b["parameters"] for a, b in pairwise(result))
    over = all(x["tokens_per_parameter"] > x["chinchilla_ratio"] for x in result[1:])
    return {"lifetimes": reports, "caveats": list(CAVEATS), "agrees": falls and over}
