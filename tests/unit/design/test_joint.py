"""Model, chip and layout in one search: the best of the lattice, and what training adds."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import infer_jax as ij
from infer_jax.catalog import load_model
from infer_jax.catalog.foreign import read_toml
from infer_jax.design import QualityWrapper, law
from infer_jax.design.ascent import TOLERANCE
from infer_jax.design.quality_wrapper import QualityEstimate
from infer_jax.design.toml import spec_of
from infer_jax.estimators import make
from infer_jax.silicon.chips import load_accelerator
from infer_jax.silicon.on_silicon import OnSilicon
from infer_jax.specs import Plan, Workload

pytestmark = pytest.mark.usefixtures("x64")
EXAMPLE = Path(__file__).parents[3] / "examples" / "model_and_chip.toml"
SMALL = {
    "width": {"values": [3584, 4096, 5120]},
    "depth": {"values": [24, 28, 32]},
    "kv_heads": {"values": [2, 8]},
    "tokens": {"values": [3e11, 4e11, 5e11]},
    "batch": {"values": [16, 64, 128, 256]},
}


def tables(**changes):
    """The example with few values of each number, one chip an instance."""
    table: dict[str, Any] = dict(read_toml(EXAMPLE))
    few = {"active": [84, 132, 144], "stacks": [4, 5, 6], "limit": [400, 500, 600, 700]}
    chip = table["chip"] | {name: {"values": steps} for name, steps in few.items()}
    search = {"restarts": 12, "steps": 40}
    return table | {"free": SMALL, "chip": chip, "search": search} | changes


def swept(table):
    """The best of the whole lattice, and how many designs it has."""
    spec = spec_of("test", table)
    found = ij.sweep(spec.space, keep=spec.keeps[0], estimator=spec.estimator)
    return float(np.asarray(found.rows()[0][spec.keeps[0].by])), spec.space.size


@pytest.mark.slow
def test_model_chip_and_layout_are_the_best_of_their_lattice():
    table = tables()
    best, points = swept(table)
    assert points == 3 * 3 * 2 * 3 * 4 * 3 * 3 * 4
    found = ij.codesign(spec=table).designs[0].design
    assert found.objective == pytest.approx(best, rel=1e-5)  # the sweep ranks in float32
    assert found.gain > 1.0
    path = found.paths[0]  # real numbers, too, keep the limits, that of the loss among them
    assert path.excess[-1, path.ends[0]] <= TOLERANCE
    start = spec_of("test", table).start
    moved = {name.partition(".")[0] for name, x in found.values.items() if x != start.get(name)}
    assert moved >= {"arch", "hardware", "workload"}


@pytest.mark.parametrize("counted", ["USD", "J"])
def test_the_chip_that_is_designed_trains_the_model(counted):
    """6 N D FLOP at 40 % of its rate, an hour counted as that of serving is."""
    chip, arch = load_accelerator("h100_sxm"), load_model("llama-3.1-8b").architecture
    inner = OnSilicon.of(target=make("economics.planned"), counted=counted)
    model: Any = QualityWrapper.of(target=inner, law=law("chinchilla"), tokens=5e11, served=1e12)
    work = Workload.of(isl=4096, osl=512, batch=8)
    life = model.estimate(arch, chip, work, Plan.of())
    assert isinstance(life, QualityEstimate)
    sheet = chip.hardware(jnp.asarray(1.0))
    hour = {"USD": float(sheet.price), "J": 3600.0 * float(chip.limit)}[counted]
    hours = 6.0 * float(life.active) * 5e11 / (0.4 * float(sheet.chip.flops_16)) / 3600.0
    assert float(life.training) == pytest.approx(hours * hour, rel=1e-9)
    serving = 1e6 * float(life.cost + life.input_cost * 4096 / 512)
    assert float(life.lifetime) == pytest.approx(float(life.training) + serving, rel=1e-9)
    assert float(life.lifetime_cost) == pytest.approx(float(life.lifetime) / 1e6, rel=1e-12)
    idle = model.replace(served=np.float64(0.0)).estimate(arch, chip, work, Plan.of())
    assert isinstance(idle, QualityEstimate) and float(idle.lifetime_cost) == 0.0
