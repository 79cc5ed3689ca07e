"""Laws of batching beside the replay of a scheduler.

Without a command: closed loops of 10,240 tokens in, 128 out, 4 to 64 in flight, 8,192 tokens a
pass, by two closed forms beside vLLM's rules; both must be within a factor of 1.3.
"""

import sys
from itertools import product
from pathlib import Path
from typing import Annotated, Any

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import numpy as np
import typer

from experiments import _report
from infer_jax.compiling.settings import loops_in_one_piece

app = _report.program(__doc__)

ALLOWED = 1.3
LOADS = (4, 8, 16, 32, 64)
LENGTHS = ("equal", "80 to 100 %")  # of prompts and outputs
LOCKSTEP = ("fixed", "mixture")  # shapes of outputs that keep a closed loop in lockstep
Servers = Annotated[int, typer.Option(min=1, help="Random servers of each engine.")]
Seed = Annotated[int, typer.Option(help="Of what is drawn.")]


def _percent(*shares: float) -> list[str]:
    return [f"{100 * x:.1f} %" for x in shares]


@_report.command(app, x64=True)
def claims(
    workloads: Annotated[int, typer.Option(min=1, help="Random workloads, half closed.")] = 1000,
    requests: Annotated[
        int, typer.Option(min=100, help="Of a run of a closed loop; 5x where open.")
    ] = 12000,
    runs: Annotated[int, typer.Option(min=1, help="Of each workload, averaged.")] = 3,
    seed: Seed = 0,
) -> dict[str, Any]:
    """Print how often the laws are within 10 % of means and 25 % of percentiles of the replay.

    Exit code 1: less often than the bounds of ``experiments/_scheduler/claims.py``, which are
    below the goals that are missed.
    """
    from experiments._scheduler import claims as of

    with loops_in_one_piece():
        result = of.errors(workloads, requests, runs, seed)
    closed = result.closed
    few = np.array([case.shapes[1] in LOCKSTEP for case in result.cases])
    poisson = np.array([case.variability == 1.0 for case in result.cases])
    parts = {
        "all": closed | True,
        "closed": closed & ~few,
        "closed, one or two output lengths": closed & few,
        "Poisson": ~closed & poisson,
        "bursts": ~closed & ~poisson,
    }
    shares = {name: result.shares(part) for name, part in parts.items()}
    columns = ("of the replay", "within", "goal", *parts, "median error", "90 % are within")
    columns += ("a run beside another",)
    size, spread = np.abs(result.table), np.quantile(result.spread, 0.9, axis=0)
    rows = [
        (
            name,
            f"{100 * of.ALLOWED[i]:.0f} %",
            f"{100 * of.GOALS[name]:.0f} %" if name in of.GOALS else "",
            *_percent(*(shares[part][name] for part in parts)),
            *_percent(np.median(size[:, i]), np.quantile(size[:, i], 0.9)),
            *(_percent(spread[i]) if runs > 1 else [""]),
        )
        for i, name in enumerate(of.NAMES)
    ]
    title = f"{workloads} workloads, {runs} runs of {requests:,} requests "
    _report.show(f"{title}({of.LONGER}x in open loops)", columns, rows)
    agrees = all(shares["all"][name] >= least for name, least in of.BOUNDS.items())
    return {"shares": shares, "agrees": agrees}


def _figures(errors: np.ndarray, *shares: float) -> dict[str, float]:
    """Shares of errors within so much, their median size and their bias."""
    size = np.abs(errors)
    found = {f"within {100 * share:.0f}": float(np.mean(size <= share)) for share in shares}
    return found | {"median": float(np.median(size)), "bias": float(np.median(errors))}


@_report.command(app, x64=True)
def engines(servers: Servers = 100, seed: Seed = 0) -> dict[str, Any]:
    """Print how far the estimator's closed loop is from the replay of each engine's rules."""
    from experiments._scheduler.loops import against_replay
    from infer_jax.estimators.serving import ENGINES

    rows, figures = [], {}
    with loops_in_one_piece():
        for engine in ENGINES:
            table = against_replay(engine, servers, seed)
            for name, errors in zip(("TTFT", "TPOT"), table.T, strict=True):
                figures[f"{engine} {name}"] = found = _figures(errors, 0.10, 0.25)
                close, near, *middle = found.values()
                shares = (f"{100 * x:.0f} %" for x in (close, near))
                rows.append((engine, name, *shares, *_percent(*middle)))
    columns = ("engine", "time", "within 10 %", "within 25 %", "median error", "bias")
    _report.show(f"serving over the replay, {servers} random servers of each", columns, rows)
    return figures


@_report.command(app, x64=True)
def runs(servers: Servers = 30, seed: Seed = 0) -> dict[str, Any]:
    """Print how far tokens a second of runs of 1 to 4 waves are from the replay of each engine."""
    from experiments._scheduler.loops import runs_against_replay
    from infer_jax.estimators.serving import ENGINES

    rows, figures = [], {}
    with loops_in_one_piece():
        for lengths, engine in product(LENGTHS, ENGINES):
            table = runs_against_replay(engine, servers, lengths != LENGTHS[0], seed)
            for counted, errors in zip(("start and end", "runs on"), table.T, strict=True):
                name = f"{engine} {lengths} {counted}"
                figures[name] = found = _figures(errors, 0.10)
                shown = _percent(*(found[key] for key in ("median", "within 10", "bias")))
                rows.append((engine, lengths, counted, *shown))
    columns = ("engine", "lengths", "counted", "median error", "within 10 %", "bias")
    title = f"Tokens a second over the replay, {servers} random servers of each"
    _report.show(title, columns, rows)
    return figures


@app.callback(invoke_without_command=True)
def main(context: typer.Context, as_json: _report.Json = False) -> None:
    """Print TTFT and TPOT of laws, estimator and replay; the largest factors between."""
    if context.invoked_subcommand is not None:
        return
    with _report.float64():
        from experiments._scheduler.loops import Server, loops

        servers = (
            Server("llama-3.3-70b", "fp8", "h200_sxm", 8.0),
            Server("llama-3.1-8b", "fp8", "h100_sxm", 1.0),
        )
        every = [x for s in servers for drawn in (False, True) for x in loops(s, LOADS, drawn)]
    columns = ("server", "lengths", "in flight", "replay", "laws of batching", "estimator")
    rows = []
    for x in every:
        there = x.replay
        laws = (
            f"{t.ttft:.3f} / {t.tpot:.4f} ({t.ttft / there.ttft:.2f}, {t.tpot / there.tpot:.2f})"
            for t in (x.rules, x.estimate)
        )
        server = f"{x.server.model}, {x.server.tp:g} x {x.server.system}"
        shown = f"{there.ttft:.3f} / {there.tpot:.4f}"
        rows.append((server, LENGTHS[x.drawn], x.load, shown, *laws))
    _report.show("TTFT / TPOT in s (over the replay), 10,240 in, 128 out", columns, rows)
    names = ("laws ttft", "laws tpot", "estimator ttft", "estimator tpot")
    factors = zip(*(
        [ours / there for side in (x.rules, x.estimate)
         for ours, there in zip(side[:2], x.replay[:2], strict=True)] for x in every
    ), strict=True)  # fmt: skip
    worst = {n: max(max(f, 1.0 / f) for f in fs) for n, fs in zip(names, factors, strict=True)}
    close = all(factor <= ALLOWED for factor in worst.values())
    print(", ".join(f"{name} within a factor of {f:.2f}" for name, f in worst.items()))
    _report.finish(close, {"factors": worst, "agrees": close}, as_json)


if __name__ == "__main__":
    app()
