"""A pass as a scheduler composes it, its table, many in a row; and what the shipped fit says."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

import infer_jax as ij
from infer_jax.catalog.published import serving_coefficients, serving_errors
from infer_jax.estimators import VARIANTS, make
from infer_jax.estimators.serving import (
    Deployment,
    Serving,
    ServingWorkload,
    WideExperts,
    memory,
    pass_terms,
    shape,
)
from infer_jax.estimators.serving.passes import passes
from infer_jax.estimators.serving.price import (
    PassLaw,
    experts_time,
    own_time,
    pass_time,
    ranked_law,
)
from infer_jax.physics.speculation import HEADS_DECLINE
from infer_jax.replays import Requests, serve, vllm
from infer_jax.specs import leaves
from tests.contract.cases import mixture, nodes
from tests.unit.estimators.compiled import quickly

MODELS = {"llama-3.1-8b": 1, "gpt-oss-20b": 1, "deepseek-v3": 8}  # plain, windows, latent experts


@pytest.fixture(scope="module", autouse=True)
def _wide():
    with jax.enable_x64(True):
        yield


@cache
def context_of(model, tp):
    arch, system = ij.load_model(model).architecture, ij.load_system("h200_sxm")
    estimator = ij.make("serving", system.coefficients)
    assert isinstance(estimator, Serving)
    plan = ij.Plan.of(tp=tp)
    return estimator, arch, system.hardware, plan, estimator.context(
        shape(arch), system.hardware, plan
    )  # fmt: skip


@partial(quickly, static_argnames="drafting")
def times(c, *batch, drafting=False):
    return pass_time(PassLaw.of_context(c, drafting=drafting, table=False), *batch)


looked_up = quickly(pass_time)
tabulated = quickly(PassLaw.of_context, static_argnames="drafting")


@pytest.mark.parametrize(("model", "tp"), MODELS.items())
def test_alone_it_is_the_estimators_pass(model, tp):
    estimator, arch, hardware, plan, c = context_of(model, tp)
    step = quickly(estimator.step)
    for sequences, new, cached in ((64, 1, 3000), (1, 3000, 0), (1, 2000, 4000)):
        forward = ij.ForwardPass.of(sequences=sequences, new_tokens=new, cached_tokens=cached)
        expected = float(step(arch, hardware, forward, plan).time)
        if new == 1:
            batch = (sequences, sequences * cached, 0.0, 0.0)
        else:
            batch = (0.0, 0.0, new, new * (cached + new / 2.0))
        result = float(times(c, *(jnp.asarray([float(x)]) for x in batch))[0])
        assert result == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("model", "tp"), MODELS.items())
def test_the_table_is_within_a_ten_thousandth(model, tp):
    c = context_of(model, tp)[-1]
    random = np.random.default_rng(0)
    decoding = random.integers(0, 1024, 3000).astype(float)
    new = np.where(random.random(3000) < 0.5, 0, random.integers(1, 8192, 3000)).astype(float)
    new = np.where(decoding + new > 0, new, 1.0)
    pairs = new * (new / 2.0 * random.uniform(0.1, 1.0, 3000))
    pairs += new * random.integers(0, 2, 3000) * random.uniform(0, 30_000, 3000)
    batch = (decoding, decoding * random.uniform(1, 100_000, 3000), new, pairs)
    np.testing.assert_allclose(looked_up(tabulated(c), *batch), times(c, *batch), rtol=1e-4)


@pytest.mark.parametrize("small", [None, "llama-3.2-1b"])
def test_a_pass_with_drafts_is_the_estimators(small):
    """Over the tokens that it yields it is the closed form's step, with heads or another model."""
    estimator, arch, hardware, _, plain = context_of("llama-3.1-8b", 1)
    draft = None if small is None else shape(ij.load_model(small).architecture)
    plan = Deployment.of(tp=1, drafts=3.0)
    c = estimator.with_(acceptance=0.7).context(shape(arch), hardware, plan, draft)
    verifying, law = partial(times, c, drafting=True), tabulated(c, drafting=True)
    decline = HEADS_DECLINE[:3] if small is None else (1.0, 1.0, 1.0)
    kept = 1 + sum(np.cumprod(0.7 * np.array(decline)))
    held = jnp.asarray(40.0), jnp.asarray(3000.0)
    step = quickly(lambda c, b, t: passes(c, b, t, 100.0 * b, 0.0 * b).decode.time)(c, *held)
    batch = [jnp.asarray(x) for x in (40.0, 120e3, 0.0, 0.0)]
    result = float(verifying(*batch))
    assert result == pytest.approx(kept * float(step) * float(estimator.decode_factor), rel=1e-12)
    beside = [jnp.asarray(x) for x in (40.0, 120e3, 600.0, 180e3)]
    both = float(verifying(*beside))
    for given, expected in ((batch, result), (beside, both)):
        assert float(looked_up(law, *given)) == pytest.approx(expected, rel=1e-4)
    # a prompt alone is not slower for drafts of the model's own heads; another model computes it
    prompt = [jnp.asarray(x) for x in (0.0, 0.0, 600.0, 180e3)]
    without, alone = float(times(plain, *prompt)), float(verifying(*prompt))
    assert alone == pytest.approx(without, rel=1e-12) if small is None else alone > without
    assert result < both < result + alone


