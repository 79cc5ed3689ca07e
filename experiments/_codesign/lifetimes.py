"""How large a model, and trained for how long, costs least to train and to serve at one loss?

Chinchilla's answer is for training alone. With tokens to serve, a smaller model that is trained
longer costs less in all: Sardana et al. 2024 (arXiv 2401.00448), there with FLOP, here in USD of
training and of serving as the economics model prices it.
"""

from itertools import pairwise
from typing import Any

from experiments import _report
from experiments._codesign.studies import STUDIES
from infer_jax.design import optimise
from infer_jax.design.quality import Chinchilla, compute_optimal
from infer_jax.design.toml import spec_of

SERVED = (0.0, 1e12, 1e13, 1e14)  # output tokens over a life
STUDY = STUDIES["lifetime"]
SPEC: dict[str, Any] = STUDY["spec"]


def tables() -> dict[str, Any]:
    """Print and return: the cheapest life by tokens served, beside Chinchilla's own ratio."""
    reports, rows = {}, []
    for served in SERVED:
        table = SPEC | {"quality": SPEC["quality"] | {"served": served}}
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
    work, limits = SPEC["workload"], SPEC["limits"]
    bounds = f"TPOT at most {1e3 * limits['tpot']:g} ms, loss at most {limits['loss']:g}."
    note = f"{SPEC['arch']['model']} class on {SPEC['hardware']['system']}, "
    note += f"{work['isl']} in, {work['osl']} out, {bounds}"
    _report.show(STUDY["title"], columns, rows, note)
    for text in dict.fromkeys(n for x in reports.values() for n in x["notes"]):
        _report.console().print(f"- {text}.")
    for caveat in STUDY["caveats"]:
        _report.console().print(f"- {caveat}")
    result = list(reports.values())
    falls = all(a["parameters"] > b["parameters"] for a, b in pairwise(result))
    over = all(x["tokens_per_parameter"] > x["chinchilla_ratio"] for x in result[1:])
    return {"lifetimes": reports, "caveats": STUDY["caveats"], "agrees": falls and over}
