"""Splits a program into the part that depends on some inputs and the rest, evaluated once.

A program is a jaxpr: a list of operations on named values. An operation is late if a late
input reaches it, else early; early values that late operations need are handed over. So a
quantity is computed as often as what it depends on changes, whatever a compiler makes of it.
"""

from collections.abc import Callable, Sequence
from functools import partial

from jax import Array
from jax.core import eval_jaxpr  # pyright: ignore[reportUnknownVariableType]
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from jax.interpreters import partial_eval

Values = list[Array]


def function_of(program: ClosedJaxpr) -> Callable[..., Values]:
    """The program as a function of its inputs."""
    return partial(eval_jaxpr, program.jaxpr, program.consts)


def reads(program: ClosedJaxpr, output: int) -> list[bool]:
    """Whether each input is read by one output."""
    asked = [i == output for i in range(len(program.jaxpr.outvars))]
    return list(partial_eval.dce_jaxpr(program.jaxpr, asked)[1])


def only(program: ClosedJaxpr, asked: Sequence[bool]) -> ClosedJaxpr:
    """The program of some of its outputs, without what they do not need."""
    lean, _ = partial_eval.dce_jaxpr(program.jaxpr, list(asked), instantiate=True)
    return ClosedJaxpr(lean, program.consts)


def independent(program: ClosedJaxpr, mine: Sequence[bool], others: Sequence[bool]) -> list[bool]:
    """Which outputs need no operation that ``others`` need and ``mine`` do not.

    >>> import jax
    >>> program = jax.make_jaxpr(lambda a, b: (a + 1, b + 1, a + 2, a * (b + 1)))(1.0, 1.0)
    >>> independent(program, [True, False, False, False], [False, True, False, False])
    [True, False, True, True]
    """
    jaxpr = program.jaxpr
    alien = _needed(jaxpr, others) - _needed(jaxpr, mine)
    touched: set[Var] = set()
    for at, equation in enumerate(jaxpr.eqns):
        inputs = [v for v in equation.invars if not isinstance(v, Literal)]
        if at in alien or any(v in touched for v in inputs):
            touched.update(equation.outvars)
    return [isinstance(v, Literal) or v not in touched for v in jaxpr.outvars]


def _needed(jaxpr: Jaxpr, asked: Sequence[bool]) -> set[int]:
    """The positions of the operations that some outputs need."""
    wanted = {v for v, is_asked in zip(jaxpr.outvars, asked, strict=True)
              if is_asked and not isinstance(v, Literal)}  # fmt: skip
    needed: set[int] = set()
    for at in reversed(range(len(jaxpr.eqns))):
        equation = jaxpr.eqns[at]
        if any(v in wanted for v in equation.outvars):
            needed.add(at)
            wanted.update(v for v in equation.invars if not isinstance(v, Literal))
    return needed


def factor(
    program: ClosedJaxpr, late: Sequence[bool]
) -> tuple[Callable[..., Values], Callable[..., Values]]:
    """(early, finish): ``finish(early(*early inputs), *late inputs)`` are the outputs.

    >>> import jax
    >>> program = jax.make_jaxpr(lambda a, b: jax.numpy.sin(a) * b)(1.0, 1.0)
    >>> early, finish = factor(program, [False, True])
    >>> [float(finish(early(0.5), b)[0] / jax.numpy.sin(0.5)) for b in (1.0, 2.0)]
    [1.0, 2.0]
    """
    jaxpr = program.jaxpr
    touched = {v for v, is_late in zip(jaxpr.invars, late, strict=True) if is_late}
    first: list[JaxprEqn] = []
    then: list[JaxprEqn] = []
    for equation in jaxpr.eqns:
        reached = any(v in touched for v in equation.invars if not isinstance(v, Literal))
        (then if reached else first).append(equation)
        touched.update(equation.outvars if reached else ())
    needed = [v for e in then for v in e.invars] + list(jaxpr.outvars)
    kept = [
        v for v in dict.fromkeys(v for v in needed if not isinstance(v, Literal))
        if v not in touched
    ]  # fmt: skip

    inputs = [[v for v, is_late in zip(jaxpr.invars, late, strict=True) if is_late is side]
              for side in (False, True)]  # fmt: skip
    before = jaxpr.replace(eqns=first, invars=inputs[0], outvars=kept)
    after = jaxpr.replace(constvars=kept, eqns=then, invars=inputs[1])
    return partial(eval_jaxpr, before, program.consts), partial(eval_jaxpr, after)
