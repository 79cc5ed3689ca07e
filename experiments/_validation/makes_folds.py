"""AMD's rows predicted by fits that have not seen their group, and what of the fit is shipped."""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments._validation import makes
from experiments._validation.estimates import answers
from experiments._validation.row import Row
from infer_jax.calibration import at, covariance, identifiability, interval
from infer_jax.catalog import list_models
from infer_jax.catalog.files import write_text
from infer_jax.estimators.serving import Serving

FOLDS = 5
SHARES = (0.5, 0.8, 0.95)
LEAST = 30  # rows of a system and engine whose errors are given apart
WAYS = ("groups", "servers")
HEAD = """\
# Coefficients of AMD's generations, with all others as serving.toml has them, and how wrong they
# are. Source: our fit to {rows} rows: DeepSeek-R1 of InferenceX (SemiAnalysis, Apache-2.0; fixtures
# of vngcloud/InferenceX-app @7fe6d62), without drafts, up to {last}; Llama 3.1 in ROCm/vllm
# docs/dev-docker/README.md @040de12; Llama 2 70B of MLPerf Inference v5.1; by
# `python experiments/makes.py --ship FILE`.
# value: of software from {mature} on and of AMD's own images. low, high: 80 % interval by the
# jackknife over the {clusters} groups of model, system, engine and format. prior: of the make.
# learnt: standard deviation after the fit over that before it; near 1 the data say nothing.

[coefficients]
"""


def group_of(row: Row) -> tuple:
    """Rows that are held out together: a server with its lengths."""
    assert row.work is not None
    return (row.group, row.asked, float(row.work.isl), float(row.work.osl))


def folds(rows: Sequence[Row], way: str, seed: int = 0) -> list[np.ndarray]:
    """Rows of each fold (true), each row in one: random groups, or a server at a time."""
    labels: list[Hashable] = [r.group if way == "servers" else group_of(r) for r in rows]
    kinds = sorted(set(labels), key=str)
    parts = [[k] for k in kinds]
    if way == "groups":
        order = np.random.default_rng(seed).permutation(len(kinds))
        parts = [[kinds[i] for i in order[f::FOLDS]] for f in range(FOLDS)]
    return [np.asarray([label in part for label in labels]) for part in parts]


class HeldOut(NamedTuple):
    """Seconds of each row by a fit without its group: of its build where that is known, and not."""

    of_build: np.ndarray
    of_mature: np.ndarray


def held_out(rows: Sequence[Row], way: str) -> HeldOut:
    """Times of all rows, each by a fit on the other folds."""
    problem = makes.problem(rows, makes.early(rows))
    end = problem.starts(1, 0.0, 0)
    found = HeldOut(np.full(len(rows), np.nan), np.full(len(rows), np.nan))
    for inside in folds(rows, way):
        ends, _ = problem.solve(end, (~inside).astype(float), makes.STEPS)
        logs, _ = problem.derivatives(ends[0])
        found.of_build[inside] = np.exp(np.asarray(logs))[inside]
        make = np.where(np.arange(len(problem.chosen.names)) < makes.SHARED, ends[0], 0.0)
        logs, _ = problem.derivatives(make)
        found.of_mature[inside] = np.exp(np.asarray(logs))[inside]
    return found


def as_answers(
    rows: Sequence[Row], pick: Callable[[HeldOut], np.ndarray], way: str
) -> dict[str, np.ndarray]:
    """The held-out times of AMD's rows among ``rows``, by metric."""
    places = [i for i, row in enumerate(rows) if makes.fitted(row)]
    found = {m: np.full(len(rows), np.nan) for m in makes.OUTPUTS}
    if len({rows[i].group for i in places}) < 2:
        return found
    times = pick(held_out([rows[i] for i in places], way))
    for i, seconds in zip(places, times, strict=True):
        found[makes.output(rows[i])][i] = seconds
    return found


