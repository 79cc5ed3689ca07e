"""What the base classes say of every estimator: its table, its passes, its search, its target."""

from typing import Any

import jax.numpy as jnp
import pytest

from infer_jax.design import QualityWrapper
from infer_jax.errors import InputError
from infer_jax.estimators import (
    VARIANTS,
    AttentionFeedforward,
    Disaggregated,
    Economics,
    Estimate,
    Estimator,
    Offloading,
    Phase,
    Speculative,
    Wrapper,
)
from infer_jax.estimators.serving import Serving
from infer_jax.specs import Plan, Workload, number, spec
from tests.contract.cases import dense, nodes

WORK = Workload.of(isl=900, osl=100, batch=7, prefix=30)
SEARCHING = {"economics", "economics.level1", "economics.level2", "economics.level3",
             "economics.pipeline", "economics.level4", "partitioning"}  # fmt: skip


@spec
class Fixed(Estimator):
    """A pass takes as long per token as its one coefficient says."""

    table = "fixed"
    each: Any = number("seconds a token", unit="s", kind="time", default=2.0)

    def step(self, arch, hardware, forward, plan):
        time = self.each * forward.sequences * forward.new_tokens
        return Phase(time=time, terms={"all": time}, limits={}, mfu=0.0 * time, layout={})


@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_says_what_it_is(name):
    estimator = VARIANTS[name].make()
    assert isinstance(estimator, Estimator) and not isinstance(estimator, Wrapper)
    assert estimator.table == name.partition(".")[0]
    assert estimator.innermost is estimator
    assert estimator.searches == (name in SEARCHING)
    assert estimator.prices_passes == (estimator.table != "offloading")
    assert estimator.needs_host == (estimator.table == "offloading")
    assert estimator.smooths == (estimator.table in ("economics", "partitioning"))
    assert float(estimator.front_time(Plan.of())) == pytest.approx(
        float(estimator.chosen_engine.front) if isinstance(estimator, Serving) else 0.0, rel=0.2
    )


def test_a_wrapper_answers_as_its_target():
    inner = Economics.corrected()
    for wrap in (
        Speculative.bonus(inner, None, 0.5),
        AttentionFeedforward.of(target=inner),
        QualityWrapper.of(target=Speculative.bonus(inner, None, 0.5)),
    ):
        assert wrap.innermost is inner and wrap.searches and wrap.smooths and wrap.prices_passes
        assert not wrap.table, "a profile has coefficients for the target, not for what wraps it"
        fitted = wrap.fitted_to({"economics": {"launch": 9e-6}, "speculative": {"acceptance": 0.1}})
        assert isinstance(fitted.innermost, Economics) and type(fitted) is type(wrap)
        assert float(fitted.innermost.launch) == 9e-6
        cold = wrap.softened(jnp.asarray(0.25)).innermost
        assert isinstance(cold, Economics) and cold.smoothing is not None
        assert float(cold.smoothing) == 0.25 and inner.smoothing is None
    assert not Disaggregated.of(target=inner).prices_passes
    assert not QualityWrapper.of(target=Offloading.improved()).prices_passes
    serving = Serving.of()
    wrapped = QualityWrapper.of(target=serving)
    assert float(wrapped.front_time(Plan.of())) == float(serving.front_time(Plan.of())) > 0.0


def test_an_estimate_comes_of_steps():
    """TTFT one prompt of 870 new tokens, TPOT 7 tokens, at 2 s each; cost by hand."""
    hardware = nodes()
    life = Fixed.of().estimate(dense(), hardware, WORK, Plan.of(tp=2))
    assert isinstance(life, Estimate)
    assert (float(life.ttft), float(life.tpot)) == (2.0 * 870, 2.0 * 7)
    assert float(life.cost) == pytest.approx(2 * 3.0 / 3600 * 14.0 / 7 * 1e6)
    with pytest.raises(InputError, match="speed is 'not a field"):
        Fixed.of().fitted({"speed": 1.0})
    assert float(Fixed.of().fitted_to({"fixed": {"each": 3.0}, "serving": {}}).each) == 3.0
    assert float(Fixed.of().fitted_to({}).each) == 2.0