def test_ranks_alike_take_the_pass_of_one_of_them():
    """Own parts and experts add up to the estimator's pass; an uneven rank leaves the experts."""
    estimator, arch, hardware, _, _ = context_of("gpt-oss-20b", 1)
    c = estimator.context(shape(arch), hardware, Deployment.of(tp=1, ep=4, attention_dp=4))
    tables = quickly(ranked_law, static_argnames="drafting")
    m, own, common = tables(c), quickly(own_time), quickly(experts_time)
    for batch in ((40.0, 120e3, 0.0, 0.0), (40.0, 120e3, 600.0, 180e3), (3.0, 9e3, 0.0, 0.0)):
        given = [jnp.asarray(x) for x in batch]
        alike = float(own(m, *given)) + float(common(m, jnp.full(4, batch[0] + batch[2])))
        expected = float(times(c, *given))
        assert alike == pytest.approx(expected, rel=1e-4)
    # with drafts the pass that verifies them, the model's own heads included
    plan = Deployment.of(tp=1, ep=4, attention_dp=4, drafts=3)
    c = estimator.with_(acceptance=0.7).context(shape(arch), hardware, plan)
    drafting = tables(c, drafting=True)
    for batch in ((40.0, 120e3, 0.0, 0.0), (40.0, 120e3, 600.0, 180e3), (0.0, 0.0, 600.0, 180e3)):
        given, fed = [jnp.asarray(x) for x in batch], 4.0 * batch[0]
        alike = float(own(drafting, *given)) + float(
            common(drafting, jnp.full(4, fed + batch[2]), jnp.full(4, fed))
        )
        expected = float(times(c, *given, drafting=True))
        assert alike == pytest.approx(expected, rel=1e-4)
    # tokens of one rank alone are a quarter as many for the experts of all
    alone, quarter = jnp.asarray([80.0, 0, 0, 0]), jnp.full(4, 20.0)
    assert float(common(m, alone)) == pytest.approx(float(common(m, quarter)), rel=1e-12)
    assert float(common(m, alone)) < float(common(m, jnp.full(4, 80.0)))


def test_vllm_launches_short_prompts_by_graphs():
    """Up to 2 max_num_seqs tokens, 512 at most: what a pass lacks then are eager launches."""
    estimator, arch, hardware, _, _ = context_of("llama-3.1-8b", 1)
    shares = {"eager": 3.0, "layer_gap": 1e-4}  # 32 layers: 3.2 ms of gaps
    for engine, slots, largest in (("vllm", 64, 128), ("vllm", 1024, 512), ("sglang", 64, 0)):
        own = getattr(estimator, engine).with_(**shares)
        model = estimator.with_(engine=engine, eager_growth=0.0).replace(**{engine: own})
        plan = Deployment.of(tp=1, max_sequences=slots)
        c = model.context(shape(arch), hardware, plan)
        for decoding, gaps in ((8.0, 0.8 * 3.0), (0.0, 3.0 - 1.0)):
            edge = max(largest, 128) - decoding
            new = np.array([edge, edge + 1.0])
            batch = (np.full(2, decoding), np.full(2, 1000.0 * decoding), new, new**2 / 2.0)
            jump = float(np.diff(times(c, *batch))[0])
            expected = 32 * 1e-4 * float(c.generation.gap) * gaps if largest else 0.0
            assert jump == pytest.approx(expected, abs=3e-5)  # s, of one token more


