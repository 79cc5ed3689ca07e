"""The table of verbs: module, help and example of each. Read without JAX."""

from typing import NamedTuple


class Verb(NamedTuple):
    """A command: its line of help, an example, and how its answer is drawn.

    Args:
        line: the first line of its help.
        example: its words.
        module: of ``infer_jax.cli``, where it is no verb of the library.
        picture: help of ``--out``, where the command, and not its verb, draws the answer.
        drawn: the file of the picture where none is named, in which case ``--no-picture`` is
            an option.
    """

    line: str
    example: str
    module: str = ""
    picture: str = ""
    drawn: str = ""


PICTURE = "A picture of the answer, too: .png, .svg, .pdf or .html."


VERBS = {
    "frontier": Verb(
        "Which GPU counts and batches are worth choosing: tokens/s per request against $/Mtok.",
        "frontier llama-3.1-70b --hardware h100_sxm --quant fp8 --isl 4096",
        drawn="frontier.png",
    ),
    "estimate": Verb(
        "What does one configuration answer: TTFT, TPOT, tokens/s, $/Mtok, and where time goes.",
        "estimate llama-3.1-8b --hardware h100_sxm --tp 1 --batch 32",
        picture=PICTURE,
    ),
    "memory": Verb(
        "Does it fit: weights, KV cache, its tokens and requests, as a vLLM server prints them.",
        "memory llama-3.1-70b --hardware h100_sxm --tp 4 --max-model-len 8192",
        picture=PICTURE,
    ),
    "layout": Verb(
        "Which weight and attention layout is fastest on a slice, and where that changes.",
        "layout palm-540b --hardware tpu_v4 --total-gpus 64 --batch 512",
        picture=PICTURE,
    ),
    "kernels": Verb(
        "What is each kernel's time, FLOP, bytes and bound; TTFT, TPOT and tokens/s per GPU?",
        "kernels deepseek-v3 --hardware h800_sxm --ep 32 --deepep --batch 2048",
        picture=PICTURE,
    ),
    "measure": Verb(
        "How fast are this device's kernels? Times them through JAX, fits curves, writes a "
        "profile.",
        "measure --out my_chip.toml",
    ),
    "offload": Verb(
        "Which block, and where do weights, KV cache and hidden states live, for most tokens/s?",
        "offload opt-175b --hardware t4_host --isl 512 --osl 32",
        picture="Where the picture goes: .png, .svg, .pdf or .html.",
        drawn="offload.png",
    ),
    "plan": Verb(
        "Which plans meet TTFT and TPOT for the fewest dollars per million tokens?",
        "plan llama-3.1-70b --hardware h200_sxm --total-gpus 8 --tpot 30ms",
        picture="A picture of the plans: .png, .svg, .pdf or .html; or the folder that starts the "
        "first.",
    ),
    "deploy": Verb(
        "Write a folder that starts a plan: script, Compose, Kubernetes, Helm, Dynamo, benchmark.",
        "deploy PLAN.json --out my_service",
    ),
    "replay": Verb(
        "What happens to each request of a trace or benchmark: percentiles, queue, cache, power.",
        "replay llama-3.1-8b --hardware h100_sxm --tp 1 --request-rate 8 --prompts 400",
    ),
    "traffic": Verb(
        "What arrives: rates by hour, bursts, lengths, sessions; how like is a drawn trace?",
        "traffic TRACE.csv --out traffic.png",
    ),
    "sessions": Verb(
        "Does keeping the cache of conversations elsewhere pay: host, disk, a remote store?",
        "sessions llama-3.1-8b --hardware h100_sxm --tp 1 --traffic agents.toml "
        "--tier host=1024,55,0.5",
    ),
    "fleet": Verb(
        "How many replicas keep the limits hour by hour, and what does each way of scaling cost?",
        "fleet llama-3.1-8b --hardware h100_sxm --traffic examples/traffic.toml --tp 1",
    ),
    "offline": Verb(
        "How long do N prompts take offline, what do they cost, and what does their tail waste?",
        "offline llama-3.1-8b --hardware h100_sxm --prompts 1m --isl 512 --osl 256+-256",
    ),
    "report": Verb(
        "One HTML page: which plan to take, its cost, its commands, why, and what is unknown.",
        "report llama-3.1-70b --hardware h100_sxm --quant fp8 --tpot 30ms",
    ),
    "models": Verb(
        "The bundled models: layers, parameters in all and per token, longest context.",
        "models llama-3.1-8b",
        module="listing",
    ),
    "hardware": Verb(
        "The shipped systems: matmul rates, memory, network, price; of one, every source.",
        "hardware h100_sxm",
        module="listing",
    ),
    "estimators": Verb(
        "The estimators and their variants, by the names that --estimator takes.",
        "estimators",
        module="listing",
    ),
    "doctor": Verb(
        "Compute stored answers on every device; exit 1 where one disagrees.",
        "doctor",
        module="listing",
    ),
    "calibrate": Verb(
        "What do measured runs say of a server? Fits it, with intervals, and writes a profile.",
        "calibrate runs/*.json --config llama-3.1-8b --hardware h100_sxm --tp 1 --out my_h100.toml",
    ),
    "compare": Verb(
        "Where do systems, layouts, estimators, or prediction and measurement differ?",
        "compare llama-3.1-8b --hardware h100_sxm --tp 1 --estimator serving"
        " --estimator economics.planned",
        picture=PICTURE,
    ),
    "sensitivity": Verb(
        "What is 10 % more of anything worth: bandwidth, latency, heads, batch, the price?",
        "sensitivity llama-3.1-70b --hardware h100_sxm --tp 8 --batch 32",
        picture="A tornado picture: .png, .svg, .pdf or .html.",
    ),
    "codesign": Verb(
        "Which shape, split and batch would be better: least cost at a speed, within limits?",
        "codesign SPEC.toml --out design",
    ),
    "chip": Verb(
        "What is a chip of this silicon: die area, power, bill of materials and data sheet?",
        "chip h100_sxm",
        picture=PICTURE,
    ),
    "sweep": Verb(
        "Which of millions of configurations are worth choosing? The same command carries on.",
        "sweep SPACE.toml --out result.parquet",
    ),
}
