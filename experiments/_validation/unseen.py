"""Errors on rows of a publisher that a fit has not seen, and the law of errors learned from them.

Of the rows that a fit may see, each publisher is left out in turn: the fit is refitted to the
others, linearised where it is (a round of robust least squares is then a small equation), and the
errors of the publisher's rows are the sample of which the law is learned.
"""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments._silicon import quantiles
from experiments._validation import everything
from experiments._validation.everything import (
    MEDIAN,
    PACE,
    TTFT,
    ByDifferences,
    Measured,
)
from experiments._validation.row import Row
from infer_jax.calibration import learned
from infer_jax.catalog.files import write_text
from infer_jax.catalog.published import ErrorLaw, facts

HEAD = """\
# How far measured is from predicted on servers of a publisher of whom no fit has seen a row.
# Source: {rows} rows of {sources} publishers, each predicted by a fit to the others' rows;
# `python experiments/validation.py --split source --ship FILE`.
# scale: of log(measured / predicted), at 32 requests in flight of an instance. slopes: added to log
# scale by two pools, 4-bit products, a chip and a model without rows, and 64 times the requests.
# within: over the scale, quantiles that hold 50, 80 and 95 % of runs, a data set as 12 rows at
# most. common: share of the variance that layouts and loads of a server have in common.
"""
ROUNDS, REACH = 12, 1.0  # of a linear refit; the largest change of a coordinate
ORDINARY = 3.0  # times the scale of the loss, believed of another publisher's errors
FACTS = tuple(facts())
NEW = ("chip", "model")
OUTPUTS = ("tpot", "ttft", "pools_ttft")