def test_slopes_are_differences_and_finite_where_nothing_is_fed():
    c = context_of("gpt-oss-20b", 1)[-1]

    def seconds(x):
        return pass_time(PassLaw.of_context(c), x[0], x[1], x[2], x[3])

    both = quickly(jax.value_and_grad(seconds))
    for batch in ([10.0, 5000.0, 300.0, 1e5], [10.0, 5000.0, 0.0, 0.0], [0.0, 0.0, 300.0, 2e4]):
        assert np.isfinite(both(jnp.asarray(batch))[1]).all()
    at = jnp.asarray([10.3, 5000.0, 300.0, 1e5])
    for i in (1, 2, 3):
        h = 1e-5 * float(at[i])
        above, below = (float(both(at.at[i].add(x))[0]) for x in (h, -h))
        assert float(both(at)[1][i]) == pytest.approx((above - below) / (2 * h), rel=1e-4)


def test_a_replay_takes_as_long_as_its_passes_one_by_one():
    """Between two events a polynomial follows the context, also around corners of windows."""
    c = context_of("gpt-oss-20b", 1)[-1]
    random = np.random.default_rng(3)
    arrivals = np.cumsum(random.exponential(0.05, 30))
    lengths = random.integers(20, 300, 30), random.integers(100, 400, 30)
    log = serve(Partial(pass_time, tabulated(c)), vllm(blocks=1e5, slots=32, budget=512),
                Requests.of(arrivals, *lengths))  # fmt: skip
    path = log.path
    entries = int(log.entries)
    spent = np.diff(np.asarray(path.time)[:entries], prepend=0.0)
    rows, entry = [], []
    for i in range(entries):
        for j in range(int(path.count[i])):
            decoding = float(path.decoding[i])
            rows.append((decoding, float(path.context[i]) + j * decoding,
                         float(path.fed[i]), float(path.pairs[i])))  # fmt: skip
            entry.append(i)
    each = np.asarray(times(c, *np.array(rows).T))
    summed = np.bincount(entry, each, minlength=entries)
    ran = summed > 0
    assert summed[ran].sum() == pytest.approx(spent[ran].sum(), rel=1e-4)
    np.testing.assert_allclose(spent[ran], summed[ran], rtol=5e-4)


@pytest.fixture(scope="module")
def served():
    """(TPOT, TTFT, places) of a mixture on eight chips, by a model; compiled once.

    It quantises activations of both classes of products as it runs.
    """
    seen = shape(ij.load_model("qwen3-235b-a22b").architecture)._replace(quantised=np.asarray(2.0))
    hardware = ij.load_system("h100_sxm").hardware

    @jax.jit
    def all_three(model, work, plan):
        life = model.estimate_shape(seen, hardware, work, plan)
        return life.tpot, life.ttft, life.places

    def output(model, batch=32.0, **plan):
        work = ServingWorkload.of(isl=4096, osl=512, batch=batch)
        return tuple(map(float, all_three(model, work, Deployment.of(tp=8, ep=8, **plan))))

    return output


def test_the_shipped_fit_loads_and_its_values_are_within_their_intervals(x64, served):
    model = make("serving.sglang")
    assert isinstance(model, Serving)
    assert float(model.sglang.expert_gap) == 0.0 and float(model.sglang.prefill_first) == 1.0
    assert all(f.low <= f.value <= f.high for f in serving_coefficients().values())
    assert 0.001 < served(model)[0] < 0.1
    for errors in serving_errors().values():
        for shares in errors.within.values():
            assert shares[95][0] <= shares[80][0] <= shares[50][0]
            assert shares[50][1] <= shares[80][1] <= shares[95][1]


def test_there_is_one_fit_and_every_engine_and_verb_gets_it():
    """Errors on unseen rows are those of the coefficients that `serving` has."""
    assert "serving.calibrated" not in VARIANTS
    for name in ("serving", "serving.vllm", "serving.sglang", "serving.trtllm"):
        built = {path: float(value) for path, _, value in leaves(make(name))}
        for path, row in serving_coefficients().items():
            assert built[path] == row.value, (name, path)


def test_attention_groups_of_a_mixture_wait_for_two_exchanges_a_layer(x64):
    """By hand, 61 layers: 2 tau_X each of groups, in a rack x_R times as much; with slopes."""
    seen, node = shape(ij.load_model("deepseek-r1").architecture), ij.load_system("h200_sxm")
    rack = ij.load_system("gb200_nvl72")

    @jax.jit
    def layers(seconds, groups, hardware=node.hardware):
        model = Serving.of(engine="sglang")
        model = model.replace(sglang=model.sglang.replace(exchange=seconds))
        plan = Deployment.of(ep=8).replace(attention_dp=groups)
        return pass_terms.through_layers(model.context(seen, hardware, plan), jnp.asarray(8.0)).time

    eight, one = np.asarray(8.0), np.asarray(1.0)
    added = float(layers(4e-5, eight) - layers(0.0, eight))
    assert added == pytest.approx(2.0 * 61.0 * 4e-5, rel=1e-9)
    shorter = float(layers(4e-5, eight, rack.hardware) - layers(0.0, eight, rack.hardware))
    assert shorter == pytest.approx(float(Serving.of().rack_exchange) * added, rel=1e-9)
    slope = jax.grad(layers)
    for seconds in (0.0, 4e-5):
        assert float(slope(seconds, eight)) == pytest.approx(2.0 * 61.0, rel=1e-9)
        assert float(slope(seconds, one)) == 0.0


