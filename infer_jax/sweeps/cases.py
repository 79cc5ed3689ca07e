"""The [[case]] tables of a file: models, workloads and layouts that one chip serves."""

from collections.abc import Callable

from infer_jax.catalog import load_model
from infer_jax.errors import InputError
from infer_jax.estimators import Estimator
from infer_jax.silicon.mixture import Case, Mixture
from infer_jax.sweeps.axis import Axis
from infer_jax.sweeps.paths import is_table
from infer_jax.sweeps.reading import (
    LEAST_ZERO,
    Body,
    Requirement,
    Table,
    is_number,
    is_text,
    problems_of,
    read_table,
    requests_of,
)

AN_AXIS = "a number above 0, or a table such as { log2 = [1, 64, 7] }"
FORMATS = ("quant", "kv_dtype")


def _fits_axis(x: object) -> bool:
    return is_table(x) or (isinstance(x, int | float) and is_number(x) and x >= 0)


# keys of a [[case]] by the table that the first case has them in
OF_CASE: dict[str, dict[str, Requirement]] = {
    "arch": dict.fromkeys(("model", *FORMATS), Requirement(is_text, "a name")),
    "workload": dict.fromkeys(("isl", "osl", "prefix", "batch"), Requirement(_fits_axis, AN_AXIS)),
    "plan": dict.fromkeys(("tp", "pp", "ep", "dp"), Requirement(_fits_axis, AN_AXIS)),
    "": dict.fromkeys(("requests", "prompts", "outputs", "ttft", "tpot"), LEAST_ZERO),
}


def divide_cases(where: str, table: Table) -> tuple[Table, list[Body]]:
    """The tables of the first [[case]], with its numbers in [arch], [workload] and [plan].

    And each [[case]] with what these tables have for all of them.

    Raises:
        InputError: a case with an unknown key or a value that does not fit.
    """
    kinds = {key: kind for keys in OF_CASE.values() for key, kind in keys.items()}
    shared = {head: table.get(head, {}) for head in OF_CASE if head}
    common = {k: v for head, x in shared.items() for k, v in _part(x, head).items()}
    cases: list[Body] = []
    for i, case in enumerate(table.get("case", ()), 1):
        cases.append({**common, **read_table(where, f"case.{i}", case, kinds)})
        if "model" not in cases[-1]:
            raise InputError(where, f"case.{i}.model", "missing", "a model by name, or [arch]")
    own = {head: {**x, **_part(cases[0], head)} for head, x in shared.items()} if cases else {}
    return {**table, **own}, cases


def _part(case: Table, head: str) -> Body:
    """What a case has of a table of the file."""
    return {k: case[k] for k in OF_CASE[head] if k in case}


def mixture_reader(
    where: str, table: Table, cases: list[Body]
) -> tuple[Callable[[Estimator], Estimator], dict[str, Axis]]:
    """What puts an estimator into a mixture of the cases, and the axes of all but the first."""
    if not cases and "pool" not in table:
        return (lambda made: made), {}
    head = "estimator.target.cases" if "chip" in table else "estimator.cases"
    others: list[Case] = []
    axes: dict[str, Axis] = {}
    models = [_part(case, "arch") for case in cases]
    for i, case in enumerate(cases[1:]):
        tables = {name: _part(case, name) for name in OF_CASE}
        parts, varied = requests_of(where, tables, f"case.{i + 2}: ")
        axes |= {f"{head}.{i}.{path}": axis for path, axis in varied.items()}
        arch = None
        if models[i + 1] != models[0]:
            with problems_of(where, f"case.{i + 2}"):
                name, formats = models[i + 1]["model"], models[i + 1]
                formats = {k: x for k, x in formats.items() if k in FORMATS}
                arch = load_model(name, **formats).architecture
        others.append(Case.of(arch=arch, **parts, **_weights(case)))
    first = _weights(cases[0]) if cases else {}
    own = {"cases": tuple(others), "pool": table.get("pool", ""), **first}
    return (lambda made: Mixture.of(target=made, **own)), axes


def _weights(case: Body) -> Body:
    """The weights and limits of a case; ``requests`` stands for prompts and outputs."""
    found = _part(case, "")
    both = found.pop("requests", 1.0)
    return {"prompts": both, "outputs": both, **found}
