"""How far is it from a number of a model to an answer? Few functions, each doing something."""

from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Literal

import infer_jax as ij
from infer_jax.estimators import Serving

MODEL = ij.load_model("llama-3.1-8b").architecture
HARDWARE, PLAN = ij.load_system("h100_sxm").hardware, ij.Plan.of(tp=2)
WORK = ij.Workload.of(isl=1000, osl=100, batch=8)
MOST = 25
Place = tuple[str, str]


def tpot(heads: Any) -> Any:
    (block,) = MODEL.blocks
    attention = block.attention.replace(kv_heads=heads)
    arch = MODEL.replace(blocks=(block.replace(attention=attention),))
    return Serving.of().estimate(arch, HARDWARE, WORK, PLAN).tpot


def stack(equation: Any) -> tuple[Place, ...]:
    """Functions of the package on the stack of an operation, the innermost first.

    What is written inside a function (a lambda, a comprehension) is a part of it. ``estimate``
    itself, where the way begins, and the check of its arguments are left out.
    """
    found: list[Place] = []
    for frame in equation.source_info.traceback.frames:
        _, inside, file = frame.file_name.partition("/infer_jax/")
        name = frame.function_name.split(".<locals>")[0]
        if inside and file != "specs/arguments.py" and name != "Serving.estimate":
            found.append((file, name))
    return tuple(dict.fromkeys(found))


def way(program: ClosedJaxpr) -> set[Place]:
    """Every function that touches the input, or hands it on, along the longest way to the output.

    The way is the chain of operations, each on the result of the last, that changes place most.
    """
    jaxpr = program.jaxpr
    longest: dict[Any, tuple[int, tuple[tuple[Place, ...], ...]]] = {jaxpr.invars[0]: (0, ())}
    for equation in jaxpr.eqns:
        ways = [longest[v] for v in equation.invars if not isinstance(v, Literal) and v in longest]
        if not ways:
            continue
        changes, stacks = max(ways, key=lambda one: one[0])
        here = stack(equation)
        if here and (not stacks or here[0] != stacks[-1][0]):
            changes, stacks = changes + 1, (*stacks, here)
        longest |= dict.fromkeys(equation.outvars, (changes, stacks))
    return {place for each in longest[jaxpr.outvars[0]][1] for place in each}


def test_a_number_passes_few_places_on_its_way():
    """From an architecture's K/V heads to TPOT, through memory, places, passes and waits."""
    places = way(jax.make_jaxpr(tpot)(8.0))
    assert {("estimators/serving/closed_loop.py", "closed_loop")} < places
    assert ("estimators/serving/pass_terms.py", "products") in places
    assert len(places) <= MOST, sorted(places)
