"""What chips draw, fitted to servers whose power was measured, and errors of servers left out.

With ``--ship`` it writes the file that the package carries.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, NamedTuple

if not __package__:  # run as a file: the checkout is where `experiments` and `infer_jax` are
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import jax
import jax.numpy as jnp
import numpy as np
import typer
from jax import Array

from experiments import _report
from experiments._validation import kinds
from experiments._validation.board import score
from infer_jax.calibration import CAUCHY, Linearised, Prior, at, covariance, identifiability
from infer_jax.calibration.cross_validation import cross_validate, label_masks
from infer_jax.calibration.pooled import answers
from infer_jax.calibration.pooled.rows import PooledRow, system_named
from infer_jax.calibration.pooled.shipping import error_cells
from infer_jax.calibration.uncertainty import Fit
from infer_jax.catalog.files import write_text
from infer_jax.errors import InputError
from infer_jax.estimators.serving import GENERATIONS
from infer_jax.physics import cost
from infer_jax.specs import Spec, number, spec

app = _report.program(__doc__)
ML_ENERGY = _report.GOLDEN / "ml_energy_power.csv"

# A share of a generation is the mean of all makes, times its make's ratio to that, times its own
# ratio to its make's, each with a prior; a make without rows has the mean, a generation without
# rows its make's. How long a chip reads and computes is counted per measured second, so that errors
# of predicted times stay out of the fit; a row whose time per token is predicted more than a factor
# ``MAX_PACE_ERROR`` off tells nothing of what its chip did meanwhile and is left out. Scores and
# bands are of the whole prediction, times included, for servers that a fit has not seen.
FIELDS = ("idle", "active", "memory", "compute")
# believed before the rows: 80 W of 700 W idle and 680 W while computing (H200, H100; Serial Alice
# GPU energy benchmark, 2026), and what decoding draws (Ma et al. 2026, arXiv 2605.11999)
MEAN = {
    "idle": Prior(0.13, 0.25),
    "active": Prior(0.4, 0.35),
    "memory": Prior(0.7, 0.35),
    "compute": Prior(1.0, 0.35),
}
RATIO = 0.2  # of a make to the mean, and of a generation to its make
MAKES = ("nvidia", "amd")
MADE_BY = {"hopper": 0, "blackwell": 0, "cdna3": 1, "cdna4": 1}
SCALE, STEPS, TOLERANCE, MAX_PACE_ERROR = 0.08, 20, 1e-6, 1.5
MIN_ROWS = 15  # rows of a generation whose errors are listed by themselves
REACH = 1.2816  # deviations of an 80 % interval
UNSEEN = "unseen"
# in the head of the file that the package carries
COUNTED = r"\d+ rows with watts of\n# \d+ servers"


@spec
class Shares(Spec):
    """Shares of the board's power, or ratios of such."""

    idle: Array = number("at rest", kind="size", default=1.0)
    active: Array = number("in a pass that only waits", kind="size", default=1.0)
    memory: Array = number("while memory is saturated", kind="size", default=1.0)
    compute: Array = number("while computing is saturated", kind="size", default=1.0)


Tree = tuple[Shares, ...]  # mean, makes, generations


class Work(NamedTuple):
    """What chips of rows did: shares of the time in passes, reading and computing, and metered.

    ``generation``: by number; ``shares``: of the board's power as measured.
    """

    busy: np.ndarray
    reading: np.ndarray
    computing: np.ndarray
    metered: np.ndarray
    generation: np.ndarray
    shares: np.ndarray

    def take(self, rows: np.ndarray) -> "Work":
        """The same of some rows."""
        return Work._make(x[rows] for x in self)


class Rows(NamedTuple):
    """Rows with watts, what their chips did by the estimator's times and by measured ones."""

    rows: Sequence[PooledRow]
    groups: np.ndarray  # the server of each row
    predicted: Work
    timed: Work
    fitted: np.ndarray


def with_watts(rows: Sequence[PooledRow]) -> Rows:
    """The rows that carry watts, on chips whose board power is known."""
    rows = [row for row in rows if "power" in row.measured and row.mode in ("loop", "pools")]
    boards = np.asarray([float(system_named(row.system).hardware.power) for row in rows])
    busy_rows = [replace(row, busy_share=1.0) for row in rows]
    # the power of a chip that draws for one of these alone is the share of its time
    found = [
        _with_draw(busy_rows, cost.Draw.of(**dict(zip(FIELDS, shares, strict=True))))
        for shares in ((0.0, 1.0, 1.0, 1.0), (0.0, 0.0, 1.0, 0.0), (0.0, 0.0, 0.0, 1.0))
    ]
    busy, reading, computing = (x["power"] / boards for x in found)
    own = (system_named(row.system).coefficients["serving"] for row in rows)
    generation = np.asarray([int(x["generation"]) for x in own])
    shares = np.asarray([row.measured["power"] for row in rows]) / boards
    metered = np.asarray([row.busy_share for row in rows])
    predicted = Work(busy, reading, computing, metered, generation, shares)
    paced = found[0]["tpot"] / np.asarray([row.measured["tpot"] for row in rows])
    timed = predicted._replace(
        reading=np.minimum(predicted.reading * paced, 1.0),
        computing=np.minimum(predicted.computing * paced, 1.0),
    )
    fitted = (paced < MAX_PACE_ERROR) & (paced > 1.0 / MAX_PACE_ERROR)
    groups = np.asarray([row.group for row in rows])
    return Rows(rows, groups, predicted, timed, fitted)


