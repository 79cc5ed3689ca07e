"""How elasticities move: a closed form, finite differences of slopes, and kinks."""

import jax.numpy as jnp
import numpy as np
import pytest

from infer_jax.catalog import load_model, load_system
from infer_jax.design import analyser, changed, curvatures, elasticities
from infer_jax.design.sensitivity import outputs
from infer_jax.estimators import make
from infer_jax.specs import Plan, Workload
from infer_jax.sweeps.paths import Point

pytestmark = pytest.mark.usefixtures("x64")


def of(function, **numbers):
    """The curvature of one output."""
    tree = {k: np.asarray(float(v)) for k, v in numbers.items()}
    one = {"y": function}

    def values(t):
        return {name: f(t) for name, f in one.items()}

    [result] = curvatures(values, tree, elasticities(values, tree))
    return result


def test_of_two_times_that_add_up_the_cross_term_is_the_product_of_their_shares():
    """y = a / b + c with the share s of a / b: d e_a / d log b = -s (1 - s), e_b = -s."""
    output = of(lambda t: t["a"] / t["b"] + t["c"], a=3.0, b=2.0, c=0.5)
    s, order = 0.75, [output.paths.index(x) for x in "abc"]
    wanted = s * (1 - s) * np.array([[1, -1, -1], [-1, 1, 1], [-1, 1, 1]])
    np.testing.assert_allclose(output.matrix[np.ix_(order, order)], wanted, atol=1e-12)
    assert output.strongest("a")[1] == pytest.approx(-s * (1 - s))
    (*pair, low), (*other, high) = output.extremes
    assert low == pytest.approx(-s * (1 - s)) and "a" in pair
    assert high == pytest.approx(s * (1 - s)) and {*other} == {"b", "c"}


def test_it_is_how_the_slopes_of_an_estimator_move():
    arch, hardware = load_model("llama-3.2-1b").architecture, load_system("h100_sxm").hardware
    work, plan = Workload.of(isl=1024, osl=128, batch=8), Plan.of(tp=2)
    point = Point(make("economics.planned"), arch, hardware, work, plan)
    analyse = analyser(outputs, point, exact=False)
    slopes = [e for e in analyse(point) if not e.path.startswith(("estimator.", "plan."))]
    h, found = 1e-3, curvatures(outputs, point, slopes, leading=4)
    assert {x.output for x in found} == {"ttft", "tpot", "cost", "energy"}
    moved = list(dict.fromkeys(path for x in found for path in x.paths))
    sides: dict[tuple[str, float], dict[tuple[str, str], float]] = {}
    for path in moved:
        for way in (-h, h):
            there = analyse(changed(point, {path: lambda x, way=way: x * np.exp(way)}))
            sides[path, way] = {(e.output, e.path): e.slope for e in there}
    for one in found:
        assert np.all(np.isfinite(one.matrix))
        np.testing.assert_allclose(one.matrix, one.matrix.T, atol=1e-9)
        for i, path in enumerate(one.paths):
            for j, other in enumerate(one.paths):
                high, low = (sides[other, way].get((one.output, path), 0.0) for way in (h, -h))
                assert one.matrix[i, j] == pytest.approx((high - low) / (2 * h), abs=5e-5)


def test_numbers_at_a_kink_are_left_out_and_nothing_is_infinite():
    def time(t):
        return jnp.maximum(t["a"], t["b"]) + t["c"] * t["d"] + jnp.ceil(t["n"])

    output = of(time, a=2.0, b=2.0, c=1.0, d=3.0, n=4.0)
    assert {*output.paths} == {"c", "d"} and np.all(np.isfinite(output.matrix))
    share = 3.0 / 9.0
    np.testing.assert_allclose(output.matrix, share * (1 - share) * np.ones((2, 2)), atol=1e-12)
    away = of(time, a=3.0, b=2.0, c=1.0, d=3.0, n=4.5)
    assert {*away.paths} == {"a", "c", "d"}


def test_an_output_that_is_not_known_has_none():
    tree = {"a": np.asarray(2.0), "b": np.asarray(3.0)}

    def values(t):
        return {"y": t["a"] * t["b"] + t["a"], "energy": 0.0 * t["a"]}

    assert [x.output for x in curvatures(values, tree, elasticities(values, tree))] == ["y"]
