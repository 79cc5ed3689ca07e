"""The efficiency of a kernel: the interface of its sources, and curves fitted to measured latency.

A source of efficiency is a pytree with five methods, one a family of kernels; each returns a
``Rating``. Shapes are what one rank computes: heads and widths are already divided. Curves are
differentiable in shape and rate; their coefficients are per chip, in a profile's ``[kernels]``
table, with their errors.
"""

from typing import NamedTuple, Protocol as Interface

import jax.numpy as jnp
from jax import Array

from infer_jax.errors import InputError
from infer_jax.physics import attention as att, efficiency as eff, feedforward as ffn
from infer_jax.physics.matmul import rate
from infer_jax.specs import Attention, Chip, Experts, Format, Spec, number, part, spec, value_of

MEASURED, NO_TABLE, NO_ROW, NO_DTYPE, ZERO, HEADLESS = range(6)
REFUSED = NO_DTYPE  # from this code on the authors' tool crashes, or its file is damaged
CHUNK = 64.0  # tokens of a chunk of flash-linear-attention's chunk_gated_delta_rule
HELD = 2.0  # bytes of each activation that a product writes
FAMILIES = (
    "gemm",
    "grouped_decode",
    "grouped_prefill",
    "gqa_decode",
    "mla_decode",
    "gqa_prefill",
    "mla_prefill",
    "linear_decode",
    "linear_prefill",
)


class Rating(NamedTuple):
    """Model FLOP utilisation of the peak rate; whether it was measured, and in which row."""

    mfu: Array
    lack: Array  # MEASURED, or why a default was taken
    row: Array


class Gemm(NamedTuple):
    """A matrix product: (m x k) times (k x n)."""

    m: Array
    k: Array
    n: Array

    @property
    def flops(self) -> Array:
        """FLOP: 2 m k n."""
        return 2.0 * self.m * self.k * self.n


class Routed(NamedTuple):
    """A layer of routed experts: ``tokens`` a GPU, on ``gpus`` GPUs, experts over ``spread``."""

    experts: Experts
    width: Array
    tokens: Array
    gpus: Array
    spread: Array


class Source(Interface):
    """Where efficiencies come from."""

    def product(self, chip: Chip, shape: Gemm, weights: Format) -> Rating:
        """A projection."""
        ...

    def routed(self, chip: Chip, routed: Routed, stage: str) -> Rating:
        """The three products of all routed experts of a layer."""
        ...

    def decode(
        self, chip: Chip, core: Attention, sequences: Array, context: Array, cache: Format
    ) -> Rating:
        """The attention core where each sequence has one new token, over the 16-bit peak."""
        ...

    def prefill(self, chip: Chip, core: Attention, length: Array) -> Rating:
        """The causal attention core of a prompt, half of its pairs counted, 16-bit peak."""
        ...

    def linear(
        self, chip: Chip, core: Attention, count: Array, stage: str, state: Array
    ) -> tuple[Array, Rating]:
        """Seconds of linear attention for ``count`` sequences (decode) or tokens (prefill).

        ``state`` is the bytes of state of one sequence.
        """
        ...


def measured(mfu: Array) -> Rating:
    """A measured rating of this MFU."""
    none = jnp.zeros_like(mfu)
    return Rating(mfu, none, none)


@spec
class Kernel(Spec):
    """One kernel of one layer on one rank; ``seconds`` is what the assembly charges for it."""

    seconds: Array = number("time charged", unit="s", kind="time")
    flops: Array = number("arithmetic", unit="FLOP", kind="size")
    bytes: Array = number("bytes through memory", unit="bytes", kind="size")
    peak: Array = number("data-sheet rate of its arithmetic", unit="FLOP/s", kind="rate")
    mfu: Array = number("model FLOP utilisation of that rate", kind="fraction")
    lack: Array = number("0: measured or fitted; else why a default was taken", kind="size")
    row: Array = number("row of the table, -1: none", kind="size")

    @property
    def intensity(self) -> Array:
        """Arithmetic intensity, FLOP per byte through memory; 0 where nothing is moved."""
        moves = self.bytes > 0
        return jnp.where(moves, self.flops / jnp.where(moves, self.bytes, 1.0), 0.0)

    def compute_bound(self, chip: Chip) -> Array:
        """True where the intensity exceeds the chip's balance of peak over bandwidth.

        Source: InferSim technical report (2025), Section 3.2.
        """
        return self.intensity * chip.memory_bandwidth > self.peak


def kernel_at_efficiency(
    flops: Array, moved: Array, peak: Array, rating: Rating, scale: Array | float = 1.0
) -> Kernel:
    """A kernel at its efficiency: FLOP / (peak mfu scale), 0 for none."""
    return Kernel(
        seconds=flops / (peak * scale * rating.mfu),
        flops=flops,
        bytes=moved,
        peak=peak,
        mfu=rating.mfu,
        lack=rating.lack,
        row=rating.row,
    )


def _product() -> eff.Product:
    return eff.Product.of(compute=1.0, fixed=0.0, rows=0.0, depth=0.0, tail=0.0)


def _attending() -> eff.Attending:
    return eff.Attending.of(compute=1.0, memory=1.0, fixed=0.0, sharpness=8.0)


def _prompting() -> eff.Prompting:
    return eff.Prompting.of(compute=1.0, fixed=0.0, ramp=0.0)


def _recurring() -> eff.Recurring:
    return eff.Recurring.of(memory=1.0, fixed=0.0, sharpness=8.0)


