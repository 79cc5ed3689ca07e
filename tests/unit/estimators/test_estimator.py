"""What the base classes say of every estimator: its passes, its target."""

from typing import Any

import jax.numpy as jnp
import pytest

from infer_jax.design import QualityWrapper
from infer_jax.errors import InputError
from infer_jax.estimators import (
    AttentionFeedforward,
    Disaggregated,
    Economics,
    Estimate,
    Estimator,
    Offloading,
    Phase,
    Speculative,
)
from infer_jax.estimators.serving import Serving
from infer_jax.specs import Plan, Workload, number, spec
from tests.contract.cases import dense, nodes

WORK = Workload.of(isl=900, osl=100, batch=7, prefix=30)


@spec
class Fixed(Estimator):
    """A pass takes as long per token as its one coefficient says."""

    table = "fixed"
    each: Any = number("seconds a token", unit="s", kind="time", default=2.0)

    def step(self, arch, hardware, forward, plan):
        time = self.each * forward.sequences * forward.new_tokens
        return Phase(time=time, terms={"all": time}, limits={}, mfu=0.0 * time, layout={})


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
