"""Coefficients of the serving model, each a leaf, and the laws that variants swap."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from jax import Array

from infer_jax.catalog.published import serving_coefficients
from infer_jax.estimators.serving.engines import (
    ENGINES,
    GENERATIONS,
    Engine,
    Generation,
    engines_beside,
)
from infer_jax.estimators.serving.plan import Deployment
from infer_jax.footprint import EngineSettings, Overheads
from infer_jax.physics.attention import causal_pairs
from infer_jax.physics.cost import Draw
from infer_jax.specs import number, part, spec, static

Pairs = Callable[[Array, Array, Array], Array]  # of new and cached tokens, and a limit


def fitted(name: str) -> float:
    """The fitted value of a coefficient by its path."""
    return serving_coefficients()[name].value


class Laws(NamedTuple):
    """The named laws in which variants differ."""

    # pairs of query and key in a window, and among the keys that an indexer chooses
    window_pairs: Pairs = causal_pairs.mean_attended_pairs
    top_k_pairs: Pairs = causal_pairs.attended_pairs
    # 1 counts the time of these, 0 leaves it out
    prompt_logits: float = 0.0  # the output head at the end of a prompt
    unpaired_flops: float = 0.0  # FLOP of indexers and recurrences, which no pairs count
    router: float = 0.0  # the matrices of routers


COMPLETE = Laws(
    window_pairs=causal_pairs.attended_pairs, prompt_logits=1.0, unpaired_flops=1.0, router=1.0
)


# engines that ``Coefficients`` names; the acceptance of drafts is by default the mean of theirs
MEASURED = ("trtllm", "sglang", "vllm")


@spec
class Coefficients(engines_beside(MEASURED)):
    """The coefficients of serving.

    It holds the coefficients of all engines and chip generations; two choices select one of each,
    so that rows of several engines share one program and the common coefficients.
    """

    engine: Array = number(
        "serving engine",
        kind="choice",
        high=len(ENGINES) - 1,
        default=float(ENGINES.index("vllm")),
        choices=ENGINES,
    )
    generation: Array = number(
        "generation of the chip", kind="choice", high=3, default=0.0, choices=GENERATIONS
    )
    visible: Array = number(
        "memory that the driver shows, over that of the data sheet (gibibytes sold as gigabytes)",
        kind="fraction",
        default=float(EngineSettings().visible),
    )
    weight_read: Array = number(
        "eta_m: share of memory bandwidth at which weights are read",
        kind="fraction",
        high=1,
        default=fitted("weight_read"),
    )
    cache_read: Array = number(
        "eta_kv: share of memory bandwidth at which cache and states are read",
        kind="fraction",
        high=1,
        default=fitted("cache_read"),
    )
    grouped: Array = number(
        "eta_gc: FLOP/s of experts' grouped products over that of dense products",
        kind="fraction",
        high=1,
        default=fitted("grouped"),
    )
    expert_rows: Array = number(
        "m_0: rows that fill up the tiles of each expert that a pass visits, and count for nothing",
        kind="size",
        default=fitted("expert_rows"),
    )
    expert_moves: Array = number(
        "k_m: times that inputs and outputs of experts' products move through memory",
        kind="size",
        default=fitted("expert_moves"),
    )
    segmented: Array = number(
        "the same as eta_gc where DeepEP's kernels send tokens to experts: DeepGEMM's"
        " groups reach 1297 and 1099 TFLOPS on H800 where its dense products of these shapes reach"
        " 1304 and 1025 (deepseek-ai/DeepGEMM, README of March 2025)",
        kind="fraction",
        high=1,
        default=1.0,
    )
    handing_over: Array = number(
        "share of a chip's processors that DeepEP's normal kernels take while they run: 24 of 132"
        " (deepseek-ai/DeepEP, docs/legacy.md at 0297fc8, set_num_sms)",
        kind="fraction",
        high=1,
        default=24.0 / 132.0,
    )
    prefill_attention: Array = number(
        "eta_a: share of 16-bit peak FLOP/s that attention of prompts reaches",
        kind="fraction",
        high=1,
        default=fitted("prefill_attention"),
    )
    link: Array = number(
        "eta_n: share of one-way link bandwidth", kind="fraction", high=1, default=fitted("link")
    )
    quantised_gap: Array = number(
        "tau_Q: launch gap, in each layer, of a kind of products that quantises activations",
        unit="s",
        kind="time",
        default=fitted("quantised_gap"),
    )
    hop: Array = number(
        "alpha: latency that a collective gains with each doubling of ranks",
        unit="s",
        kind="time",
        default=fitted("hop"),
    )
    far_hop: Array = number(
        "alpha_x: latency of a hop between switches, over the network",
        unit="s",
        kind="time",
        default=fitted("far_hop"),
    )
    latent_kernels: Array = number(
        "k_mla: launch gap of latent attention over that of grouped-query",
        kind="size",
        default=fitted("latent_kernels"),
    )
    sparse_kernels: Array = number(
        "k_dsa: launch gap of sparse attention with an indexer over grouped-query",
        kind="size",
        default=fitted("sparse_kernels"),
    )
    linear_kernels: Array = number(
        "launch gap of linear attention over that of grouped-query: 1.5 in the mean of a model with"
        " one full layer in four (assumed: measured rows do not determine it)",
        kind="size",
        default=5.0 / 3.0,
    )
    acceptance: Array = number(
        "acc: probability that a drafted token is accepted; by default the mean of the engines'",
        kind="fraction",
        high=1,
        default=sum(fitted(f"{engine}.acceptance") for engine in MEASURED) / len(MEASURED),
    )
    usable_memory: Array = number(
        "share of the visible memory that an engine uses, as gpu_memory_utilization",
        kind="fraction",
        high=1,
        default=float(EngineSettings().utilization),
    )
    drawn_length: Array = number(
        "f_len: mean over nominal length where lengths are drawn at random, from 80 to 100 % of it"
        " (InferenceX, benchmark_lib.sh at 8eec0d4: --random-range-ratio 0.8)",
        kind="fraction",
        high=1,
        default=0.9,
    )
    rack_exchange: Array = number(
        "x_R: exchange of tokens among attention groups where a switch joins several nodes, over"
        " tau_X, which is of one node",
        kind="size",
        default=fitted("rack_exchange"),
    )
    trtllm: Engine = part("TensorRT-LLM", default_factory=lambda: Engine.published("trtllm"))
    sglang: Engine = part("SGLang", default_factory=lambda: Engine.published("sglang"))
    vllm: Engine = part("vLLM", default_factory=lambda: Engine.published("vllm"))
    hopper: Generation = part(
        "H100, H200 and chips before", default_factory=lambda: Generation.published("hopper")
    )
    blackwell: Generation = part(
        "B200, B300, GB200", default_factory=lambda: Generation.published("blackwell")
    )
    cdna3: Generation = part(
        "MI300X, MI325X", default_factory=lambda: Generation.published("cdna3")
    )
    cdna4: Generation = part("MI355X", default_factory=lambda: Generation.published("cdna4"))
    overlap: Array = number(
        "p: sharpness of the longer of reading and computing; 1 is their sum",
        kind="size",
        low=1,
        default=3.0,
    )
    one_shot: Array = number(
        "m0: bytes up to which an all-reduce goes in one shot",
        unit="bytes",
        kind="size",
        default=4e6,
    )
    passes: Array = number(
        "times that a layer moves its activations through memory", kind="size", default=8.0
    )
    eager_beside_decode: Array = number(
        "share of eager launches that decoding waits for", kind="fraction", high=1, default=0.8
    )
    overheads: Overheads = part(
        "what an engine takes beside weights and cache", default_factory=Overheads
    )
    least_memory: Array = number(
        "share of memory that is left to the cache at least", kind="fraction", high=1, default=0.02
    )
    admission_sharpness: Array = number(
        "sharpness of the lesser of requests in flight and places in memory",
        kind="size",
        low=1,
        default=16.0,
    )
    expert_kernels: Array = number(
        "k_E: what a mixture adds to the layer gap, in layer gaps of its engine",
        kind="size",
        default=fitted("expert_kernels"),
    )
    block_kernels: Array = number(
        "k_B: tau_Q of 8-bit products with scales by block, over that of 4-bit ones",
        kind="size",
        default=fitted("block_kernels"),
    )
    eager_growth: Array = number(
        "k_I: growth of eager launches over a prompt of I_0 tokens",
        kind="size",
        default=fitted("eager_growth"),
    )
    eager_tokens: Array = number(
        "I_0: tokens of a prompt from which on its eager launches count in full",
        unit="tokens",
        kind="size",
        default=8192.0,
    )
    decode_tokens: Array = number(
        "new tokens a sequence up to which a pass decodes", unit="tokens", kind="size", default=8.0
    )
    skew: Array = number(
        "s: exponent by which the popularity of a mixture's experts falls with their rank",
        kind="fraction",
        high=0.95,
        default=fitted("skew"),
    )
    imbalance: Array = number(
        "excess of the busiest of the expert-parallel ranks, in random excesses",
        kind="size",
        default=0.0,
    )
    idle_slots: Array = number(
        "share of routed slots that go to experts without computation",
        kind="fraction",
        high=0.95,
        default=0.0,
    )
    decode_factor: Array = number(
        "measured over modelled time per output token of one server: calibration sets it",
        kind="size",
        default=1.0,
    )
    first_factor: Array = number(
        "the same of its time to first token: not of a queue for memory, nor, of requests that "
        "arrive by themselves, of the wait for the running pass and for other prompts",
        kind="size",
        default=1.0,
    )
    software_age: Array = number(
        "a: months from the server's software to the newest that was fitted",
        kind="size",
        default=0.0,
    )
    monthly: Array = number(
        "r: relative growth of launch gaps and host times by a month of the software's age",
        kind="size",
        default=fitted("monthly"),
    )
    draw: Draw = part("power by utilisation", default_factory=Draw)
    laws: Laws = static("the named laws", default=Laws())

    def further_terms(self, rows: Array, terms: Mapping[str, Array]) -> dict[str, Array]:
        """Seconds by term that a model of your own adds to ``rows`` tokens in the layers.

        ``terms``: the seconds that are counted already. What is added is in every pass that is
        priced, hence in estimates, plans and replays. Here nothing is added.
        """
        return {}

    def arrival_terms(self, engine: Engine, plan: Deployment) -> dict[str, Array]:
        """Seconds by term between a request's arrival and its place in the queue.

        Network, tokeniser and server. Estimates, replays and calibrations all add these up.
        """
        return {"front": engine.front}
