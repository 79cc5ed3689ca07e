"""Chips without measured rows: every answer says whose coefficients it has, and how wide it is."""

import jax
import pytest

from infer_jax.catalog import list_systems, load_system
from infer_jax.catalog.published import serving_measured
from infer_jax.estimators import make, trust
from infer_jax.estimators.known_errors import FACTS, GENERATION
from infer_jax.estimators.serving import GENERATIONS, Generation, Serving

ROWS = serving_measured().rows
# generations without a row, of a make that has some; then makes without any
SISTERS = ("a100_pcie", "a100_sxm", "a100_sxm_40gb", "l4", "l40s", "rtx_4090", "t4_host",
           "v100_sxm", "v100_sxm_16gb")  # fmt: skip
OTHERS = ("groq_lpu", "tpu_v4", "tpu_v5e", "tpu_v5p", "tpu_v6e", "tpu_v7", "trainium2")


@pytest.mark.parametrize("system", sorted(set(list_systems()) - set(ROWS)))
def test_an_answer_says_whose_coefficients_it_has_and_has_them(system):
    found = load_system(system)
    model = make("serving", found.coefficients)
    assert isinstance(model, Serving)
    whose = GENERATIONS[int(model.generation)]
    assert not set(found.coefficients.get("serving", {})) - FACTS
    used, fitted = getattr(model, whose), Generation.published(whose)
    assert jax.tree.leaves(used) == jax.tree.leaves(fitted)
    for name in ("serving", "serving.sglang", "serving.trtllm"):
        known = trust(name, make(name, found.coefficients), found, "llama-3.1-8b")
        assert (known.borrowed_from, known.rows, known.mark) == (GENERATION[whose], 0, "~")
        said = f"no measured rows for {system}: coefficients borrowed from {GENERATION[whose]}"
        assert said in known.says


def test_a_generation_without_rows_is_no_more_certain_than_one_with_and_a_make_less():
    def wide(system):
        found = load_system(system)
        known = trust("serving", make("serving"), found, "llama-3.1-8b")
        low, high = known.within(32.0, (1000.0, 1000.0))["tpot"][80]
        assert low < 1.0 < high
        return high / low

    sisters, others = (set(map(wide, names)) for names in (SISTERS, OTHERS))
    assert len(sisters) == len(others) == 1  # a make has one spread
    assert wide("h100_sxm") <= min(sisters) < min(others)
