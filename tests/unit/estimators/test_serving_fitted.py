"""What the shipped fit says beyond single terms: each leaf does what its doc line says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import infer_jax as ij
from infer_jax.catalog.published import serving_coefficients, serving_errors
from infer_jax.estimators import VARIANTS, make
from infer_jax.estimators.serving import Deployment, Serving, ServingWorkload, pass_terms, shape
from infer_jax.specs import leaves


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


def test_kernels_of_a_mixture_are_layer_gaps_of_its_engine(x64, serve):
    plain = Serving.of(engine="vllm")
    gap = float(plain.vllm.layer_gap)
    apart = plain.with_(expert_kernels=0.0).fitted({"vllm.expert_gap": 0.25 * gap})
    together = plain.fitted({"vllm.expert_gap": 0.0, "expert_kernels": 0.25})
    assert serve(together) == pytest.approx(serve(apart), rel=1e-12)


def test_eager_launches_grow_with_the_prompt(x64, serve):
    plain = Serving.of(engine="vllm").with_(eager_growth=0.0)
    # alone, a prompt of half of eager_tokens: growth of 2 doubles the launches, as twice the factor
    grown = plain.with_(eager_growth=2.0)
    double = plain.fitted({"vllm.eager": 2.0 * float(plain.vllm.eager)})
    assert serve(grown, batch=1.0) == pytest.approx(serve(double, batch=1.0), rel=1e-12)
    assert serve(grown)[1] > serve(plain)[1]


def test_scales_by_block_multiply_the_gap_of_quantising(x64, serve):
    plain = Serving.of(engine="vllm").with_(block_kernels=1.0)
    blocks = plain.with_(block_kernels=3.0)
    more = plain.with_(quantised_gap=3.0 * float(plain.quantised_gap))
    assert serve(blocks) == pytest.approx(serve(more), rel=1e-12)
    assert serve(blocks)[0] > serve(plain)[0]


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


def test_quantising_launches_of_the_chosen_generation_are_multiplied(x64, serve):
    plain = Serving.of(engine="trtllm")  # on Hopper
    more = serve(plain.with_(quantised_gap=1.5 * float(plain.quantised_gap)))
    factor = 1.5 * float(plain.hopper.quantising)
    assert serve(plain.fitted({"hopper.quantising": factor})) == pytest.approx(more, rel=1e-12)
    assert serve(plain.fitted({"blackwell.quantising": 9.0})) == serve(plain)


def test_the_gap_of_a_pass_is_linear_in_the_quantising_launches(x64):
    """By hand, 62 layers of two classes with 8-bit scales by block: tau_Q k_B q_g 2 L g."""
    arch = ij.load_model("minimax-m2.5").architecture
    seen = shape(arch)._replace(quantised=np.asarray(2.0))
    hardware, plan = ij.load_system("b200_sxm").hardware, Deployment.of(tp=4)

    @jax.value_and_grad
    def gaps(multiple):
        own = Serving.of(generation="blackwell")
        own = own.replace(blackwell=own.blackwell.replace(quantising=multiple))
        return pass_terms.gaps(own.context(seen, hardware, plan))

    model, (none, _) = Serving.of(), gaps(0.0)
    tau = float(model.quantised_gap * model.block_kernels * model.blackwell.gap) * 2.0 * 62.0
    for factor in (0.0, 0.6, 1.4):
        seconds, slope = gaps(factor)
        assert float(seconds - none) == pytest.approx(tau * factor, abs=1e-15)
        assert float(slope) == pytest.approx(tau, rel=1e-9)


def test_a_request_waits_for_half_of_the_passes_between_two_looks(x64, serve):
    plain = Serving.of(engine="sglang")
    later = plain.fitted({"sglang.ahead": 6.0})
    assert serve(plain, polling=11.0) == pytest.approx(serve(later), rel=1e-12)
    assert serve(later)[1] > serve(plain)[1]


def test_prompts_before_decodes_are_paid_by_those_that_decode(x64, serve):
    """The same server by both orders; with one request in flight there is none."""
    beside = Serving.of(engine="vllm")
    before = beside.fitted({"vllm.prefill_first": 1.0})
    assert serve(before)[0] > serve(beside)[0]
    assert serve(before, batch=1.0) == pytest.approx(serve(beside, batch=1.0), rel=2e-3)


def test_places_are_by_what_an_engine_reserves(x64, serve):
    plain = Serving.of(engine="vllm")
    half, whole = (plain.fitted({"vllm.held_output": x}) for x in (0.5, 1.0))
    ratio = serve(half)[2] / serve(whole)[2]
    # of a last page of 16 tokens a request wastes half; it has 15 bytes for each of 151,936 logits,
    # and of 94 layers keeps one head of 128 keys and values in 2 bytes on a chip
    logits = 15 * 151936 / (94 * 2 * 128 * 2)
    assert ratio == pytest.approx((4096 + 512 + 8 + logits) / (4096 + 256 + 8 + logits), rel=1e-9)


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


def test_expert_parallel_ranks_add_launches_where_attention_is_tensor_parallel(x64):
    """By hand, 58 mixtures of 8 bits on 8 ranks: k_R (1 - 1 / 8) tau_L each; with slopes."""
    seen, hardware = shape(ij.load_model("deepseek-r1").architecture), ij.load_system("h200_sxm")

    @jax.jit
    def gaps(kernels, ranks, groups):
        model = Serving.of(engine="trtllm")
        model = model.replace(trtllm=model.trtllm.replace(rank_kernels=kernels))
        plan = Deployment.of(tp=8).replace(ep=ranks, attention_dp=groups)
        return pass_terms.gaps(model.context(seen, hardware.hardware, plan))

    one = np.asarray(1.0)
    slope = jax.grad(gaps, argnums=(0, 1))
    tau = float(Serving.of().trtllm.layer_gap) * 58.0
    assert float(gaps(0.7, 8.0 * one, one) - gaps(0.7, one, one)) == pytest.approx(
        0.7 * 7 / 8 * tau, rel=1e-9
    )
    by_kernels, by_ranks = slope(0.7, 8.0 * one, one)
    assert float(by_kernels) == pytest.approx(7 / 8 * tau, rel=1e-9)
    assert float(by_ranks) == pytest.approx(0.7 / 64 * tau, rel=1e-9)
    assert [float(x) for x in slope(0.7, 8.0 * one, 8.0 * one)] == [0.0, 0.0]
