"""A request's life on a loaded server: finite everywhere, monotone, and sound where plans go on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.errors import InputError
from infer_jax.estimators import Speculative, make
from infer_jax.estimators.serving import Deployment, Serving, ServingWorkload, pass_terms, shape
from infer_jax.estimators.serving.loads import group_of
from infer_jax.estimators.serving.server_estimate import RequestTokens
from infer_jax.physics import scheduling
from infer_jax.specs import Arrivals, ForwardPass, Host, Plan, Workload, leaves
from tests.contract.cases import dense, mixture, nodes
from tests.unit.estimators.compiled import estimate, quickly, step
from tests.unit.physics.derivatives import agree_at, numbers

HARDWARE = nodes().with_(power=700.0)


def plan(**changes):
    return Deployment.of(**{"tp": 2, "attention_dp": 4, "ep": 4, "pp": 1, **changes})


def asked(**changes):
    return ServingWorkload.of(**{"isl": 3000, "osl": 400, "batch": 50, **changes})


@quickly
def many(serving, arch, hardware, workloads, layouts):
    """Workloads and plans row by row."""
    one = serving.estimate
    return jax.vmap(one, in_axes=(None, None, 0, 0))(arch, hardware, workloads, layouts)


ROWS = 25  # of every call: one program for all


def stacked(trees):
    return jax.tree.map(lambda *x: np.stack([np.asarray(v, np.float64) for v in x]), *trees)


def served(cases, serving=None):
    """The estimates of (workload, plan) pairs on one mixture."""
    works, layouts = zip(*cases, *cases[-1:] * (ROWS - len(cases)), strict=True)
    life = many(serving or Serving.of(), mixture(), HARDWARE, stacked(works), stacked(layouts))
    return jax.tree.map(lambda x: x[: len(cases)], life)


def logs(everything):
    estimator, *asked = everything
    life = estimator.estimate(*asked)
    times = life.ttft, life.ttft_median, life.tpot
    return jnp.log(jnp.stack([*times, life.throughput, life.energy, life.cost]))


found, jacobian = quickly(logs), quickly(jax.jacrev(logs))


@pytest.mark.parametrize(
    "work",
    [
        asked(prefix=700, from_host=0.3, common=0.5),
        asked(batch=1, isl=1, osl=1),
        asked(batch=1e6),
        asked(fixed=1, nominal=1, batch=2.0),
        asked(waves=1.5),
        asked(batch=1, isl=1, osl=1, waves=2),
    ],
    ids=["ordinary", "least", "crowded", "fixed", "benchmark", "one request"],
)
def test_gradients_are_finite_and_true(work):
    host = Host.of(memory=1e12, link_bandwidth=5e10, disk=1e13, disk_read=5e9)
    hardware = HARDWARE.replace(host=host)
    everything = (Serving.of(), mixture(), hardware, work, plan(drafts=2.0, chunk=900.0))
    slopes = jacobian(everything)
    flat, structure = jax.tree.flatten(everything)
    names = [(path, meta) for tree in everything for path, meta, _ in leaves(tree)]
    for (path, _), g in zip(names, jax.tree.leaves(slopes), strict=True):
        assert np.all(np.isfinite(g)), path
    if work.batch != 50:
        return
    picked = ("weight_read", "vllm.layer_gap", "vllm.front", "acceptance", "isl", "batch", "tp")
    for i, (path, _) in enumerate(names):
        if path in picked:
            ends = []
            for factor in (1 + 1e-6, 1 - 1e-6):
                moved = [*flat[:i], np.asarray(flat[i] * factor), *flat[i + 1 :]]
                ends.append(np.asarray(found(jax.tree.unflatten(structure, moved))))
            expected = (ends[0] - ends[1]) / 2e-6
            ours = np.asarray(jax.tree.leaves(slopes)[i]) * flat[i]
            np.testing.assert_allclose(ours, expected, rtol=2e-5, atol=2e-6, err_msg=path)


def test_more_requests_in_flight_are_slower_and_not_less():
    """Times rise with concurrency, beyond memory too; throughput does not fall."""
    counts = np.geomspace(1, 3e4, ROWS)
    life = served([(asked(batch=n), plan()) for n in counts])
    # below one request a group they rest
    assert np.all(np.diff(life.ttft) > -1e-12) and life.ttft[-1] > 1e3 * life.ttft[0]
    assert np.all(np.diff(life.tpot) > -1e-12)
    assert np.all(np.diff(life.throughput) > -1e-9 * life.throughput[:-1])
    over = counts > np.asarray(life.places)
    assert over.any() and np.all(np.asarray(life.feasible) == ~over)
    limit = life.decode.limits["requests"]
    np.testing.assert_allclose(limit.need - limit.capacity, counts - life.places)


def test_chunks_prefixes_pages_and_stages():
    base, cached = {"batch": 2000.0}, {"batch": 2000.0, "prefix": 2000.0}
    each = {
        "base": (base, {}), "chunk": (base, {"chunk": 512.0}), "prefix": (cached, {}),
        "common": ({**cached, "common": 1.0}, {}), "host": ({**cached, "from_host": 0.5}, {}),
        "block": (base, {"block": 256.0}), "slots": (base, {"max_sequences": 3.0}),
        "stages": (base, {"pp": 2.0}),
    }  # fmt: skip
    cases = [(asked(**work), plan(**split)) for work, split in each.values()]
    life = served(cases)
    at = {n: jax.tree.map(lambda x, i=i: x[i], life) for i, n in enumerate(each)}
    # chunks launch more often and read the weights again; their activations leave more room
    begun = {name: life.ttft - life.prefill.terms["queue"] for name, life in at.items()}
    assert begun["chunk"] > begun["base"]
    assert at["chunk"].places > at["base"].places
    # where launches do not grow with a prompt, nor does a request get shorter by cutting it
    flat = served(cases, Serving.of().with_(eager_growth=0.0)).latency
    assert flat[1] > flat[0]
    # a cached prefix is not computed; held once, it leaves room
    assert at["prefix"].ttft < at["base"].ttft
    np.testing.assert_allclose(at["prefix"].places, at["base"].places, rtol=1e-12)
    assert at["common"].places > 1.5 * at["prefix"].places
    # an absent host is slow, finite and refused
    assert at["host"].prefill.terms["fetch"] > 1.0 and not at["host"].feasible
    assert at["block"].places < at["base"].places
    np.testing.assert_allclose(at["slots"].places, 12.0)
    # two stages hold half the weights each
    assert at["stages"].places > at["base"].places and at["stages"].chips == 16


def test_the_last_stage_of_a_pipeline_has_the_head_and_all_others_wait_for_it():
    """A cycle of four micro-batches has the last stage four times, and with it the head."""
    eight = jnp.asarray(8.0)
    one, four = (
        pass_terms.head(Serving.of().context(shape(dense()), HARDWARE, plan(pp=n)), eight, 1.0)
        for n in (1.0, 4.0)
    )
    np.testing.assert_allclose(four.time, 4.0 * one.time, rtol=1e-12)
    assert one.time > 0.0


def test_what_complete_counts():
    """Each law that is left out of the fitted form adds work."""
    case = [(asked(), plan())]
    fitted, complete = served(case), served(case, Serving.complete())
    assert complete.decode.terms["attention"] > fitted.decode.terms["attention"]  # the indexer
    assert complete.decode.terms["router"] > 0 and "router" not in fitted.decode.terms
    assert complete.prefill.terms["head"] > 0 == fitted.prefill.terms["head"]
    even = served(case, Serving.of().with_(skew=0.0))
    assert fitted.decode.terms["feedforward"] < even.decode.terms["feedforward"]
    crowded = served(case, Serving.of().with_(imbalance=1.0))
    assert crowded.prefill.terms["feedforward"] > fitted.prefill.terms["feedforward"]
    idle = served(case, Serving.of().with_(idle_slots=0.3))
    assert idle.decode.terms["feedforward"] < fitted.decode.terms["feedforward"]


def test_a_plain_plan_and_workload_are_understood():
    """tp x ep chips, attention in ep groups; true means of requests that differ."""
    work = Workload.of(isl=900, osl=90, batch=7)
    ours = estimate(Serving.of(), mixture(), HARDWARE, work, Plan.of(tp=2, ep=4))
    work = ServingWorkload.of(isl=900, osl=90, batch=7)
    np.testing.assert_allclose(ours.ttft, served([(work, plan())]).ttft, rtol=1e-12)
    assert ours.chips == 8


def test_coefficients_by_name():
    model = make("serving", {"serving": {"generation": 1.0}})
    assert isinstance(model, Serving) and float(model.generation) == 1.0
    assert float(Serving.of().fitted({"vllm.layer_gap": 1e-5}).vllm.layer_gap) == 1e-5
    with pytest.raises(InputError, match=r"coefficient is 'nobody.gap'"):
        Serving.of().fitted({"nobody.gap": 1.0})
    with pytest.raises(InputError, match=r"engine is 'orca'; allowed: 0 \(trtllm\) or"):
        Serving.of(engine="orca")


RATES = np.array([1e-6, 0.25, 0.5, 1.5, 3.0, 500.0])  # as many as layouts below: one program


def at_four_ranks(serving, loads):
    works = stacked([asked(isl=600.0, osl=50.0, **load) for load in loads])
    layouts = stacked([Deployment.of(tp=4.0)] * len(loads))
    return many(serving, dense(), HARDWARE, works, layouts)


def arrivals(serving):
    return at_four_ranks(serving, [{"arrivals": Arrivals.of(rate=rate)} for rate in RATES])


def test_arrivals_wait_more_the_more_come():
    """An open loop: percentiles in order, rising with the rate; refused beyond capacity."""
    rates, life = RATES, arrivals(Serving.of())
    assert np.all([np.all(np.isfinite(x)) for x in jax.tree.leaves(life)])
    assert np.all(np.diff(life.ttft) > 0) and np.all(np.diff(life.tpot) > 0)
    p50, p90, p95, p99 = (life.percentiles[n] for n in ("p50", "p90", "p95", "p99"))
    assert np.all((p50 < p90) & (p90 < p95) & (p95 < p99)) and np.array_equal(life.ttft_median, p50)
    assert list(np.asarray(life.feasible)) == [True] * 5 + [False]
    done = np.minimum(rates, life.decode.limits["arrivals"].capacity)
    assert list(done < rates) == [False] * 5 + [True]
    np.testing.assert_allclose(life.throughput * 4, done * 50.0, rtol=1e-9)
    # nearly idle: one request alone, the prompt and what comes before it
    alone = jax.tree.map(lambda x: x[0], at_four_ranks(Serving.of(), len(RATES) * [{"batch": 1.0}]))
    assert life.tpot[0] == pytest.approx(float(alone.tpot), rel=1e-3)
    waits = [life.prefill.terms[n][0] for n in ("other prefills", "queue")]
    assert sum(waits) < 1e-4 * life.ttft[0]
    assert sum(life.prefill.terms.values()) == pytest.approx(life.ttft)
    # where the time of a prompt goes is said as of one in flight, besides what decodes take of it
    passes = {n: float(x) for n, x in alone.prefill.terms.items() if n in ("launch", "head")}
    assert {n: life.prefill.terms[n][0] for n in passes} == pytest.approx(passes, rel=0.02)
    assert np.all(life.prefill.terms["beside decodes"] >= 0.0)


def test_an_idle_server_answers_as_soon_to_arrivals_as_to_one_in_flight():
    """Through all stages of a pipeline, and in passes that verify drafts."""
    layouts = [Deployment.of(tp=2.0, pp=pp, drafts=n) for pp in (1.0, 2.0, 4.0) for n in (0, 3)]
    arriving, alone = (
        many(serving, dense(), HARDWARE, stacked([work] * len(layouts)), stacked(layouts))
        for serving in [Serving.of(acceptance=0.7)]
        for work in (asked(arrivals=Arrivals.of(rate=1e-6)), asked(batch=1.0))
    )
    np.testing.assert_allclose(arriving.ttft, alone.ttft, rtol=2e-3)
    np.testing.assert_allclose(arriving.tpot, alone.tpot, rtol=1e-3)


def test_prompts_wait_for_other_groups_in_passes_of_one_stage():
    """Rare prompts half the timeout of 60 passes, of which a step of two stages has two."""
    long = {"osl": 20_000.0, "batch": 80.0}
    for work in (asked(**long), asked(**long, arrivals=Arrivals.of(rate=0.1))):
        cases = [(work, plan(pp=pp, balance_timeout=wait)) for pp in (1, 2) for wait in (0.0, 60.0)]
        life = served(cases, Serving.sglang_engine())
        admission = np.reshape(life.prefill.terms["admission"], (2, 2))
        steps = np.diff(admission, axis=1)[:, 0] / np.reshape(life.tpot, (2, 2))[:, 1]
        np.testing.assert_allclose(steps, [30.0, 15.0], rtol=0.1)


@pytest.mark.parametrize("pp", [1.0, 4.0])
def test_a_closed_loop_is_that_of_the_laws_of_batching(x64, pp):
    """Two ways to one number: the estimator's mean over requests, and the law counted in steps."""
    bare = Serving.of().fitted({"vllm.front": 0.0, "vllm.ahead": 0.0, "vllm.phase": 0.0})
    layout, seen = Deployment.of(tp=1, pp=pp, chunk=8192.0), shape(dense())

    @quickly
    def both(batch, isl):
        work = asked(osl=400).replace(batch=batch, isl=isl)
        ctx = bare.context(seen, HARDWARE, layout)
        group = group_of(ctx, work, RequestTokens.of(ctx, work))
        apart = jnp.zeros_like(batch)  # none in lockstep
        law = scheduling.closed_loop(group.step, group.kinds, group.server, batch, apart)
        life = bare.estimate_shape(seen, HARDWARE, work, layout)
        return life.ttft, law.ttft, life.tpot, law.tpot

    for batch, isl in ((4.0, 1000.0), (16.0, 4000.0), (64.0, 1000.0)):
        ttft, ttft_of_law, tpot, tpot_of_law = map(float, both(*numbers(batch, isl)))
        assert ttft == pytest.approx(ttft_of_law, rel=0.01)
        assert tpot == pytest.approx(tpot_of_law, rel=0.01)


