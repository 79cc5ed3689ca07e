"""What drafting does to a decode: when it pays, at which length, and until which batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.errors import InputError
from infer_jax.estimators import Economics, Speculative
from infer_jax.estimators.speculative import (
    break_even_acceptance,
    break_even_batch,
    head_of,
    relaxed_length,
)
from infer_jax.specs import ForwardPass, Plan
from tests.contract.cases import dense, nodes

pytestmark = pytest.mark.usefixtures("x64")

TARGET, HARDWARE, PLAN = Economics.as_planned(), nodes(), Plan.of(tp=2)
ARCH = dense()


def forward(batch):
    # a short context: reading a long one is shared by the drafts, and then they always pay
    return ForwardPass.of(sequences=batch, new_tokens=1, cached_tokens=100)


@jax.jit
def time(model, batch):
    work = forward(1).replace(sequences=batch)
    return model.step(ARCH, HARDWARE, work, PLAN).time


@jax.jit
def plain(batch):
    return TARGET.step(ARCH, HARDWARE, forward(1).replace(sequences=batch), PLAN).time


def test_nothing_accepted_is_slower_than_plain_decoding():
    model = Speculative.bonus(TARGET, None, 0.0, heads=True).always(3)
    for batch in (1.0, 300.0):
        assert float(time(model, batch)) > float(plain(batch))
    # and the best of all lengths is then none
    free = Speculative.bonus(TARGET, None, 0.0, heads=True)
    assert float(time(free, 1.0)) == pytest.approx(float(plain(1.0)), rel=1e-12)


def test_equal_positions_are_one_acceptance():
    one = Speculative.bonus(TARGET, None, 0.7, most=3)
    curve = Speculative.curve(TARGET, [0.7, 0.7, 0.7])
    for batch in (1.0, 200.0):
        assert float(time(one, batch)) == pytest.approx(float(time(curve, batch)), rel=1e-12)


def test_a_lookup_drafts_for_free_and_a_head_for_less_than_a_model():
    free, heads, model = (
        Speculative.bonus(TARGET, draft, 0.7, heads=heads).always(3)
        for draft, heads in ((None, False), (None, True), (ARCH, False))
    )
    times = [float(time(m, 4.0)) for m in (free, heads, model)]
    assert times == sorted(times) and times[0] < times[1] < times[2]
    assert float(head_of(ARCH).blocks[0].count) == 1.0


def test_the_relaxed_length_is_beside_the_exact_one():
    model = Speculative.bonus(TARGET, None, 0.8, most=8, heads=True)
    args = ARCH, HARDWARE, forward(8), PLAN

    @jax.jit
    def answers():
        real = relaxed_length(model, *args)
        return model.step(*args), real, model.with_drafts(real, *args).time

    phase, real, least = answers()
    assert abs(float(real) - float(phase.layout["drafts"])) <= 1.0
    assert float(least) <= float(phase.time) * (1 + 1e-9)


def test_break_even_is_where_both_are_equal():
    three = jnp.asarray(3.0)
    model = Speculative.bonus(TARGET, None, 0.6, heads=True)
    at = jax.jit(
        lambda a, b: (
            break_even_acceptance(model, three, ARCH, HARDWARE, forward(64), PLAN),
            break_even_batch(model, three, jnp.asarray(1e4), ARCH, HARDWARE, forward(1), PLAN),
        )
    )
    acceptance, batch = at(0.0, 0.0)
    assert 0.0 < float(acceptance) < 1.0 and 1.0 < float(batch) < 1e4
    even = model.always(3).replace(acceptance=np.asarray(float(acceptance)))
    assert float(time(even, 64.0)) == pytest.approx(float(plain(64.0)), rel=1e-6)
    assert float(time(model.always(3), batch)) == pytest.approx(float(plain(batch)), rel=1e-6)


def test_a_depth_without_an_acceptance_is_refused():
    with pytest.raises(InputError, match=r"drafts is .*at most 2"):
        Speculative.curve(TARGET, [0.8, 0.6], drafts=(1, 2, 3))