def test_stages_share_the_flop_of_a_prompt():
    """MFU times the time is the prompt's work at the peak of all chips: half on twice as many."""
    one, two = (
        ij.estimate("llama-3.1-8b", "h100_sxm", tp=1, pp=pp, isl=2000, osl=100, batch=8).estimate
        for pp in (1, 2)
    )
    work = [float(x.prefill.mfu * x.prefill.time) for x in (one, two)]
    assert work[1] == pytest.approx(work[0] / 2.0, rel=1e-6)
    # 2 FLOP for each weight of the layers and token of the prompt
    arch = ij.load_model("llama-3.1-8b").architecture
    chip = ij.load_system("h100_sxm").hardware.chip
    attention, feedforward = 4096 * (2 * 4096 + 2 * 1024), 3 * 4096 * 14336
    flop = 2.0 * 2000 * 32 * (attention + feedforward)
    assert float(arch.blocks[0].count) == 32
    assert work[0] == pytest.approx(flop / float(chip.flops_16), rel=1e-6)


@pytest.mark.parametrize("system", ["h100_sxm", "b200_sxm", "mi300x", "mi355x"])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3.1-70b", "qwen3-30b-a3b"])
def test_fewer_bits_are_never_slower(system, model):
    """A prompt of 8,192 tokens, and decoding, in 16 and in 8 bits with a scale per tensor."""
    times = []
    for quant in ("bf16", "fp8"):
        answer = ij.estimate(model, system, tp=4, quant=quant, isl=8192, osl=200, batch=16).estimate
        times.append((float(answer.prefill.time), float(answer.decode.time)))
    sixteen, eight = times
    assert eight[0] < sixteen[0] and eight[1] < sixteen[1]


MIXTURE, ONE = shape(mixture()), jnp.asarray(1.0)


def wide_context(**wide):
    ranks = {"tp": 1, "attention_dp": 16, "ep": 16}
    how = WideExperts.of(**wide)
    return Serving.of().context(MIXTURE, nodes(), Deployment.of(**ranks, wide=how)), how


@pytest.mark.parametrize("kernels", ["normal", "low_latency"])
def test_of_two_micro_batches_one_hides_what_the_other_sends(kernels):
    """Between the longer of computing and sending, and their sum; processors hand over, too."""
    c, how = wide_context(kernels=kernels, two_batch=1)
    taken = 24 / 132 if kernels == "normal" else 0.0

    def added(computing, exchange):
        return pass_terms.exposed_exchange(c, how, computing, exchange)

    for computing, exchange in ((3.0, 1.0), (1.0, 3.0), (2.0, 2.0), (0.0, 1.0), (1.0, 0.0)):
        point = jnp.asarray(computing), jnp.asarray(exchange)
        whole = computing + float(added(*point))
        assert max(computing + taken * exchange, exchange) <= whole * (1 + 1e-6)
        assert whole <= computing + (1.0 + taken) * exchange + 1e-6
        assert np.all(np.isfinite(jax.grad(added, argnums=(0, 1))(*point)))
    assert pass_terms.exposed_exchange(*wide_context(kernels=kernels), ONE, 2.0 * ONE) == 2.0


def test_copies_even_out_ranks_and_take_memory():
    (none, _), (some, _) = both = wide_context(), wide_context(copies=8)
    uses = jnp.asarray(1e6)
    uneven, even = (pass_terms.load_ratio(c, how, uses, c.plan.ep) for c, how in both)
    layers = none.shape.layers
    mixed = np.asarray(layers.mixture) > 0.5
    assert np.all(np.asarray(even)[mixed] < np.asarray(uneven)[mixed]) and np.all(even >= 1.0)
    server = memory.server(some, memory.arriving(some))
    held = memory.account_inputs(some, server)[0].layers.experts - layers.experts
    np.testing.assert_allclose(held, 8.0 * layers.mixture)
