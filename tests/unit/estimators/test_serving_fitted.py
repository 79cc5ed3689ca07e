"""What the shipped fit says beyond single terms: each leaf does what its doc line says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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
from infer_jax.specs import leaves
from tests.contract.cases import mixture, nodes


@pytest.fixture(scope="module")
def serve():
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


def test_the_rate_of_products_by_their_scales(x64):
    """Of 8 bits alone, and only where activations are quantised as they run: with slopes."""
    seen, hardware = shape(ij.load_model("llama-3.1-8b").architecture), ij.load_system("h100_sxm")
    peak = float(hardware.hardware.chip.flops_8)

    def rate(share, quantised, bits):
        model = Serving.of().fitted({"hopper.gemm_8": 0.6})
        model = model.replace(hopper=model.hopper.replace(blocked=share))
        own = seen._replace(quantised=np.asarray(quantised))
        return model.context(own, hardware.hardware, Deployment.of()).dense_rate(bits)

    value, slope = jax.value_and_grad(rate)(0.7, 2.0, 8.0)
    assert (float(value), float(slope)) == pytest.approx((0.42 * peak, 0.6 * peak))
    for quantised, bits in ((0.0, 8.0), (2.0, 16.0), (2.0, 4.0)):
        assert float(jax.grad(rate)(0.7, quantised, bits)) == 0.0
    assert float(rate(1.0, 2.0, 8.0)) == float(rate(0.7, 0.0, 8.0)) == pytest.approx(0.6 * peak)
    assert float(jax.grad(rate)(0.0, 2.0, 8.0)) == pytest.approx(0.6 * peak)


def test_the_shipped_fit_loads_and_its_values_are_within_their_intervals(x64, serve):
    model = make("serving.sglang")
    assert isinstance(model, Serving)
    assert float(model.sglang.expert_gap) == 0.0 and float(model.sglang.prefill_first) == 1.0
    assert all(f.low <= f.value <= f.high for f in serving_coefficients().values())
    assert 0.001 < serve(model)[0] < 0.1
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


def test_each_generation_has_coefficients_of_its_own_and_their_gradients(x64):
    seen = shape(ij.load_model("llama-3.1-8b", quant="fp8").architecture)
    hardware = ij.load_system("mi355x").hardware

    @jax.jit
    def seconds(model):
        c = model.context(seen, hardware, Deployment.of(tp=1))
        return pass_terms.gaps(c) + pass_terms.through_layers(c, jnp.asarray(4096.0)).time

    at = Serving.of(engine="sglang", generation="cdna4")
    own = jax.grad(seconds)(at)
    for other in (own.hopper, own.blackwell, own.cdna3):
        assert float(other.gap) == float(other.gemm_8) == 0.0
    assert float(own.cdna4.gap) > 0.0 > float(own.cdna4.gemm_8)
    for name in ("gap", "gemm_8"):
        value = float(getattr(at.cdna4, name))
        high, low = (seconds(at.fitted({f"cdna4.{name}": value * x})) for x in (1.0001, 0.9999))
        slope = float(high - low) / (2e-4 * value)
        assert float(getattr(own.cdna4, name)) == pytest.approx(slope, rel=1e-6)


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
