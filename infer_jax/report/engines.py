"""How is a plan said to a server: the flags of vLLM, SGLang and TensorRT-LLM?

Only what the plan fixes is set. What an engine cannot say stands in a note.
"""

import math
import shlex
from typing import NamedTuple

VLLM = (
    "docs.vllm.ai/en/v0.8.5/serving/engine_args.html; EP = TP x DP: "
    "docs.vllm.ai/en/latest/serving/expert_parallel_deployment/"
)
SGLANG = (
    "docs.sglang.io/advanced_features/server_arguments.html; attention groups: "
    "docs.sglang.io/docs/advanced_features/dp_dpa_smg_guide"
)
TRTLLM = (
    "nvidia.github.io/TensorRT-LLM/commands/trtllm-serve/trtllm-serve.html; attention groups: "
    "nvidia.github.io/TensorRT-LLM/features/parallel-strategy.html"
)
ONLINE = "fp8"  # the one format to which an engine casts 16-bit weights as it loads them


class Served(NamedTuple):
    """What a server is told of a plan. Degrees as in ``estimators.serving.Deployment``.

    ``requests``: in flight in one instance; ``context``: tokens of the longest request;
    ``weights``, ``cache``: formats that are asked for beside the checkpoint's own, or none.
    """

    model: str
    tp: int
    groups: int
    ep: int
    pp: int
    copies: int
    requests: int
    context: int
    weights: str | None
    cache: str | None
    domain: int

    @property
    def ranks(self) -> int:
        """GPUs of one pipeline stage."""
        return self.tp * self.groups

    @property
    def each(self) -> int:
        """Requests of one attention group at most."""
        return math.ceil(self.requests / self.groups)


class Command(NamedTuple):
    """One engine: its command, a file that it needs, what to know, and where the flags stand."""

    engine: str
    command: str
    file: str
    notes: tuple[str, ...]
    source: str


def commands(plan: Served) -> list[Command]:
    """The plan for each engine."""
    return [vllm(plan), sglang(plan), trtllm(plan)]


def vllm(plan: Served) -> Command:
    """vLLM: attention groups are data-parallel ranks, experts go to all TP x DP of them."""
    flags = ["--tensor-parallel-size", plan.tp]
    notes = _common(plan)
    if plan.pp > 1:
        flags += ["--pipeline-parallel-size", plan.pp]
    if plan.groups > 1:
        flags += ["--data-parallel-size", plan.groups]
    if plan.ep > 1:
        flags += ["--enable-expert-parallel"]
    if plan.ep not in (1, plan.ranks):
        notes.append(
            f"vLLM deals whole experts to all {plan.ranks} GPUs; the plan deals them to {plan.ep} "
            f"parts and cuts each over {plan.ranks // plan.ep}."
        )
    flags += ["--max-model-len", plan.context, "--max-num-seqs", plan.each]
    if plan.weights == ONLINE:
        flags += ["--quantization", "fp8"]
    if plan.cache == "fp8":
        flags += ["--kv-cache-dtype", "fp8"]
    return Command("vLLM", _line("vllm serve", plan.model, flags), "", tuple(notes), VLLM)


def sglang(plan: Served) -> Command:
    """SGLang: ``--tp-size`` counts the GPUs of a stage, of which attention takes groups."""
    flags = ["--tp-size", plan.ranks]
    if plan.pp > 1:
        flags += ["--pp-size", plan.pp]
    if plan.groups > 1:
        flags += ["--dp-size", plan.groups, "--enable-dp-attention"]
    if plan.ep > 1:
        flags += ["--ep-size", plan.ep]
    # divided among the attention groups by the server
    flags += ["--context-length", plan.context, "--max-running-requests", plan.each * plan.groups]
    if plan.weights == ONLINE:
        flags += ["--quantization", "fp8"]
    if plan.cache == "fp8":
        flags += ["--kv-cache-dtype", "fp8_e4m3"]
    line = _line("python -m sglang.launch_server --model-path", plan.model, flags)
    return Command("SGLang", line, "", tuple(_common(plan)), SGLANG)


def trtllm(plan: Served) -> Command:
    """TensorRT-LLM: attention is cut over all GPUs of a stage, or each takes requests."""
    flags = ["--tp_size", plan.ranks]
    notes, file = _common(plan), []
    if plan.pp > 1:
        flags += ["--pp_size", plan.pp]
    if plan.ep > 1:
        flags += ["--ep_size", plan.ep]
    if plan.groups > 1:
        file.append("enable_attention_dp: true")
    if plan.groups > 1 and plan.tp > 1:
        notes.append(
            f"TensorRT-LLM gives every GPU an attention group of its own ({plan.ranks}); the "
            f"plan has {plan.groups} groups of {plan.tp}."
        )
    if plan.cache == "fp8":
        file += ["kv_cache_config:", "  dtype: fp8"]
    if plan.weights == ONLINE:
        notes.append("TensorRT-LLM loads FP8 weights from a checkpoint that is stored so.")
    flags += ["--max_seq_len", plan.context, "--max_batch_size", plan.each]
    flags += ["--config", "plan.yaml"] if file else []
    line = _line("trtllm-serve", plan.model, flags)
    return Command("TensorRT-LLM", line, "\n".join(file), tuple(notes), TRTLLM)


def _common(plan: Served) -> list[str]:
    """What holds for every engine."""
    notes = []
    if plan.copies > 1:
        notes.append(f"Run {plan.copies} of these behind a router that spreads requests evenly.")
    if plan.ranks * plan.pp > plan.domain:
        notes.append(
            f"{plan.ranks * plan.pp} GPUs are more than the {plan.domain} of one fast domain: add "
            "the engine's options for several nodes."
        )
    if plan.weights not in (None, ONLINE, "bf16"):
        notes.append(f"Serve a checkpoint whose weights are stored as {plan.weights}.")
    return notes


def _line(program: str, model: str, flags: list) -> str:
    """A command of the shell, an option a line."""
    words = [f"{program} {shlex.quote(model)}"]
    for flag in flags:
        if str(flag).startswith("--"):
            words.append(str(flag))
        else:
            words[-1] += f" {flag}"
    return " \\\n  ".join(words)