@spec
class Curves(Spec):
    """The curves of one chip; as constructed the roofline itself: every efficiency is 1."""

    gemm: eff.Product = part("matrix products", default_factory=_product)
    grouped_decode: eff.Product = part("routed experts, masked", default_factory=_product)
    grouped_prefill: eff.Product = part("routed experts, contiguous", default_factory=_product)
    gqa_decode: eff.Attending = part("grouped-query attention", default_factory=_attending)
    mla_decode: eff.Attending = part("latent attention, absorbed", default_factory=_attending)
    gqa_prefill: eff.Prompting = part("causal attention", default_factory=_prompting)
    mla_prefill: eff.Prompting = part("latent attention, expanded", default_factory=_prompting)
    linear_decode: eff.Recurring = part("recurrent update", default_factory=_recurring)
    linear_prefill: eff.Recurring = part("chunked scan", default_factory=_recurring)

    def fitted(self, coefficients: dict[str, float]) -> "Curves":
        """These curves with coefficients by name, family and field joined by '_'.

        Raises:
            InputError: a name that is no coefficient of a family, or a value out of bounds.
        """
        changed: dict[str, dict[str, Array]] = {}
        for name, value in coefficients.items():
            family = next((f for f in FAMILIES if name.startswith(f"{f}_")), None)
            if family is None:
                raise InputError("kernels", "coefficient", name, f"one of {', '.join(FAMILIES)}")
            curve: Spec = getattr(self, family)
            field = name[len(family) + 1 :]
            checked = value_of(type(curve), field, value, f"kernels.{family}")
            changed.setdefault(family, {})[field] = checked
        return self.replace(**{f: getattr(self, f).replace(**own) for f, own in changed.items()})

    def product(self, chip: Chip, shape: Gemm, weights: Format) -> Rating:
        """A projection: ``efficiency.product``."""
        m, k, n = shape
        peak = rate(chip, weights.bits)
        moved = product_bytes(shape, weights)
        seconds = eff.product(m, k, n, moved, peak, chip.memory_bandwidth, self.gemm)
        return _over(shape.flops, seconds, peak)

    def routed(self, chip: Chip, routed: Routed, stage: str) -> Rating:
        """Products of the experts that tokens visit, by ``efficiency.grouped_product_time``.

        Tokens spread evenly; of the experts on a GPU the expected share is visited.
        """
        c = self.grouped_decode if stage == "decode" else self.grouped_prefill
        e, width = routed.experts, routed.width
        everyone = routed.tokens * routed.spread
        local = e.experts / routed.spread
        active = local * ffn.visited_share(ffn.sparsity(e), everyone)
        each = everyone * e.active / e.experts / (active / local)
        peak, bandwidth = rate(chip, e.weights.bits), chip.memory_bandwidth
        seconds = jnp.asarray(0.0)
        for k, n in ((width, e.inward * e.width), (e.width, width)):
            moved = active * product_bytes(Gemm(each, k, n), e.weights)
            seconds = seconds + eff.grouped_product_time(
                active, each, k, n, moved, peak, bandwidth, c
            )
        flops = 2.0 * (e.inward + 1.0) * routed.tokens * e.active * width * e.width
        return _over(flops, seconds, peak)

    def decode(
        self, chip: Chip, core: Attention, sequences: Array, context: Array, cache: Format
    ) -> Rating:
        """Attention over the cache: ``efficiency.decode_attention_time``.

        Queries and outputs of latent attention are as many bytes as hundreds of cached tokens, and
        are counted.
        """
        layer = att.of(core)
        c: eff.Attending = getattr(self, f"{layer.core.curve}_decode")
        flops = layer.absorbed * sequences * context
        moved = sequences * (layer.held_bytes(cache, context) + layer.carried * HELD)
        seconds = eff.decode_attention_time(
            flops, moved, sequences, chip.flops_16, chip.memory_bandwidth, c
        )
        return _over(flops, seconds, chip.flops_16)

    def prefill(self, chip: Chip, core: Attention, length: Array) -> Rating:
        """Causal attention over a prompt: ``efficiency.prefill_attention_time``."""
        layer = att.of(core)
        c: eff.Prompting = getattr(self, f"{layer.core.curve}_prefill")
        flops = layer.expanded / 2.0 * length * length
        seconds = eff.prefill_attention_time(flops, length, chip.flops_16, c)
        return _over(flops, seconds, chip.flops_16)

    def linear(
        self, chip: Chip, core: Attention, count: Array, stage: str, state: Array
    ) -> tuple[Array, Rating]:
        """Recurrent updates: ``efficiency.state_update_time`` of states read and written.

        In prefill a chunk of ``CHUNK`` tokens reads and writes the state once.
        """
        c: eff.Recurring = getattr(self, f"{att.of(core).core.curve}_{stage}")
        updates = count if stage == "decode" else count / CHUNK
        seconds = eff.state_update_time(2.0 * updates * state, chip.memory_bandwidth, c)
        return seconds, measured(jnp.ones_like(seconds))


def product_bytes(shape: Gemm, weights: Format) -> Array:
    """Bytes of a product: inputs in the weights' matmul class, weights stored, 16-bit outputs."""
    m, k, n = shape
    read = jnp.where(weights.bits <= 8.0, 1.0, HELD)
    return m * k * read + k * n * weights.bytes + m * n * HELD


def _over(flops: Array, seconds: Array, peak: Array) -> Rating:
    """Model FLOP utilisation of a time; 1 where there is no work."""
    works = flops > 0
    mfu = jnp.where(works, flops, 1.0) / (peak * jnp.where(works, seconds, 1.0 / peak))
    return measured(jnp.where(works, mfu, 1.0))