def test_an_offset_of_decoding_is_none_of_the_prompt():
    """Of a calibrated server: a request alone prefills as fast, whatever its decode steps take."""
    plain, slower = (arrivals(Serving.of(decode_factor=factor)) for factor in (1.0, 1.5))
    waits = ("admission", "other prefills", "queue")
    first, later = (
        sum(float(x[0]) for name, x in life.prefill.terms.items() if name not in waits)
        for life in (plain, slower)
    )
    assert later == pytest.approx(first, rel=1e-3)
    assert float(slower.tpot[0]) == pytest.approx(1.5 * float(plain.tpot[0]), rel=1e-3)


def test_the_wait_for_the_running_pass_goes_by_the_phase_of_the_engine():
    """At rates where a pass runs at nearly every arrival: none, half and all of it to come."""
    none, half, all_of_it = (
        float(arrivals(Serving.of().fitted({"vllm.phase": x})).prefill.terms["admission"][4])
        for x in (0.0, 0.5, 1.0)
    )
    assert none < half and all_of_it - half == pytest.approx(half - none, rel=1e-6)


@pytest.mark.slow
def test_a_token_with_drafts_is_that_of_the_wrapper(x64):
    """Two ways to one number: the passes of serving, and ``Speculative`` around its steps.

    They differ in what drafts add to attention and, for every token, to the host: a few percent.
    """
    serving, layout = Serving.of(acceptance=0.7), Deployment.of(tp=2)
    forward = ForwardPass.of(sequences=12, new_tokens=1, cached_tokens=2000)
    wrapper, token = Speculative.bonus(serving, dense(), 0.7), jax.jit(Serving.token)
    for drafts in (1, 3, 5):
        asked_of = (HARDWARE, forward, layout.with_(drafts=drafts), shape(dense()))
        ours = token(serving, shape(mixture()), *asked_of)
        theirs = step(wrapper.always(drafts), mixture(), HARDWARE, forward, layout)
        assert float(ours.time) == pytest.approx(float(theirs.time), rel=0.05)
        assert sum(map(float, ours.terms.values())) == pytest.approx(float(ours.time), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [None, 2.0], ids=["closed", "open"])
