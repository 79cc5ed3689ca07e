"""Reads a SPACE.toml: a space, an estimator and what to keep."""

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from infer_jax.catalog import Model, System, list_models, list_systems, load_model, load_system
from infer_jax.catalog.foreign import read_toml
from infer_jax.catalog.published import serving_measured
from infer_jax.catalog.sheets import sensible_changes
from infer_jax.errors import InputError
from infer_jax.estimators import Estimator, Trust, trust
from infer_jax.estimators.registry import variant
from infer_jax.silicon.chips import SiliconSystem, load_silicon
from infer_jax.silicon.mixture import POOLS
from infer_jax.silicon.on_silicon import COUNTED, OnSilicon, scaled_dies
from infer_jax.specs import leaves
from infer_jax.sweeps.axis import Axis
from infer_jax.sweeps.constraint import FORMS, RELATIONS, Constraint, Predicate
from infer_jax.sweeps.histogram import Histogram, Quantiles
from infer_jax.sweeps.legality import dies_are_whole
from infer_jax.sweeps.pareto import Pareto
from infer_jax.sweeps.paths import is_list, is_names, is_table
from infer_jax.sweeps.preparing import Prepared, prepare
from infer_jax.sweeps.reading import (
    FORMATS,
    NUMBER,
    Body,
    Requirement,
    Table,
    axes_of,
    divide_cases,
    is_number,
    is_text,
    mixture_reader,
    problems_of,
    read_table,
    requests_of,
    table_of,
    whole_number,
)
from infer_jax.sweeps.reducers import Best, Everything, Reducer, TopK
from infer_jax.sweeps.space import Space

Item = TypeVar("Item")
DEFAULT = "serving"  # the estimator where a file names none


TERM = Requirement(is_text, "the name of a term")
TERMS = Requirement(is_names, "a list of names of terms")
LIMITS = Requirement(
    lambda x: is_table(x) and all(is_number(limit) for limit in x.values()),
    "a table of limits such as { ttft = 0.3 }",
)
SHARED = {  # keys of a file of a sweep and of a design
    "estimator": Requirement(lambda x: is_text(x) or _is_filled(x), "a name, or a list of names"),
    "feasible": TERM,
    **table_of("arch", "hardware", "chip", "workload", "plan", "coefficients"),
    "zip": Requirement(
        lambda x: is_list(x) and all(_is_filled(names) for names in x), "lists of axes"
    ),
    "where": Requirement(is_list, "[[where]] tables"),
    "case": Requirement(is_list, "[[case]] tables"),
    "pool": Requirement(lambda x: x in POOLS, " or ".join(POOLS)),
}
CONSTRAINT = {
    **dict.fromkeys(FORMS[:3], Requirement(is_names, "a list of names")),
    "value": Requirement(is_text, "a name"),
    **dict.fromkeys(
        RELATIONS,
        Requirement(lambda x: is_text(x) or type(x) in (int, float), "a number, or a name"),
    ),
}
PER = {"per": Requirement(lambda x: is_text(x) or is_names(x), "an axis, or a list of axes")}
NUMBERS = Requirement(lambda x: is_list(x) and all(map(is_number, x)), "a list of numbers")
# by key of a [keep] table: the constructor, its value, and its options
REDUCERS: dict[str, tuple[Callable[..., Reducer], Requirement, dict[str, Requirement]]] = {
    "pareto": (Pareto, TERMS, {**PER, "epsilon": NUMBER}),
    "top": (TopK, Requirement(lambda x: type(x) is int, "a count"), {"by": TERM, **PER}),
    "best": (Best, TERM, {"under": LIMITS, "misses": whole_number(1, 1000), **PER}),
    "histogram": (Histogram, TERM, {"edges": NUMBERS}),
    "quantiles": (Quantiles, TERM, {"q": NUMBERS}),
    "everything": (Everything, TERMS, {}),
}


class SweepFile(NamedTuple):
    """A sweep as a file describes it."""

    estimator: Estimator | list[Estimator]
    space: Space
    keep: Reducer
    feasible: str
    names: tuple[str, ...]  # of the estimators

    def prepared(self, precision: str, legal: bool = True) -> Prepared:
        """The grid of the sweep, checked."""
        return prepare(*self[:3], precision=precision, feasible=self.feasible, legal=legal)