def ship(path: Path, rows: Sequence[Row]) -> None:
    """Fit all rows and write the file that the package reads."""
    problem = makes.problem(rows, makes.early(rows))
    weights = np.ones(len(rows))
    ends, _ = problem.solve(problem.starts(1, 0.0, 0), weights, makes.STEPS)
    fit = at(problem, ends[0], weights)
    groups = [row.group for row in rows]
    bounds = interval(fit, covariance(fit, groups), 0.8)
    learnt = {p.name: p.learnt for p in identifiability(fit).parameters}
    last = max(row.date for row in rows)
    lines = [HEAD.format(rows=len(rows), last=last, mature=makes.MATURE, clusters=len(set(groups)))]
    for i, name in enumerate(makes.GENERATIONS, 1):
        for field in makes.FIELDS:
            lines.append(_coefficient(name, field, i, fit.values, bounds, learnt))
    lines += _measured(rows, makes.placed(makes.base(), fit.tree))
    write_text(path, "".join(lines))


def _coefficient(name: str, field: str, i: int, values, bounds, learnt) -> str:
    """A generation's coefficient, the make's by its ratio, with the wider of both intervals."""
    make, own = values[f"0.{field}"], values[f"{i}.{field}"]
    value = makes.of_generation(field, make, own)
    ends = [
        np.log(makes.of_generation(field, m, o) / value)
        for m, o in (
            *((m, own) for m in bounds[f"0.{field}"]),
            *((make, o) for o in bounds[f"{i}.{field}"]),
        )
    ]
    reach = float(np.hypot(np.max(np.abs(ends[:2])), np.max(np.abs(ends[2:]))))
    low, high = value * np.exp(-reach), value * np.exp(reach)
    if field in makes.SHARES:
        high = min(high, 1.0)
    known = max(learnt[f"0.{field}"], learnt[f"{i}.{field}"])
    said = f"prior = {makes.MAKE[field].value:g}, learnt = {known:.2f}"
    return (
        f'"{name}.{field}" = {{ symbol = "{field}_{name}", value = {value:.4g}, '
        f"low = {low:.4g}, high = {high:.4g}, {said} }}\n"
    )


def _measured(rows: Sequence[Row], model: Serving) -> list[str]:
    """Rows and errors of each system and engine; ATOM's rows are of no engine that is offered."""
    own = [row for row in rows if row.group.split()[2] != "atom"]
    counts: dict[str, Counter] = {}
    models: dict[str, set] = {}
    for row in own:
        assert row.served is not None
        counts.setdefault(row.system, Counter())[row.engine] += 1
        models.setdefault(row.system, set()).update({row.served.model} & set(list_models()))
    lines = ["\n[measured.own]  # models of systems that were fitted apart\n"]
    lines += [
        f"{s} = [{', '.join(f'{chr(34)}{m}{chr(34)}' for m in sorted(x))}]\n"
        for s, x in sorted(models.items())
    ]
    lines.append("[measured.rows]\n")
    lines += [
        f"{s} = {{ {', '.join(f'{e} = {n}' for e, n in sorted(x.items()))} }}\n"
        for s, x in sorted(counts.items())
    ]
    lines.append(
        "\n# measured over predicted of rows whose group (model, system, engine, format, lengths)"
        "\n# was left out and whose build is not known; TTFT, which was not fitted, of all rows\n"
    )
    times = held_out(rows, "groups").of_mature
    first = answers(rows, model)["ttft"]
    for system, engines in sorted(counts.items()):
        for engine in sorted(engines):
            lines += _errors(rows, times, first, system, engine)
    return lines


def _errors(
    rows: Sequence[Row], times: np.ndarray, first: np.ndarray, system: str, engine: str
) -> list[str]:
    among = [
        i
        for i, row in enumerate(rows)
        if (row.system, row.engine, row.asked) == (system, engine, "loop")
        and "ttft" in row.measured
        and row.group.split()[2] != "atom"
    ]
    if len(among) < LEAST:
        return []
    lines = [f"[errors.{system}.{engine}]\nrows = {len(among)}\n"]
    for name, predicted in (("tpot", times), ("ttft", first)):
        ratio = np.asarray([rows[i].measured[name] / predicted[i] for i in among])
        cells = [f"median_error = {100.0 * np.median(np.abs(1.0 / ratio - 1.0)):.1f}"]
        for share in SHARES:
            low, high = np.quantile(ratio, ((1 - share) / 2, (1 + share) / 2))
            cells.append(f"within_{share * 100:.0f} = [{low:.3f}, {high:.3f}]")
        lines.append(f"{name} = {{ {', '.join(cells)} }}\n")
    return lines
