"""The laws that serving adds: each against a sum, a simulation, or a hand's or published figure."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import infer_jax as ij
from infer_jax.estimators.serving import Deployment
from infer_jax.physics import cost, pipelining, routing
from infer_jax.physics.attention import causal_pairs
from infer_jax.physics.feedforward import visited_share
from infer_jax.physics.network import dispatch, switch_collectives
from infer_jax.physics.network.switch_collectives import Wire
from infer_jax.physics.pipelining import longest
from infer_jax.physics.scheduling import interference
from infer_jax.physics.speculation import acceptance_rate

from .derivatives import agree_at, finite_at


def arrays(*values):
    return tuple(jnp.asarray(v if isinstance(v, bool) else float(v)) for v in values)


@pytest.mark.parametrize(("new", "cached", "most"), [(100, 0, 2**40), (100, 30, 64), (50, 90, 64)])
def test_seen_is_the_integral_of_what_each_token_sees(new, cached, most):
    steps = (np.arange(100_000) + 0.5) / 100_000 * new
    expected = np.mean(np.minimum(cached + steps, most)) * new
    got = causal_pairs.attended_pairs(*arrays(new, cached, most))
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    loose = causal_pairs.mean_attended_pairs(*arrays(new, cached, most))
    assert got - 1e-9 <= loose <= got + most**2 / 2


@pytest.mark.usefixtures("x64")
def test_experts_visited_are_the_sum_over_their_ranks():
    experts, active = 512, 8
    for tokens in (1.0, 10.0, 300.0):
        even = visited_share(*arrays(experts / active, tokens))
        np.testing.assert_allclose(
            routing.visited_share(*arrays(experts / active, tokens, 0.0)), even, rtol=1e-12
        )
        for skew in (0.3, 0.7):
            rank = (np.arange(experts) + 0.5) / experts
            popular = np.minimum(active / experts * (1 - skew) * rank**-skew, routing.CROWDED)
            expected = np.mean(1 - (1 - popular) ** tokens)
            got = routing.visited_share(*arrays(experts / active, tokens, skew))
            np.testing.assert_allclose(got, expected, rtol=0.02)  # a continuum of ranks
            assert got < even * (1 + 1e-9)
    assert float(routing.visited_share(*arrays(1, 5, 0.5))) == 1.0
    assert float(routing.visited_share(*arrays(4, 0, 0.5))) == 0.0
    finite_at(routing.visited_share, (1, 5, 0.5), (4, 0, 0.5), (4, 1e9, 0.0), (4, 5, 0.95))
    assert float(visited_share(*arrays(4, 1))) == pytest.approx(0.25)


@pytest.mark.usefixtures("x64")
def test_the_spread_of_popularity_is_that_of_the_power_of_the_rank():
    first = 1.0 / 512
    rank = np.exp(np.linspace(np.log(first), 0.0, 200_001))
    spread = jax.jit(routing.popularity_spread)
    for skew in (0.1, 0.499, 0.5, 0.501, 0.9):
        moments = [np.trapezoid(rank ** (-k * skew), rank) / (1.0 - first) for k in (1, 2)]
        expected = np.sqrt(moments[1] / moments[0] ** 2 - 1.0)
        assert float(spread(*arrays(256, skew))) == pytest.approx(expected, rel=1e-6)
    agree_at(spread, *((256, x) for x in (0.1, 0.499, 0.5, 0.501, 0.9)), tolerance=1e-4)
    assert float(spread(*arrays(256, 0.0))) == 0.0
    finite_at(spread, (256, 0.0), (1, 0.0), (1, 0.5), (0, 0.5), (1e12, 0.95))


def test_the_busiest_of_many_random_loads():
    rng = np.random.default_rng(3)
    for places, mean in ((8, 200.0), (64, 50.0)):
        drawn = rng.poisson(mean, (4000, places)).max(axis=1).mean() / mean
        got = float(routing.busiest(*arrays(mean, places, 1.0, 0.0)))
        assert 0.0 < got - drawn < 0.12 * got  # the usual bound from above
    finite_at(routing.busiest, (0, 1, 1, 1), (0, 8, 0, 0), (1e12, 8, 0, 0.3))


def test_the_busiest_rank_of_experts_dealt_at_random():
    """Of 128 and 256 experts, popular as rank^-s: right up to eight ranks, too little for 32."""
    rng = np.random.default_rng(4)
    for experts, skew in ((128, 0.5), (256, 0.72)):
        popular = (np.arange(experts) + 0.5) ** -skew
        popular = popular / popular.mean()
        dealt = rng.permuted(np.tile(popular, (2000, 1)), axis=1)
        spread = float(routing.popularity_spread(*arrays(experts, skew)))
        for places, most in ((2, 0.06), (4, 0.05), (8, 0.09)):
            drawn = dealt.reshape(2000, places, -1).mean(axis=2).max(axis=1).mean()
            uneven = spread * (places / experts) ** 0.5
            got = float(routing.busiest(*arrays(1e9, places, 1.0, uneven)))
            assert got == pytest.approx(drawn, rel=most)
        # one expert outweighs a rank; servers with as many ranks deal popular experts twice
        drawn = dealt.reshape(2000, 32, -1).mean(axis=2).max(axis=1).mean()
        got = float(routing.busiest(*arrays(1e9, 32, 1.0, spread * (32 / experts) ** 0.5)))
        assert 1.0 < got < 0.9 * drawn


def wire(**changes):
    given = {"hop": 1e-6, "rate": 4e11, "one_shot": 4e6, "domain": 8.0, "beyond": 5e10, **changes}
    return switch_collectives.Wire(**{name: jnp.asarray(float(x)) for name, x in given.items()})


def test_all_reduce_in_one_shot_and_in_two():
    bare = wire(hop=0)
    small, large = arrays(1.0, 1e12)
    one = switch_collectives.all_reduce(jnp.asarray(8.0), small, bare)
    np.testing.assert_allclose(one, 7 / 4e11, rtol=1e-5)
    two = switch_collectives.all_reduce(jnp.asarray(8.0), large, bare)
    np.testing.assert_allclose(two, 2 * 7 / 8 * 1e12 / 4e11, rtol=1e-4)
    assert float(switch_collectives.all_reduce(jnp.asarray(1.0), large, wire())) == 0.0


@pytest.mark.usefixtures("x64")
def test_collectives_beyond_a_switch_continue_those_inside():
    size = jnp.asarray(1e8)
    for law in (
        lambda r: switch_collectives.all_reduce(r, size, wire()),
        lambda r: switch_collectives.exchange(r, jnp.asarray(4.0), size, wire()),
    ):
        inside, edge, outside = (float(law(jnp.asarray(r))) for r in (8.0, 8.0 + 1e-9, 16.0))
        assert edge == pytest.approx(inside, rel=1e-6) and outside > inside
    # two switches: half of the sum comes over the wider network, shared by the eight chips
    added = switch_collectives.all_reduce(
        jnp.asarray(16.0), size, wire(hop=0)
    ) - switch_collectives.all_reduce(jnp.asarray(8.0), size, wire(hop=0))
    np.testing.assert_allclose(added, 2 * 0.5 * 1e8 / 8 / 5e10, rtol=1e-6)
    to_all = switch_collectives.exchange(jnp.asarray(4.0), jnp.asarray(99.0), size, wire())
    np.testing.assert_allclose(to_all, 2e-6 + 3 * 1e8 / 4e11, rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_chips_with_a_link_for_each_other_use_those_among_them():
    """Seven links: two chips have one, four three, eight all; each carries a whole message once."""
    size, many = jnp.asarray(1e3), jnp.asarray(99.0)
    laws = (
        lambda ranks, over: switch_collectives.all_reduce(ranks, size, over),
        lambda ranks, over: switch_collectives.exchange(ranks, many, size, over),
    )
    mesh, switch = wire(hop=0, pair=1 / 7), wire(hop=0)
    for law in laws:
        for ranks in (2.0, 4.0, 8.0):
            got = law(jnp.asarray(ranks), mesh)
            np.testing.assert_allclose(got, 1e3 / (4e11 / 7), rtol=1e-3)
        np.testing.assert_allclose(law(jnp.asarray(8.0), switch), got, rtol=1e-12)
        for ranks in (1.0, 2.0, 4.0):
            slopes = jax.grad(law, argnums=1)(jnp.asarray(ranks), mesh)
            assert all(np.isfinite(x) for x in slopes)
        slope = jax.grad(law)(jnp.asarray(2.0), switch)
        ends = [float(law(jnp.asarray(2.0 + h), switch)) for h in (-1e-5, 1e-5)]
        assert float(slope) == pytest.approx((ends[1] - ends[0]) / 2e-5, rel=1e-4)
    got = switch_collectives.pair_share(ij.load_system("mi300x").hardware.network)
    assert float(got) == pytest.approx(1 / 7)
    assert float(switch_collectives.pair_share(ij.load_system("h100_sxm").hardware.network)) == 1.0


def beside(running, prompt, turns=127.0, budget=8192.0, equal=True):
    return interference.beside_decodes(*arrays(running, prompt, turns, budget, 1.0, equal))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("equal", [True, False])
def test_prompts_met_are_those_of_others(equal):
    """Alone none; never more than there are; more of them in larger groups of long prompts."""
    loads = np.array([1.0, 2.0, 8.0, 64.0, 500.0, 4000.0])
    for length in (10.0, 4000.0, 20000.0):
        result = [beside(n, length, equal=equal) for n in loads]
        met = np.array([float(x.prompts_met) for x in result])
        assert met[0] == pytest.approx(0.0, abs=1e-4 * 8192.0 / length)
        assert np.all(met <= loads - 1.0 + 1e-9)
        waits = np.array([float(x.waiting_passes) for x in result])
        assert waits[-1] > waits[0] - 1e-9 and np.all(np.isfinite(waits))
        assert all(0.0 < float(x.prompt_tokens) <= 8192.0 for x in result)


@pytest.mark.usefixtures("x64")
def test_an_arrival_finds_the_middle_of_a_longer_pass():
    """By hand: one pass in four takes 4 s, the others 1 s; drawn at random moments."""
    pool = (9.0, 0.25, 1.0, 3.0)
    wait, prompts = interference.admission_wait(*arrays(*pool, 0.5, 0.0, False))
    lengths = np.array([1.0, 1.0, 1.0, 4.0])
    assert float(wait) == pytest.approx(np.sum(lengths**2) / (2.0 * np.sum(lengths)))
    assert float(wait - prompts) == pytest.approx(0.5)
    ahead, _ = interference.admission_wait(*arrays(*pool, 0.5, 1.0, False))
    assert float(ahead - wait) == pytest.approx(lengths.mean())
    # in a convoy every pass before has a prompt, while there are others
    for running, full in ((9.0, 1.5), (2.0, 1.0), (1.0, 0.0)):
        each = arrays(running, 0.25, 1.0, 3.0, 0.5, 1.0, True)
        wait, prompts = interference.admission_wait(*each)
        assert float(prompts) == pytest.approx(3.0 * full)
        assert float(wait - prompts) == pytest.approx(1.5 if running > 1.0 else 0.0)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("moving", "computing"), [(1.0, 4.0), (6.0, 4.0), (0.0, 2.0)])
def test_exposed_is_what_a_pipeline_of_parts_leaves(moving, computing):
    parts = 20
    arrived = np.arange(1, parts + 1) * moving / parts
    clock = 0.0
    for when in arrived:  # a part is computed when it is there and the one before is done
        clock = max(clock, when) + computing / parts
    got = float(pipelining.exposed_time(*arrays(moving, computing, parts)))
    assert got == pytest.approx(clock - computing, abs=1e-12)


@pytest.mark.parametrize("batches", [1, 2, 3, 6])
def test_rounds_are_those_of_a_simulated_ring(batches):
    stages, rounds = (3.0, 0.5, 2.0, 0.5), 200
    free, ready = [0.0] * len(stages), [0.0] * batches
    for _ in range(rounds):
        for i, took in enumerate(stages):
            for b in range(batches):
                free[i] = ready[b] = max(free[i], ready[b]) + took
    got = float(pipelining.rounds(arrays(*stages), jnp.asarray(float(batches))))
    assert max(ready) / rounds == pytest.approx(got, rel=0.03)


SHARES = cost.Draw.of(idle=0.1, active=0.4, memory=0.8, compute=1.3)


def watts(busy, reading, computing, *, draw=SHARES):
    return cost.power(jnp.asarray(700.0), busy, reading, computing, draw)


def test_power_between_idle_and_board():
    # at rest, in a pass that only waits, reading, half computing, and at the board's limit
    shares = ((0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 0, 0.5), (1, 0, 1), (1, 1, 1), (0.5, 0, 0))
    found = [float(watts(*arrays(*x))) for x in shares]
    assert found == pytest.approx([70.0, 280.0, 560.0, 595.0, 700.0, 700.0, 175.0])
    joules = cost.joules_per_million_tokens(*map(jnp.asarray, (8.0, 500.0, 2.0, 1000.0)))
    assert float(joules) == pytest.approx(8e6)  # 8 kJ for a thousand tokens


def test_power_has_the_slopes_of_its_shares_and_none_at_the_limit():
    every = jax.grad(lambda x, draw: watts(*x, draw=draw), argnums=(0, 1))
    shares, draw = every(arrays(0.0, 0.0, 0.0), SHARES)
    assert [float(x) for x in shares] == pytest.approx([210.0, 280.0, 630.0])
    assert float(draw.idle) == pytest.approx(700.0) and float(draw.active) == 0.0
    shares, draw = every(arrays(1.0, 0.3, 0.1), SHARES)
    assert float(draw.memory) == pytest.approx(210.0) and float(draw.compute) == pytest.approx(70.0)
    full, draw = every(arrays(1.0, 1.0, 1.0), SHARES)
    assert [float(x) for x in full] == [0.0, 0.0, 0.0]
    assert [float(getattr(draw, n)) for n in ("idle", "active", "memory", "compute")] == [0.0] * 4


@pytest.mark.parametrize("layers", [1, 7, 61, 80, 94])
def test_it_is_that_of_layers_dealt_out_in_turn(layers):
    for stages in range(1, 17):
        dealt = np.bincount(np.arange(layers) % stages, minlength=stages)
        result = float(longest(jnp.asarray(float(layers)), jnp.asarray(float(stages))))
        assert result * layers / stages == pytest.approx(dealt.max(), rel=1e-6)


def test_a_step_has_no_slope():
    for point in ((61.0, 4.0), (61.3, 2.2), (0.0, 1.0), (3.0, 8.0)):
        slopes = jax.grad(longest, (0, 1))(*map(jnp.asarray, point))
        assert [float(x) for x in slopes] == [0.0, 0.0]


def test_a_pipeline_goes_at_the_pace_of_its_longest_stage(x64):
    """61 layers in 4 stages decode as 64 do, and the fullest chip holds as much; 64 are even."""
    model, system = ij.load_model("deepseek-r1").architecture, ij.load_system("h200_sxm")
    first, rest = model.blocks
    even = model.replace(blocks=(first, rest.with_(count=61.0)))
    uneven = even.replace(blocks=(first, rest.with_(count=58.0)))
    estimator, plan = ij.make("serving", system.coefficients), Deployment.of(tp=8, pp=4)
    work = ij.Workload.of(isl=2048, osl=256, batch=64)
    estimate = jax.jit(lambda arch: estimator.estimate(arch, system.hardware, work, plan))
    few, many = estimate(uneven), estimate(even)
    # the three dense layers are dealt out with the others
    assert float(few.tpot) == pytest.approx(float(many.tpot), rel=0.01)
    need = [float(x.decode.limits["memory"].need) for x in (few, many)]
    assert need[0] == pytest.approx(need[1], rel=0.01)


def test_equal_models_accept_all_and_disjoint_ones_nothing():
    logp = jnp.log(jnp.array([0.2, 0.5]))
    assert float(acceptance_rate(logp, logp)) == 1.0
    assert float(acceptance_rate(jnp.full(2, -jnp.inf), logp)) == 0.0


@pytest.mark.usefixtures("x64")
def test_slopes_of_the_acceptance():
    logp, logq = jnp.array([-2.0, -1.0, -3.0]), jnp.array([-1.0, -2.0, -3.0])
    slope = jax.grad(acceptance_rate)(logp, logq)
    step = 1e-6
    ordinary = [
        (acceptance_rate(logp.at[i].add(step), logq) - acceptance_rate(logp.at[i].add(-step), logq))
        / (2 * step)
        for i in (0, 1)
    ]
    np.testing.assert_allclose(slope[:2], ordinary, atol=1e-8)
    assert float(slope[2]) == pytest.approx(0.5 / 3)  # at p = q half of the slope on its one side
    assert float(jax.grad(acceptance_rate)(jnp.array([-jnp.inf]), jnp.array([-1.0]))[0]) == 0.0


SHARE = 0.83  # of a link's rate
# H800: 8 GPUs a node at 200 GB/s, 50 GB/s each beyond it
H800 = Wire(*map(jnp.asarray, (1e-6, SHARE * 200e9, 4e6, 8.0, SHARE * 50e9)))
WIDTH, COPIES = 7168.0, jnp.asarray(8.0)
# deepseek-ai/DeepEP at 0297fc8, docs/legacy.md: us of dispatch (FP8), combine (BF16), 128 tokens
LOW_LATENCY = ((16, 118, 195), (32, 155, 273), (64, 173, 314), (128, 192, 369), (256, 194, 360))
# and GB/s of both over InfiniBand, of 4096 tokens in at most 4 nodes, counting those that stay
NORMAL = ((32, 58, 57), (64, 51, 50))


def sizes(tokens):
    sent = tokens * WIDTH * dispatch.sent_bytes(jnp.asarray(8.0))
    return jnp.asarray([sent, tokens * WIDTH * dispatch.COMBINED])


@pytest.mark.parametrize(("ranks", *"dc"), LOW_LATENCY)
def test_low_latency_kernels_take_as_long_as_published(ranks, d, c):
    got = dispatch.low_latency(jnp.asarray(float(ranks)), COPIES, sizes(128.0), H800)
    np.testing.assert_allclose(got, [d * 1e-6, c * 1e-6], rtol=0.13)


@pytest.mark.parametrize(("ranks", *"dc"), NORMAL)
def test_normal_kernels_reach_the_published_bandwidth(ranks, d, c):
    size, nodes = sizes(4096.0), 4.0
    took = dispatch.normal(jnp.asarray(float(ranks)), COPIES, size, H800, jnp.asarray(nodes))
    visited = nodes * (1.0 - (1.0 - 1.0 / nodes) ** 8)
    np.testing.assert_allclose(visited * size / took / 1e9, [d, c], rtol=0.1)


@pytest.mark.parametrize(("nodes", "most"), [(4, 4), (8, 4), (8, 99), (2, 1)])
def test_nodes_visited_are_those_that_drawn_tokens_visit(nodes, most):
    """A token of a random node, ``most`` nodes for it at random, 8 experts at random on these."""
    rng, seen = np.random.default_rng(0), []
    for _ in range(4000):
        allowed = rng.permutation(nodes)[: min(most, nodes)]
        seen.append(len(set(rng.choice(allowed, 8)) - {rng.integers(nodes)}))
    wire = Wire(*map(jnp.asarray, (0.0, 1e30, 4e6, 8.0, 1.0)))
    one = jnp.asarray(1.0)
    got = dispatch.normal(jnp.asarray(8.0 * nodes), COPIES, one, wire, jnp.asarray(float(most)))
    assert float(got) == pytest.approx(np.mean(seen), rel=0.03)


def packed(popularity, copies, places):
    """Busiest place of copies given one by one to the most loaded expert, then packed greedily."""
    count = np.ones(len(popularity), int)
    for _ in range(copies):
        count[np.argmax(popularity / count)] += 1
    loads = np.sort(np.repeat(popularity / count, count))[::-1]
    slots, filled, held = len(loads) // places, np.zeros(places), np.zeros(places, int)
    for load in loads:
        free = np.flatnonzero(held < slots)
        place = free[np.argmin(filled[free])]
        filled[place], held[place] = filled[place] + load, held[place] + 1
    return filled.max() / filled.mean()


@pytest.mark.parametrize("places", [32, 72, 144, 288])
def test_copies_of_popular_experts_balance_places(places):
    """deepseek-ai/EPLB's greedy copies and packing, of DeepSeek's 256 experts with 32 copies."""
    popularity = ((np.arange(256) + 0.5) / 256) ** -0.7
    got = routing.replicated_load(*map(jnp.asarray, (256.0, 32.0, float(places), 0.7)))
    assert float(got) == pytest.approx(packed(popularity, 32, places), rel=0.06)


@pytest.mark.usefixtures("x64")
def test_slopes_are_differences_and_finite_at_the_ends():
    def normal(ranks, copies, size, nodes):
        return dispatch.normal(ranks, copies, size, H800, nodes)

    def quick(ranks, copies, size, crowd):
        return dispatch.low_latency(ranks, copies, size, H800, crowd)

    ends = (1.0, 8.0, 0.0, 1.0), (8.0, 8.0, 1e6, 1.0), (64.0, 1.0, 1e12, 1.0)
    agree_at(normal, (40.0, 6.0, 1e6, 3.0))
    finite_at(normal, *ends)
    agree_at(quick, (40.0, 6.0, 1e6, 1.3))
    finite_at(quick, *ends)
    agree_at(routing.replicated_load, (256.0, 32.0, 200.0, 0.6))
    ends = (256.0, 0.0, 32.0, 0.7), (256.0, 32.0, 32.0, 0.0), (8.0, 8.0, 1.0, 0.95)
    finite_at(routing.replicated_load, *ends)
    assert np.all(jax.vmap(routing.replicated_load)(*np.array(ends).T) >= 1.0)
