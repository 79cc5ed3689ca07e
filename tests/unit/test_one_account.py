"""One account of a chip's memory: limits of estimates and ``memory`` with a batch say its bytes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import infer_jax as ij
from infer_jax import footprint
from infer_jax.estimators import Economics
from infer_jax.estimators.known_errors import memory_note
from infer_jax.estimators.serving import Deployment, Serving, ServingWorkload, shape
from infer_jax.footprint import (
    Drafter,
    EngineSettings,
    MeanLengths,
    Overheads,
    account,
    bytes_of_requests,
)
from infer_jax.physics.memory.chip_memory import Ranks, Resident, resident
from infer_jax.specs import Architecture, Block, Dense, GroupedQuery
from infer_jax.verbs.frontier_result import FrontierResult
from tests.unit.estimators.compiled import step
from tests.unit.physics.derivatives import agree_at

BLOCKS = 9  # of the model with the most kinds of layers below
H100, B200 = "h100_sxm", "b200_sxm"
# model, system, plan (tp, pp, attention groups), batch, prompt and output
PLANS = [
    ("gpt-oss-120b", H100, (1, 1, 1), 74, 4096, 512),
    ("gpt-oss-120b", H100, (4, 1, 1), 300, 1024, 1024),
    ("llama-3.1-70b", H100, (2, 1, 1), 8, 4096, 512),
    ("llama-3.1-70b", H100, (4, 2, 1), 64, 4096, 512),
    ("llama-3.1-8b", H100, (16, 1, 1), 500, 20000, 10),
    ("deepseek-v4-flash", B200, (4, 1, 1), 64, 30000, 512),
    ("deepseek-v3", B200, (1, 1, 8), 300, 4096, 512),
    ("deepseek-v3.2", B200, (8, 1, 1), 300, 40960, 512),
    ("kimi-k2", B200, (4, 1, 4), 7, 1024, 8192),
    ("qwen3-next-80b-a3b", H100, (2, 1, 1), 100, 4096, 512),
    ("nemotron-3-nano-30b-a3b", H100, (1, 1, 1), 100, 4096, 512),
    ("gemma-3-27b", H100, (2, 3, 1), 33, 9000, 900),
    ("llama-4-scout", H100, (8, 1, 1), 40, 20000, 100),
    ("mixtral-8x7b", H100, (2, 1, 2), 50, 3000, 300),
]


@jax.jit
def limit(model, seen, hardware, work, plan):
    return model.estimate_shape(seen, hardware, work, plan).decode.limits["memory"]


@pytest.mark.parametrize("case", PLANS, ids=lambda c: f"{c[0]} {c[2]}")
def test_the_limit_of_an_estimate_is_what_memory_prints(case, x64):
    name, system, (tp, pp, groups), batch, isl, osl = case
    loaded, arch = ij.load_system(system), ij.load_model(name).architecture
    model = Serving.of().fitted(loaded.coefficients["serving"])
    plan = Deployment.of(tp=tp, pp=pp, ep=groups, attention_dp=groups)
    work = ServingWorkload.of(isl=isl, osl=osl, batch=batch)
    ours = limit(model, shape(arch, blocks=BLOCKS), loaded.hardware, work, plan)
    said = ij.memory(
        name, system, tp=tp, pp=pp, ep=groups, max_model_len=8192, batch=batch, isl=isl, osl=osl
    )
    assert said.filled is not None
    np.testing.assert_allclose(said.filled.used, ours.need, rtol=1e-9)
    np.testing.assert_allclose(said.memory.budget, ours.capacity, rtol=1e-9)
    assert said.filled.fits == bool(ours.need <= ours.capacity)
    assert said.filled.used_most >= said.filled.used


def small(layers: float) -> Resident:
    """A dense model in few numbers, without experts."""
    attention = GroupedQuery.of(query_heads=4, kv_heads=2, head_width=64, value_width=64)
    block = Block.of(count=layers, attention=attention, feedforward=Dense.of(width=512, inward=2))
    sizes = {"width": 256, "vocabulary": 1000, "tied": 0.0}
    return resident(Architecture.of(**sizes, blocks=(block,)), blocks=2)


def chip(model, tp, pp, drafting, draft=None) -> footprint.Account:
    ranks = Ranks(jnp.asarray(tp), jnp.asarray(1.0), jnp.asarray(pp))
    hardware = ij.load_system(H100).hardware
    return account(model, hardware, ranks, EngineSettings(), Overheads(), Drafter(drafting, draft))


def test_own_heads_are_a_layer_more_and_a_draft_model_is_all_of_it(x64):
    model, draft = small(10.0), small(3.0)
    plain, heads = chip(model, 2.0, 1.0, 0.0), chip(model, 2.0, 1.0, 1.0)
    more = small(11.0)
    for kind, size in chip(more, 2.0, 1.0, 0.0).weights.items():
        np.testing.assert_allclose(heads.weights[kind], size, rtol=1e-12, err_msg=kind)
    tokens = jnp.asarray(1000.0)
    np.testing.assert_allclose(heads.cache.on_average(tokens) / plain.cache.on_average(tokens), 1.1)
    both, own = chip(model, 2.0, 1.0, 1.0, draft), chip(draft, 2.0, 1.0, 0.0)
    np.testing.assert_allclose(both.weights["draft"], sum(own.weights.values()))
    whole = plain.cache.on_average(tokens) + own.cache.on_average(tokens)
    np.testing.assert_allclose(both.cache.on_average(tokens), whole)
    off = chip(model, 2.0, 1.0, 0.0, draft)
    np.testing.assert_allclose(off.available, plain.available)


def test_bytes_of_a_request_by_hand(x64):
    """10 layers, 2 heads of 64 keys and values in 2 bytes, over 2 ranks; blocks of 16 tokens."""
    plain = chip(small(10.0), 2.0, 1.0, 0.0)
    token = 10 * 1 * (64 + 64) * 2
    tokens = jnp.asarray(100.0)
    np.testing.assert_allclose(plain.cache.on_average(tokens), token * (100 + 8))
    np.testing.assert_allclose(plain.at_its_end(tokens), token * 112)
    np.testing.assert_allclose(plain.cache.shared(tokens), token * 100)
    lengths = MeanLengths(jnp.asarray(80.0), jnp.asarray(40.0), 0.5, 20.0)
    cache = bytes_of_requests(plain, jnp.asarray(3.0), lengths)
    np.testing.assert_allclose(cache.average, token * (20 + 3 * (80 + 8)))
    np.testing.assert_allclose(cache.most, token * (20 + 3 * 112))
    alone = bytes_of_requests(plain, jnp.asarray(0.1), lengths)
    np.testing.assert_allclose(alone.average, token * (20 + 112))


@pytest.mark.parametrize("layers", [1.0, 10.0])
def test_gradients_without_experts_at_one_layer_and_no_requests(layers, x64):
    """Of requests of which there are none, a part of one, few, or more than fit."""
    model = small(layers)

    def need(tp, pp, running, isl):
        held = chip(model, 2.0 * tp, pp, 1.0, model)
        lengths = MeanLengths(isl * 80.3, jnp.asarray(40.0), 0.5, 20.0)
        launched = footprint.Launched.in_flight(EngineSettings())
        room = footprint.requests_held(held, lengths, launched, 0.02)
        return (held.fixed + bytes_of_requests(held, running, lengths).average + 0.7 * room) / 1e6

    agree_at(need, *((1.1, 1.2, running, 1.0) for running in (0.0, 0.3, 3.0, 1e7)))


# model, system, plan (tp, pp, ep), batch
GIVEN = [
    ("llama-3.1-70b", H100, (2, 1, 1), 3),
    ("llama-3.1-70b", H100, (2, 1, 1), 4),
    ("llama-3.1-8b", "h200_sxm", (2, 3, 1), 200),
    ("deepseek-v3", B200, (2, 1, 4), 300),
    ("gemma-3-27b", B200, (1, 1, 1), 40),
]


@pytest.mark.parametrize("name", ["economics.planned", "kernels"])
@pytest.mark.parametrize("case", GIVEN, ids=lambda c: f"{c[0]} {c[2]} {c[3]}")
def test_a_pass_at_a_given_layout_is_limited_by_the_same_account(case, name, x64):
    """A pass is priced at its own context: half a token more than the mean that ``memory`` has."""
    model, system, (tp, pp, ep), batch = case
    loaded, arch = ij.load_system(system), ij.load_model(model).architecture
    estimator = ij.make(name, loaded.coefficients)
    forward = ij.ForwardPass.of(sequences=batch, new_tokens=1, cached_tokens=4096 + 256 - 1)
    plan = ij.Plan.of(tp=tp, pp=pp, ep=ep)
    ours = step(estimator, arch, loaded.hardware, forward, plan).limits["memory"]
    split = {"tp": tp, "pp": pp, "ep": ep}
    said = ij.memory(model, system, **split, max_model_len=8192, batch=batch, isl=4096, osl=512)
    assert said.filled is not None
    np.testing.assert_allclose(ours.need, said.filled.used, rtol=1e-9)
    np.testing.assert_allclose(ours.capacity, said.memory.budget, rtol=1e-12)
    assert bool(ours.need <= ours.capacity) == said.filled.fits


@pytest.mark.parametrize("model", ["llama-3.1-70b", "deepseek-v3"])
def test_gpus_that_are_split_by_a_search_are_limited_by_the_same_account(model, x64):
    """The layout that the search takes is one group of stage ranks, its degrees real numbers."""
    loaded, arch = ij.load_system(B200), ij.load_model(model).architecture
    estimator = ij.make("economics", loaded.coefficients)
    forward = ij.ForwardPass.of(sequences=64, new_tokens=1, cached_tokens=4096)
    ours = step(estimator, arch, loaded.hardware, forward, ij.Plan.of(tp=16))
    stage = ours.layout["tp"] * ours.layout["ep"]
    engine = EngineSettings.of(sequences=64.0).on(loaded.coefficients)
    ranks = Ranks(stage, stage / stage, ours.layout["pp"])
    chip = account(resident(arch), loaded.hardware, ranks, engine, Overheads.of())
    each = chip.cache.on_average(jnp.asarray(4097.0))
    np.testing.assert_allclose(ours.limits["memory"].need, chip.fixed + 64 * each, rtol=1e-9)
    np.testing.assert_allclose(ours.limits["memory"].capacity, chip.budget, rtol=1e-12)


def test_requests_beyond_those_that_run_at_once_do_not_fit():
    """All 100,000 have 97 + 3 tokens of 131,072 bytes and half a block; a server that runs fewer
    at once does not run them.
    """
    words: dict[str, Any] = {"isl": 97, "osl": 6, "batch": 100000, "max_model_len": 8192}
    limits: tuple[dict[str, Any], ...] = ({}, {"max_num_seqs": 1024})
    for more in limits:
        said = ij.memory("llama-3.1-8b", H100, **words, **more)
        assert said.filled is not None and not said.filled.fits
        np.testing.assert_allclose(said.filled.cache, 1e5 * 131072 * (97 + 3 + 8), rtol=1e-12)
    assert "1,024 of 100,000" in said.notes[0]
    # a server of so many sequences has no memory left for a cache, and not less than none
    none = ij.memory("llama-3.1-8b", H100, **words).to_dict()
    assert none["kv_cache_size_tokens"] == none["kv_blocks"] == none["maximum_concurrency"] == 0
    few = ij.memory("llama-3.1-8b", H100, **{**words, "batch": 100}, max_num_seqs=64).filled
    assert few is not None and few.used < few.used_most < 80e9 and not few.fits


def test_another_account_says_whose_it_is():
    """Every estimator whose bytes are not those of ``memory`` says so above its answer."""
    apart = ("offloading", "partitioning", "kernels.published", "economics.level4")
    alike = ("economics", "economics.planned", "kernels", "serving")
    loaded = ij.load_system(H100).coefficients
    say = {name: memory_note(ij.make(name, loaded)) for name in (*apart, *alike)}
    assert "FlexGen" in say["offloading"] and "Pope" in say["partitioning"]
    assert "InferSim" in say["kernels.published"] and "paper" in say["economics.level4"]
    assert not any(say[name] for name in alike)


@pytest.mark.parametrize("groups", [2.0, 8.0])
def test_attention_groups_are_servers_of_their_own_where_nothing_is_routed(groups, x64):
    """``ep`` groups with ``ep`` times the requests: the time, terms and bytes of one of them.

    Each has a copy of all but the routed experts, so that a model without any is only copied.
    """
    hardware = ij.load_system(H100).hardware
    attention = GroupedQuery.of(query_heads=16, kv_heads=4, head_width=64, value_width=64)
    block = Block.of(count=8, attention=attention, feedforward=Dense.of(width=4096, inward=2))
    arch = Architecture.of(width=1024, vocabulary=32000, tied=0, blocks=(block,))
    estimator = Economics.as_planned()
    for sequences, copies in ((12.0, groups), (1.0, 1.0)):  # busy groups, and one that is alone
        pair = []
        for n, ep in ((1.0, 1.0), (copies, groups)):
            forward = ij.ForwardPass.of(sequences=sequences * n, new_tokens=3, cached_tokens=500)
            pair.append(step(estimator, arch, hardware, forward, ij.Plan.of(tp=2, pp=1, ep=ep)))
        one, all_of_them = pair
        np.testing.assert_allclose(all_of_them.time, one.time, rtol=1e-12)
        for name, seconds in one.terms.items():
            np.testing.assert_allclose(all_of_them.terms[name], seconds, rtol=1e-12, err_msg=name)
        if copies == groups:
            need = [phase.limits["memory"].need for phase in pair]
            np.testing.assert_allclose(need[1], need[0], rtol=1e-12)


def test_a_mixture_is_read_alike_in_time_and_memory(x64):
    """DeepSeek-V3, EP 8: each group reads all its attention, as its bytes are held."""
    arch, hardware = ij.load_model("deepseek-v3").architecture, ij.load_system(B200).hardware
    estimator = Economics.as_planned().replace(flop_cap=np.asarray(1.0), memory_cap=np.asarray(1.0))
    forward = ij.ForwardPass.of(sequences=8, new_tokens=1, cached_tokens=0)
    shared, grouped = (
        step(estimator, arch, hardware, forward, plan).terms["memory"]
        for plan in (ij.Plan.of(tp=8), ij.Plan.of(ep=8))
    )
    held = [
        ij.memory("deepseek-v3", B200, tp=tp, ep=ep, max_model_len=8192).memory.weights
        for tp, ep in ((8, 1), (1, 8))
    ]
    more = sum(
        float(held[1][k] - held[0][k]) for k in ("attention", "feedforward", "shared", "head")
    )
    seconds = more / float(hardware.chip.memory_bandwidth)
    np.testing.assert_allclose(grouped - shared, seconds, rtol=0.1)  # beside it, activations


def test_a_frontier_offers_no_layout_that_memory_says_does_not_fit():
    """Llama 3.1 70B on two H100, in servers started for as many requests as run."""
    result = ij.frontier("llama-3.1-70b", H100, total_gpus=2)
    assert isinstance(result, FrontierResult)
    points = result.points
    assert set(points.chips) == {2}
    for batch in (*points.batch, max(points.batch) + 1):
        said = ij.memory("llama-3.1-70b", H100, tp=2, max_model_len=8192, batch=batch)
        assert said.filled is not None
        assert said.filled.fits == (batch <= max(points.batch))
