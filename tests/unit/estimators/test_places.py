"""How far is it from a number of a model to an answer? Few functions, each doing something."""

from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Literal

import infer_jax as ij
from infer_jax.estimators import Serving

MODEL = ij.load_model("llama-3.1-8b").architecture
HARDWARE, PLAN = ij.load_system("h100_sxm").hardware, ij.Plan.of(tp=2)
WORK = ij.Workload.of(isl=1000, osl=100, batch=8)
MOST = 27
LEFT_OUT = ("specs/arguments.py", "typed_jax/trees.py")
Place = tuple[str, str]
ACCOUNT = ("estimators/serving/memory.py", "capacity")


def answered(heads: Any) -> tuple[Any, Any]:
    """TPOT, and the requests that memory has room for, of a model with that many K/V heads."""
    (block,) = MODEL.blocks
    assert block.attention is not None
    attention = block.attention.replace(kv_heads=heads)
    arch = MODEL.replace(blocks=(block.replace(attention=attention),))
    estimate = Serving.of().estimate(arch, HARDWARE, WORK, PLAN)
    return estimate.tpot, estimate.places


def stack(equation: Any) -> tuple[Place, ...]:
    """Functions of the package on the stack of an operation, the innermost first.

    What is written inside a function (a lambda, a comprehension) is a part of it. ``estimate``
    itself, where the way begins, the check of its arguments, and ``jax.tree.map`` under the typed
    names of typed_jax/trees.py are left out.
    """
    result: list[Place] = []
    for frame in equation.source_info.traceback.frames:
        _, inside, file = frame.file_name.partition("/infer_jax/")
        name = frame.function_name.split(".<locals>")[0]
        if inside and file not in LEFT_OUT and name != "Serving.estimate":
            result.append((file, name))
    return tuple(dict.fromkeys(result))


def way(program: ClosedJaxpr, output: int, *, but: Place | None = None) -> set[Place]:
    """Every function that touches the input, or hands it on, along the longest way to an output.

    The way is the chain of operations, each on the result of the last, that changes place most;
    what is done below the function ``but`` is no part of it.
    """
    jaxpr = program.jaxpr
    longest: dict[Any, tuple[int, tuple[tuple[Place, ...], ...]]] = {jaxpr.invars[0]: (0, ())}
    for equation in jaxpr.eqns:
        ways = [longest[v] for v in equation.invars if not isinstance(v, Literal) and v in longest]
        here = stack(equation)
        if not ways or but in here:
            continue
        changes, stacks = max(ways, key=lambda one: one[0])
        if here and (not stacks or here[0] != stacks[-1][0]):
            changes, stacks = changes + 1, (*stacks, here)
        longest |= dict.fromkeys(equation.outvars, (changes, stacks))
    return {place for each in longest[jaxpr.outvars[output]][1] for place in each}


def test_a_number_passes_few_places_on_its_way():
    """From K/V heads to what memory has room for, and from them through the passes to TPOT."""
    program = jax.make_jaxpr(answered)(8.0)
    held, passes = way(program, 1), way(program, 0, but=ACCOUNT)
    assert ACCOUNT in held and len(held) <= MOST, sorted(held)
    assert ("estimators/serving/passes.py", "passes") in passes
    assert ("estimators/serving/closed_loop.py", "closed_loop") in passes
    assert len(passes) <= MOST, sorted(passes)
    whole = way(program, 0)  # on which the account of memory stands before the passes
    assert ACCOUNT in whole and len(whole) <= MOST, sorted(whole)
