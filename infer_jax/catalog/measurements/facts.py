"""Facts that a file does not contain, given as options or in a sidecar.

A sidecar is TOML or JSON: facts at its top hold for every file, facts in a table named after a
file for that one. A fact that the file states already must not be contradicted.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from infer_jax.catalog.foreign import read_json, read_toml
from infer_jax.catalog.measurements.run import NUMBERS, TEXTS, Run
from infer_jax.errors import InputError

FACTS = (*TEXTS, *NUMBERS, "completed", "max_num_seqs", "max_num_batched_tokens")


def check_facts(where: str, values: Mapping[str, object]) -> dict[str, object]:
    """Facts as texts and floats; None is left out.

    Raises:
        InputError: an unknown name or a malformed value.
    """
    facts = {name: value for name, value in values.items() if value is not None}
    for name, value in facts.items():
        if name not in FACTS:
            raise InputError(where, name, value, f"a fact among {', '.join(FACTS)}")
        if name in TEXTS:
            if not isinstance(value, str) or not value:
                raise InputError(where, name, value, "a text")
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
            raise InputError(where, name, value, "a number of at least 0")
        facts[name] = float(value)
    return facts


def read_sidecar(path: str | os.PathLike[str]) -> dict[str, dict[str, object]]:
    """Facts by file name; those for every file under ``""``.

    Raises:
        InputError: unreadable, an unknown fact, a malformed value.
    """
    table = (read_json if Path(path).suffix.lower() == ".json" else read_toml)(path)
    common = {name: value for name, value in table.items() if not isinstance(value, dict)}
    tables = {name: value for name, value in table.items() if isinstance(value, dict)}
    return {"": check_facts(str(path), common)} | {
        name: check_facts(f"{path}, table {name}", value) for name, value in tables.items()
    }


def complete(
    run: Run, sidecar: Mapping[str, Mapping[str, object]], flags: Mapping[str, object]
) -> Run:
    """The run with the facts that its file leaves open; a flag outranks the sidecar.

    Raises:
        InputError: a fact that contradicts the file, or chips that tp x dp x pp do not make.
    """
    facts = {**sidecar.get("", {}), **sidecar.get(Path(run.file).name, {}), **flags}
    for name, value in facts.items():
        stated = getattr(run, name)
        if stated is not None and stated != value:
            raise InputError(run.place, name, stated, f"{value}, as given, or no such fact")
    run = run.replace(**facts)
    if run.tp is None or run.pools:
        return run
    if not run.tp:
        raise InputError(run.place, "tp", run.tp, "a number above 0")
    product = run.tp * (run.dp or 1.0) * (run.pp or 1.0)
    if run.chips is not None and run.chips % product:
        allowed = f"a multiple of tp x dp x pp = {product:g}"
        raise InputError(run.place, "chips", run.chips, allowed)
    return run.replace(chips=product) if run.chips is None else run
