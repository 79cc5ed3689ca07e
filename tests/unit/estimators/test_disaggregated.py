"""Pools for prefill and decode, and for attention and feedforward, over any estimator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.estimators import Economics
from infer_jax.estimators.attention_feedforward import AttentionFeedforward, Halves
from infer_jax.estimators.disaggregated import OUTSIDE, Disaggregated, Pools
from infer_jax.estimators.serving import Deployment, Serving, ServingWorkload
from infer_jax.specs import Arrivals, ForwardPass, Hardware, Hierarchy, Plan, Workload
from tests.contract.cases import dense, mixture, nodes
from tests.unit.estimators.compiled import estimate, quickly, step

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


@quickly
def loop(wrapper, arch, hardware, workload, plan):
    return wrapper.loop(arch, hardware, workload, plan)


def circulating(copies=1, load=40, target=None, work=WORK, **changes):
    """The closed loop with ``load`` requests in flight for its decode instance, and its parts."""
    built = Disaggregated.of(target=target or Economics.as_planned())
    plan = pools(prefill_copies=copies, **changes)
    result = loop(built, dense(), nodes(), work.replace(batch=jnp.asarray(1.0 * load)), plan)
    terms = {name: float(x) for name, x in result.prefill.terms.items()}
    rate = float(result.throughput * result.chips) / 300
    alone = float(result.ttft) - terms["queue"] - terms["first wave"]
    return result, terms, rate, alone


@pytest.mark.parametrize(("copies", "load"), [(8, 40), (1, 40), (1, 400), (2, 0.5), (1, 1), (1, 7)])
def test_requests_in_flight_are_rate_times_cycle(copies, load, x64):
    """Little's law holds to the last digits, wherever the requests are."""
    result, terms, rate, _ = circulating(copies, load)
    assert rate * (float(result.ttft) + 299 * float(result.tpot)) == pytest.approx(load, rel=1e-9)
    assert terms["queue"] >= 0.0 == terms["first wave"]


def test_prompts_wait_for_the_pool_that_cannot_feed_more(x64):
    """Far from full nobody waits; a full prefill pool sets the rate, and the rest waits for it."""
    result, terms, rate, alone = circulating(copies=64)
    assert terms["queue"] < 0.01 * alone
    assert rate == pytest.approx(40 / (alone + 299 * float(result.tpot)), rel=1e-3)
    result, terms, rate, alone = circulating(load=400)
    outside = sum(terms[x] for x in OUTSIDE)
    served = float(result.ttft) - outside
    assert rate == pytest.approx(0.9 / served, rel=2e-3)
    decoding = rate * 299 * float(result.tpot)
    assert decoding < 0.5 * 400 and terms["queue"] == pytest.approx((400 - decoding) / rate - alone)
    token = ForwardPass.of(sequences=decoding, cached_tokens=3000 + 299 / 2)
    alone = step(Economics.as_planned(), dense(), nodes(), token, Plan.of(tp=4))
    assert float(result.tpot) == pytest.approx(float(alone.time), rel=1e-6)


def test_prompts_that_wait_share_a_pass(x64):
    """A full prefill pool feeds four at once; a prompt that waits for none has a pass alone."""
    built, work = Disaggregated.of(target=Economics.as_planned()), WORK.with_(isl=30.0)

    def circle(together, load):
        plan = pools(prefill_copies=1, decode_copies=50, full_batch=together)
        return loop(built, dense(), nodes(), work.with_(batch=load), plan)

    forward = ForwardPass.of(sequences=4, new_tokens=30)
    passed = float(step(built.target, dense(), nodes(), forward, Plan.of(tp=4)).time)
    four, one = circle(4.0, 400.0), circle(1.0, 400.0)
    assert float(four.throughput * four.chips) / 300 == pytest.approx(3.6 / passed, rel=2e-3)
    assert float(four.throughput) > 2.0 * float(one.throughput)
    alone, together = (float(circle(n, 0.02).ttft) for n in (1.0, 4.0))
    assert together == pytest.approx(alone, rel=1e-3)


def test_the_rest_waits_for_places_in_the_decode_pool(x64):
    """An instance that runs 16 at once decodes 16: they are the bottleneck of the cycle."""
    full = Deployment.of(tp=4, max_sequences=16)
    parts = {"prefill": Deployment.of(tp=4), "decode": full}
    result, terms, rate, alone = circulating(copies=8, load=60, target=Serving.of(), **parts)  # pyright: ignore[reportArgumentType]
    assert rate == pytest.approx(16 / (299 * float(result.tpot)), rel=1e-9)
    assert terms["queue"] == pytest.approx(44 / rate - alone, rel=1e-9)


def test_the_start_of_a_benchmark_waits_for_half_of_the_others(x64):
    """A tenth of ten waves: longer than in the loop below capacity, shorter beyond it."""
    for load, longer in ((40, True), (4000, False)):
        ten = ServingWorkload.of(isl=3000, osl=300, waves=10)
        _, steady, rate, _ = circulating(load=load)
        result, terms, slower, _ = circulating(load=load, work=ten)
        service = float(result.ttft) - sum(terms[x] for x in OUTSIDE)
        first = (load - 1) * service / 0.9 / 2
        assert terms["queue"] == pytest.approx(steady["queue"], rel=1e-9)
        assert terms["first wave"] == pytest.approx((first - terms["queue"]) / 10, rel=1e-9)
        assert (terms["first wave"] > 0.0) == longer
        # half of the last wave starts as its prompts are fed, and half has no successors
        tpot, decoding = float(result.tpot), rate * 299 * float(result.tpot)
        half = ForwardPass.of(sequences=decoding / 2, cached_tokens=3000 + 299 / 2)
        fewer = float(step(Economics.as_planned(), dense(), nodes(), half, Plan.of(tp=4)).time)
        cycle = float(result.ttft) - terms["queue"] - terms["first wave"] + 299 * tpot
        beyond = (min(load * service / 0.9, cycle) + cycle) / 2 * (2 * fewer / tpot - 1) / 10
        assert slower == pytest.approx(load / (load / rate + beyond), rel=1e-6)


def test_gradients_of_a_loop_are_finite_and_those_of_differences(x64):
    def ttft(load, copies, handover):
        built = Disaggregated.of(target=Economics.as_planned()).replace(handover=handover)
        plan = pools().replace(prefill_copies=copies)
        return built.loop(dense(), nodes(), WORK.replace(batch=load), plan).ttft

    law = quickly(jax.vmap(jax.value_and_grad(ttft, (0, 1, 2))))
    points = np.array([(30.0, 2.0, 0.07), (900.0, 2.0, 0.07), (6.0, 3.0, 0.0)])
    ends = np.array([(1.0, 1.0, 0.07), (0.01, 1.0, 0.0), (1e6, 1.0, 0.07)])
    aside = points[:, None] + 1e-4 * np.concatenate([np.eye(3), -np.eye(3)])
    values, slopes = law(*np.concatenate([points, ends, aside.reshape(-1, 3)]).T)
    assert np.all(np.isfinite(slopes))
    above, below = np.split(np.reshape(values[6:], (3, 6)), 2, axis=1)
    found = np.stack(slopes, axis=1)[:3]
    np.testing.assert_allclose(found, (above - below) / 2e-4, rtol=1e-3, atol=1e-6)


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

    slope = quickly(jax.grad(logs))
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
    slope = quickly(jax.grad(log_time))
    result = slope((wrapper, nodes(), forward, halves()))
    assert np.all([np.isfinite(g) for g in jax.tree.leaves(result)])