def _with_draw(rows: Sequence[PooledRow], draw: cost.Draw) -> dict[str, np.ndarray]:
    """TPOT and power of rows by the shipped fit, of chips that all draw these shares."""
    model, parts = answers.shipped_fit(), []
    for part in answers.stack_rows(rows, model):
        own = jax.tree.map(lambda x, part=part: np.full(len(part.rows), x), draw)
        parts.append(part.with_facts(draw=own))
    return answers.evaluate(model, parts, answers.LAWS, len(rows))


def start() -> Tree:
    """Where the fit begins: at what is believed."""
    mean = Shares.of(**{name: prior.value for name, prior in MEAN.items()})
    return (mean, *(Shares.of() for _ in (*MAKES, *GENERATIONS)))


def shares_of(tree: Tree, generation: str | None) -> dict[str, Array]:
    """A generation's shares: the mean's times both ratios; of None the mean's."""
    mean, makes, own = tree[0], tree[1 : 1 + len(MAKES)], tree[1 + len(MAKES) :]
    if generation is None:
        return {name: getattr(mean, name) for name in FIELDS}
    make = makes[MADE_BY[generation]]
    ratio = own[GENERATIONS.index(generation)]
    return {n: getattr(mean, n) * getattr(make, n) * getattr(ratio, n) for n in FIELDS}


def metered_shares(tree: Tree, work: Work) -> Array:
    """Shares of the board's power that meters of rows show."""
    every = [shares_of(tree, name) for name in GENERATIONS]
    own = {n: jnp.stack([x[n] for x in every])[work.generation] for n in FIELDS}
    draw = cost.Draw(pue=jnp.asarray(1.0), **own)
    busy, reading, computing = (jnp.asarray(x) for x in (work.busy, work.reading, work.computing))
    busy = cost.power(jnp.asarray(1.0), busy, reading, computing, draw)
    metered = jnp.asarray(work.metered)
    return metered * busy + (1.0 - metered) * draw.idle


def problem(work: Work) -> Linearised:
    """The fit of all shares to the metered power of rows."""
    tree = start()
    names = [f"{i}.{field}" for i in range(len(tree)) for field in FIELDS]
    priors = {f"0.{name}": prior for name, prior in MEAN.items()}
    priors |= {name: Prior(1.0, RATIO) for name in names if not name.startswith("0.")}
    return Linearised.of(
        partial(metered_shares, work=work), work.shares, tree, names,
        priors=priors, scale=SCALE, loss=CAUCHY, tolerance=TOLERANCE,
    )  # fmt: skip


def weights(rows: Rows) -> np.ndarray:
    """How much each row counts: a server by the root of its rows, so that repeats count less."""
    used = rows.fitted
    _, which, many = np.unique(rows.groups[used], return_inverse=True, return_counts=True)
    found = np.zeros(len(used))
    found[used] = many[which] ** -0.5
    return found


def left_out(rows: Rows, way: str) -> np.ndarray:
    """The share of its board's power of each row, by a fit without its server or generation."""
    made = problem(rows.timed)
    labels = rows.groups if way == "servers" else rows.predicted.generation.astype(str)
    found = np.full(len(rows.rows), np.nan)
    for fold in cross_validate(made, label_masks(labels), weights=weights(rows), steps=STEPS):
        tree: Any = made.chosen.insert(made.tree, jnp.asarray(fold.free))
        found[fold.inside] = np.asarray(metered_shares(tree, rows.predicted.take(fold.inside)))
    return found


