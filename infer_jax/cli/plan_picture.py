"""The picture of plans: one series a system or format, the best plan, and the limit of TPOT."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from infer_jax.cli import picture
from infer_jax.planning import Asked, Choice
from infer_jax.results.numbers import digits


def plans(
    out: str,
    series: Mapping[str, Sequence[Choice]],
    best: Choice | None,
    asked: Asked,
    report: Mapping[str, Any],
    money: str,
) -> str:
    """Draw the frontier of each series, the best plan and the limit of TPOT: where it was put.

    Raises:
        InputError: the place cannot be written.
    """
    if picture.missing():
        return picture.missing()
    from infer_jax.plots import Dot, plot_plans
    from infer_jax.plots.style import words

    def dot(c: Choice) -> Dot:
        return Dot(1.0 / c.tpot, c.usd_per_mtok, c.mode == "disaggregated")

    chosen = None
    if best is not None:
        many = f"{words(best.system)}: " if len(series) > 1 else ""
        said = (
            f"{many}{best.layout}, {best.chips:g} GPUs\n{digits(1.0 / best.tpot)} tokens/s, "
            f"TTFT {digits(1e3 * best.ttft)} ms, {digits(best.usd_per_mtok)} {money}/Mtok"
        )
        chosen = dot(best), said
    finite = np.isfinite(asked.tpot)
    least = (1.0 / asked.tpot, f"TPOT of {1e3 * asked.tpot:g} ms") if finite else None
    plot_plans(
        {words(name): [dot(c) for c in each] for name, each in series.items()},
        out,
        chosen=chosen,
        least=least,
        cost=f"{money} per million tokens, in and out",
        title=words(f"{report['model']}: what serves how fast for how much"),
        caption=words(_caption(asked, report)),
    )
    return f"Picture: {out}."


def _caption(asked: Asked, report: Mapping[str, Any]) -> str:
    """What was asked, in a sentence or two."""
    load = [
        *([f"{asked.chips:g} GPUs"] if np.isfinite(asked.chips) else []),
        *([f"{asked.concurrency:g} requests in flight"] if asked.concurrency else []),
        *([f"{asked.rate:g} requests/s"] if asked.rate else []),
        *([f"TTFT of {1e3 * asked.ttft:g} ms at most"] if np.isfinite(asked.ttft) else []),
    ]
    formats = "; ".join(text.partition(";")[0].partition(" (")[0] for text in report["formats"])
    return (
        f"{report['isl_tokens']:,.12g} tokens in, {report['osl_tokens']:,.12g} out; "
        f"{', '.join(load)}; weights in {formats}; estimator {report['estimator']}. Every mark is "
        "a plan that no other of its kind and system beats in both; hollow: pools that prefill and "
        "decode."
    )
