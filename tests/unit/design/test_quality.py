"""Laws of quality: the papers' own tables, their ranges, and what must be given."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

from infer_jax.catalog import load_model
from infer_jax.design import LAWS, QualityWrapper, law, optimise
from infer_jax.design.quality import Chinchilla, JointMixture, compute_optimal, measures
from infer_jax.design.quality_wrapper import QualityEstimate
from infer_jax.design.sensitivity import energy
from infer_jax.errors import InputError
from infer_jax.specs import Plan, Workload
from infer_jax.sweeps import Axis, Best, Space
from tests.unit.design.bowls import Bowl, Toll, hardware

pytestmark = pytest.mark.usefixtures("x64")

# Ludziejewski et al. 2025 (arXiv 2502.05172), Table 4: E, m, mu, n, nu
TABLE_4 = [
    (1, 30.3640, -0.1817, 53.9838, -0.1965),
    (2, 27.7982, -0.1780, 66.8401, -0.2065),
    (4, 24.8462, -0.1731, 87.7022, -0.2192),
    (8, 21.8330, -0.1676, 119.9126, -0.2338),
    (16, 19.0159, -0.1617, 167.5073, -0.2494),
    (32, 16.5424, -0.1557, 234.6726, -0.2652),
]
# constants of no fit, to try the form
ON_DEVICE = {
    **{"kl": 1.0, "al": -0.5, "kr": 30.0, "ar": 0.1, "af": -0.2, "b1": -0.5},
    **{"kf": 3.0, "b2": -0.3, "km": 2.0, "am": -0.4, "floor": 1.5},
}


def test_joint_mixture_is_the_paper_s_table():
    for experts, *printed in TABLE_4:
        ours = JointMixture.of().coefficients_at(jnp.asarray(float(experts)))
        np.testing.assert_allclose([float(x) for x in ours], printed, rtol=3e-3)


def test_chinchilla_has_the_corrected_constants():
    # Besiroglu et al. 2024 (arXiv 2404.10102), Table 1
    c = Chinchilla.of()
    result = [float(x) for x in (c.floor, c.a, c.b, c.alpha, c.beta)]
    assert result == [1.8172, 482.01, 2085.43, 0.3478, 0.3658]
    size, tokens = compute_optimal(c, 5.76e23)
    assert 15.0 < tokens / size < 25.0  # about 20 tokens a parameter at Chinchilla's budget
    # it is the least of the law along 6 N D = C
    slope = jax.grad(lambda u: c.of_size(size * jnp.exp(u), tokens * jnp.exp(-u)))(0.0)
    assert float(slope) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("name", LAWS)
def test_every_law_is_finite_smooth_and_falls_with_tokens(name):
    given: dict[str, dict[str, float]] = {
        "aspect": {"epsilon": 0.01, "gamma": 0.1},
        "conditional": {"a0": 1.0, "a1": 0.0, "a2": 0.0, "b0": 1.0, "b1": 0.0, "b2": 0.0},
        "on-device": ON_DEVICE,
    }
    built = law(name, "test", **given.get(name, {}))
    arch = load_model("qwen3-30b-a3b").architecture
    tokens = jnp.asarray(1e12)
    loss, slopes = jax.value_and_grad(lambda a: built.loss(a, tokens))(arch)
    assert 0.5 < float(loss) < 10.0
    assert all(np.isfinite(x) for x in jax.tree.leaves(slopes))
    slope = float(jax.grad(built.loss, 1)(arch, tokens))
    assert slope == 0.0 if name == "on-device" else slope < 0.0


def test_the_law_of_small_models_is_its_printed_form():
    """Sun et al. 2026 (arXiv 2602.10377), with constants of no fit, on numbers by hand."""
    built, k = law("on-device", "test", **ON_DEVICE), ON_DEVICE
    for name, (layers, width, keys, ratio, share) in {
        "llama-3.2-1b": (16, 2048, 8 * 64, 8192 / 2048, 1.0),
        "qwen3-30b-a3b": (48, 2048, 4 * 128, 8 * 768 / 2048, 8 / 128),
    }.items():
        terms = [
            k["kl"] * layers ** k["al"],
            k["kr"] * share ** k["ar"] * ratio ** k["af"] * width ** k["b1"],
            k["kf"] * ratio ** k["af"] * width ** k["b2"],
            k["km"] * keys ** k["am"],
        ]
        arch = load_model(name).architecture
        output = float(built.loss(arch, jnp.asarray(1e10)))
        assert output == pytest.approx(sum(terms) + k["floor"], rel=1e-9)


def test_a_law_outside_its_range_warns_with_the_range():
    arch = load_model("llama-3.1-70b").architecture
    said = list(Chinchilla.of().warnings(arch, 15e12))
    assert any("parameters 7.06e+10" in s and "7e+07 to 1.6e+10" in s for s in said)
    assert any("tokens" in s for s in said)
    small = load_model("llama-3.2-1b").architecture
    assert list(Chinchilla.of().warnings(small, 100e9)) == []
    assert any("experts" in s for s in Chinchilla.of().warnings(
        load_model("qwen3-30b-a3b").architecture, 100e9))  # fmt: skip


def test_measures_are_the_publishers():
    output = measures(load_model("deepseek-v3").architecture, jnp.asarray(1e12))
    assert float(output["parameters"]) == pytest.approx(671e9, rel=0.01)
    assert float(output["active parameters"]) == pytest.approx(37e9, rel=0.03)
    assert float(output["sparsity"]) == pytest.approx(1 - 8 / 256)
    assert float(output["experts"]) == 32.0
    assert float(output["aspect ratio"]) == pytest.approx(7168 / 61)


@pytest.mark.parametrize(
    ("name", "constants", "said"),
    [
        ("kaplan", {}, "chinchilla"),
        ("aspect", {"epsilon": 0.1}, "aspect.gamma"),
        ("conditional", {}, "conditional.a0"),
        ("on-device", {}, "on-device.kl"),
        ("chinchilla", {"delta": 1.0}, "chinchilla.delta"),
        ("chinchilla", {"alpha": "x"}, "chinchilla.alpha"),
    ],
)
def test_what_is_missing_or_unknown_is_told(name, constants, said):
    with pytest.raises(InputError) as output:
        law(name, "spec.toml", **constants)
    assert said in str(output.value)


def test_lifetime_is_training_and_serving():
    arch = load_model("llama-3.2-1b").architecture
    work, plan = Workload.of(isl=100, osl=50, batch=25), Plan.of(tp=3)
    chips = hardware()
    chips = chips.replace(chip=chips.chip.replace(flops_16=np.asarray(1e15)))
    estimator = QualityWrapper.of(
        target=Bowl.of(), law=Chinchilla.of(), tokens=1e12, served=1e13, utilisation=0.5
    )
    life = estimator.estimate(arch, chips, work, plan)
    assert isinstance(life, QualityEstimate)
    seconds = 6.0 * float(life.active) * 1e12 / (0.5 * 1e15)
    assert float(life.training) == pytest.approx(seconds / 3600 * 2.0)
    serving = 1e7 * (float(life.cost) + 2.0 * float(life.input_cost))
    assert float(life.lifetime) == pytest.approx(float(life.training) + serving)
    assert float(life.loss) == pytest.approx(float(Chinchilla.of().loss(arch, jnp.asarray(1e12))))
    assert float(life.kv_bytes) == 2 * 16 * 8 * 64 * 2  # K and V, layers, heads, width, bytes
    assert float(life.score) == pytest.approx(float(life.cost * life.tpot) ** 0.5)


def test_a_score_is_finite_where_a_term_is_0():
    # without a price the cost is 0, whose root has no slope
    arch, chips = load_model("llama-3.2-1b").architecture, hardware(price=0.0)
    estimator = QualityWrapper.of(target=Bowl.of(), weight=0.5)
    work, plan = Workload.of(isl=100, osl=50, batch=25), Plan.of(tp=3)

    def score(arch, chips, plan):
        return estimator.estimate(arch, chips, work, plan).score

    value, slopes = jax.value_and_grad(score, (0, 1, 2))(arch, chips, plan)
    assert np.isfinite(value) and value < 1e-9
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(slopes))
    assert float(slopes[2].tp) < 0.0  # TPOT still counts: more ranks are faster


def test_energy_is_of_a_million_tokens_and_the_estimator_s_own_where_it_tells_it():
    arch, work = load_model("llama-3.2-1b").architecture, Workload.of(isl=100, osl=50, batch=4)
    chips = hardware().replace(power=np.asarray(700.0))
    life = QualityWrapper.of(target=Bowl.of()).estimate(arch, chips, work, Plan.of(tp=3))
    assert float(life.energy) == pytest.approx(1e6 * 700.0 * float(life.tpot) / 4.0)

    class Told:
        energy = jnp.asarray(5.0)

    assert float(energy(Told(), chips, work)) == 5.0  # pyright: ignore[reportArgumentType]


def over_trained(served):
    """The design of least lifetime at one loss, by gradients: (parameters, tokens, USD)."""
    estimator = QualityWrapper.of(target=Toll.of(), law=Chinchilla.of(), tokens=1e12, served=served,
                       utilisation=0.5)  # fmt: skip
    chips = hardware().replace(chip=hardware().chip.replace(flops_16=np.asarray(1e15)))
    axes = {"arch.width": Axis.log(512, 32768, 129), "estimator.tokens": Axis.log(1e9, 1e15, 241)}
    arch, work = load_model("llama-3.2-1b").architecture, Workload.of(isl=1, osl=1, batch=1)
    space = Space(arch, chips, work, Plan.of(), axes=axes)
    result = optimise(estimator, space, Best("lifetime", under={"loss": 2.2}), restarts=2)
    assert result.terms["loss"] <= 2.2
    return result.terms["active"], result.values["estimator.tokens"], result.terms["lifetime"]


def least(served):
    """The same on paper: where alpha A N^-alpha = beta B D^-beta (1 + S / (3 D)).

    Lagrange's condition of least 6 N D + 2 N S at one loss, the sum of Sardana et al. 2024 (arXiv
    2401.00448), Section 2, at equal utilisation of training and serving.
    """
    c = Chinchilla.of()
    floor, a, b, alpha, beta = (float(x) for x in (c.floor, c.a, c.b, c.alpha, c.beta))

    def tokens(size):
        return ((2.2 - floor - a * size**-alpha) / b) ** (-1.0 / beta)

    def slope(x):
        size, trained = np.exp(x), tokens(np.exp(x))
        share = 1.0 + served / (3.0 * trained)
        return alpha * a * size**-alpha - beta * b * trained**-beta * share

    smallest = (a / (2.2 - floor)) ** (1.0 / alpha)
    root: Any = brentq(slope, np.log(1.0001 * smallest), np.log(1e13))
    size = np.exp(root)
    flops = 6.0 * size * tokens(size) + 2.0 * size * served
    return size, tokens(size), flops / (0.5 * 1e15) / 3600.0 * 2.0  # at 2 USD an hour


def test_the_more_it_serves_the_smaller_and_the_longer_trained():
    ratios, sizes = [], []
    for served in (0.0, 1e14):
        size, tokens, price = over_trained(served)
        paper = least(served)
        assert 1.0 - 1e-9 < price / paper[2] < 1.01  # a grid of 3 and 6 per cent
        assert size == pytest.approx(paper[0], rel=0.1)
        assert tokens == pytest.approx(paper[1], rel=0.15)
        sizes.append(size)
        ratios.append(tokens / size)
    assert sizes[0] > sizes[1]
    # nothing served: Chinchilla's own ratio at this budget; with tokens to serve, far above it
    own = least(0.0)
    size, tokens = compute_optimal(Chinchilla.of(), 6.0 * own[0] * own[1])
    assert own[1] / own[0] == pytest.approx(tokens / size, rel=1e-6)
    assert ratios[0] == pytest.approx(tokens / size, rel=0.25)
    assert ratios[1] > 4.0 * ratios[0]
