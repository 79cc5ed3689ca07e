"""Writes the timed kernels of a device as a profile.

A device whose data sheet is not given has the rates of the fastest product and the fastest copy
that were timed; efficiencies are shares of these.
"""

import datetime
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from infer_jax.catalog.systems import entry
from infer_jax.errors import InputError
from infer_jax.estimators.kernels.efficiency import FAMILIES
from infer_jax.kernel_timing import families
from infer_jax.kernel_timing.families import BF16, SHARE, Family, FittedFamily, labels, spread
from infer_jax.kernel_timing.kernels import BYTES, Timed
from infer_jax.specs import Chip, leaves

WIDEST = 100.0  # ratio of an interval's ends above which it says nothing
NARROWEST = 1.0 + 1e-4  # and below which the prediction does not depend on the coefficient
SUFFIX = {"s": ("_us", 1e6), "tokens": ("_tokens", 1.0)}


def curve(name: str, fit: FittedFamily, source: str, note: str = "") -> Iterator[str]:
    """The entries of one family, each with its interval, the first with errors or ``note``."""
    for i, (path, meta, value) in enumerate(leaves(fit.coefficients)):
        suffix, factor = SUFFIX.get(meta["unit"], ("", 1.0))
        notes = [note or errors(fit)] if i == 0 else []
        if path in fit.intervals and not note:
            notes.append(interval(*(x * factor for x in fit.intervals[path])))
        yield entry(f"{name}_{path}{suffix}", float(value) * factor, source, "; ".join(notes))


def interval(low: float, high: float) -> str:
    """An interval in words, or that the data do not determine it.

    >>> interval(0.0, 3.0)
    'the data do not determine it'
    """
    if not (low > 0.0 and NARROWEST * low < high < WIDEST * low):
        return "the data do not determine it"
    return f"{100 * SHARE:.0f} % interval {low:.4g} to {high:.4g}"


def errors(fit: FittedFamily) -> str:
    """The errors of a family in words."""
    words = "median/p90 error {:.1f}/{:.1f} % of {} rows".format(*spread(fit.seen), len(fit.seen))
    if len(fit.unseen):
        words += ", on unseen shapes {:.1f}/{:.1f} %".format(*spread(fit.unseen))
    return words


def filled(
    curves: Mapping[str, FittedFamily],
    known: Sequence[str],
    fills: Mapping[str, Sequence[str]],
    source: str,
) -> Iterator[str]:
    """Entries of the fitted families that are ``known``, and of others that ``fills`` name.

    A missing family takes the curve of the first of its stand-ins that was fitted.
    """
    for name in known:
        if name in curves:
            yield from curve(name, curves[name], source)
    for name, others in fills.items():
        other = next((curves[x] for x in others if x in curves), None)
        if name not in curves and other is not None:
            own = name.startswith(f"{other.family.name}_")
            note = "" if own else f"not measured here: that of {other.family.name}"
            yield from curve(name, other, source, note)


# families of the estimator that are not timed here, and those whose curve they take
FILLS = {
    "grouped_decode": ("grouped",),
    "grouped_prefill": ("grouped",),
    "mla_decode": ("gqa_decode",),
    "mla_prefill": ("gqa_prefill",),
    "linear_decode": ("copy",),
    "linear_prefill": ("copy",),
}
LINKS = ("all_reduce", "all_to_all")


class Device(NamedTuple):
    """Numbers of a profile beside its curves: bytes, bytes/s, USD per hour, a base profile."""

    chip: Chip
    link: float
    price: float
    base: str


def chip_of(timed: Sequence[Timed], memory: float) -> Chip:
    """A chip with the rates of the fastest product and copy; 8 and 4 bits as 16 bits.

    Raises:
        InputError: no product or no copy could be timed.
    """
    flops = _fastest(timed, "gemm", lambda x: 2 * x["m"] * x["k"] * x["n"])
    bandwidth = _fastest(timed, "copy", lambda x: x["moved"])
    if not flops or not bandwidth:
        raise InputError("measure", "device", "out of memory", "one that a product fits in")
    rates = {"flops_16": flops, "flops_8": flops, "flops_4": flops}
    return Chip.of(**rates, memory=memory, memory_bandwidth=bandwidth)


