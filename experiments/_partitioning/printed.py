"""What do Tables 1, 2 and 3 of the paper print, and what do we say of each row?"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from experiments._columns import printed_rows
from experiments._partitioning.models import partitioning_hardware, partitioning_model
from infer_jax.catalog import load_system
from infer_jax.estimators import Phase, make
from infer_jax.estimators.partitioning import ATTENTION, LAYOUTS, Slice, slice_of
from infer_jax.estimators.partitioning.forward_pass import cache_share
from infer_jax.estimators.partitioning.slices import sharding_of
from infer_jax.physics import attention as att
from infer_jax.physics.decoder import total
from infer_jax.specs import Architecture, ForwardPass, Hardware, Plan

RESERVED = 0.3  # of the memory is kept for the cache, Table 1


def max_context(
    arch: Architecture, hardware: Hardware, plan: Plan, batch: Array, reserved: Array
) -> Array:
    """Tokens of context that fit for each of ``batch`` sequences.

    reserved * memory / (bytes of one token of all sequences on one chip), with ``reserved``
    the share of a chip's memory that is kept for the cache. Layers that cache more with every
    token alone count (no windows). Source: Pope et al. 2022 (arXiv 2211.05102), Table 1.
    """
    sharding, one = sharding_of(plan, arch), jnp.asarray(1.0)
    each = total(
        b.count
        * att.of(b.attention).held_bytes(arch.cache, one)
        * cache_share(sharding, b.attention, batch)
        for b in arch.blocks
        if b.attention is not None
    )
    return reserved * hardware.chip.memory * plan.pp / (batch * each)


class Context(NamedTuple):
    """A cell of Table 1: attention, batch, tokens printed and ours."""

    attention: str
    batch: float
    theirs: float
    ours: float


def contexts() -> list[Context]:
    """Table 1: the longest contexts of PaLM 540B, heads padded to 64, on 64 chips."""
    hardware, results = partitioning_hardware("tpu_v4"), []
    for row in printed_rows("partitioning_contexts.csv"):
        kind, batch = row["attention"], float(row["batch"])
        arch = partitioning_model("PaLM_540B", multihead=kind == "multihead")
        plan = slice_of(64, layout=1.0, attention=float(kind == "multiquery_batch"))
        with jax.enable_x64(True):
            ours = max_context(arch, hardware, plan, jnp.asarray(batch), jnp.asarray(RESERVED))
        results.append(Context(kind, batch, float(row["tokens"]), float(ours)))
    return results


@functools.cache
def estimator(name: str = "partitioning") -> Any:
    """The estimator with the coefficients of TPU v4's profile."""
    return make(name, load_system("tpu_v4").coefficients)


@jax.jit
def step(model: Any, arch: Any, hardware: Any, forward: Any, plan: Any) -> Phase:
    """One pass, compiled once for each structure of its arguments."""
    return model.step(arch, hardware, forward, plan)


def run(arch: Any, plan: Any, batch: float, new: float = 1, cached: float = 0, **changes: Any):
    """One pass on TPU v4: searched where ``plan`` is a number of chips, else as planned.

    ``changes`` are coefficients other than the profile's.
    """
    searched = not isinstance(plan, Slice)
    model = estimator("partitioning" if searched else "partitioning.planned").with_(**changes)
    forward = ForwardPass.of(sequences=batch, new_tokens=new, cached_tokens=cached)
    with jax.enable_x64(True):
        results = slice_of(plan) if searched else plan
        return jax.device_get(step(model, arch, load_system("tpu_v4").hardware, forward, results))


class Setting(NamedTuple):
    """A column of Table 2 or 3, and our prediction of it."""

    row: dict[str, str]
    seconds: float
    layout: str
    attention: str

    @property
    def error(self) -> float:
        """Relative error of the latency."""
        return self.seconds / float(self.row["latency_s"]) - 1.0

    @property
    def right(self) -> bool:
        """Whether the fastest layout is the one the paper uses."""
        return (self.layout, self.attention) == (self.row["layout"], self.row["attention"])

    @property
    def label(self) -> str:
        """The setting in words."""
        r = self.row
        return f"{r['model']} {r['phase']}, {r['chips']} chips, batch {r['batch']}, {r['weights']}"


@functools.cache
def settings() -> tuple[Setting, ...]:
    """Tables 2 and 3, predicted: coefficients are fitted to Tables D.2 to D.4 alone."""
    results = []
    for row in printed_rows("partitioning_tables.csv"):
        arch = partitioning_model(row["model"], weights=row["weights"])
        tokens, context = float(row["tokens"]), float(row["context"])
        decoding = row["phase"] == "decode"
        at = context + (tokens - 1.0) / 2.0 if decoding else context
        phase = run(arch, int(row["chips"]), float(row["batch"]), 1 if decoding else tokens, at)
        seconds = float(phase.time) * (tokens if decoding else 1.0)
        results.append(Setting(row, seconds, *names(phase)))
    return tuple(results)


def names(phase: Phase) -> tuple[str, str]:
    """(weight layout, attention layout) of a phase."""
    layout = phase.layout
    return LAYOUTS[int(np.rint(layout["layout"]))], ATTENTION[int(np.rint(layout["attention"]))]
