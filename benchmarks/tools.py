"""How many configurations a second do the tools estimate that one would pick instead?

Each by its own documented call, one configuration at a time, as they are used; where it is
installed (extra ``bench``). A configuration is a prefill and a decode on one H100 system.
"""

import contextlib
import io
import logging
import time
from collections.abc import Callable
from typing import Any


def rate(call: Callable[[int], Any], runs: int) -> float:
    """Calls per second, after one that loads what the tool loads."""
    call(0)
    begun = time.perf_counter()
    for i in range(runs):
        call(i)
    return runs / (time.perf_counter() - begun)


def llm_analysis() -> float:
    """llm-analysis: OPT 1.3B, batches of 1 and more."""
    from llm_analysis.analysis import infer  # pyright: ignore[reportMissingImports]

    return rate(
        lambda i: infer(
            gpu_name="h100-sxm-80gb",
            batch_size_per_gpu=1 + i,
            seq_len=512,
            num_tokens_to_generate=32,
            log_level="CRITICAL",
        ),
        100,
    )


def genz() -> float:
    """GenZ: Llama 3.1 70B on 8 H100, batches of 8 and more."""
    from GenZ import (  # pyright: ignore[reportMissingImports]
        decode_moddeling,
        prefill_moddeling,
    )

    given = {
        "model": "meta-llama/Llama-3.1-70B",
        "input_tokens": 4096,
        "system_name": "H100_GPU",
        "tensor_parallel": 8,
        "parallelism_heirarchy": "TP{8}_EP{1}_PP{1}",
    }
    return rate(
        lambda i: (
            prefill_moddeling(batch_size=1, **given),
            decode_moddeling(batch_size=8 + i, output_tokens=512, Bb=1, **given),
        ),
        3,
    )


def aiconfigurator() -> float:
    """aiconfigurator 0.12: Llama 3.1 70B on 8 H100, its static estimate."""
    from aiconfigurator.cli.api import cli_estimate  # pyright: ignore[reportMissingImports]

    return rate(
        lambda i: cli_estimate(
            "meta-llama/Meta-Llama-3.1-70B",
            "h100_sxm",
            mode="static",
            backend_name="vllm",
            isl=4096,
            osl=512,
            batch_size=8 + i,
            tp_size=8,
        ),
        3,
    )


def measure() -> dict[str, Any]:
    """Configurations per second of each tool that is installed; of one that fails, why."""
    figures: dict[str, Any] = {}
    logging.disable(logging.CRITICAL)
    for tool in (llm_analysis, genz, aiconfigurator):
        name = f"{tool.__name__}_per_s"
        with contextlib.suppress(ImportError), contextlib.redirect_stdout(io.StringIO()):
            try:
                figures[name] = tool()
            except ImportError:
                raise
            except Exception as error:  # another project's: it must not end the benchmark
                figures[name] = f"failed: {type(error).__name__}: {error}"[:200]
    logging.disable(logging.NOTSET)
    return figures
