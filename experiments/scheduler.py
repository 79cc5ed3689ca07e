"""Laws of batching beside the replay of a scheduler.

``python experiments/scheduler.py``: closed loops with long prompts, two closed forms beside vLLM's
rules: 10,240 tokens in, 128 out, 4 to 64 in flight, 8,192 tokens a pass. Exit code 0: both
are within a factor of 1.3. ``python experiments/scheduler.py claims``: how
often the laws are within 10 and 25 % on 1,000 random workloads. ``python experiments/scheduler.py
engines``: the closed loop of ``serving`` beside the replay of each engine's rules; ``runs``: tokens
a second of whole runs of few waves.
"""

import sys
from pathlib import Path
from typing import Annotated

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
import typer

from experiments import _report
from infer_jax.cli.runtime import loops_in_one_piece

app = typer.Typer(help=__doc__, add_completion=False)

ALLOWED = 1.3
LOADS = (4, 8, 16, 32, 64)
FEW = ("fixed", "mixture")  # shapes of outputs that keep a closed loop in lockstep


@app.command()
def claims(
    workloads: Annotated[int, typer.Option(min=1, help="Random workloads, half closed.")] = 1000,
    requests: Annotated[
        int, typer.Option(min=100, help="Of a run of a closed loop; 5x where open.")
    ] = 12000,
    runs: Annotated[int, typer.Option(min=1, help="Of each workload, averaged.")] = 3,
    seed: Annotated[int, typer.Option(help="Of the workloads.")] = 0,
    as_json: _report.Json = False,
) -> None:
    """Print how often the laws are within 10 % of means and 25 % of percentiles of the replay."""
    import jax

    with loops_in_one_piece(), jax.enable_x64(True):
        from experiments._scheduler.claims import ALLOWED, CLAIMS, LONGER, NAMES, errors

        result = errors(workloads, requests, runs, seed)
    closed = result.closed
    few = np.array([case.shapes[1] in FEW for case in result.cases])
    poisson = np.array([case.variability == 1.0 for case in result.cases])
    parts = {
        "all": closed | True,
        "closed": closed & ~few,
        "closed, one or two output lengths": closed & few,
        "Poisson": ~closed & poisson,
        "bursts": ~closed & ~poisson,
    }
    shares = {name: result.shares(part) for name, part in parts.items()}
    columns = ("of the replay", "within", "claimed of", *parts, "median error", "90 % are within")
    columns += ("a run beside another",)
    size = np.abs(result.table)
    apart = np.quantile(result.spread, 0.9, axis=0)
    rows = [
        (
            name,
            f"{100 * ALLOWED[i]:.0f} %",
            f"{100 * CLAIMS[name]:.0f} %" if name in CLAIMS else "",
            *(f"{100 * shares[part][name]:.1f} %" for part in parts),
            f"{100 * np.median(size[:, i]):.1f} %",
            f"{100 * np.quantile(size[:, i], 0.9):.1f} %",
            f"{100 * apart[i]:.1f} %" if runs > 1 else "",
        )
        for i, name in enumerate(NAMES)
    ]
    title = f"{workloads} workloads, {runs} runs of {requests:,} requests ({LONGER}x in open loops)"
    _report.show(title, columns, rows)
    kept = all(shares["all"][name] >= least for name, least in CLAIMS.items())
    _report.finish(kept, {"shares": shares, "kept": kept}, as_json)


@app.command()
def engines(
    servers: Annotated[int, typer.Option(min=1, help="Random servers of each engine.")] = 100,
    seed: Annotated[int, typer.Option(help="Of the servers.")] = 0,
    as_json: _report.Json = False,
) -> None:
    """Print how far the estimator's closed loop is from the replay of each engine's rules."""
    import jax

    with loops_in_one_piece(), jax.enable_x64(True):
        from experiments._scheduler.engines import against_replay
        from infer_jax.estimators.serving import ENGINES

        off = {engine: against_replay(engine, servers, seed) for engine in ENGINES}
    columns = ("engine", "time", "within 10 %", "within 25 %", "median error", "bias")
    rows, figures = [], {}
    for engine, table in off.items():
        for name, x in zip(("TTFT", "TPOT"), table.T, strict=True):
            size = np.abs(x)
            shares = [float(np.mean(size <= most)) for most in (0.10, 0.25)]
            middle = float(np.median(size)), float(np.median(x))
            figures[f"{engine} {name}"] = dict(
                zip(("within 10", "within 25", "median", "bias"), (*shares, *middle), strict=True)
            )
            percent = (f"{100 * y:.0f} %" for y in shares)
            rows.append((engine, name, *percent, *(f"{100 * y:.1f} %" for y in middle)))
    _report.show(f"serving over the replay, {servers} random servers of each", columns, rows)
    _report.finish(True, figures, as_json)


@app.command()
def runs(
    servers: Annotated[int, typer.Option(min=1, help="Random servers of each engine.")] = 30,
    seed: Annotated[int, typer.Option(help="Of the servers.")] = 0,
    as_json: _report.Json = False,
) -> None:
    """Print how far tokens a second of runs of 1 to 4 waves are from the replay of each engine."""
    import jax

    with loops_in_one_piece(), jax.enable_x64(True):
        from experiments._scheduler.engines import runs_against_replay
        from infer_jax.estimators.serving import ENGINES

        off = {
            (engine, drawn): runs_against_replay(engine, servers, drawn, seed)
            for drawn in (False, True)
            for engine in ENGINES
        }
    columns = ("engine", "lengths", "counted", "median error", "within 10 %", "bias")
    rows, figures = [], {}
    for (engine, drawn), table in off.items():
        lengths = "80 to 100 %" if drawn else "equal"
        for counted, x in zip(("start and end", "runs on"), table.T, strict=True):
            found = np.median(np.abs(x)), np.mean(np.abs(x) <= 0.10), np.median(x)
            rows.append((engine, lengths, counted, *(f"{100 * y:.1f} %" for y in found)))
            names = ("median", "within 10", "bias")
            figures[f"{engine} {lengths} {counted}"] = dict(
                zip(names, map(float, found), strict=True)
            )
    _report.show(
        f"Tokens a second over the replay, {servers} random servers of each", columns, rows
    )
    _report.finish(True, figures, as_json)


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    as_json: _report.Json = False,
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
