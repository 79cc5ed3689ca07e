"""What a new space costs is counted: two programs compiled, and of the next one none."""

from typing import Any

import jax
import jax._src.test_util as jtu

from infer_jax.sweeps import Axis, Pareto, Space
from tests.unit.sweeps.toy import Toy, arch, hardware, plan, sweep, workload

COMPILED: list[str] = []


def _note(event: str, duration_secs: float, **kwargs: Any) -> None:
    if event.endswith("backend_compile_duration"):
        COMPILED.append(event)


jax.monitoring.register_event_duration_secs_listener(_note)


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
