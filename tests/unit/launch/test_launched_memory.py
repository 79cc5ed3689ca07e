"""A plan's server has the memory that the plan counts: ``memory`` of the command's own options."""

import re
from typing import Any

import numpy as np
import pytest

import infer_jax as ij
from infer_jax.errors import InputError

# options of a command: requests and tokens of a pass, and whether those are of one group
OPTIONS = {
    "vllm": ("--max-num-seqs", "--max-num-batched-tokens", "--max-model-len", True),
    "sglang": ("--max-running-requests", "--chunked-prefill-size", "--context-length", False),
    "trtllm": ("--max_batch_size", "--max_num_tokens", "--max_seq_len", True),
}
WHOLE = 16384  # SGLang's max_prefill_tokens, where prompts are not cut
MODELS = ("llama-3.1-8b", "qwen3-32b", "llama-3.1-70b", "gpt-oss-120b", "qwen3-30b-a3b")
SYSTEMS = ("h100_sxm", "b200_sxm", "h200_sxm")


def sizes(command, engine, groups, pool):
    """Requests and tokens of a group's pass, and the longest context, of a printed command."""
    seats, tokens, context, own = OPTIONS[engine]
    find: Any = re.search  # which finds each
    said = [int(find(rf"{name} (-?\d+)", command)[1]) for name in (seats, tokens, context)]
    said[1] = WHOLE if said[1] == -1 else said[1]
    if engine == "sglang" and pool == "prefill":
        said[1] = int(find(r"--max-prefill-tokens (\d+)", command)[1])
        said[1] *= groups
    many = 1 if own else groups
    return said[0] / many, said[1] / many, said[2]


def question(draw):
    """Model, system, and the options of a plan; prompts from a few tokens to many."""
    words = {
        "isl": int(np.exp(draw.uniform(np.log(20), np.log(20000)))),
        "osl": int(np.exp(draw.uniform(np.log(2), np.log(1500)))),
        "engine": str(draw.choice(list(OPTIONS))),
        "mode": "disaggregated" if draw.random() < 0.2 else "aggregated",
        "ttft": "none",
        "top": 2,
    }
    words["total_gpus"] = int(draw.choice([1, 2, 4, 8] if words["mode"] == "aggregated" else [4]))
    if words["mode"] == "aggregated" and draw.random() < 0.3:
        words["chunk"] = int(draw.choice([512, 2048, 16384]))
    if draw.random() < 0.2:
        words["max_num_seqs"] = int(draw.choice([16, 256, 3000]))
    if words["mode"] == "aggregated" and draw.random() < 0.2:
        words["request_rate"] = float(np.exp(draw.uniform(np.log(0.1), np.log(30))))
    return words


def checked(model, system, words):
    """Commands of which ``memory`` says that they fit, one for each pool of a plan; 0 for none."""
    try:
        result = ij.plan(model, system, **words)
    except InputError:
        return 0
    if result.best is None:
        return 0
    best, engine = result.best, words["engine"]
    steps = result.launch[engine].steps
    pools = best.pools
    several = len(pools) > 1
    count = 0
    for k, pool in enumerate(pools):
        role = ("prefill", "decode")[k] if several else ""
        mine = [s for s in steps if s.where.startswith(role) and "--" in s.command]
        mine = [s for s in mine if "disaggregated -c" not in s.command][:1]
        for step in mine:
            seats, tokens, context = sizes(step.command, engine, pool.layout.attention_dp, role)
            batch = best.batch if role != "prefill" else pool.batch
            if "request_rate" in words:  # of those in flight some wait
                batch = next((x for k, x in best.outputs.items() if k.name == "running"), 1.0)
            batch = max(np.floor(min(batch, seats * pool.layout.attention_dp)), 1.0)
            said = ij.memory(
                model, system, tp=pool.layout.tp, pp=pool.layout.pp, ep=pool.layout.attention_dp,
                max_num_seqs=seats, max_num_batched_tokens=tokens, max_model_len=context,
                batch=batch, isl=words["isl"], osl=words["osl"] if role != "prefill" else 1,
            )  # fmt: skip
            where = f"{model} {system} {words} {best!r} {step.command}"
            assert said.memory.fits, where
            assert said.filled is not None and said.filled.fits, where
            if engine == "vllm" and role != "prefill" and "request_rate" not in words:
                # a pool's pass has half a token more than its mean context
                rel = 1e-2 if role else 1e-9
                used = said.filled.used
                assert used == pytest.approx(best.memory[0], rel=rel), where
                assert float(said.memory.budget) == pytest.approx(best.memory[1]), where
            count += 1
    return count


def draws(number, models, systems, seed):
    draw = np.random.default_rng(seed)
    return [
        (str(draw.choice(models)), str(draw.choice(systems)), question(draw)) for _ in range(number)
    ]


def test_memory_says_that_the_printed_command_fits():
    case = {"isl": 97, "osl": 6, "ttft": "none", "mode": "aggregated", "total_gpus": 1}
    # passes of 4,096 sequences have 7.9 GB of logits
    assert checked("llama-3.1-8b", "h100_sxm", {**case, "engine": "vllm"}) == 1
    kept = ("isl", "osl", "engine", "max_num_seqs")  # of one compiled program
    for model, system, words in draws(8, MODELS[:1], SYSTEMS[:1], 3):
        words = case | {name: words[name] for name in kept if name in words}
        assert checked(model, system, words) == 1