def test_a_draft_model_costs_memory_prefills_and_passes(x64, rate):
    serving = Serving.of(acceptance=0.8)
    work = asked(arrivals=None if rate is None else Arrivals.of(rate=rate))

    @jax.jit
    def serve(drafts, count):
        seen = shape(dense())
        tables = jax.tree.map(lambda x: x * count, seen.tables)
        layers = seen.layers._replace(count=seen.layers.count * count)
        draft = seen._replace(layers=layers, tables=tables)
        layout = plan().replace(drafts=drafts)
        return serving.estimate_shape(shape(mixture()), HARDWARE, work, layout, draft)

    none = estimate(serving, mixture(), HARDWARE, work, plan())
    off = serve(*numbers(0.0, 1.0))
    assert float(off.tpot) == pytest.approx(float(none.tpot), rel=1e-9)
    assert float(off.ttft) == pytest.approx(float(none.ttft), rel=1e-9)
    one, twice = (serve(*numbers(3.0, count)) for count in (1.0, 2.0))
    assert float(twice.tpot) > float(one.tpot) and float(twice.ttft) > float(one.ttft)
    needs = [float(x.memory["weights"]) for x in (off, one, twice)]
    assert needs[2] - needs[1] == pytest.approx(needs[1] - needs[0], rel=1e-6)

    if rate is None:
        agree_at(lambda *x: jnp.log(serve(*x).tpot), numbers(2.5, 1.5))