def space_of(where: str, table: Table, keep: Reducer | None = None) -> SweepFile:
    """The sweep of the tables of a file; ``keep`` in place of what they keep.

    Raises:
        InputError: an unknown key, model, system or estimator, an axis or a constraint of the
            wrong form.
    """
    table = read_table(where, "", table, {**SHARED, **table_of("keep")})
    if keep is None and "keep" not in table:
        raise InputError(where, "keep", "missing", "a table [keep]")
    estimator, space, feasible = read_space(where, table)
    names = table.get("estimator", DEFAULT)
    names = (names,) if isinstance(names, str) else tuple(names)
    return SweepFile(estimator, space, keep or _keep(where, table["keep"]), feasible, names)


def read_space(
    where: str, table: Table, default: str = DEFAULT
) -> tuple[Estimator | list[Estimator], Space, str]:
    """(estimator, space, the limits that make a point feasible) of the tables of a file.

    ``default`` is the estimator where the file names none.

    Raises:
        InputError: as ``space_of``.
    """
    table, cases = divide_cases(where, table)
    if "arch" not in table:
        raise InputError(where, "arch", "missing", "a table [arch]")
    if ("hardware" in table) == ("chip" in table):
        wrong = "both [hardware] and [chip]" if "chip" in table else "missing"
        allowed = "a table [hardware], or [chip] for silicon"
        raise InputError(where, "hardware", wrong, allowed)
    # coefficients of systems are added when the space is divided into groups
    names: str | list[str] = table.get("estimator", default)
    mixture, axes = mixture_reader(where, table, cases)
    estimators = _loaded(names, lambda name: _estimator(where, name, table.get("chip"), mixture))
    models, of_models = _models(where, dict(table["arch"]))
    read, head = (_silicon, "chip") if "chip" in table else (_systems, "hardware")
    systems, of_systems = read(where, dict(table[head]))
    coefficients = axes_of(where, "estimator", table.get("coefficients", {}))
    parts, of_requests = requests_of(where, table)
    axes |= {**of_models, **of_systems, **coefficients, **of_requests}
    limits: list[Predicate] = [_constraint(where, x) for x in table.get("where", ())]
    limits += [dies_are_whole] if table.get("chip", {}).get("chiplets") else []
    space = Space(models, systems, **parts, axes=axes, zips=table.get("zip", ()), where=limits)
    return estimators, space, table.get("feasible", "feasible")


def _is_filled(value: object) -> bool:
    return is_names(value) and bool(value)


def _loaded(names: str | list[str], load: Callable[[str], Item]) -> Item | list[Item]:
    """What a name or each of several names stands for."""
    return load(names) if isinstance(names, str) else [load(name) for name in names]


def _names(
    where: str, part: str, noun: str, body: Body, available: Callable[[], Iterable[str]]
) -> str | list[str]:
    """One name (``model = ``), or a list of names (``models = ``); "all" means every name."""
    name, several = body.pop(noun, None), body.pop(f"{noun}s", None)
    if several == "all":
        several = list(available())
    if isinstance(name, str) and several is None:
        return name
    if name is None and is_names(several) and several:
        return several
    allowed = f"{noun} = a name, or {noun}s = a list of names or 'all'"
    raise InputError(where, part, name or several or "missing", allowed)


def _models(where: str, body: Body) -> tuple[Model | list[Model], dict[str, Axis]]:
    formats = {key: body.pop(key) for key in FORMATS if key in body}
    if not all(isinstance(x, str) for x in formats.values()):
        raise InputError(where, "arch", formats, "formats by name")
    names = _names(where, "arch", "model", body, list_models)
    axes = axes_of(where, "arch", body)
    return _loaded(names, partial(load_model, **formats)), axes


def _systems(where: str, body: Body) -> tuple[System | list[System], dict[str, Axis]]:
    names = _names(where, "hardware", "system", body, list_systems)
    axes = axes_of(where, "hardware", body)
    systems = _loaded(names, load_system)
    steps = {
        path.removeprefix("hardware."): [x for x in axis.steps if isinstance(x, int | float)]
        for path, axis in axes.items()
    }
    for system in systems if isinstance(systems, list) else [systems]:
        sensible_changes(where, "hardware", system.hardware, steps)
    return systems, axes


