"""One timed kernel or collective: plain data in SI units, with file and line."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class MeasuredKernel:
    """One measured operation. ``sizes`` holds its sizes by name: m, k, n; bytes; batch_size ...

    ``moved`` is the message of a collective in bytes (its size as the benchmark counts it).
    """

    file: str
    line: int  # or the number of the entry; 0: the whole file
    source: str  # nccl-tests, microbenchmarks, kernel-tables
    operation: str  # all_reduce, gemm, mha.decode ...
    variant: str = ""
    seconds: float
    sizes: Mapping[str, float] = field(default_factory=dict)
    dtype: str = ""
    chips: float | None = None
    device: str = ""
    percentiles: tuple[tuple[float, float], ...] = ()
