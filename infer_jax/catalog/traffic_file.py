"""A description of traffic as a file: a few kilobytes of TOML, from which traces are drawn."""

import os
from collections.abc import Mapping

import numpy as np

from infer_jax.catalog.files import write_text
from infer_jax.catalog.foreign import read_toml
from infer_jax.errors import InputError

# keys -> fields of `Traffic`, by table, and of its `Sessions`
TABLES = {
    "": {"period_s": "period", "start_s": "start", "rates_per_s": "rates"},
    "bursts": {"variability": "variability", "surge": "surge", "sojourn_s": "sojourn"},
    "lengths": {"prompt_tokens": "prompts", "output_tokens": "outputs",
                "dependence": "dependence", "reuse": "reuse"},
    "sessions": {"turns": "turns", "gap_s": "gaps", "new_tokens": "news",
                 "branches": "branches"},
}  # fmt: skip
LISTS = {"rates": 0, "prompts": 16, "outputs": 16, "gaps": 16, "news": 16}  # their lengths; 0: any
NEEDED = ("rates_per_s", "period_s", "lengths.prompt_tokens", "lengths.output_tokens")
Fields = dict[str, object]


def read_description(path: str | os.PathLike[str]) -> tuple[Fields, Fields]:
    """The fields of a ``Traffic`` in a file, and of its sessions, none where it has none.

    Raises:
        InputError: unreadable, an unknown key, a list that is none or of another length.
    """
    where, tables = str(path), read_toml(path)
    found: dict[str, Fields] = {name: {} for name in TABLES}
    for key, value in tables.items():
        name, inside = (key, value) if isinstance(value, dict) else ("", {key: value})
        if name not in TABLES:
            raise InputError(where, f"[{name}]", "unknown", "[bursts], [lengths], [sessions]")
        found[name] |= _fields(where, name, inside)
    for key in NEEDED:
        name, _, last = key.rpartition(".")
        if TABLES[name][last] not in found[name]:
            raise InputError(where, key, "missing", "a description of traffic has it")
    sessions = found.pop("sessions")
    return {name: x for fields in found.values() for name, x in fields.items()}, sessions


def _fields(where: str, name: str, table: Mapping[str, object]) -> Fields:
    found: Fields = {}
    for key, value in table.items():
        at = f"{name}.{key}" if name else key
        if key not in TABLES[name]:
            raise InputError(where, at, "unknown", ", ".join(TABLES[name]))
        field = TABLES[name][key]
        found[field] = _numbers(where, at, value, LISTS[field]) if field in LISTS else value
    return found


def _numbers(where: str, at: str, value: object, count: int) -> np.ndarray:
    allowed = f"a list of {count or 'one or more'} numbers"
    if not isinstance(value, list) or not all(type(x) in (int, float) for x in value):
        raise InputError(where, at, value, allowed)
    if not value or (count and len(value) != count):
        raise InputError(where, at, f"{len(value)} numbers", allowed)
    if count and np.any(np.diff(value) < 0):
        raise InputError(where, at, value, "numbers that do not decrease")
    return np.asarray(value, float)


def write_description(path: str | os.PathLike[str], fields: Fields, levels: object) -> None:
    """Write the fields of a ``Traffic``, and of its sessions, whole or not at all.

    Raises:
        InputError: the place cannot be written.
    """
    lines = ["# Traffic: requests per second by period, bursts within them, lengths and sessions."]
    lines += [f"# Lists of lengths and gaps are at the probabilities {_text(levels)}."]
    for name, keys in TABLES.items():
        source = fields if name != "sessions" else vars(fields[name]) if fields[name] else {}
        lines += ["", f"[{name}]"] if name and source else []
        lines += [f"{key} = {_text(source[field])}" for key, field in keys.items() if source]
    write_text(path, "\n".join(lines) + "\n")


def _text(value: object) -> str:
    values = np.asarray(value, float)
    if values.ndim:
        return f"[{', '.join(f'{x:.6g}' for x in values)}]"
    return f"{float(values):.12g}"
