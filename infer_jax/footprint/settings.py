"""Server settings and measured overheads that decide how much cache a chip has room for."""

from collections.abc import Mapping
from typing import Self, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from infer_jax.specs import Spec, number, spec

GIB = 2.0**30
S = TypeVar("S", bound=Spec)


@spec
class EngineSettings(Spec):
    """How a server is started: the memory that the driver reports, and the user's settings.

    ``visible``: 79.18 GiB that CUDA reports over 80 GB of the data sheet (H100).
    The defaults of vLLM from 0.21 on a GPU of 70 GiB and more; on smaller ones and on the A100
    ``batched_tokens`` is 2048 and ``sequences`` 256 (vllm/engine/arg_utils.py). Until 0.20
    ``utilization`` was 0.9; 0.92 in vllm/config/cache.py at v0.25.0 and v0.30.0, which set memory
    for CUDA graphs aside (vllm-project/vllm #30515).
    """

    visible: Array = number(
        "memory that the driver shows, over that of the data sheet",
        kind="fraction",
        default=79.18 * GIB / 80e9,
    )
    utilization: Array = number(
        "share of the memory the server may use", kind="fraction", high=1, default=0.92
    )
    context: Array = number(
        "longest request, max_model_len", unit="tokens", kind="count", low=1, default=8192.0
    )
    batched_tokens: Array = number(
        "tokens of one pass at most, max_num_batched_tokens",
        unit="tokens",
        kind="count",
        low=1,
        default=8192.0,
    )
    sequences: Array = number(
        "sequences of one pass at most, max_num_seqs", kind="count", low=1, default=1024.0
    )
    block: Array = number("tokens of a block", unit="tokens", kind="count", low=1, default=16.0)
    state_pages: Array = number(
        "copies of the recurrent state per request: 1, or 2 where prefixes are cached",
        kind="count",
        low=1,
        default=1.0,
    )

    def on(self, tables: Mapping[str, Mapping[str, float]]) -> Self:
        """The same server on a system, by the memory facts of its profile's ``[serving]`` table."""
        table, facts = tables.get("serving", {}), {}
        for name, known in (("visible", "visible"), ("utilization", "usable_memory")):
            if known in table:
                facts[name] = table[known]
        return self.with_(**facts)


@spec
class Overheads(Spec):
    """Bytes that a version of vLLM takes beside weights and cache, each measured.

    ``logits``: the sampler's copies, 2 + 4 bytes for the logits in 16 and in 32 bits, 4 + 4 for
    probabilities and noise, about 1 for masks. ``graphs``: the mean of 58 runs on the H100 at
    0.19.0 (0.51 to 1.85 GiB; llm-d-planner), which 0.21 and later set aside before the cache is
    sized; less with few sequences. Source of the other defaults: start-up log of Llama-3.1-8B on
    the H100 at vLLM 0.19.0 with tp 1 and 2, in llm-d-incubation/llm-d-planner, accuracy/ (1.89 GiB
    of activations; 0.25 and 2.07 GiB outside PyTorch).
    """

    context: Array = number(
        "memory outside PyTorch on a rank alone", unit="bytes", kind="size", default=0.25 * GIB
    )
    collectives: Array = number(
        "more of it where ranks of tp or ep communicate",
        unit="bytes",
        kind="size",
        default=1.82 * GIB,
    )
    logits: Array = number(
        "peak of sampling, per sequence and entry of the vocabulary",
        unit="bytes",
        kind="size",
        default=15.0,
    )
    graphs: Array = number(
        "set aside for CUDA graphs before the cache is sized",
        unit="bytes",
        kind="size",
        default=1.04 * GIB,
    )
    multiple: Array = number(
        "what 4-bit kernels round the width of experts up to a multiple of",
        kind="count",
        low=1,
        default=256.0,
    )

    @classmethod
    def none(cls) -> Self:
        """A server that takes nothing beside weights, hidden states and cache."""
        return cls.of(context=0.0, collectives=0.0, logits=0.0, graphs=0.0, multiple=1.0)

    @classmethod
    def vllm_0_10(cls) -> Self:
        """vLLM 0.10 to 0.16: the sampler sorts the vocabulary, which more than doubles its peak.

        Source: Llama-3.1-8B on the H100 (4.76 GiB of activations, 0.13 GiB outside PyTorch)
        and Llama-3.3-70B at tp 2 (0.55 GiB), in llm-d/llm-d-benchmark,
        config_explorer/empirical-vllm-memory-results.md.
        """
        return cls.of(context=0.13 * GIB, collectives=0.42 * GIB, logits=38.4, graphs=0.0)

    @classmethod
    def vllm_0_17(cls) -> Self:
        """vLLM 0.17: no sort any more (Qwen3-14B in llm-d-planner: 5.64, then 2.23 GiB)."""
        return cls.of(context=0.13 * GIB, collectives=0.42 * GIB, graphs=0.0)

    @classmethod
    def vllm_0_18(cls) -> Self:
        """vLLM 0.18 to 0.20, which set nothing aside for CUDA graphs."""
        return cls.of(graphs=0.0)

    @classmethod
    def vllm_0_21(cls) -> Self:
        """vLLM 0.21 and later, the default."""
        return cls.of()


def default_numbers(settings: type[S]) -> S:
    """The defaults as Python numbers, which take the precision of the arrays they meet."""
    return jax.tree.map(lambda x: jnp.asarray(float(x)), settings())
