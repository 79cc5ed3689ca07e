"""Pools for prefill and decode, and for attention and feedforward, over any estimator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.estimators import Economics
from infer_jax.estimators.attention_feedforward import AttentionFeedforward, Halves
from infer_jax.estimators.disaggregated import OUTSIDE, Disaggregated, Pools
from infer_jax.estimators.serving import Deployment, Serving
from infer_jax.specs import Arrivals, ForwardPass, Hardware, Hierarchy, Plan, Workload
from tests.contract.cases import dense, mixture, nodes


@jax.jit
def estimate(wrapper, arch, hardware, workload, plan):
    return wrapper.estimate(arch, hardware, workload, plan)


@jax.jit
def step(estimator, arch, hardware, forward, plan):
    return estimator.step(arch, hardware, forward, plan)


WORK = Workload.of(isl=3000, osl=300, batch=40)


def pools(**changes):
    one = Plan.of(tp=4)
    return Pools.of(**{"prefill": one, "decode": one, "prefill_copies": 2, **changes})


def life(wrapper=None, work=WORK, plan=None, hardware=None):
    built = wrapper or Disaggregated.of(target=Economics.as_planned())
    return estimate(built, dense(), hardware or nodes(), work, plan or pools())


def test_the_slower_pool_sets_the_rate():
    base = life()
    more_prefill, more_decode = (
        life(plan=pools(prefill_copies=9)),
        life(plan=pools(decode_copies=9)),
    )
    rates = [float(e.throughput * e.chips / 300) for e in (base, more_prefill, more_decode)]
    assert max(rates) > rates[0] == min(rates)
    # the pool that bounds, by hand
    forward = ForwardPass.of(sequences=1, new_tokens=3000)
    alone = step(Economics.as_planned(), dense(), nodes(), forward, Plan.of(tp=4))
    outside = sum(float(base.prefill.terms[name]) for name in OUTSIDE)
    assert float(base.ttft) - outside == pytest.approx(float(alone.time), rel=1e-5)
    token = ForwardPass.of(sequences=40, cached_tokens=3000 + 299 / 2)
    decode = step(Economics.as_planned(), dense(), nodes(), token, Plan.of(tp=4))
    least = min(2 * 0.9 / float(alone.time), 0.92 * 40 / float(decode.time) / 299)
    assert rates[0] == pytest.approx(least, rel=1e-9)
    np.testing.assert_allclose(base.tpot, decode.time, rtol=1e-12)


def test_the_cache_crosses_the_real_link():
    inside = life(plan=pools(prefill_copies=1))  # 8 chips: one domain
    outside = life(plan=pools(prefill_copies=2))  # 12 chips: two
    whole = life(Disaggregated.of(target=Economics.as_planned(), layered=0))
    sent = 31 * 2 * 8 * 128 * 2 * 3000  # layers, K and V, heads, width, bytes, tokens
    np.testing.assert_allclose(whole.prefill.terms["transfer"], sent / (4 * 0.8 * 5e10), rtol=1e-9)
    assert outside.prefill.terms["transfer"] > inside.prefill.terms["transfer"] > 0
    assert outside.prefill.terms["transfer"] < whole.prefill.terms["transfer"]


@jax.jit
def loop(wrapper, arch, hardware, workload, plan):
    decoding = wrapper.decoding(arch, hardware, workload, plan)
    asked = workload.replace(batch=decoding)
    return decoding, wrapper.estimate(arch, hardware, asked, plan)


def test_in_a_closed_loop_prompts_wait_for_a_prefill_worker(x64):
    """By Little: where prefill is the slower pool it is full, and the others wait for it."""
    built = Disaggregated.of(target=Economics.as_planned())
    for copies, load in ((8, 40), (1, 40), (1, 400)):
        work = WORK.replace(batch=jnp.asarray(1.0 * load))
        decoding, result = loop(built, dense(), nodes(), work, pools(prefill_copies=copies))
        terms = {name: float(x) for name, x in result.prefill.terms.items()}
        alone = float(result.ttft) - terms["queue"]
        work_of_prefill = alone - sum(terms[x] for x in ("front", "transfer", "hand-over"))
        rate = float(decoding) / (299 * float(result.tpot))
        assert rate * work_of_prefill / copies < 1.0 + 1.0 / load
        if copies == 8:  # nearly all decode, and a prompt seldom waits
            assert terms["queue"] < 0.1 * alone and float(decoding) > 0.9 * load
        if load == 400:
            assert rate * work_of_prefill == pytest.approx(1.0, rel=0.01)
            assert float(decoding) < 0.5 * load
            wait = (load - float(decoding)) / rate - alone  # what Little's law leaves
            assert wait > 50 * work_of_prefill


def test_seconds_of_router_and_hand_over_are_in_the_first_token():
    base, slow = (life(Disaggregated.of(target=Economics.as_planned(), handover=h, router=h / 2))
                  for h in (0.0, 0.1))  # fmt: skip
    terms = slow.prefill.terms
    assert float(terms["hand-over"]) == pytest.approx(0.1)
    assert float(slow.ttft) > float(base.ttft) + 0.15 - 1e-3
    assert float(slow.tpot) == float(base.tpot)


def test_arrivals_wait_and_are_refused_beyond_capacity():
    waits = []
    for rate in (0.1, 5.0, 20.0, 1e5):
        open_loop = WORK.replace(arrivals=Arrivals.of(rate=rate))
        answer = life(work=open_loop)
        assert np.all([np.isfinite(x) for x in jax.tree.leaves(answer)])
        waits.append(float(answer.prefill.terms["queue"]))
    assert waits == sorted(waits) and waits[0] < waits[1]
    assert not answer.feasible
    assert answer.prefill.limits["arrivals"].shortfall > 0


def test_pools_may_differ_in_hardware_and_estimator():
    slow = nodes()
    slow = Hardware.of(
        chip=slow.chip.with_(memory_bandwidth=1e12),
        network=Hierarchy.of(domain=1, domain_bandwidth=1e10, network_bandwidth=1e10),
        price=1.0,
    )
    target = Economics.as_planned()
    mixed = life(Disaggregated.of(target=target, decode_hardware=slow, decoder=target))
    base = life()
    assert mixed.tpot > 2 * base.tpot and mixed.cost < base.cost * mixed.tpot / base.tpot
    assert mixed.prefill.terms["transfer"] > base.prefill.terms["transfer"]


def test_gradients_are_finite_below_and_beyond_capacity():
    def logs(everything):
        built, hardware, work, plan = everything
        answer = built.estimate(dense(), hardware, work, plan)
        return jnp.log(answer.ttft * answer.tpot * answer.throughput * answer.cost)

    slope = jax.jit(jax.grad(logs))
    built = Disaggregated.of(target=Economics.as_planned())
    for rate in (1.0, 1e5):
        work = WORK.replace(arrivals=Arrivals.of(rate=rate))
        result = slope((built, nodes(), work, pools()))
        assert np.all([np.isfinite(g) for g in jax.tree.leaves(result)])


def halves(**changes):
    plan = Deployment.of(tp=1, attention_dp=8)
    given = {"attention": plan, "feedforward": plan.with_(ep=8), "attention_copies": 2}
    return Halves.of(**{**given, **changes})


def test_layers_cut_in_two_take_as_long_as_their_longest_part():
    wrapper = AttentionFeedforward.of(target=Serving.roofline())
    forward = ForwardPass.of(sequences=600, cached_tokens=4000)
    many, one, two = (
        step(wrapper, mixture(), nodes(), forward, halves(micro_batches=m)) for m in (6, 1, 2)
    )
    assert float(many.time) == pytest.approx(max(float(x) for x in many.terms.values()), rel=1e-9)
    np.testing.assert_allclose(sum(one.terms.values()), one.time, rtol=1e-9)  # nothing overlaps
    assert two.time < one.time
    # all of the cache is on the attending side, all of the experts on the other
    small = step(wrapper, mixture(), nodes(), forward.with_(cached_tokens=0), halves())
    large = step(wrapper, mixture(), nodes(), forward, halves())
    for name, grows in (("attention memory", True), ("feedforward memory", False)):
        assert bool(large.limits[name].need > small.limits[name].need) == grows
    cache = large.limits["attention memory"].need - small.limits["attention memory"].need
    each = 32 * (576 * 2) + 29 * 128 * 2  # latent and rotary key; index keys of the sparse layers
    np.testing.assert_allclose(cache, 600 / 8 * 4000 * each, rtol=1e-9)


def test_gradients_of_split_layers_are_finite():
    def log_time(everything):
        wrapper, hardware, forward, plan = everything
        return jnp.log(wrapper.step(mixture(), hardware, forward, plan).time)

    forward = ForwardPass.of(sequences=600, cached_tokens=4000)
    wrapper = AttentionFeedforward.of(target=Serving.of())
    result = jax.jit(jax.grad(log_time))((wrapper, nodes(), forward, halves()))
    assert np.all([np.isfinite(g) for g in jax.tree.leaves(result)])
