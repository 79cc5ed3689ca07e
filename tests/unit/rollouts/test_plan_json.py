"""A plan is written as JSON, read again unchanged, and refused where it is none."""

import json
import math

import pytest

from infer_jax.errors import InputError
from infer_jax.rollouts import Rollout
from tests.unit.rollouts.plans import PLANS


def test_a_plan_goes_through_json_unchanged():
    own = PLANS["several"]._replace(promises=(("TTFT", "", "9 ms"),))
    for plan in (*PLANS.values(), own):
        assert plan.startable().startable() == plan.startable()
        for chunk in (math.inf, 512.0):
            instances = tuple(x._replace(chunk=chunk) for x in plan.service.instances)
            own = plan._replace(service=plan.service._replace(instances=instances))
            text = json.dumps(own.to_dict(), allow_nan=False)
            assert Rollout.of(json.loads(text)) == own


GOOD = PLANS["several"].to_dict()


def with_instance(**changes):
    """The plan with other numbers of its instances."""
    (one,) = PLANS["several"].service.instances
    service = PLANS["several"].service._replace(instances=(one._replace(**changes),))
    return PLANS["several"]._replace(service=service).to_dict()


WRONG = [
    {}, {"engine": "vllm"}, None, [], GOOD | {"engine": "tgi"}, GOOD | {"systems": []},
    GOOD | {"more": 1}, GOOD | {"title": 3}, GOOD | {"load": {"isl": 1, "osl": 1, "rate": None}},
    GOOD | {"expected": ["a"]}, with_instance(role="prefill"), with_instance(role="a; b"),
    with_instance(copies=10**9), with_instance(tp=0), with_instance(machine=0),
]  # fmt: skip


@pytest.mark.parametrize("fields", WRONG)
def test_what_is_no_plan_is_refused_in_a_sentence(fields):
    with pytest.raises(InputError, match="deployment"):
        Rollout.of(fields)
