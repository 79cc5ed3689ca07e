"""A request trace: arrival times, lengths, and cached prefixes."""

from dataclasses import dataclass, field

import numpy as np

from infer_jax.catalog.traces.blocks import BLOCK, cached_tokens
from infer_jax.errors import InputError
from infer_jax.specs import Arrivals, Workload
from infer_jax.specs.lengths import samples


@dataclass(frozen=True, eq=False)
class Trace:
    """Requests in order of arrival: one number each of seconds, prompt and output tokens.

    ``arrivals`` is empty where the file has no times, ``hashes`` where it hashes no prompts.
    ``dropped`` counts requests without output, which BurstGPT logs as failed. ``first`` and
    ``last``: seconds of their first and last tokens on a real server, if the file has them.
    """

    file: str
    source: str  # azure, burstgpt, mooncake, vidur, llmservingsim (run), apex, vllm, sglang
    arrivals: np.ndarray
    isl: np.ndarray
    osl: np.ndarray
    hashes: tuple[tuple[int, ...], ...] = ()
    dropped: int = 0
    first: np.ndarray = field(default_factory=lambda: np.zeros(0))
    last: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def __len__(self) -> int:
        return len(self.isl)

    def prefix(self, *, block: int = BLOCK, capacity: int | None = None) -> np.ndarray:
        """Cached tokens of each prompt; zeros where the trace hashes no prompts.

        ``capacity`` is the cache in blocks of ``block`` tokens; None evicts nothing.
        """
        if not self.hashes:
            return np.zeros_like(self.isl)
        return cached_tokens(self.hashes, self.isl, block=block, capacity=capacity)

    def hit_ratio(self, *, block: int = BLOCK, capacity: int | None = None) -> float:
        """Share of all prompt tokens that are cached (see ``prefix``)."""
        return float(self.prefix(block=block, capacity=capacity).sum() / self.isl.sum())

    @property
    def rate(self) -> float:
        """Requests per second over the span of the trace.

        Raises:
            InputError: no times, or all requests at once.
        """
        return 1.0 / float(self._gaps().mean())

    @property
    def variability(self) -> float:
        """Squared coefficient of variation of the time between arrivals; 1 is Poisson.

        Raises:
            InputError: as ``rate``.
        """
        gaps = self._gaps()
        return float(gaps.var() / gaps.mean() ** 2)

    def workload(
        self,
        *,
        batch: float | None = None,
        rate: float | None = None,
        block: int = BLOCK,
        capacity: int | None = None,
    ) -> Workload:
        """The trace as a workload: the distribution of lengths, prefix hits, and the load.

        Open loop at the trace's own rate, or at ``rate`` with the trace's burstiness; closed
        with ``batch`` requests in flight where that is given.

        Raises:
            InputError: both loads given, or none in a trace without times.
        """
        if batch is not None and rate is not None:
            raise InputError(self.file, "batch and rate", (batch, rate), "one of the two")
        prefix = self.prefix(block=block, capacity=capacity)
        facts = {
            "isl": self.isl.mean(),
            "osl": self.osl.mean(),
            "prefix": prefix.mean(),
            "lengths": samples(self.isl, self.osl, prefix),
        }
        if batch is not None:
            return Workload.of(**facts, batch=batch)
        rate = self.rate if rate is None else rate
        arrivals = Arrivals.of(rate=rate, variability=self.variability)
        return Workload.of(**facts, arrivals=arrivals)

    def _gaps(self) -> np.ndarray:
        gaps = np.diff(self.arrivals)
        if not gaps.sum() > 0.0:
            allowed = "requests at different times, or a batch for a closed loop"
            raise InputError(self.file, "arrival times", "none or all equal", allowed)
        return gaps
