"""Functions whose operations are run one after the other, instead of being compiled as a whole.

Compiling the ten thousand operations of a slope takes fifty times as long as running them, and a
test of slopes runs them a few times. An operation is compiled once for all functions.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal

_compiled: dict[Any, Callable[..., Any]] = {}


def stepwise(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``function`` of one pytree of arrays, traced once for each structure of it."""
    traced: dict[Any, Any] = {}

    def call(argument):
        flat, structure = jax.tree.flatten(argument)
        key = structure, *((x.shape, x.dtype) for x in flat)
        if key not in traced:
            trace = jax.jit(function).trace(argument)
            traced[key] = _steps(trace.jaxpr), jax.tree.structure(trace.out_info)
        run, answered = traced[key]
        return jax.tree.unflatten(answered, run(flat))

    return call


def _steps(closed: Any) -> Callable[[list[Any]], list[Any]]:
    """What runs the equations of a jaxpr, for each of which it knows the places of its values."""
    jaxpr = closed.jaxpr
    begin = [*closed.consts, *(None for _ in jaxpr.invars)]
    places: dict[Any, int] = {name: at for at, name in enumerate(jaxpr.constvars + jaxpr.invars)}

    def place(atom: Any) -> int:
        literal, kind = isinstance(atom, Literal), atom.aval
        name = (str(kind), np.asarray(atom.val).tobytes()) if literal else atom
        if name not in places:
            places[name] = len(begin)
            begin.append(jax.numpy.asarray(atom.val, kind.dtype) if literal else None)
        return places[name]

    steps = [
        (_operation(equation), [*map(place, equation.invars)], [*map(place, equation.outvars)])
        for equation in jaxpr.eqns
    ]
    ends = [*map(place, jaxpr.outvars)]

    def run(flat):
        values = begin.copy()
        values[len(closed.consts) : len(closed.consts) + len(flat)] = flat
        for operation, taken, given in steps:
            results = operation(*[values[at] for at in taken])
            for at, result in zip(given, results, strict=True):
                values[at] = result
        return [values[at] for at in ends]

    return run


def _operation(equation: Any) -> Callable[..., Any]:
    """The compiled operation of an equation, as a list of results."""
    primitive, params = equation.primitive, equation.params
    key = primitive, *sorted(params.items())
    if key not in _compiled:

        def bound(*arguments):
            results = primitive.bind(*arguments, **primitive.get_bind_params(params))
            return results if primitive.multiple_results else [results]

        _compiled[key] = jax.jit(bound)
    return _compiled[key]
