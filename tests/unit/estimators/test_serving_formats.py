"""What formats and pipelines change in a server's estimate, by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import infer_jax as ij
from infer_jax.catalog import load_model
from infer_jax.estimators.serving import Deployment, Serving
from infer_jax.planning import PlanSpace, Requirements, Side, layouts, table
from infer_jax.specs import ForwardPass, Workload
from tests.unit.estimators.compiled import step

FEW: dict[str, Any] = {"isl": 2000, "osl": 100, "batch": 8}


def launches(quant):
    answer = ij.estimate("llama-3.1-8b", "h100_sxm", tp=1, quant=quant, **FEW).estimate
    return float(answer.decode.terms["launch"])


def test_quantising_at_run_time_costs_launches():
    """Scales by block are computed of every activation, a scale per tensor is stored with it."""
    plain = launches("bf16")
    assert launches("fp8") == pytest.approx(plain)
    assert launches("fp8_block") > 1.05 * plain


def test_stages_share_the_flop_of_a_prompt():
    """MFU times the time is the prompt's work at the peak of all chips: half on twice as many."""
    one, two = (
        ij.estimate("llama-3.1-8b", "h100_sxm", tp=1, pp=pp, **FEW).estimate for pp in (1, 2)
    )
    work = [float(x.prefill.mfu * x.prefill.time) for x in (one, two)]
    assert work[1] == pytest.approx(work[0] / 2.0, rel=1e-6)
    # 2 FLOP for each weight of the layers and token of the prompt
    arch = ij.load_model("llama-3.1-8b").architecture
    chip = ij.load_system("h100_sxm").hardware.chip
    attention, feedforward = 4096 * (2 * 4096 + 2 * 1024), 3 * 4096 * 14336
    flop = 2.0 * 2000 * 32 * (attention + feedforward)
    assert float(arch.blocks[0].count) == 32
    assert work[0] == pytest.approx(flop / float(chip.flops_16), rel=1e-6)


def test_every_attention_group_has_requests():
    system, arch = ij.load_system("h200_sxm"), ij.load_model("qwen3-30b-a3b").architecture
    serving = Serving.of().fitted(system.coefficients["serving"])
    legal = [x for x in layouts(arch, 4) if x.chips == 4 and x.pp == 1]
    side, work = Side("h200_sxm", system.hardware, serving), Workload.of(isl=500, osl=50)
    found = table(PlanSpace((side,), arch, work, Requirements()), legal)
    groups = np.array([found.at(i).attention_dp for i in range(len(found.batch))])
    assert groups.max() == 4 and np.all(found.batch % groups == 0)
    np.testing.assert_allclose(np.asarray(found.estimates.in_flight), found.batch)


@pytest.mark.parametrize("system", ["h100_sxm", "b200_sxm", "mi300x", "mi355x"])
@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3.1-70b", "qwen3-30b-a3b"])
def test_fewer_bits_are_never_slower(system, model):
    """A prompt of 8,192 tokens, and decoding, in 16 and in 8 bits with a scale per tensor."""
    times = []
    for quant in ("bf16", "fp8"):
        answer = ij.estimate(model, system, tp=4, quant=quant, isl=8192, osl=200, batch=16).estimate
        times.append((float(answer.prefill.time), float(answer.decode.time)))
    sixteen, eight = times
    assert eight[0] < sixteen[0] and eight[1] < sixteen[1]


def test_software_that_is_older_launches_longer(x64):
    """Launch gaps and host times grow by r a month; nothing else does, and not today's."""
    arch, system = load_model("llama-3.1-8b").architecture, ij.load_system("h100_sxm")
    forward = ForwardPass.of(sequences=8, new_tokens=1, cached_tokens=1000)

    def terms(age):
        model = Serving.of().fitted(system.coefficients["serving"]).replace(software_age=age)
        return model.step(arch, system.hardware, forward, Deployment.of(tp=1)).terms

    both = jax.jit(lambda age: jax.jvp(terms, (age,), (jnp.ones_like(age),)))
    (new, slopes), (old, _) = (both(jnp.asarray(age)) for age in (0.0, 6.0))
    monthly = float(Serving.of().monthly)
    for name, seconds in new.items():
        factor = np.exp(6.0 * monthly) if name in ("launch", "host") else 1.0
        assert float(old[name]) == pytest.approx(factor * float(seconds), rel=1e-9), name
    assert monthly > 0.0
    assert float(slopes["launch"]) == pytest.approx(monthly * float(new["launch"]))


def test_an_expert_costs_the_rows_of_its_tile_and_moves_its_tokens(x64):
    """By hand: 2 m_0 FLOP an element of each expert that is visited, k_m (2 d + 3 f) bytes x 2."""
    arch, system = load_model("qwen3-30b-a3b").architecture, ij.load_system("h100_sxm")
    forward = ForwardPass.of(sequences=16384, new_tokens=1, cached_tokens=0)

    def time(**changes):
        bare = Serving.roofline().with_(**changes)
        made = step(bare, arch, system.hardware, forward, Deployment.of(tp=1))
        return float(made.terms["feedforward"])

    plain = time()
    elements, chip = 3 * 2048 * 768, system.hardware.chip
    rows = 48 * 128 * 2 * 50 * elements / float(chip.flops_16)
    computed = 48 * 8 * 16384 * 2 * elements / float(chip.flops_16)
    assert plain == pytest.approx(computed, rel=1e-4)  # far above what is read
    assert time(expert_rows=50.0) == pytest.approx(plain + rows, rel=1e-4)
    moved = 48 * 8 * 16384 * (2 * 2048 + 3 * 768) * 2 / float(chip.memory_bandwidth)
    assert time(expert_moves=1.5) == pytest.approx(plain + 1.5 * moved, rel=1e-4)
