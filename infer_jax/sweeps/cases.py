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
    cases = [
        read_table(where, f"case.{i}", x, kinds) for i, x in enumerate(table.get("case", ()), 1)
    ]
    if not cases:
        return table, []
    shared = {head: table.get(head, {}) for head in OF_CASE if head}
    common = {k: v for head, x in shared.items() for k, v in x.items() if k in OF_CASE[head]}
    cases = [{**common, **case} for case in cases]
    for i, case in enumerate(cases, 1):
        if "model" not in case:
            raise InputError(where, f"case.{i}.model", "missing", "a model by name, or [arch]")
    own = {
        head: {**x, **{k: v for k, v in cases[0].items() if k in OF_CASE[head]}}
        for head, x in shared.items()
    }
    return {**table, **own}, cases


def mixture_reader(
    where: str, table: Table, cases: list[Body]
) -> tuple[Callable[[Estimator], Estimator], dict[str, Axis]]:
    """What puts an estimator into a mixture of the cases, and the axes of all but the first."""
    if not cases and "pool" not in table:
        return (lambda made: made), {}
    head = "estimator.target.cases" if "chip" in table else "estimator.cases"
    others: list[Case] = []
    axes: dict[str, Axis] = {}
    formats = [{k: case[k] for k in OF_CASE["arch"] if k in case} for case in cases]
    for i, case in enumerate(cases[1:]):
        tables = {name: {k: case[k] for k in OF_CASE[name] if k in case} for name in OF_CASE}
        parts, varied = requests_of(where, tables, f"case.{i + 2}: ")
        axes |= {f"{head}.{i}.{path}": axis for path, axis in varied.items()}
        arch = None
        if formats[i + 1] != formats[0]:
            with problems_of(where, f"case.{i + 2}"):
                arch = load_model(case["model"], **{k: case[k] for k in FORMATS if k in case})
        model = None if arch is None else arch.architecture
        others.append(Case.of(arch=model, **parts, **_weights(case)))
    first = _weights(cases[0]) if cases else {}
    own = {"cases": tuple(others), "pool": table.get("pool", ""), **first}
    return (lambda made: Mixture.of(target=made, **own)), axes


def _weights(case: Body) -> Body:
    """The weights and limits of a case; ``requests`` stands for prompts and outputs."""
    found = {k: case[k] for k in OF_CASE[""] if k in case}
    both = found.pop("requests", 1.0)
    return {"prompts": both, "outputs": both, **found}
