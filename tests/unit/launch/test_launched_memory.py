"""A plan's server has the memory that the plan counts: ``memory`` of the command's own options."""

import re
from typing import Any

import numpy as np
import pytest

import infer_jax as ij

# options of a command: requests and tokens of a pass, and its longest context
OPTIONS = {
    "vllm": ("--max-num-seqs", "--max-num-batched-tokens", "--max-model-len"),
    "sglang": ("--max-running-requests", "--chunked-prefill-size", "--context-length"),
    "trtllm": ("--max_batch_size", "--max_num_tokens", "--max_seq_len"),
}
WHOLE = 16384  # SGLang's max_prefill_tokens, where prompts are not cut
POINT = ("llama-3.1-8b", "h100_sxm")


def questions():
    """Options of plans: prompts and outputs from a few tokens to many, some with few requests."""
    yield {"isl": 97, "osl": 6, "engine": "vllm"}  # passes of 4,096 sequences: 7.9 GB of logits
    draw = np.random.default_rng(3)
    for i in range(8):
        sizes = {x: int(np.exp(draw.uniform(*np.log(ends)))) for x, ends in
                 (("isl", (20, 20000)), ("osl", (2, 1500)))}  # fmt: skip
        few = {"max_num_seqs": int(draw.choice([16, 256, 3000]))} if draw.random() < 0.2 else {}
        yield {**sizes, **few, "engine": list(OPTIONS)[i % 3]}


@pytest.mark.parametrize("words", [*questions()], ids=str)
def test_memory_says_that_the_printed_command_fits(words):
    asked = {"ttft": "none", "mode": "aggregated", "total_gpus": 1}
    result, engine = ij.plan(*POINT, **asked, **words), words["engine"]
    best, (step,) = result.best, result.launch[engine].steps
    assert best is not None
    find: Any = re.search  # which finds each
    seats, tokens, context = (
        int(find(rf"{name} (-?\d+)", step.command)[1]) for name in OPTIONS[engine]
    )
    said = ij.memory(
        *POINT, tp=1, max_num_seqs=seats, max_model_len=context,
        max_num_batched_tokens=WHOLE if tokens == -1 else tokens,
        batch=max(np.floor(min(best.batch, seats)), 1.0), isl=words["isl"], osl=words["osl"],
    )  # fmt: skip
    assert said.memory.fits and said.filled is not None and said.filled.fits
    if engine == "vllm":
        assert said.filled.used == pytest.approx(best.memory[0], rel=1e-9)
        assert float(said.memory.budget) == pytest.approx(best.memory[1])
