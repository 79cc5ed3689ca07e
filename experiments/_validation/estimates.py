"""What estimators say of all rows of the scoreboard, with those that no fit uses.

After five runs of a server the shipped fit is calibrated as `infer-jax calibrate` does, and the
server's other rows are predicted. Five rows of each server (``group``) of ten or more are drawn at
random. The problem is that of `infer_jax.calibration.calibrate_server`: its coefficients, priors,
loss and solver. Servers with the same coefficients share programs; the command compiles its own.
"""

import functools
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments import _report
from experiments._columns import printed_rows
from experiments._report import SHARED
from experiments._validation import replays
from experiments._validation.split_scores import NOTES
from infer_jax.calibration import server
from infer_jax.calibration.bounds import Parameters
from infer_jax.calibration.linearised import Linearised
from infer_jax.calibration.pooled import answers as pooled
from infer_jax.calibration.pooled.answers import Answers, Columns, RowInputs, of_server, shipped_fit
from infer_jax.calibration.pooled.rows import AMD, PooledRow
from infer_jax.calibration.runs import InstanceLoad
from infer_jax.calibration.uncertainty import rows_by_label
from infer_jax.estimators.disaggregated import Pools
from infer_jax.estimators.serving import ENGINES, Deployment, Serving
from infer_jax.estimators.serving.server_coefficients import RUN_ERRORS
from infer_jax.specs import ForwardPass


def one_pass(model: Serving, row: RowInputs) -> Answers:
    """Passes of ``batch`` sequences, one after the other: tokens fed, or gained, a second."""
    serving, work = of_server(model, row.facts), row.workload
    new = work.isl - work.prefix
    forward = ForwardPass(sequences=work.batch, new_tokens=new, cached_tokens=work.prefix)
    assert isinstance(row.plan, Deployment)
    time = serving.token(row.shape, row.hardware, forward, row.plan).time
    share = row.facts["pool_share"]
    return {"throughput": share * work.batch * new / time / row.plan.instance}


def ideal(model: Serving, row: RowInputs) -> Answers:
    """A plain roofline: the longer of reading everything and computing everything, pass by pass.

    ``model`` is ``Serving.roofline``: no collectives, launches, or other requests' prompts.
    """
    serving, work = of_server(model, row.facts), row.workload
    drawn = pooled.drawn_lengths(work, serving)
    isl, osl, one = drawn.isl, drawn.osl, jnp.ones_like(work.batch)
    if isinstance(plan := row.plan, Pools):
        first, later, copies = plan.prefill, plan.decode, plan.decode_copies
        chips = plan.chips * row.facts["chip_share"]
    else:
        first, later, copies, chips = plan, plan, 1.0, plan.instance
    assert isinstance(first, Deployment)
    first = pooled.without_drafts(first)
    forwards = (
        (first, ForwardPass(sequences=one, new_tokens=isl, cached_tokens=0.0 * one)),
        (first, ForwardPass(sequences=work.batch, new_tokens=isl, cached_tokens=0.0 * one)),
        (later, ForwardPass(sequences=work.batch, new_tokens=one, cached_tokens=isl + osl / 2.0)),
    )
    passes = [serving.token(row.shape, row.hardware, forward, p) for p, forward in forwards]
    prompt, prompts, token = (jnp.maximum(p.reading, p.computing) for p in passes)
    latency = prompt + (osl - 1.0) * token
    return {
        "tpot": token,
        "ttft": prompt,
        "e2e": latency,
        "throughput": work.batch * copies * osl / latency / chips,
        "latency": prompts + (osl - 1.0) * token,
    }


def measured(rows: Sequence[PooledRow], metric: str) -> np.ndarray:
    """A metric as measured, NaN where a row has none."""
    return np.asarray([row.measured.get(metric, np.nan) for row in rows], float)


GOLDEN = SHARED / "golden" / "aiconfigurator_on_silicon.csv"
ALL = pooled.LAWS | {"pass": one_pass}
IDEAL = dict.fromkeys(pooled.LAWS, ideal) | {"pass": one_pass}


