"""What a new space costs is counted: two programs compiled, and of the next one none."""

from typing import Any

import jax
import jax._src.test_util as jtu
import numpy as np

from infer_jax.catalog import load_system
from infer_jax.specs import spec
from infer_jax.sweeps import Axis, Pareto, Space, TopK
from tests.unit.sweeps.toy import Toy, arch, hardware, plan, sweep, workload

COMPILED: list[str] = []


def _note(event: str, duration_secs: float, **kwargs: Any) -> None:
    if event.endswith("backend_compile_duration"):
        COMPILED.append(event)


jax.monitoring.register_event_duration_secs_listener(_note)


@spec
class Tabled(Toy):
    """A toy whose coefficient is a look-up table."""

    def estimate(self, arch: Any, hardware: Any, workload: Any, plan: Any) -> Any:
        return Toy.estimate(self.replace(scale=self.scale[1]), arch, hardware, workload, plan)


def swept(estimator, low, where=()):
    tp = Axis.linear(low, 9, 40)
    space = Space(arch(), hardware(price=low), workload(), plan(tp=tp), where=where)
    return sweep(estimator, space, Pareto("speed", "cost"), chunk=8, precision="float32")


def test_a_new_space_compiles_the_stream_and_the_exact_points():
    where = (lambda point: point.plan.tp > 0.25,)
    swept(Toy.of(), 1.0)  # operations of one program each that all sweeps use
    before = len(COMPILED)
    result = swept(Toy.of(), 1.0, where=where)
    assert "tpot" in result.columns and result.explain(0).terms
    assert len(COMPILED) - before == 2


def test_nothing_is_traced_or_compiled_twice():
    swept(Toy.of(), 1.0)
    with jtu.count_jit_tracing_cache_miss() as traced, jtu.count_jit_compilation_cache_miss() as c:
        swept(Toy.of(), 2.0).explain(0)
    assert (traced(), c()) == (0, 0)


def test_a_coefficient_may_be_a_table():
    systems = [load_system("h100_sxm"), load_system("h200_sxm")]
    space = Space(arch(), systems, workload(), plan(tp=Axis.values(1, 2)))
    tabled = Tabled.of().replace(scale=np.array([3.0, 2.0, 5.0]))
    answer, plain = (
        sweep(priced, space, TopK(4, "tpot"), chunk=8)
        for priced in (tabled, Toy.of().replace(scale=np.float64(2.0)))
    )
    assert answer.index == plain.index and len(answer) == 4
    assert answer.columns["tpot"].tolist() == plain.columns["tpot"].tolist()
