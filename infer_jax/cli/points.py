"""Which points does `infer-jax frontier` look at, and what is each of them made of?"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from infer_jax.compiling import once
from infer_jax.estimators import Estimator, Limit
from infer_jax.estimators.estimate import decode_context
from infer_jax.physics import decoder
from infer_jax.physics.feedforward import sparsity
from infer_jax.physics.price import usd_per_million_tokens
from infer_jax.planning import layouts
from infer_jax.specs import Architecture, ForwardPass, Hierarchy, Plan
from infer_jax.sweeps import Grid, paper_axes
from infer_jax.verbs import limits
from infer_jax.verbs.inputs import Given

PLANNED = "economics.planned"  # of ideal servers at splits that are given
EACH = 16  # GPUs up to which every number is tried
LARGEST = 1024  # GPUs of the largest instance that is tried where no total is given
PER_OCTAVE = 8  # GPUs tried per doubling beyond
BATCHES = np.unique(np.round(np.r_[1:65, np.geomspace(64, 2**18, 12 * 24 + 1)]))


@dataclass(frozen=True)
class Answer:
    """All evaluated points: a grid, and each point's terms, limits and layout."""

    grid: Grid
    terms: dict[str, np.ndarray]
    limits: dict[str, Limit]
    layout: dict[str, np.ndarray]


def axes(
    asked: Given, theory: Estimator, paper: bool, total: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """(GPUs, batches): whole numbers up to ``total``, or the paper's real ones."""
    if paper:
        arch, chip = asked.model.architecture, asked.hardware.chip
        stored = once(_stored, theory.innermost, arch)
        return paper_axes(float(stored) / float(chip.memory), _sparsity(arch))
    total = float(LARGEST if total is None else total)
    octaves = max(np.log2(total / EACH), 0.0)
    chips = np.r_[1 : EACH + 1, EACH * 2.0 ** (np.arange(1, octaves * PER_OCTAVE + 1) / PER_OCTAVE)]
    network = asked.hardware.network
    if isinstance(network, Hierarchy):  # whole domains: 72, 144, ... of an NVL72
        domain = float(network.domain)
        chips = np.r_[chips, domain * 2.0 ** np.arange(max(np.log2(total / domain), -1.0) + 1)]
    chips = np.unique(np.round(np.r_[chips, total]))
    return chips[chips <= total], BATCHES


def whole(asked: Given, total: float | None) -> np.ndarray:
    """(TP, PP, EP) of layouts that an engine runs, one a row, on up to ``total`` GPUs.

    Attention is cut over all TP x EP GPUs of a stage, of which EP deal out the experts.
    """
    found = layouts(asked.model.architecture, int(total or LARGEST), most_groups=1)
    return np.array([(x.tp / x.ep, x.pp, x.ep) for x in found])


def real(chips: np.ndarray) -> np.ndarray:
    """(TP, PP, EP) for an estimator that finds the split of each number of GPUs itself."""
    return np.stack([chips, np.ones_like(chips), np.ones_like(chips)], axis=1)


def _sparsity(arch: Architecture) -> float:
    """The largest number of experts per active expert among the blocks."""
    feeds = [b.feedforward for b in arch.blocks if b.feedforward is not None]
    return max((float(s) for s in once(_sparsities, feeds)), default=1.0)


def _stored(theory: Any, arch: Architecture) -> Any:
    """Bytes of the weights, as the theory counts projections."""
    return decoder.total(decoder.weight_bytes(arch, theory.laws.projections).values())


def _sparsities(feeds: list[Any]) -> list[Any]:
    return [sparsity(x) for x in feeds]


def evaluate(theory: Estimator, asked: Given, work: Any, splits: Any, batches: Any) -> Answer:
    """One decode pass of every split, as ``whole`` or ``real`` has them, at every batch."""

    n, b = np.meshgrid(splits.prod(axis=1), batches, indexing="ij")
    given = (theory, asked.model.architecture, asked.hardware, work, splits, batches)
    phase, cost, feasible = once(_all_pairs, *given, points=n.size)
    grid = Grid(n.ravel(), b.ravel(), phase.time, cost, feasible, phase.mfu)
    return Answer(grid, phase.terms, phase.limits, phase.layout)


def _all_pairs(
    theory: Estimator, arch: Any, hardware: Any, work: Any, splits: Any, batches: Any
) -> Any:
    def one(split: Any, b: Any) -> Any:
        plan = Plan.of().replace(tp=split[0], pp=split[1], ep=split[2])
        forward = ForwardPass(
            sequences=b, new_tokens=jnp.ones_like(b), cached_tokens=decode_context(work)
        )
        phase = theory.step(arch, hardware, forward, plan)
        cost = usd_per_million_tokens(plan.instance, hardware.price, phase.time, b)
        return phase, cost, phase.feasible

    rows = jax.vmap(lambda n: jax.vmap(lambda b: one(n, b))(batches))(splits)
    shape = (len(splits) * len(batches),)
    return jax.tree.map(lambda x: x.reshape(shape), rows)


def row(answer: Answer, front: Grid, i: int, is_best: bool) -> dict[str, Any]:
    """One point of the frontier with its split and its terms."""
    n, b, grid = front.chips[i], front.batch[i], answer.grid
    same = (grid.chips == n) & (grid.batch == b) & (grid.time == front.time[i])
    at = int(np.flatnonzero(same & grid.feasible)[0])
    terms = {name: float(t[at]) for name, t in answer.terms.items()}
    return {
        "speed_tokens_per_s": front.speed[i],
        "cost_per_mtok_usd": front.cost[i],
        "gpus": n,
        "batch": b,
        **{name: float(x[at]) for name, x in answer.layout.items()},
        "mfu": front.mfu[i],
        "tpot_ms": 1e3 * front.time[i],
        "terms": {f"{name}_ms": 1e3 * t for name, t in terms.items()},
        "binds": max(terms, key=lambda name: terms[name]),
        "preferred": bool(is_best),
    }


def why_nothing(answer: Answer, fits: bool, demand: float | None, tpot: float | None) -> str:
    """Why no row is left, in one sentence."""
    if not fits:
        at = int(np.lexsort((answer.grid.batch, -answer.grid.chips))[0])  # most GPUs, least batch
        held = {
            k: Limit(need=v.need[at], capacity=v.capacity[at]) for k, v in answer.limits.items()
        }
        short = "; ".join(limits.broken(k, v) for k, v in held.items() if v.need > v.capacity)
        size = f"{answer.grid.chips[at]:.12g} GPUs and a batch of {answer.grid.batch[at]:.12g}"
        return f"Nothing fits: even with {size}, {short}."
    left = answer.grid.under(demand)
    if not len(left.time):
        least = answer.grid.under(None)
        rate = float((least.batch / least.time).min())
        return f"Nothing serves so little as {demand:g} tokens/s: the least is {rate:.4g} tokens/s."
    fastest = 1e3 * float(left.time.min())
    return (
        f"Nothing is within {1e3 * (tpot or 0):g} ms a token: the fastest takes {fastest:.4g} ms."
    )