def answers(rows: Sequence[PooledRow], model: Serving, laws: dict = ALL) -> Columns:
    """Each metric of all rows by a model, NaN where the mode has no such answer."""
    columns = pooled.answers(rows, model, laws)
    if laws is not IDEAL:
        replays.answers(rows, model, columns)
    for metric in ("ttft_mean", "ttft_median"):
        # closed loops and replays have both; other laws have one estimate of TTFT
        own = columns.get(metric, np.full(len(rows), np.nan))
        first = columns.get("ttft", own)
        columns[metric] = np.where(np.isnan(own), first, own)
    return columns


def data_sheet(rows: Sequence[PooledRow]) -> Columns:
    """Data-sheet rates and nothing else, through the same laws."""
    return answers(rows, Serving.roofline())


def roofline(rows: Sequence[PooledRow]) -> Columns:
    """The longer of reading and computing of each pass."""
    return answers(rows, Serving.roofline(), IDEAL)


def aiconfigurator(rows: Sequence[PooledRow]) -> Columns:
    """aiconfigurator 0.12 with its best labels, where its figures for a row are stored."""
    if not GOLDEN.exists():
        return {}
    stored = {line["id"]: line for line in printed_rows(GOLDEN)}
    columns = {name: f"pred_{name}_ms_E" for name in ("tpot", "ttft")}
    return {
        name: np.asarray([stored.get(r.id, {}).get(column) or "nan" for r in rows], float) / 1e3
        for name, column in columns.items()
    }


RUNS, MIN_ROWS = 5, 10  # runs that are fitted; rows of a server from which on it is scored
CHUNK = 64  # rows of a server that are predicted at once
OUTPUTS = ("tpot", "ttft")


