"""`ij.sensitivity`: what other chips would change, as `ij.estimate` answers on them."""

from typing import Any

import pytest

import infer_jax as ij

MODEL, SYSTEM = "llama-3.1-8b", "h100_sxm"
ASKED: dict[str, Any] = {"isl": 2000, "osl": 200, "tp": 2, "batch": 24}


# a change of the model is of all chips, one of the system is of this one alone
CHANGES = ["arch.blocks.*.feedforward.width=*0.5", "hardware.power=*2"]


@pytest.mark.parametrize("options", [{}, {"price": 2.0, "set": CHANGES}])
def test_a_row_of_another_chip_is_what_estimate_answers_there(options: dict[str, Any]):
    """At that chip's own rent, also of a torus, of borrowed coefficients and where it is full."""
    result = ij.sensitivity(MODEL, SYSTEM, **ASKED, **options)
    here: Any = ij.estimate(MODEL, SYSTEM, **ASKED, **options).estimate
    chips = {chip.name: chip for chip in result.chips}
    assert chips.keys() == {*ij.list_systems()} - {SYSTEM}
    of_model: dict[str, Any] = {"set": CHANGES[0]} if options else {}
    for name in ("h200_sxm", "mi300x", "l4", "tpu_v6e", "v100_sxm_16gb"):
        answer = ij.estimate(MODEL, name, **ASKED, **of_model)
        chip = chips[name]
        there: Any = answer.estimate
        assert chip.feasible == bool(there.feasible)
        assert chip.borrowed == answer.trust.borrowed_from
        for output in ("ttft", "tpot", "cost"):
            ratio = float(getattr(there, output)) / float(getattr(here, output))
            assert 1.0 + chip.changes[output] == pytest.approx(ratio, rel=1e-12)
        power = float(ij.load_system(name).hardware.power)
        assert ("energy" in chip.changes) == (power > 0.0)
        per_token = float(there.blended_cost) / float(here.blended_cost)
        assert 1.0 + chip.changes["blended_cost"] == pytest.approx(per_token, rel=1e-12)
    costs = [chip.changes["blended_cost"] for chip in result.chips]
    assert costs == sorted(costs)


def test_half_the_bytes_of_the_weights_are_named_by_their_bits():
    """Of a model in 4 bits there is no half that an engine stores."""
    for quant, change in (("bf16", "8 bits"), ("fp8", "4 bits"), ("int4", None)):
        result = ij.sensitivity(MODEL, SYSTEM, **ASKED, quant=quant)
        named = [x.partition(": ")[2] for x in result.what_if if x.startswith("weights at half")]
        assert named == ([change] if change else [])
        assert ("their matmuls stay" in " ".join(str(result).split())) == bool(change)


def test_an_output_that_it_has_not_is_refused_with_those_that_it_has():
    result = ij.sensitivity(MODEL, SYSTEM, **ASKED)
    with pytest.raises(ij.InputError, match=r"output is 'p99_ttft'; allowed: .*tpot"):
        result.elasticity("hardware.chip.memory_bandwidth", "p99_ttft")
    with pytest.raises(ij.InputError, match=r"hardware\.colour is 'no number of this'"):
        result.elasticity("hardware.colour", "tpot")