def scores(rows: Sequence[PooledRow]) -> dict[str, Any]:
    """Score servers and generations left out; print a table and return the headline."""
    found = with_watts(rows)
    labels, shares = np.asarray([row.dataset for row in found.rows]), found.predicted.shares
    lines, headline = [], {}
    names = ("rows", "median", "mean", "bias", "cover80", "width80")
    for way in ("servers", "generations"):
        predicted = left_out(found, way)
        # factors between which 80 % of measured over predicted are, of other servers
        others = (found.groups != group for group in found.groups)
        ends = np.transpose([np.quantile((shares / predicted)[o], (0.1, 0.9)) for o in others])
        for dataset in ("all", *dict.fromkeys(labels.tolist())):
            among = (labels == dataset) | (dataset == "all")
            one = score(predicted[among], shares[among], *(predicted * ends)[:, among])
            assert one is not None and one.cover80 is not None and one.width80 is not None
            errors = (round(x, 1) for x in (one.median, one.mean, one.bias))
            figures = (one.rows, *errors, round(one.cover80), round(one.width80, 2))
            lines.append((f"{way} left out", dataset, *figures))
            headline.setdefault(way, {})[dataset] = dict(zip(names, figures, strict=True))
    columns = ("", "rows of", "rows", "median %", "mean %", "bias %", "in 80 %", "width")
    note = "A row's band has the errors of all other servers that were left out."
    _report.show("Power of a chip, by predicted times", columns, lines, note)
    return headline


def write_fit(path: Path, rows: Sequence[PooledRow]) -> None:
    """Fit all rows and write the file that the package reads."""
    found = with_watts(rows)
    made, counted, groups = problem(found.timed), weights(found), found.groups
    ends, _ = made.solve(made.starts(), counted, STEPS)
    fit = at(made, ends[0], counted)
    used, shipped = counted > 0, files("infer_jax.catalog") / "published" / "power.toml"
    head, _, _ = shipped.read_text(encoding="utf-8").partition("\n[shares")
    count = f"{used.sum()} rows with watts of\n# {len(set(groups[used]))} servers"
    lines = [re.sub(COUNTED, count, head)]
    covered = covariance(fit, groups.tolist())
    for generation in (*GENERATIONS, None):
        lines.append(f"\n[shares.{generation or UNSEEN}]\n")
        values: Any = shares_of(fit.tree, generation)  # pyright: ignore[reportArgumentType]
        lines += [_share(name, float(values[name]), fit, covered, generation) for name in FIELDS]
    lines.append(
        "\n# measured over predicted power of rows whose server was left out, by predicted times;"
        "\n# of unseen chips of rows whose generation was left out\n"
    )
    own, other = (found.predicted.shares / left_out(found, x) for x in ("servers", "generations"))
    ratios = {name: own[found.predicted.generation == i] for i, name in enumerate(GENERATIONS)}
    ratios = {name: x for name, x in ratios.items() if len(x) >= MIN_ROWS} | {UNSEEN: other}
    for name, ratio in ratios.items():
        cells = "\n".join(error_cells(ratio))
        lines.append(f"[errors.{name}]\nrows = {len(ratio)}\n{cells}\n")
    write_text(path, "".join(lines))


def _share(name: str, value: float, fit: Fit, covered: np.ndarray, generation: str | None) -> str:
    """A share with its interval: the variance of the sum of the logarithms of its factors."""
    parts = [0]
    if generation is not None:
        parts += [1 + MADE_BY[generation], 1 + len(MAKES) + GENERATIONS.index(generation)]
    names = list(fit.parameters.names)
    index = [names.index(f"{i}.{name}") for i in parts]
    variance = float(np.sum(covered[np.ix_(index, index)]))
    variance += 0.0 if generation else 2.0 * RATIO**2
    reach = REACH * np.sqrt(variance)
    learnt = {p.name: p.learnt for p in identifiability(fit).parameters}
    known = max(learnt[names[k]] or 1.0 for k in index)
    return (
        f"{name} = {{ value = {value:.4g}, low = {value * np.exp(-reach):.4g}, "
        f"high = {value * np.exp(reach):.4g}, prior = {MEAN[name].value:g}, "
        f"learnt = {known:.2f} }}\n"
    )


@_report.command(app, x64=True)
def power(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Files of rows, as `validation` reads them.")
    ] = None,
    ship: Annotated[
        Path | None, typer.Option(help="TOML to write the fit of all rows to, with intervals.")
    ] = None,
) -> dict[str, Any]:
    """Fit the power of chips, and score rows whose server or generation each fit has not seen."""
    folder = kinds.MEASURED
    known = [folder / "inferencex_deepseek_r1.csv", *sorted(folder.glob("h200_gpt_oss/*.tsv"))]
    paths = files or [*known, ML_ENERGY]
    rows = [row for path in paths for row in kinds.read(path).rows if "power" in row.measured]
    if len({row.group for row in rows}) < 2:
        raise InputError("power", "rows", len(rows), "rows with watts of two servers or more")
    figures = scores(rows)
    if ship is not None:
        write_fit(ship, rows)
    return figures


if __name__ == "__main__":
    app()