def _silicon(where: str, body: Body) -> tuple[System, dict[str, Axis]]:
    """The silicon of a [chip] table, and axes over its numbers.

    Of what is counted, ``[low, high]`` are all whole numbers between, and no others are taken.
    """
    name, chiplets = body.pop("silicon", None), body.pop("chiplets", False)
    body.pop("counted", None)
    if not isinstance(name, str):
        allowed = "a chip by name, or a file that describes one"
        raise InputError(where, "chip.silicon", name or "missing", allowed)
    system = load_silicon(name)
    if chiplets:  # its numbers are of the package from here on
        chip = scaled_dies(system.chip, system.chip.dies)
        system = dataclasses.replace(system, chip=chip)
    fields = leaves(system.chip)
    counts = {f"hardware.{path}" for path, known, _ in fields if known["kind"] == "count"}
    axes = axes_of(where, "hardware", body, counts)
    for path, axis in axes.items():
        if path in counts and not all(is_number(x) and x % 1 == 0 for x in axis.steps):
            field = path.replace("hardware", "chip", 1)
            raise InputError(where, field, list(axis.steps), "whole numbers")
    return system, axes


def _estimator(
    where: str, name: str, chip: Table | None, mixture: Callable[[Estimator], Estimator]
) -> Estimator:
    """An estimator by its name, of all cases; of a [chip] table one that takes silicon."""
    made = mixture(variant(name).make())
    if chip is None:
        return made
    counted = chip.get("counted", COUNTED[0])
    if counted not in COUNTED:
        raise InputError(where, "chip.counted", counted, ", ".join(COUNTED))
    if not isinstance(chiplets := chip.get("chiplets", False), bool):
        raise InputError(where, "chip.chiplets", chiplets, "true or false")
    return OnSilicon.of(target=made, counted=counted, chiplets=chiplets)


def _constraint(where: str, table: object) -> Constraint:
    fields: Body = read_table(where, "where", table, CONSTRAINT)
    fields = {k: tuple(v) if is_list(v) else v for k, v in fields.items()}
    with problems_of(where, "where"):
        return Constraint(**fields)


def _keep(where: str, table: Table) -> Reducer:
    """The reducer of a [keep] table: the one key that names it, and its options."""
    reducers = [key for key in table if key in REDUCERS]
    if len(reducers) != 1:
        raise InputError(where, "keep", list(table), f"exactly one of {', '.join(REDUCERS)}")
    [name] = reducers
    maker, value, options = REDUCERS[name]
    body = read_table(where, "keep", table, {name: value, **options})
    body = {k: tuple(v) if is_list(v) else v for k, v in body.items()}
    first = body.pop(name)
    with problems_of(where, "keep"):
        try:
            return maker(*(first if isinstance(first, tuple) else [first]), **body)
        except TypeError:
            allowed = f"with {', '.join(options)}"
            raise InputError("", name, "without its options", allowed) from None


# also a file, or its tables
SpaceLike = Space | str | os.PathLike[str] | Mapping[str, object]
Estimators = str | Estimator | Sequence[str | Estimator]
WHAT_TO_KEEP = "what to keep, such as Pareto('speed', 'cost'), TopK(10, 'cost') or Best('cost')"


def request_of(
    space: SpaceLike, keep: Reducer | None, estimator: Estimators | None, feasible: str | None
) -> SweepFile:
    """The sweep to run: of a file, or of a space and the other arguments.

    Each system has its own coefficients.
    """
    if isinstance(space, Space):
        if keep is None:
            raise InputError("sweep", "keep", "missing", WHAT_TO_KEEP)
        request = SweepFile([], space, keep, "feasible", ())
        estimator = DEFAULT if estimator is None else estimator
    elif isinstance(space, Mapping):
        request = space_of("sweep", space, keep)
    else:
        request = space_of(str(Path(space)), read_toml(Path(space)), keep)
    if estimator is not None:
        single = isinstance(estimator, str | Estimator)
        several = [estimator] if single else list(estimator)
        made = [variant(x).make() if isinstance(x, str) else x for x in several]
        names = tuple(x if isinstance(x, str) else x.innermost.table for x in several)
        request = request._replace(estimator=made[0] if single else made, names=names)
    return request._replace(feasible=feasible) if feasible else request


def trusts_of(request: SweepFile, ready: Prepared) -> list[Trust]:
    """How far each estimator is trusted on each system, and for a model that was not measured."""
    systems = list(ready.systems.values())
    models = [x.name for x in ready.models]

    def unmeasured(system: System) -> str:
        own, measured = system.calibration, serving_measured().models
        known = measured if own is None else (own.model,)
        return next((name for name in models if name not in known), *models[:1] or [""])

    return [
        trust(
            name,
            estimator.fitted_to(system.coefficients).innermost,
            system,
            unmeasured(system),
            isinstance(system, SiliconSystem),
        )
        for name, estimator in zip(request.names, ready.estimators, strict=True)
        for system in systems
    ]
