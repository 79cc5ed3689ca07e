"""Laws of batching beside the replay of a scheduler.

``python experiments/scheduler.py``: closed loops with long prompts, two closed forms beside vLLM's
rules: 10,240 tokens in, 128 out, 4 to 64 in flight, 8,192 tokens a pass. Exit code 0: both
are within a factor of 1.3. ``python experiments/scheduler.py claims``: how
often the laws are within 10 and 25 % on 1,000 random workloads.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
import typer

from experiments import _report
from infer_jax.cli.runtime import ONE_PIECE

app = typer.Typer(help=__doc__, add_completion=False)

ALLOWED = 1.3
LOADS = (4, 8, 16, 32, 64)


@app.command()
def claims(
    workloads: Annotated[int, typer.Option(min=1, help="Random workloads, half closed.")] = 1000,
    requests: Annotated[int, typer.Option(min=100, help="Of a closed loop; 3x where open.")] = 4000,
    seed: Annotated[int, typer.Option(help="Of the workloads.")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with the figures as JSON on one line.")
    ] = False,
) -> None:
    """Print how often the laws are within 10 % of means and 25 % of percentiles of the replay."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_PIECE}"
    import jax

    with jax.enable_x64(True):
        from experiments._scheduler.claims import ALLOWED, CLAIMS, LONGER, NAMES, errors

        found = errors(workloads, requests, seed)
    parts = {"all": found.closed | True, "closed loops": found.closed, "open loops": ~found.closed}
    shares = {name: found.shares(part) for name, part in parts.items()}
    columns = ("of the replay", "within", "claimed of", *parts, "median error", "90 % are within")
    size = np.abs(found.table)
    rows = [
        (
            name,
            f"{100 * ALLOWED[i]:.0f} %",
            f"{100 * CLAIMS[name]:.0f} %" if name in CLAIMS else "",
            *(f"{100 * shares[part][name]:.1f} %" for part in parts),
            f"{100 * np.median(size[:, i]):.1f} %",
            f"{100 * np.quantile(size[:, i], 0.9):.1f} %",
        )
        for i, name in enumerate(NAMES)
    ]
    title = f"{workloads} workloads of {requests} requests, {LONGER} times as many in open loops"
    _report.show(title, columns, rows)
    kept = all(shares["all"][name] >= least for name, least in CLAIMS.items())
    _report.finish(kept, {"shares": shares, "kept": kept}, as_json)


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    as_json: Annotated[
        bool, typer.Option("--json", help="End with the figures as JSON on one line.")
    ] = False,
) -> None:
    """Print TTFT and TPOT of laws, estimator and replay; the largest factors between."""
    if context.invoked_subcommand is not None:
        return
    import jax

    with jax.enable_x64(True):
        from experiments._scheduler.loops import Server, loops

        servers = (
            Server("llama-3.3-70b", "fp8", "h200_sxm", 8.0),
            Server("llama-3.1-8b", "fp8", "h100_sxm", 1.0),
        )
        every = [x for s in servers for drawn in (False, True) for x in loops(s, LOADS, drawn)]
    columns = ("server", "lengths", "in flight", "replay", "laws of batching", "estimator")
    rows = [
        (
            f"{x.server.model}, {x.server.tp:g} x {x.server.system}",
            "80 to 100 %" if x.drawn else "equal",
            x.load,
            f"{x.replay.ttft:.3f} / {x.replay.tpot:.4f}",
            *(
                f"{t.ttft:.3f} / {t.tpot:.4f} ({t.ttft / x.replay.ttft:.2f}, "
                f"{t.tpot / x.replay.tpot:.2f})"
                for t in (x.rules, x.estimate)
            ),
        )
        for x in every
    ]
    _report.show("TTFT / TPOT in s (over the replay), 10,240 in, 128 out", columns, rows)
    names = ("laws ttft", "laws tpot", "estimator ttft", "estimator tpot")
    columns = zip(*(x.factors() for x in every), strict=True)
    worst = {n: max(max(f, 1.0 / f) for f in fs) for n, fs in zip(names, columns, strict=True)}
    close = all(factor <= ALLOWED for factor in worst.values())
    print(", ".join(f"{name} within a factor of {f:.2f}" for name, f in worst.items()))
    _report.finish(close, {"factors": worst, "agrees": close}, as_json)


if __name__ == "__main__":
    app()
