"""What did FlexGen's authors measure, under which policies?

Figures: Tables 2 to 5 of the paper (arXiv 2303.06865). Policies: Table 5 and the benchmark suite
of the released code, which gives the block and percentages (weights, cache, hidden states on GPU
and CPU) of every cell of the tables. Every run generates 32 tokens.
"""

from typing import NamedTuple

TOKENS = 32.0


class Run(NamedTuple):
    """A measured run: the model, the prompt, the policy, and tokens per second.

    ``decode``: whether the rate is of decoding alone; ``where``: its table; ``fitted``: whether
    the constants of ``improved`` were fitted to it, else it is a prediction; ``repeats``: the
    fitted table that has its figure, too, so that it is none.
    """

    where: str
    label: str
    model: str
    prompt: float
    block: tuple[float, float]  # GPU batch, batches
    percent: tuple[float, float, float, float, float, float]  # wg wc cg cc hg hc
    measured: float
    fitted: bool = False
    decode: bool = False
    compress: str = ""  # "cache", or "both" weights and cache
    cpu_attention: bool = True
    overlap: bool = True
    schedule: str = "zig-zag"
    gpus: float = 1.0
    repeats: str = ""


GPU, CPU = (100.0, 0.0, 100.0, 0.0, 100.0, 0.0), (0.0, 100.0, 0.0, 100.0, 0.0, 100.0)
MIXED, DISK = (20.0, 80.0, 0.0, 100.0, 0.0, 100.0), (0.0, 50.0, 0.0, 0.0, 0.0, 100.0)
HOST = (0.0, 100.0, 100.0, 0.0, 100.0, 0.0)  # weights on the CPU, all else on the GPU
NVME = (0.0, 0.0, 100.0, 0.0, 100.0, 0.0)  # weights on disk, all else on the GPU


def _runs() -> list[Run]:
    results = []
    for prompt, fitted, cells in (
        (
            512.0,
            True,
            (
                ("opt-6.7b", (2, 1), GPU, 25.26, (72, 1), GPU, 29.12),
                ("opt-30b", (48, 3), MIXED, 7.32, (64, 8), CPU, 8.38),
                ("opt-175b", (32, 8), DISK, 0.69, (48, 3), CPU, 1.12),
            ),
        ),
        (
            1024.0,
            False,
            (
                ("opt-6.7b", (1, 1), GPU, 13.72, (28, 1), GPU, 13.18),
                ("opt-30b", (20, 4), (4.0, 96.0, *MIXED[2:]), 3.50, (20, 12), CPU, 3.98),
                ("opt-175b", (12, 12), DISK, 0.35, (12, 4), CPU, 0.42),
            ),
        ),
    ):
        for model, block, percent, rate, block_c, percent_c, rate_c in cells:
            where = f"Table 2, {prompt:g}"
            attends = percent[2] == 0.0
            results.append(
                Run(where, "FlexGen", model, prompt, block, percent, rate, fitted,
                    cpu_attention=attends)
            )  # fmt: skip
            # the suite leaves the weights of OPT-30B in 16 bits
            compress = "cache" if model == "opt-30b" else "both"
            results.append(
                Run(where, "FlexGen (c)", model, prompt, block_c, percent_c, rate_c, fitted,
                    compress=compress, cpu_attention=False)
            )  # fmt: skip
    for model, block, percent, rate in (
        ("opt-6.7b", (2, 1), GPU, 38.28),
        ("opt-30b", (48, 3), MIXED, 11.52),
        ("opt-175b", (32, 8), DISK, 0.83),
    ):
        results.append(
            Run("Table 3, decode", "1 GPU", model, 512.0, block, percent, rate, decode=True,
                cpu_attention=model != "opt-6.7b")
        )  # fmt: skip
    for decode, rates in ((False, (201.12, 23.61, 2.33)), (True, (764.65, 48.94, 3.86))):
        where = "Table 3, decode" if decode else "Table 3, generation"
        for (model, block, percent), rate in zip(
            (
                ("opt-6.7b", (24, 1), GPU),
                ("opt-30b", (64, 3), MIXED),
                ("opt-175b", (40, 1), CPU),
            ),
            rates,
            strict=True,
        ):
            results.append(
                Run(where, "4 GPUs", model, 512.0, block, percent, rate, decode=decode,
                    cpu_attention=model != "opt-6.7b", gpus=4.0)
            )  # fmt: skip
    for model, block, percent, worse, rates in (
        ("opt-30b", (64, 2), MIXED, ((64, 2), CPU), (7.32, 6.93, 5.86, 4.03)),
        ("opt-175b", (32, 8), DISK, ((32, 1), DISK), (0.69, 0.27, 0.59, 0.62)),
    ):
        table, run = "Table 5", (model, 512.0, block, percent)
        results += [
            Run(table, "all optimizations", *run, rates[0]),
            Run(table, "no policy search", model, 512.0, *worse, rates[1]),
            Run(table, "no overlapping", *run, rates[2], overlap=False),
            Run(table, "no CPU compute", *run, rates[3], cpu_attention=False),
        ]
    results += [
        Run("Table 5", "DeepSpeed policy", "opt-30b", 512.0, (8, 1), HOST, 1.57,
            cpu_attention=False, schedule="row-by-row"),
        Run("Table 5", "DeepSpeed policy", "opt-175b", 512.0, (2, 1), NVME, 0.01,
            cpu_attention=False, schedule="row-by-row"),
    ]  # fmt: skip
    return results


# OPT-175B of Table 5: what Table 2 prints, and the total of Table 4
REPEATS = {"all optimizations": "Table 2", "no overlapping": "Table 4"}
RUNS = [
    run._replace(repeats=REPEATS.get(run.label, ""))
    if (run.where, run.model) == ("Table 5", "opt-175b")
    else run
    for run in _runs()
]

# Table 4: seconds of a block of 32 x 8 prompts of 512 tokens on OPT-175B, nothing overlapped
BREAKDOWN = {
    "prefill": {"total": 2711.0, "compute": 2220.0, "weights": 768.0, "cache": 261.0},
    "decode": {
        "total": 11315.0,
        "compute": 1498.0,
        "weights": 3047.0,
        "cache": 7046.0,
        "cache written": 124.0,
    },
}
BASELINES = {  # Table 2: tokens/s of Accelerate and DeepSpeed
    (512.0, "Accelerate"): {"opt-6.7b": 25.12, "opt-30b": 0.62, "opt-175b": 0.01},
    (512.0, "DeepSpeed"): {"opt-6.7b": 9.28, "opt-30b": 0.60, "opt-175b": 0.01},
    (1024.0, "Accelerate"): {"opt-6.7b": 13.01, "opt-30b": 0.31, "opt-175b": 0.01},
    (1024.0, "DeepSpeed"): {"opt-6.7b": 4.59, "opt-30b": 0.29},  # OPT-175B: out of memory
}
