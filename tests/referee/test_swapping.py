"""Preemption by swapping in the compiled replay, against blocks counted in plain Python."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from infer_jax.errors import InputError
from infer_jax.replays import Prefixes, Requests, SharedStep, retrace, serve_ranks, vllm
from infer_jax.replays.server import checked
from infer_jax.replays.swapping import Swapping

from . import schedulers
from .serving import SHORT, Case, Machine, step_time
from .swapping import SwappingVllm
from .test_replay_events import FEW, Drawn, compare, drawn, fitting, replayed_with, run, small

pytestmark = pytest.mark.usefixtures("x64")

FETCH = 2e-4  # s for a block


def both(i: int, case: Case, host: float) -> tuple[Swapping, SwappingVllm, Drawn]:
    """Rules, the referee's engine and requests; ``host``: its blocks over those of the cache."""
    e = case.engine
    sizes: dict[str, Any] = {"budget": e.budget, "slots": e.slots, "blocks": e.blocks}
    sizes |= {"block": e.block, "watermark": 2 * (i % 2), "poll": 1 + 2 * (i % 5 == 4)}
    sizes |= {"host": int(host * e.blocks), "fetch": FETCH}
    entire, at_once = i % 3 > 0, i % 4 != 1
    rules = Swapping.of(**sizes, entire=float(entire), hold=float(at_once))
    engine = SwappingVllm(**sizes, entire=entire, at_once=at_once)
    d = fitting(drawn(case, FEW, 500 + i, capped=i % 4 > 1), (e.blocks - 2) * e.block)
    if i % 6 == 5:
        share = np.random.default_rng(i).choice([0.0, 0.5], FEW)
        d = d._replace(cached=np.floor(share * (d.prompt - 1)))
    return rules, engine, d


def check(i: int, case: Case, host: float) -> np.ndarray:
    """Compare one server; how many preemptions there were, and how many by swapping."""
    rules, engine, d = both(i, case, host)
    cached = np.zeros(FEW) if d.cached is None else d.cached
    sizes = (x.astype(int) for x in (d.prompt, d.output, cached))
    lengths = zip(d.arrival.tolist(), *sizes, strict=True)
    done = schedulers.serve(
        lambda b, c, n, p: step_time(case.machine, b, c, n, p), engine, lengths, case.concurrency
    )
    names = ("arrival", "admitted", "first", "last", "preempted")
    theirs = {name: np.array([getattr(r, name) for r in done]) for name in names}
    theirs["swapped"] = np.array([engine.times.get(j, 0) for j in range(FEW)])
    log = run(case, rules, d, width=32, turns=8192)
    compare(log, theirs, f"{i}, {rules}: ")
    fetching = np.asarray(log.path.fetching).sum()
    np.testing.assert_allclose(fetching, engine.copied * FETCH, rtol=1e-9)
    return np.array([theirs["preempted"].sum(), theirs["swapped"].sum()])


def test_vllm_that_swaps():
    """Room in host memory for a part of a request, for some, and for all that are preempted."""
    cases = small(6, 600, (0.5, 2.0))
    each = [check(i, case, (0.1, 0.5, 5.0)[i % 3]) for i, case in enumerate(cases)]
    preempted, swapped = np.sum(each, axis=0)
    assert 30 < swapped < preempted


@partial(jax.jit, compiler_options=SHORT)
def slope(machine, log, requests):
    """The mean TTFT and latency of the same events, and their slopes by coefficients."""

    def means(m):
        again = retrace(Partial(step_time, m), log, requests)
        return jnp.stack([again.mean(again.ttft), again.mean(again.latency)])

    return means(machine), jax.jacrev(means)(machine)


def test_times_of_swapping_have_slopes_and_work_in_single_precision():
    case = small(6, 600, (0.5, 2.0))[1]._replace(concurrency=None)
    rules, _, d = both(0, case, 5.0)
    log = run(case, rules, d, width=32, turns=8192)
    assert np.sum(np.asarray(log.swapped)) > 5
    machine = Machine(*map(jnp.asarray, case.machine))
    same, slopes = slope(machine, log, Requests.of(*d))
    exact = [float(log.mean(x)) for x in (log.ttft, log.latency)]
    np.testing.assert_allclose(same, exact, rtol=1e-9)
    assert np.all(np.isfinite(slopes)) and np.all(np.asarray(slopes.fed) > 0.0)
    single = case._replace(machine=Machine(*(jnp.asarray(x, jnp.float32) for x in case.machine)))
    given = Requests.of(*d)
    given = given._replace(arrival=jnp.asarray(given.arrival, jnp.float32))
    rough = replayed_with(single, rules, given, width=32, turns=8192)
    assert rough.last.dtype == np.float32 and np.sum(np.asarray(rough.swapped)) > 5
    assert float(rough.mean(rough.latency)) == pytest.approx(exact[1], rel=1e-2)


def test_what_does_not_swap_is_refused():
    rules = vllm(blocks=64, slots=4, budget=64, swaps=True).with_(host=10, fetch=1e-3)
    given = Requests.of([0.0], [50], [2])
    checked(rules, given, None)
    with pytest.raises(InputError, match="swaps puts no pass together ahead"):
        checked(rules.with_(overlap=1), given, None)
    with pytest.raises(InputError, match="keep no prompts"):
        p = Prefixes.of([[1]], [50], length=16, block=16)
        checked(rules, given._replace(prefixes=p), None)
    with pytest.raises(InputError, match="no drafts"):
        checked(vllm(blocks=64, slots=4, budget=64, swaps=True, drafts=1), given, None)
    with pytest.raises(InputError, match="compute a preempted request anew"):
        step = SharedStep(lambda decoding, context, new, pairs: decoding, jnp.sum)
        serve_ranks(step, rules, given, 2, "round_robin")
