"""A description of traffic as a file: a few kilobytes of TOML, from which traces are drawn."""

import os
from collections.abc import Mapping

import numpy as np

from infer_jax.catalog.files import write_text
from infer_jax.catalog.foreign import read_toml
from infer_jax.errors import InputError

# keys -> fields of `Traffic`, then those of [lengths], [bursts] and [sessions]
TABLES = {
    "": {"period_s": "period", "start_s": "start", "rates_per_s": "rates"},
    "bursts": {"variability": "variability", "surge": "surge", "sojourn_s": "sojourn"},
    "lengths": {"prompt_tokens": "prompts", "output_tokens": "outputs",
                "dependence": "dependence", "reuse": "reuse"},
}  # fmt: skip
SESSIONS = {"turns": "turns", "gap_s": "gaps", "new_tokens": "news"}
LISTS = {"rates": 0, "prompts": 16, "outputs": 16, "gaps": 16, "news": 16}  # their lengths; 0: any


def read_description(path: str | os.PathLike[str]) -> dict[str, object]:
    """The fields of a ``Traffic`` in a file; ``sessions`` are those of its sessions.

    Raises:
        InputError: unreadable, an unknown key, a list that is none or of another length.
    """
    where, tables = str(path), read_toml(path)
    top = {key: x for key, x in tables.items() if not isinstance(x, dict)}
    values: dict[str, object] = {}
    for name, keys in TABLES.items():
        table = tables.get(name, {}) if name else top
        values |= _fields(where, name, table, keys)
    if "sessions" in tables:
        values["sessions"] = _fields(where, "sessions", tables["sessions"], SESSIONS)
    unknown = [x for x in tables if isinstance(tables[x], dict) and x not in (*TABLES, "sessions")]
    if unknown:
        raise InputError(where, f"[{unknown[0]}]", "unknown", "[bursts], [lengths], [sessions]")
    for key in ("rates_per_s", "period_s", "lengths.prompt_tokens", "lengths.output_tokens"):
        table, _, last = key.rpartition(".")
        if TABLES[table][last] not in values:
            raise InputError(where, key, "missing", "a description of traffic has it")
    return values


def _fields(where: str, name: str, table: object, keys: Mapping[str, str]) -> dict[str, object]:
    found: dict[str, object] = {}
    if not isinstance(table, dict):
        raise InputError(where, f"[{name}]", table, "a table")
    for key, value in table.items():
        at = f"{name}.{key}" if name else key
        if key not in keys:
            raise InputError(where, at, "unknown", ", ".join(keys))
        field = keys[key]
        if field in LISTS:
            value = _numbers(where, at, value, LISTS[field])
        found[field] = value
    return found


def _numbers(where: str, at: str, value: object, count: int) -> np.ndarray:
    allowed = f"a list of {count or 'one or more'} numbers"
    numbers = (int, float)
    if not isinstance(value, list) or not all(type(x) in numbers for x in value):
        raise InputError(where, at, value, allowed)
    if not value or (count and len(value) != count):
        raise InputError(where, at, f"{len(value)} numbers", allowed)
    if count and np.any(np.diff(value) < 0):
        raise InputError(where, at, value, "numbers that do not decrease")
    return np.asarray(value, float)


def write_description(
    path: str | os.PathLike[str], fields: Mapping[str, object], levels: object
) -> None:
    """Write the fields of a ``Traffic``, and of its sessions, whole or not at all.

    Raises:
        InputError: the place cannot be written.
    """
    lines = ["# Traffic: requests per second by period, bursts within them, lengths and sessions."]
    lines += [f"# Lists of lengths and gaps are at the probabilities {_text(levels)}."]
    for name, keys in TABLES.items():
        lines += ["", f"[{name}]"] if name else []
        lines += [f"{key} = {_text(fields[field])}" for key, field in keys.items()]
    sessions = fields.get("sessions")
    if isinstance(sessions, Mapping):
        lines += ["", "[sessions]"]
        lines += [f"{key} = {_text(sessions[field])}" for key, field in SESSIONS.items()]
    write_text(path, "\n".join(lines) + "\n")


def _text(value: object) -> str:
    values = np.asarray(value, float)
    if values.ndim:
        return f"[{', '.join(f'{x:.6g}' for x in values)}]"
    return f"{float(values):.12g}"