def _fastest(
    timed: Sequence[Timed], family: str, work: Callable[[Mapping[str, float]], float]
) -> float:
    """The most work per second that a kernel of a family does; 0 where none was timed."""
    done = (t for t in timed if t.family == family and math.isfinite(t.seconds))
    return max((work(t.shape) / t.seconds for t in done), default=0.0)


def link_of(timed: Sequence[Timed]) -> float:
    """Bytes per second that one device sends in the fastest all-reduce; 0 where it is alone."""
    return _fastest(timed, "all_reduce", lambda x: x["moved"])


def families_of(timed: Sequence[Timed], chip: Chip) -> list[Family]:
    """The timed kernels as families to fit."""
    built = []
    for name in dict.fromkeys(t.family for t in timed):
        rows = [t for t in timed if t.family == name and math.isfinite(t.seconds)]
        columns = {key: np.array([float(r.shape[key]) for r in rows]) for key in rows[0].shape}
        built.append(_family(name, columns, np.array([r.seconds for r in rows]), chip))
    return built


def _family(name: str, x: dict[str, np.ndarray], seconds: np.ndarray, chip: Chip) -> Family:
    if name == "gemm":
        return families.products(name, x["m"], x["k"], x["n"], seconds, BF16, chip)
    if name == "grouped":
        groups, m, k, n = (x[key][None] for key in ("groups", "m", "k", "n"))
        shapes = labels(x["k"], x["n"])
        return families.grouped(name, groups, m, k, n, seconds, shapes, BF16, chip)
    if name not in ("gqa_decode", "gqa_prefill"):
        return families.moving(name, x["moved"], seconds, labels(x["moved"]), chip)
    pairs, shapes = x["batch"] * x["length"], labels(x["heads"], x["kv"])
    flops = 4.0 * x["heads"] * x["width"] * pairs
    if name == "gqa_prefill":
        flops = 0.5 * flops * x["length"]
        return families.prompting(name, flops, x["length"], seconds, shapes, chip)
    moved = 2.0 * BYTES * x["kv"] * x["width"] * pairs
    return families.attending(name, flops, moved, x["batch"], seconds, shapes, chip)


def text(curves: Sequence[FittedFamily], device: Device) -> str:
    """The TOML text of a profile of this machine's devices."""
    kind, count = jax.devices()[0].device_kind, jax.device_count()
    by_name = {fit.family.name: fit for fit in curves if fit.family.name not in LINKS}
    citation = (
        f"timed by infer-jax measure on {count} x {kind} with jax {jax.__version__} on "
        f"{datetime.date.today().isoformat()}; kernels compiled by XLA, not a serving engine's"
    )
    # the rates of a device whose data sheet is not given
    chip, wire = device.chip, (device.link or float(device.chip.memory_bandwidth)) / 1e9
    note = "" if device.link else "one device: its memory bandwidth stands for a link"
    rate, memory = float(chip.flops_16) / 1e12, float(chip.memory_bandwidth) / 1e9
    facts = [
        entry("price_usd_per_hour", device.price, "given"),
        "",
        "[chip]",
        entry("flops_16_tflops", rate, "measured", "the fastest product"),
        entry("memory_gb", float(chip.memory) / 1e9, "measured", "what the runtime may take"),
        entry("memory_bandwidth_gb_per_s", memory, "measured", "the fastest copy"),
        "",
        "[network]",
        'kind = "hierarchy"',
        entry("domain", count, "measured"),
        entry("domain_bandwidth_gb_per_s", wire, "measured", note),
        entry("network_bandwidth_gb_per_s", wire, "measured", note),
    ]
    share = entry("link_share", 1.0, "measured", "the link is what was measured")
    lines = [
        f'title = "{count} x {kind}, measured"',
        'notes = "Curves are of kernels compiled by XLA, not of a serving engine\'s."',
        *([f'base = "{device.base}"'] if device.base else facts),
        "",
        "[kernels]",
        *([] if device.base else [share]),
        *filled(by_name, FAMILIES, FILLS, "measured"),
        "",
        "[sources]",
        f'measured = "{citation}"',
        'given = "the command line"',
        "",
    ]
    return "\n".join(lines)


def usable_memory() -> float:
    """Bytes of memory of the default device, by its runtime or its host."""
    stats = jax.devices()[0].memory_stats() or {}
    if "bytes_limit" in stats:
        return float(stats["bytes_limit"])
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
