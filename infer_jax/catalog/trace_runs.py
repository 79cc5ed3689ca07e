"""Requests of detailed results of vLLM's and SGLang's benchmarks, as columns of a trace."""

from collections.abc import Sequence

import numpy as np

from infer_jax.catalog.foreign import Parsed
from infer_jax.catalog.measurements.cells import Cells


def columns_of_runs(runs: Sequence[Cells]) -> Parsed:
    """Fields of a trace: the lengths of one run or more, and times if they are of one clock.

    Raises:
        InputError: lists of unequal length, an empty prompt or response.
    """
    starts, prompts, outputs, waits, gaps = [], [], [], [], []
    for cells in runs:
        sent, lengths = cells.numbers("input_lens"), cells.numbers("output_lens")
        if not sent or len(sent) != len(lengths):
            counts = f"{len(sent)} and {len(lengths)}"
            raise cells.error("input_lens and output_lens", counts, "as many of each, one or more")
        for index, pair in enumerate(zip(sent, lengths, strict=True)):
            if not all(pair):
                at = f"input_lens[{index}], output_lens[{index}]"
                raise cells.error(at, pair, "at least one token each")
        times = cells.numbers("start_times")
        starts += times if len(times) == len(sent) else []
        prompts += sent
        outputs += lengths
        waits += cells.numbers("ttfts")
        gaps += _gaps(cells)
    timed = len(runs) == 1 and len(starts) == len(prompts)  # clocks of several runs differ
    order = np.argsort(starts, kind="stable") if timed else np.arange(len(prompts))
    arrivals = np.array(starts)[order] if timed else np.zeros(0)
    arrivals = arrivals - arrivals[:1].sum()
    measured = {}
    if timed and len(waits) == len(gaps) == len(prompts):
        first = arrivals + np.array(waits)[order]
        measured = {"first": first, "last": first + np.array(gaps)[order]}
    return dict(
        source="sglang" if "dataset_name" in runs[-1].values else "vllm",
        arrivals=arrivals,
        isl=np.array(prompts)[order],
        osl=np.array(outputs)[order],
        **measured,
    )


def _gaps(cells: Cells) -> list[float]:
    """Seconds from the first to the last token of each request; nothing where they are not there.

    Raises:
        InputError: not a list of lists of numbers.
    """
    lists = cells.values.get("itls", [])
    if lists is not None and not isinstance(lists, list):
        raise cells.error("itls", lists, "a list of the times between tokens of each request")
    by_name = {f"itls[{i}]": values for i, values in enumerate(lists or [])}
    inside = Cells(cells.file, cells.line, by_name, cells.unit)
    return [sum(inside.numbers(name)) for name in by_name]