class Unseen(NamedTuple):
    """log(measured / predicted) of each time, by a fit without its publisher; what was known."""

    errors: np.ndarray
    facts: dict[str, np.ndarray]

    def sample(self, times: Measured, output: str, among: np.ndarray) -> np.ndarray:
        """The times of which an output's law is learned: paces, or TTFT of one pool or of two."""
        if output == "tpot":
            return among & (times.kind == PACE)
        pools = self.facts["pools"] > 0.5
        return among & (times.kind == TTFT) & (pools == (output == "pools_ttft"))

    def ends(self, times: Measured, seen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ends of the 80 % band of each time not ``seen``, by the law of the seen ones: logs."""
        low, high = (np.full(len(seen), np.nan) for _ in range(2))
        pools, first = self.facts["pools"] > 0.5, np.isin(times.kind, (TTFT, MEDIAN))
        outputs = np.where(first, np.where(pools, "pools_ttft", "ttft"), "tpot")
        for output in np.unique(outputs[~seen]):
            own, sample = ~seen & (outputs == output), self.sample(times, str(output), seen)
            if sample.any():
                law = self.learned(times, sample)
                low[own], high[own] = (end * self.scales(law, own) for end in law.ends[80])
        return low, high

    def scales(self, law: ErrorLaw, own: np.ndarray) -> np.ndarray:
        """The scale of each of some times by a law."""
        return law.scale * np.exp(sum(law.slopes[n] * x[own] for n, x in self.facts.items()))

    def learned(self, times: Measured, own: np.ndarray) -> ErrorLaw:
        """The law of some times."""
        believed = ORDINARY * float(np.median(np.asarray(everything.SCALES)[times.kind[own]]))
        clusters = times.labels(lambda row: row.dataset)[own].tolist()
        known = {n: x[own] for n, x in self.facts.items()}
        return learned(self.errors[own], known, clusters, believed, widening=NEW)


def unseen(
    times: Measured, made: ByDifferences, free: np.ndarray, seen: np.ndarray, sources: np.ndarray
) -> Unseen:
    """The errors of all times: of ``seen`` ones without their source, of others by the fit itself.

    Args:
        free: coordinates of the fit to the ``seen`` times.
        sources: who published each time.
    """
    logs, slope = (np.asarray(x) for x in made.derivatives(free))
    errors = np.log(times.seconds) - logs
    known = {name: np.zeros(len(errors)) for name in FACTS}
    parts = [(~seen, seen, np.zeros(len(free)))]
    for source in np.unique(sources[seen]):
        own = sources == source
        others = seen & ~own
        if others.any():
            weights = everything.weights(times, others)
            parts.append((seen & own, others, _moved(made, free, (logs, slope), weights)))
    for own, others, moved in parts:
        errors[own] -= slope[own] @ moved
        for name, values in _facts(times, others).items():
            known[name][own] = values[own]
    return Unseen(errors, known)


def _moved(
    made: ByDifferences,
    free: np.ndarray,
    near: tuple[np.ndarray, np.ndarray],
    weights: np.ndarray,
) -> np.ndarray:
    """The change of coordinates by which the linearised robust loss of ``weights`` is least."""
    logs, slope = near
    used = weights > 0.0
    rows, left = slope[used], (logs - np.log(made.data))[used]
    size, weight = made.scale[used], weights[used]
    ends, bent = (np.asarray(x) for x in _held(made, free))
    moved = np.zeros(len(free))
    for _ in range(ROUNDS):
        z = (left + rows @ moved) / size
        counted = weight * np.asarray(made.loss.weight(jnp.asarray(z))) / size**2
        square = (rows.T * counted) @ rows + bent.T @ bent + 1e-6 * np.eye(len(free))
        best = -np.linalg.solve(square, (rows.T * counted) @ left + bent.T @ ends)
        moved = np.clip(0.5 * (moved + best), -REACH, REACH)
    return moved


def _held(made: ByDifferences, free: np.ndarray) -> tuple[jax.Array, jax.Array]:
    """Residuals of the priors and their slopes."""
    point = jnp.asarray(free)
    return made.held(point), jax.jacfwd(made.held)(point)


def _facts(times: Measured, seen: np.ndarray) -> dict[str, np.ndarray]:
    """Facts of every row where the ``seen`` ones are all that is known."""
    chips = set(times.labels(lambda row: row.system)[seen])
    models = set(times.labels(_model)[seen])
    found = [
        facts(
            _load(row),
            pools=row.asked == "pools",
            narrow=narrow(row),
            chip=row.system not in chips,
            model=_model(row) not in models,
        )
        for row in times.rows
    ]
    return {n: np.asarray([x[n] for x in found])[times.row] for n in FACTS}


def narrow(row: Row) -> bool:
    """Whether a row's experts, or feedforward, multiply 4-bit numbers."""
    return row.served is not None and row.served.formats.feedforward[1] == 4.0


def _load(row: Row) -> float:
    return 1.0 if row.work is None else float(row.work.batch)


def _model(row: Row) -> str:
    return "" if row.served is None else row.served.model


def laws(times: Measured, found: Unseen) -> dict[str, ErrorLaw]:
    """The law of each output that the program prints, from all rows."""
    servers = times.labels(lambda row: (row.dataset, row.group))
    laws = {}
    for name in OUTPUTS:
        own = found.sample(times, name, np.ones(len(servers), bool))
        law = found.learned(times, own)
        scores = found.errors[own] / found.scales(law, own)
        alike = quantiles.shared(scores, ["all"] * len(scores), servers[own].tolist())
        laws[name] = law._replace(common=alike)
    return laws


def ship(path: Path, times: Measured, found: Unseen) -> None:
    """Write the laws that the package reads."""
    sources = times.labels(lambda row: row.dataset.split()[0])
    lines = [HEAD.format(rows=len(set(times.row)), sources=len(set(sources)))]
    for name, law in laws(times, found).items():
        slopes = ", ".join(f"{n} = {x:.3f}" for n, x in law.slopes.items())
        lines.append(f"\n[{name}]\nscale = {law.scale:.4f}\nslopes = {{ {slopes} }}\n")
        for share, (low, high) in law.ends.items():
            lines.append(f"within_{share} = [{low:.3f}, {high:.3f}]\n")
        lines.append(f"common = {law.common:.2f}\n")
    write_text(path, "".join(lines))