def five_runs(rows: Sequence[PooledRow], seed: int = 0) -> dict[str, np.ndarray]:
    """Each metric of the rows that were not seen, NaN of the five that were and of other servers.

    Left out are drafts, whose acceptance an offset would stand for, as the command does.
    """
    random, programs = np.random.default_rng(seed), {}
    found: dict[str, np.ndarray] = {}
    for members in servers(rows).values():
        drawn = random.permutation(members)
        few, rest = drawn[:RUNS], drawn[RUNS:]
        model = calibrated([rows[i] for i in few], programs)
        padded = np.resize(rest, -(-len(rest) // CHUNK) * CHUNK)
        for start in range(0, len(padded), CHUNK):
            part = padded[start : start + CHUNK]
            for metric, values in answers([rows[i] for i in part], model).items():
                found.setdefault(metric, np.full(len(rows), np.nan))[part] = values
    return found


def servers(rows: Sequence[PooledRow]) -> dict[str, list[int]]:
    """Indices of the rows of each server that has enough, with both times and no drafts."""

    def is_usable(row: PooledRow) -> bool:
        timed = row.mode == "loop" and all(name in row.measured for name in OUTPUTS)
        return timed and isinstance(row.plan, Deployment) and not float(row.plan.drafts)

    usable = [i for i, row in enumerate(rows) if is_usable(row)]
    groups = rows_by_label(rows[i].group for i in usable)
    enough = {name: own for name, own in groups.items() if len(own) >= MIN_ROWS}
    return {name: [usable[k] for k in own] for name, own in enough.items()}


def calibrated(rows: Sequence[PooledRow], programs: dict[tuple, dict] | None = None) -> Serving:
    """The shipped fit with the coefficients that these rows of one server fit best.

    ``programs``: those compiled for earlier servers, by names of coefficients.
    """
    first = rows[0]
    given = [pooled.inputs(row, shipped_fit()) for row in rows]
    facts = given[0].facts
    base = shipped_fit().with_(engine=ENGINES.index(first.engine), generation=facts["generation"])
    times = np.asarray([[row.measured[name] for row in rows] for name in OUTPUTS])
    assert first.served is not None
    loads = [InstanceLoad(g.workload, g.plan) for g in given]  # pyright: ignore[reportArgumentType]
    names = server.coefficients_to_fit(base, first.served.architecture(), loads, times)
    problem = Linearised.of(
        lambda model: model.vllm.layer_gap,  # only its slopes are needed, which `_slopes` has
        times.ravel(),
        base,
        names,
        priors=server.priors(base, names),
        scale=np.repeat(server.SCALES, len(rows)),
        tolerance=server.TOLERANCE,
    )
    shared = {} if programs is None else programs.setdefault(names, {})
    slopes = shared.setdefault("slopes", jax.jit(functools.partial(_slopes, problem.chosen)))
    stacked = jax.tree.map(lambda *x: np.stack([np.asarray(v, float) for v in x]), *given)
    problem.programs.update(shared)
    problem.programs["slope"] = functools.partial(slopes, stacked)
    weights = np.ones(times.size)
    ends, _ = problem.solve(problem.starts(), weights, server.STEPS)
    left_out = server.times_left_out(problem, ends[0], weights, len(rows))
    assert left_out is not None
    share = server.STEP_SHARES[server.step_index(times, left_out)]
    shared.update({k: v for k, v in problem.programs.items() if k != "slope"})
    return problem.chosen.insert(base, jnp.asarray(server.partial_step(problem, ends[0], share)))


def _slopes(
    chosen: Parameters, given: RowInputs, free: Array, model: Serving
) -> tuple[Array, Array]:
    """Logarithms of both times of all rows, and their Jacobian, rows x parameters."""

    def logs(free: Array) -> tuple[Array, Array]:
        found = jax.vmap(pooled.closed_loop, in_axes=(None, 0))(chosen.insert(model, free), given)
        result = jnp.log(jnp.concatenate([found[name] for name in OUTPUTS]))
        return result, result

    return jax.jacfwd(logs, has_aux=True)(free)[::-1]


def after_runs(rows: list[PooledRow], draws: int) -> dict[str, Any]:
    """What five runs of a user's own server are worth: errors on its other rows, before and after.

    Prints median errors by make and time, and how often a server became worse.
    """
    rows = [row for row in rows if row.dataset.startswith("inferencex") and row.mode == "loop"]
    begin, by_server = time.perf_counter(), servers(rows)
    shipped = answers(rows, shipped_fit())
    errors: dict[tuple[str, str], list[tuple[np.ndarray, np.ndarray]]] = {}
    for seed in range(draws):
        found = five_runs(rows, seed)
        _report.say(f"draw {seed + 1}", begin)
        for own in by_server.values():
            make = "AMD" if rows[own[0]].system in AMD else "NVIDIA"
            rest = [i for i in own if np.isfinite(found["tpot"][i])]
            for name in RUN_ERRORS:
                known = measured(rows, name)[rest]
                before, after = (np.abs(x[name][rest] / known - 1.0) for x in (shipped, found))
                errors.setdefault((make, name), []).append((before, after))
    figures: dict[str, Any] = {}
    lines = []
    for (make, name), pairs in errors.items():
        before, after = (
            100.0 * float(np.median(np.concatenate(x))) for x in zip(*pairs, strict=True)
        )
        rises = np.asarray([np.median(b) - np.median(a) for a, b in pairs])
        worse = 100.0 * float(np.mean(rises > RUN_ERRORS[name]))
        found = {"draws": len(pairs), "before": before, "after": after, "worse": worse}
        figures.setdefault(make, {})[name] = found
        shown = (f"{before:.1f}", f"{after:.1f}", f"{worse:.0f}")
        lines.append((make, name.upper(), len(pairs), *shown))
    columns = ("servers of", "", "draws", "before %", "after %", "worse %")
    title = "Five runs of a server: median errors of its other rows"
    _report.show(title, columns, lines, NOTES["five_runs"])
    return figures
