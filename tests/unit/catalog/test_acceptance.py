"""Acceptance curves: read from YAML and from vLLM's counts, their steps between 0 and 1."""

from pathlib import Path

import pytest

from infer_jax.catalog.acceptance import curve_of, read_acceptance
from infer_jax.catalog.measurements import Speculation
from infer_jax.errors import InputError

CURVES = Path(__file__).resolve().parents[2] / "data" / "acceptance.yaml"


def test_curves_of_a_file():
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    on, off = read_acceptance(CURVES)
    assert (on.model, on.mode, on.lengths[1]) == ("some-model", "thinking_on", (2, 2.4))
    assert on.per_position == pytest.approx((0.8, 0.6, 0.2))
    # a third draft accepted more often than the second is noise: the two are pooled
    assert off.per_position == pytest.approx((0.9, 0.5, 0.5))


def test_curve_of_vllms_counts():
    curve = curve_of(Speculation(per_position=(0.7, 0.5)), "m")
    assert [length for _, length in curve.lengths] == pytest.approx([1.7, 2.2])
    assert curve.per_position == pytest.approx((0.7, 0.5))
    with pytest.raises(InputError, match="per_position is missing"):
        curve_of(Speculation())
    with pytest.raises(InputError, match=r"per_position\[0\] is 1\.7"):
        curve_of(Speculation(per_position=(1.7,)))


@pytest.mark.parametrize(
    "contents, said",
    [
        ("a: [", "not YAML"),
        ("- 1", "top level is ['1']"),
        ("model: 3", "model is '3'"),
        ("model: {mode: {1: 2.5}}", "model.mode.1 is '2.5'; allowed: 1 to 2"),
        ("model: {mode: {zero: 1.5}}", "model.mode is 'zero'"),
        ("model: {mode: {0: 1.0}}", "model.mode is '0'"),
    ],
)
def test_rubbish(tmp_path, contents, said):
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    (tmp_path / "curves.yaml").write_text(contents)
    with pytest.raises(InputError) as raised:
        read_acceptance(tmp_path / "curves.yaml")
    assert said in str(raised.value)


def test_gaps_in_a_curve(tmp_path):
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    (tmp_path / "curves.yaml").write_text("model: {mode: {1: 1.5, 3: 2.0}}")
    (curve,) = read_acceptance(tmp_path / "curves.yaml")
    with pytest.raises(InputError, match="every number of drafts"):
        _ = curve.per_position
