"""An estimator's answers in two programs: values of many worlds at once, and slopes at one.

An estimator is traced once for each structure. All worlds that laws compare are rows of one mapped
program; slopes, and what the mapped program is held against, are run operation by operation.
Compiling the ten thousand operations of a slope takes fifty times as long as running them.
"""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal, jaxpr_as_fun

from infer_jax.specs import Workload, leaves
from tests.contract.cases import BLOCKS, ESTIMATORS, JOBS, MODELS, PASSES, SYSTEMS, plan

_compiled: dict[Any, Callable[..., Any]] = {}
_traced: dict[Any, Any] = {}  # of laws and of their slopes, by function and structure


def forget() -> None:
    """Let go what was traced: millions of objects, which every search for garbage would visit."""
    case.cache_clear()
    _traced.clear()


def stepwise(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``function`` of one pytree of arrays, traced once for each structure of it."""

    def call(argument):
        flat, structure = jax.tree.flatten(argument)
        key = function, structure, *((x.shape, x.dtype) for x in flat)
        if key not in _traced:
            trace = jax.jit(function).trace(argument)
            _traced[key] = _steps(trace.jaxpr), jax.tree.structure(trace.out_info)
        run, answered = _traced[key]
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


SMALL = 1e-6  # share of a number by which a difference moves it
MORE = 1.7  # a rate or a capacity is this many times larger


def world(name: str, model: str, system: str, point: str) -> tuple[Any, ...]:
    """(estimator, arch, hardware, forward pass or workload, plan) of a case."""
    if name in JOBS:
        work = Workload.of(isl=1000.3, osl=31.2)
        return JOBS[name].make(), MODELS[model](), SYSTEMS[system](), work, BLOCKS[point]()
    return ESTIMATORS[name].make(), MODELS[model](), SYSTEMS[system](), PASSES[point](), plan()


def declared(everything) -> list[tuple[str, Any]]:
    """(path, metadata) for every number, in the order of ``jax.tree.leaves``.

    The fields are declared in the order in which JAX flattens them: a test holds that.
    """
    return [(path, meta) for tree in everything for path, meta, _ in leaves(tree)]


def scaled(everything, factor):
    """The world with every number times ``factor(index, metadata)``."""
    flat, structure = jax.tree.flatten(everything)
    factors = [factor(i, meta) for i, (_, meta) in enumerate(declared(everything))]
    return jax.tree.unflatten(structure, [x * k for x, k in zip(flat, factors, strict=True)])


def without_network(everything):
    estimator, arch, hardware, asked, split = everything
    rates = ("domain_bandwidth", "network_bandwidth", "link_bandwidth")
    none = {f: np.zeros(()) for f in rates if hasattr(hardware.network, f)}
    cut = hardware.replace(network=hardware.network.replace(**none))
    return estimator, arch, cut, asked, split


def variations(name: str, model: str, system: str) -> Iterator[tuple[Any, Any]]:
    """The worlds that laws compare, by label."""
    points = tuple(BLOCKS if name in JOBS else PASSES)
    for point in points:
        yield point, world(name, model, system, point)
    usual = world(name, model, system, points[0])
    for point in points[:2]:
        at = world(name, model, system, point)
        flat = jax.tree.leaves(at)
        for i, (_, meta) in enumerate(declared(at)):
            if meta["kind"] != "choice" and flat[i] != 0.0:
                for side in (1, -1):
                    h = side * SMALL
                    yield (point, i, side), scaled(at, lambda j, _, i=i, h=h: 1 + h * (i == j))
    for i, (_, meta) in enumerate(declared(usual)):
        if meta["kind"] in ("rate", "capacity"):
            yield ("more", i), scaled(usual, lambda j, _, i=i: MORE if i == j else 1.0)
    yield (
        "scaled",
        scaled(usual, lambda _, meta: {"rate": MORE, "time": 1 / MORE}.get(meta["kind"], 1)),
    )
    estimator, arch, hardware, asked, split = usual
    if name not in JOBS:
        alone = dict.fromkeys(("tp", "pp", "ep", "attention_split"), np.ones(()))
        one = (estimator, arch, hardware, asked, split.replace(**alone))
        yield from {"one": one, "one, no network": without_network(one)}.items()
        yield "no network", without_network(usual)


def answer(everything):
    """The ``Phase`` of a pass or the ``Estimate`` of a job, from one trace of its structure."""
    flat, structure = jax.tree.flatten(everything)
    key = structure, *(x.dtype for x in flat)
    if key not in _traced:
        scalars = [jax.ShapeDtypeStruct((), x.dtype) for x in flat]

        def law(estimator, *rest):
            return (estimator.step if estimator.prices_passes else estimator.estimate)(*rest)

        trace = jax.make_jaxpr(law, return_shape=True)
        jaxpr, shape = trace(*jax.tree.unflatten(structure, scalars))
        _traced[key] = jaxpr_as_fun(jaxpr), jax.tree.structure(shape)
    run, answered = _traced[key]
    return jax.tree.unflatten(answered, run(*flat))


# mapped programs run once: compiling takes all the time, so compile quickly
mapped = jax.jit(
    lambda everything: jax.vmap(answer)(everything),
    compiler_options={"xla_backend_optimization_level": 0},
)
alone = stepwise(answer)


def slopes_of_log_time(everything):
    """Log time, its slope to each number, and along the point: of reverse and forward mode."""
    value, along = jax.linearize(lambda x: jnp.log(answer(x).time), everything)
    (reverse,) = jax.linear_transpose(along, everything)(jnp.ones_like(value))
    return value, reverse, along(everything)


slopes = stepwise(slopes_of_log_time)


def numbers(everything, dtype: Any = float):
    """As one kind of number, whatever the leaves were made of."""
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), everything)


class Case:
    """The answers of an estimator on a model and a system, by the label of their world."""

    def __init__(self, name: str, model: str, system: str):
        self.name = name
        self.worlds = dict(variations(name, model, system))
        self.rows = {label: i for i, label in enumerate(self.worlds)}
        self.usual = self.worlds[next(iter(self.worlds))]
        self.stacked = jax.tree.map(
            lambda *x: np.stack([np.asarray(v, float) for v in x]), *self.worlds.values()
        )
        self.answers = jax.device_get(mapped(self.stacked))
        self.slopes = cache(lambda label: slopes(numbers(self.worlds[label])))

    def __getitem__(self, label):
        return jax.tree.map(lambda x: x[self.rows[label]], self.answers)


case = cache(Case)
