"""Memory of one GPU: shares under a plan, pages of mixed layers, gradients, transformations."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import infer_jax as ij
from infer_jax.footprint import GIB, EngineSettings, Overheads, memory
from infer_jax.physics import decoder
from infer_jax.physics.memory import chip_memory, paging
from infer_jax.physics.memory.chip_memory import Ranks, resident
from infer_jax.specs import Architecture, Block, Dense, Format, GroupedQuery, Linear, Plan


@pytest.fixture(scope="module")
def h100():
    return ij.load_system("h100_sxm").hardware


def arch_of(name: str, **options: str) -> Architecture:
    return ij.load_model(name, **options).architecture


def ranks_of(plan: Plan) -> Ranks:
    return Ranks(plan.tp, plan.ep, plan.pp)


def weights_of(arch: Architecture, plan: Plan, multiple: float = 1.0) -> dict[str, Any]:
    return chip_memory.weight_bytes(resident(arch), ranks_of(plan), multiple)


def cut_of(arch: Architecture, plan: Plan, state_pages: float = 1.0) -> paging.Paging:
    """The cache of a model in blocks of 16 tokens."""
    block, pages = jnp.asarray(16.0), jnp.asarray(state_pages)
    return paging.paging(resident(arch), ranks_of(plan), block, pages)


def requests(cut: paging.Paging, gib: float, tokens: float) -> tuple[float, float]:
    """Requests of ``tokens`` tokens, 8192 of a pass, in whole blocks, and their tokens."""
    count = np.floor(gib * GIB / cut.block)
    each = cut.at_its_end(jnp.asarray(tokens), jnp.asarray(8192.0)) / cut.block
    return float(count / each), float(np.floor(count * tokens / each))


def hybrid() -> Architecture:
    """Qwen3.6 and 3.8 27B as far as their cache goes: 16 of 64 layers have full attention.

    Heads and layers from mitchross/talos-argocd-proxmox #1995; the widths of the state are
    assumed, and borne out by the printed block size.
    """
    full = GroupedQuery.of(query_heads=24, kv_heads=4, head_width=256, value_width=256)
    delta = Linear.of(key_heads=16, key_width=128, value_heads=48, value_width=128)
    hidden = Dense.of(width=17408, inward=2)
    blocks = [
        Block.of(count=n, attention=a, feedforward=hidden) for n, a in ((48, delta), (16, full))
    ]
    cache = Format.of(bytes=1, bits=8)
    return Architecture.of(width=5120, vocabulary=248320, tied=0, blocks=(*blocks,), cache=cache)


@pytest.mark.parametrize(
    "name", ["gemma-3-27b", "deepseek-v3.2", "kimi-k2", "nemotron-3-nano-30b-a3b", "mimo-v2-flash"]
)
@pytest.mark.parametrize("plan", [{"tp": 8}, {"pp": 4}, {"ep": 4}, {"tp": 4, "pp": 2, "ep": 2}])
def test_chips_together_hold_at_least_the_model(name, plan):
    arch, plan = arch_of(name), Plan.of(**plan)
    one = float(decoder.total(weights_of(arch, plan).values()))
    whole = float(decoder.total(decoder.weight_bytes(arch).values()))
    assert whole / float(plan.instance) * (1 - 1e-12) <= one <= whole


def test_heads_are_split_then_copied():
    """8 key-value heads: one a rank at tp 8, and at tp 16 still one (vLLM replicates them)."""
    arch = arch_of("llama-3.1-8b")
    at = {tp: weights_of(arch, Plan.of(tp=tp))["attention"] for tp in (1, 8, 16)}
    queries = 32 * 2.0 * 2 * 4096 * 4096  # bytes of Q and O in 32 layers
    keys = 32 * 2.0 * 2 * 4096 * 1024  # of K and V
    np.testing.assert_allclose(at[1], queries + keys)
    np.testing.assert_allclose(at[8], (queries + keys) / 8)
    np.testing.assert_allclose(at[16], queries / 16 + keys / 8)


def test_experts_in_four_bits_are_padded():
    """gpt-oss: 2880 columns stored as 3072 (vLLM, mxfp4.py); 2048 and wider formats as they are."""
    for name, stored in (("gpt-oss-20b", 3072 / 2880), ("qwen3-30b-a3b", 1.0)):
        arch = arch_of(name)
        padded = weights_of(arch, Plan.of(), 256.0)["experts"]
        np.testing.assert_allclose(padded, stored * decoder.weight_bytes(arch)["experts"])


def test_cache_bytes_of_a_token(h100):
    for name, tp, expected in (
        ("llama-3.1-8b", 1, 2 * 32 * 8 * 128 * 2),
        ("llama-3.1-8b", 4, 2 * 32 * 2 * 128 * 2),
        ("llama-3.1-8b", 32, 2 * 32 * 1 * 128 * 2),
        ("deepseek-v3", 1, 61 * (512 + 64) * 2),
        ("deepseek-v3", 8, 61 * (512 + 64) * 2),
        ("qwen3-next-80b-a3b", 2, 2 * 12 * 1 * 256 * 2),
    ):
        held = memory(arch_of(name), h100, Plan.of(tp=tp))
        assert float(held.token_bytes) == expected, (name, tp)


def test_stages_share_layers_and_the_last_has_one_table(h100):
    arch = arch_of("llama-3.1-8b")
    one, four = (memory(arch, h100, Plan.of(pp=pp)) for pp in (1, 4))
    np.testing.assert_allclose(four.weights["attention"], one.weights["attention"] / 4)
    assert float(four.weights["embedding"]) == 0
    assert float(four.weights["head"]) == 128256 * 4096 * 2
    assert float(four.token_bytes) == float(one.token_bytes) / 4
    tied = weights_of(arch_of("llama-3.2-1b"), Plan.of(pp=2))
    assert float(tied["embedding"]) == 128256 * 2048 * 2 and float(tied["head"]) == 0


def test_everything_adds_up(h100):
    held = memory(arch_of("mixtral-8x7b"), h100, Plan.of(tp=2), EngineSettings.of(utilization=0.8))
    spent = held.weight_bytes + held.activations + held.reserve + held.available
    np.testing.assert_allclose(spent, held.budget)
    np.testing.assert_allclose(held.budget, 0.8 * held.visible)
    np.testing.assert_allclose(held.tokens, np.floor(held.concurrency * 8192))


def test_windowed_layers_are_grouped_by_tens():
    """Gemma-3-27B: 10 full and 52 windowed layers in 1 + 6 groups of 10.

    vLLM 0.19.0 prints "Add 8 padding layers", 19.53 GiB, 4.46x for 8,192 tokens
    (llm-d-planner, google-gemma-3-27b-it log); there a window takes 513 pages, as 8192 tokens
    are batched at once.
    """
    cut = cut_of(arch_of("gemma-3-27b"), Plan.of())
    tokens = jnp.asarray(8192.0)
    assert float(cut.at_its_end(tokens, tokens) / cut.block) == 512 + 6 * 513
    assert float(cut.block) == 16 * 10 * 2 * 16 * 128 * 2
    assert round(requests(cut, 19.53, 8192.0)[0], 2) == 4.46


def test_a_page_takes_the_state_and_a_hybrid_model_prints_its_figures():
    """With an 8-bit cache attention blocks grow to 1568 tokens, as vLLM prints.

    At tp 1 (noonghunna/club-3090 #1047) and tp 2 (mitchross/talos-argocd-proxmox #1995: the log of
    Qwen3.8-27B-FP8 on two RTX 3090, prefixes cached; 4.99 GiB a GPU are 302,921 tokens, 2.31x for
    131,072).
    """
    one, two = (cut_of(hybrid(), Plan.of(tp=tp), state_pages=2.0) for tp in (1, 2))
    assert float(one.block) == 2 * float(two.block) == 16 * 1568 * 4 * 256 * 2
    count, tokens = requests(two, 4.99, 131072.0)
    assert (round(count, 2), tokens) == (2.31, 302921)


def test_what_does_not_fit_is_an_answer(h100):
    held = memory(arch_of("llama-3.1-405b"), h100, Plan.of())
    assert not bool(held.fits)
    assert float(held.available) < -650e9 and float(held.slack) < float(held.available)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(held))


def test_more_never_holds_less(h100):
    arch = arch_of("qwen3-30b-a3b")
    base = memory(arch, h100, Plan.of())
    bigger = h100.replace(chip=h100.chip.replace(memory=h100.chip.memory * 1.5))
    assert float(memory(arch, bigger, Plan.of()).tokens) > float(base.tokens)
    fewer = EngineSettings.of(batched_tokens=2048, sequences=256)
    assert float(memory(arch, h100, Plan.of(), fewer).tokens) > float(base.tokens)
    sorts = memory(arch, h100, Plan.of(), overheads=Overheads.vllm_0_10())
    assert float(sorts.activations) > 2 * float(base.activations)
    without = memory(arch, h100, Plan.of(), overheads=Overheads.vllm_0_18())
    np.testing.assert_allclose(without.available - base.available, 1.04 * GIB)


POINTS = [
    ("llama-3.1-8b", 1.5),  # fits
    ("llama-3.1-405b", 1.5),  # slack far below 0
    ("llama-3.1-8b", 11.0),  # more ranks than key-value heads
    ("deepseek-v3.2", 8.5),
    ("gpt-oss-20b", 2.5),  # windows
    ("qwen3-next-80b-a3b", 3.5),  # states
    ("mixtral-8x7b", 2.5),
]


@pytest.mark.parametrize(
    ("name", "tp", "pp", "smooth"),
    [*((*point, 1.0, None) for point in POINTS), *((*point, 2.5, 1.0) for point in POINTS[2:6])],
)
def test_gradients_are_finite_everywhere(h100, name, tp, pp, smooth):
    """At every leaf of every input, of every output, exact and without floors."""

    def outputs(arch, hardware, plan, engine, overheads):
        smoothing = None if smooth is None else jnp.asarray(smooth)
        held = memory(arch, hardware, plan, engine, overheads, smoothing)
        return held.available, held.slack, held.tokens, held.concurrency

    inputs = (arch_of(name), h100, Plan.of(tp=tp, pp=pp), EngineSettings.of(), Overheads.of())
    for row in jax.jacrev(outputs, argnums=(0, 1, 2, 3, 4))(*inputs):
        assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(row))


@pytest.mark.parametrize(("name", "tp"), POINTS[2:])
def test_gradients_equal_finite_differences(h100, name, tp):
    if jnp.asarray(1.0).dtype != jnp.float64:
        pytest.skip("finite differences of bytes need 64 bits")
    arch, engine = arch_of(name), EngineSettings.of(context=10000.5, batched_tokens=5000.5)

    def logs(x):
        """Bytes in GiB and tokens in thousands, with all floors removed."""
        plan = Plan.of().replace(tp=tp * x[0], pp=1.6 * x[1], ep=1.5 * x[2])
        chip = h100.chip.replace(memory=h100.chip.memory * x[3])
        held = memory(
            arch.replace(width=arch.width * x[4]),
            h100.replace(chip=chip),
            plan,
            engine.replace(utilization=0.85 * x[5], sequences=700.5 * x[6]),
            smoothing=jnp.asarray(1.0),
        )
        return held.slack / GIB, held.weight_bytes / GIB, held.tokens / 1e3, held.concurrency

    check_grads(logs, (jnp.ones(7),), order=1, modes=("fwd", "rev"), rtol=2e-5, atol=1e-4)


def test_32_bits_lose_at_most_a_few_blocks(h100):
    arch = arch_of("gemma-3-27b")
    given = (arch, h100, Plan.of(), EngineSettings.of(), Overheads.vllm_0_18())
    wide = memory(*given)
    narrow = memory(*jax.tree.map(lambda x: np.asarray(x, np.float32), given))
    np.testing.assert_allclose(narrow.blocks, wide.blocks, atol=2)
    np.testing.assert_allclose(narrow.concurrency, wide.concurrency, rtol=1e-3)


def test_whole_shares_survive_rounding(h100):
    """36 windowed and 12 full layers are 4 groups of equal size at any number of stages.

    The longest stage has ceil(48 / pp) layers (vLLM, distributed/utils.py, get_pp_indices).
    """
    arch, engine = arch_of("llama-4-scout"), EngineSettings.of()
    one = memory(arch, h100, Plan.of(tp=8), engine)
    for pp, layers in ((3.0, 16), (7.0, 7), (11.0, 5)):
        held = memory(arch, h100, Plan.of(tp=8, pp=pp), engine)
        np.testing.assert_allclose(held.request_bytes * 48 / layers, one.request_bytes)
