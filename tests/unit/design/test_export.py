"""A design's config.json is read back as the design, by the catalogue that reads everybody's."""

import json

import jax
import numpy as np
import pytest

from infer_jax.catalog import load_model
from infer_jax.design import changed, export
from infer_jax.design.config_json import template
from infer_jax.design.names import dependent_axes
from infer_jax.errors import InputError
from infer_jax.specs import Plan, Workload
from infer_jax.sweeps import Best, Space
from infer_jax.sweeps.paths import Point
from infer_jax.sweeps.preparing import prepare
from tests.unit.design.bowls import Bowl, hardware

BLOCKS = "arch.blocks.*."
SHAPES = {
    "llama-3.1-70b": {
        "arch.width": 6144.0, BLOCKS + "count": 100.0, BLOCKS + "attention.query_heads": 48.0,
        BLOCKS + "attention.kv_heads": 4.0, BLOCKS + "feedforward.width": 30720.0,
    },
    "qwen3-30b-a3b": {
        "arch.width": 2560.0, BLOCKS + "attention.query_heads": 40.0,
        BLOCKS + "feedforward.experts": 96.0, BLOCKS + "feedforward.active": 6.0,
        BLOCKS + "feedforward.width": 896.0,
    },
    "deepseek-v3": {
        "arch.width": 6144.0, BLOCKS + "attention.query_heads": 96.0,
        BLOCKS + "attention.kv_rank": 384.0, BLOCKS + "attention.query_rank": 1024.0,
        "arch.blocks.1.feedforward.experts": 192.0, "arch.blocks.1.feedforward.active": 6.0,
        "arch.blocks.1.feedforward.width": 2560.0,
        "arch.blocks.1.feedforward.shared.width": 2560.0,
    },
}  # fmt: skip


def shaped(name):
    """The model with another shape, its norms and biases following."""
    arch = load_model(name).architecture
    point = changed(Point(Bowl.of(), arch, hardware(), Workload.of(), Plan.of()), SHAPES[name])
    axes = dependent_axes(arch)
    rows = Space(point.arch, point.hardware, point.workload, point.plan, axes=axes)
    group = prepare(Bowl.of(), rows, Best("cost"), precision="float64").parts[0].group
    return group.fill(group.steps(np.zeros(len(group.sizes), int))).arch


@pytest.mark.parametrize("name", SHAPES)
def test_it_is_read_back_as_the_same_numbers(name, tmp_path):
    arch = shaped(name)
    config, _ = export(arch, template(name))
    (tmp_path / "config.json").write_text(json.dumps(config))
    read = load_model(tmp_path).architecture
    assert jax.tree.structure(arch) == jax.tree.structure(read)
    for ours, theirs in zip(jax.tree.leaves(arch), jax.tree.leaves(read), strict=True):
        assert float(ours) == pytest.approx(float(theirs), rel=1e-12)


def test_what_a_family_cannot_say_is_told():
    arch = load_model("llama-3.1-8b").architecture
    block = arch.blocks[0]
    assert block.attention is not None
    narrow = block.attention.replace(value_width=np.asarray(64.0))
    odd = arch.replace(blocks=(block.replace(attention=narrow),))
    with pytest.raises(InputError, match="value_width is 64"):
        export(odd, template("llama-3.1-8b"))
    half = arch.replace(width=np.asarray(4096.5))
    with pytest.raises(InputError, match="a whole number"):
        export(half, template("llama-3.1-8b"))
