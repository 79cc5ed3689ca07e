"""What does a vLLM server print at start-up? Tokens of KV cache, and maximum concurrency."""

from functools import reduce
from operator import add

from jax import Array

from infer_jax.footprint.chip import Account, Filled, MeanLengths, account, bytes_of_requests
from infer_jax.footprint.settings import EngineSettings, Overheads, default_numbers
from infer_jax.physics.memory.chip_memory import Ranks, resident
from infer_jax.physics.numerics import Smoothing, flooring
from infer_jax.specs import Architecture, Hardware, Plan, Spec, number, part, spec, take_arguments


@spec
class StartupMemory(Spec):
    """One GPU's memory in bytes, and what the cache in it holds.

    Where weights and reserves leave no room, ``available`` and all that follows from it are
    negative; ``slack`` says by how many bytes. ``tokens`` and ``concurrency`` are of one
    group of tp x pp chips: an instance has ep of them and a deployment dp instances.
    """

    weights: dict[str, Array] = part("bytes of weights by kind, as decoder.weight_bytes")
    visible: Array = number("memory that the driver shows", unit="bytes", kind="capacity")
    budget: Array = number("what the server may use of it", unit="bytes", kind="capacity")
    activations: Array = number("peak of the profiling pass", unit="bytes", kind="size")
    reserve: Array = number("CUDA context, collectives, graphs", unit="bytes", kind="size")
    available: Array = number("left for the cache", unit="bytes", kind="size")
    token_bytes: Array = number(
        "cache that a token adds while inside all windows", unit="bytes", kind="size"
    )
    request_bytes: Array = number(
        "cache that a request of the longest context takes", unit="bytes", kind="size"
    )
    slack: Array = number(
        "available less one such request: at 0 and above it fits", unit="bytes", kind="size"
    )
    blocks: Array = number("blocks of the paged cache", kind="count")
    tokens: Array = number(
        "printed as GPU KV cache size; full of requests of the longest context",
        unit="tokens",
        kind="count",
    )
    concurrency: Array = number(
        "printed as maximum concurrency: requests of the longest context", kind="count"
    )

    @property
    def weight_bytes(self) -> Array:
        """Bytes of weights of all kinds, in the precision of each."""
        return reduce(add, self.weights.values())

    @property
    def fits(self) -> Array:
        """Whether the server starts: one request of the longest context has room."""
        return self.slack >= 0


def memory(
    arch: Architecture,
    hardware: Hardware,
    plan: Plan,
    engine: EngineSettings | None = None,
    overheads: Overheads | None = None,
    smoothing: Smoothing = None,
) -> StartupMemory:
    """What one GPU holds under ``plan``, in bytes, tokens and requests.

    available = utilization * visible - weights - activations - reserve, cut into blocks. Pure
    and differentiable; floors are exact (gradient 0 between steps) unless ``smoothing`` is
    given, and absent at 1. Not counted: vision towers, draft models, adapters, rotary tables.
    Source: vLLM, v1/worker/gpu_worker.py (v0.19); see docs/memory.md for measured errors.

    Raises:
        InputError: an argument that is not of its class.

    >>> import infer_jax as ij
    >>> system, model = ij.load_system("h100_sxm"), ij.load_model("llama-3.1-8b")
    >>> held = memory(model.architecture, system.hardware, ij.Plan.of(tp=1))
    >>> bool(held.fits), round(float(held.token_bytes))
    (True, 131072)
    """
    trees = take_arguments("memory", arch=arch, hardware=hardware, plan=plan)
    arch, hardware, plan = trees.values()  # pyright: ignore[reportAssignmentType]
    engine = default_numbers(EngineSettings) if engine is None else engine
    overheads = default_numbers(Overheads) if overheads is None else overheads
    ranks = Ranks(plan.tp, plan.ep, plan.pp)
    chip = account(resident(arch), hardware, ranks, engine, overheads, smoothing=smoothing)
    return startup_figures(chip, engine, smoothing)


def memory_with_requests(
    arch: Architecture,
    hardware: Hardware,
    ranks: Ranks,
    engine: EngineSettings,
    overheads: Overheads,
    lengths: MeanLengths,
    requests: Array,
) -> tuple[StartupMemory, Filled]:
    """What a server prints at start-up, and the cache of ``requests`` of an attention group."""
    chip = account(resident(arch), hardware, ranks, engine, overheads)
    return startup_figures(chip, engine), bytes_of_requests(chip, requests, lengths)


def startup_figures(
    chip: Account, engine: EngineSettings, smoothing: Smoothing = None
) -> StartupMemory:
    """What a server prints of the account of one of its chips."""
    each = chip.at_its_end(engine.context, smoothing)
    blocks = flooring(chip.available / chip.cache.block, smoothing)
    taken = each / chip.cache.block  # blocks that a request of the longest context takes
    return StartupMemory(
        weights=chip.weights,
        visible=chip.visible,
        budget=chip.budget,
        activations=chip.activations,
        reserve=chip.reserve,
        available=chip.available,
        token_bytes=chip.cache.token,
        request_bytes=each,
        slack=chip.available - each,
        blocks=blocks,
        tokens=flooring(blocks * engine.context / taken, smoothing),
        concurrency=blocks / taken,
    )
