"""The plan of an offloading job: block, placement, schedule and compression."""

from jax import Array

from infer_jax.errors import InputError
from infer_jax.physics.memory.tiers import Moved, Placement, make_placement
from infer_jax.specs import Plan, number, spec

SCHEDULES = ("row-by-row", "zig-zag", "diagonal")
NO_YES = ("no", "yes")
Triple = tuple[float, float, float]  # on GPU, CPU, disk
SLACK = 1e-9  # by which fractions of a triple may sum to more than 1: rounding of percentages


def _fraction(doc: str, default: float) -> Array:
    return number(doc, kind="fraction", high=1, default=default)


@spec
class Offload(Plan):
    """A plan with a block of ``gpu_batch`` x ``batches`` samples and a place for every tensor.

    The fractions are read where the estimator takes the placement as given; where it solves
    for the placement they are not. ``pp`` GPUs, each with its own host, form a pipeline.
    """

    gpu_batch: Array = number("samples computed at once", kind="count", low=1, default=1.0)
    batches: Array = number("GPU batches of a block", kind="count", low=1, default=1.0)
    weights_gpu: Array = _fraction("weights on the GPU", 0.0)
    weights_cpu: Array = _fraction("weights on the CPU; the rest is on disk", 1.0)
    cache_gpu: Array = _fraction("KV cache on the GPU", 0.0)
    cache_cpu: Array = _fraction("KV cache on the CPU; the rest is on disk", 1.0)
    hidden_gpu: Array = _fraction("hidden states on the GPU", 0.0)
    hidden_cpu: Array = _fraction("hidden states on the CPU; the rest is on disk", 1.0)
    schedule: Array = number(
        "order of the computation", kind="choice", high=2, default=1.0, choices=SCHEDULES
    )
    overlap: Array = number(
        "transfers run beside the computation", kind="choice", high=1, default=1.0, choices=NO_YES
    )
    cpu_attention: Array = number(
        "decode attends on the CPU where the cache is not on the GPU",
        kind="choice",
        high=1,
        default=1.0,
        choices=NO_YES,
    )
    compress_weights: Array = number(
        "weights stored in 4 bits", kind="choice", high=1, default=0.0, choices=NO_YES
    )
    compress_cache: Array = number(
        "KV cache stored in 4 bits", kind="choice", high=1, default=0.0, choices=NO_YES
    )
    values_read: Array = _fraction("values that decode reads: 1 dense, 0.1 the top tenth", 1.0)

    @property
    def placement(self) -> Placement:
        """The fractions of this plan."""
        gpu = Moved(self.weights_gpu, self.cache_gpu, self.hidden_gpu)
        return make_placement(gpu, Moved(self.weights_cpu, self.cache_cpu, self.hidden_cpu))

    @classmethod
    def placed(
        cls, *, weights: Triple, cache: Triple, hidden: Triple, **others: object
    ) -> "Offload":
        """A plan from three triples of fractions (GPU, CPU, disk), each of which sums to 1.

        Raises:
            InputError: a triple that does not sum to 1, or a number out of bounds.
        """
        for name, triple in (("weights", weights), ("cache", cache), ("hidden", hidden)):
            if len(triple) != 3 or abs(sum(triple) - 1.0) > SLACK:
                raise InputError("Offload", name, triple, "three fractions that sum to 1")
            others |= {f"{name}_gpu": triple[0], f"{name}_cpu": triple[1]}
        return cls.of(**others)

    @classmethod
    def of(cls, **values: object) -> "Offload":
        """Build from plain numbers; the disk has what GPU and CPU leave.

        Raises:
            InputError: a number out of bounds, or fractions that sum to more than 1.
        """
        plan = super().of(**values)
        for name in ("weights", "cache", "hidden"):
            both = float(getattr(plan, f"{name}_gpu")) + float(getattr(plan, f"{name}_cpu"))
            if both > 1.0 + SLACK:
                at = f"{name}_gpu + {name}_cpu"
                raise InputError("Offload", at, both, "a sum of at most 1; the rest is on disk")
        return plan
