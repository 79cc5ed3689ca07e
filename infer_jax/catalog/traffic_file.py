"""Descriptions of traffic as files: a few kilobytes of TOML, and the folders of ServeGen.

ServeGen: clients known by rates over time and distributions of lengths, no requests.

github.com/alibaba/ServeGen (README.md, Data Structure; ``ClientPool`` of servegen/clientpool.py
reads them; Xiang et al. 2026, NSDI, arXiv 2505.09999). Of client K, chunk-K-trace.csv has rows
without a header: begin of a window (s), requests/s, coefficient of variation of the time between
them, its law (Gamma or Weibull; none where nobody asks) and that law's two parameters.
chunk-K-dataset.json has windows of its own, {begin: {"input_tokens": "{tokens: share, ...}",
"output_tokens": ...}}, whose distributions are texts.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from infer_jax.catalog.files import read_text, write_text
from infer_jax.catalog.foreign import csv_rows, json_of, read_toml
from infer_jax.errors import InputError

LARGEST = 64 * 2**20  # bytes of a file: the published ones have 8 MB at most
SHARES = re.compile(r"\{(?:\s*\d+\s*:\s*\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\s*(?:,(?!\s*\})|(?=\})))*\}")
LAWS = ("Gamma", "Weibull")
FIELDS = ("input_tokens", "output_tokens")


class Shares(NamedTuple):
    """A distribution: whole tokens, ascending, and requests/s (or a share) of each."""

    tokens: np.ndarray
    weight: np.ndarray


class Clients(NamedTuple):
    """All clients of a folder: by window requests/s, and these times the squared variation.

    ``damaged``: rows, windows of lengths and files that could not be read.
    """

    window: float
    rates: np.ndarray
    varied: np.ndarray
    prompts: Shares
    outputs: Shares
    count: int
    damaged: int


def read_clients(folder: str | os.PathLike[str]) -> Clients:
    """The clients of a folder together: rates add, lengths weigh by the requests that have them.

    Raises:
        InputError: no clients, none with requests and lengths, or windows of different lengths.
    """
    files = sorted(Path(folder).glob("chunk-*-trace.csv"))
    allowed = "chunk-K-trace.csv and chunk-K-dataset.json, as ServeGen has them"
    if not files:
        raise InputError(str(folder), "", "no clients", allowed)
    rows, damaged = dict[float, np.ndarray](), 0
    lengths = {name: dict[int, float]() for name in FIELDS}
    for file in files:
        windows = list[tuple[float, float, float]]()
        for row in csv_rows(str(file), read_text(file, LARGEST)):
            window = _window(row[1])
            damaged += window is None
            windows += [] if window is None else [window]
        begins, found, wrong = _lengths(file.with_name(file.name[:-9] + "dataset.json"))
        damaged += wrong
        asked = np.zeros(len(begins))
        for begin, rate, variation in windows:
            now = rows.setdefault(begin, np.zeros(2))
            now += rate, rate * variation**2
            at = int(np.searchsorted(begins, begin, side="right")) - 1  # as ServeGen looks it up
            if at >= 0:
                asked[at] += rate
        for weight, pair in zip(asked, found, strict=True):
            for name, shares in zip(FIELDS, pair, strict=True):
                for tokens, share in zip(*map(np.ndarray.tolist, shares), strict=True):
                    into = lengths[name]
                    into[tokens] = into.get(tokens, 0.0) + weight * share
    times, steps = np.array(sorted(rows)), np.diff(sorted(rows))
    if not len(steps) or np.any(steps != steps[0]):
        raise InputError(str(folder), "begin of a window", "at unequal times", "equal windows")
    rates, varied = np.array([rows[x] for x in times]).T
    prompts, outputs = (_sorted(lengths[name]) for name in FIELDS)
    if not rates.sum() > 0.0 or not len(prompts.tokens) or not len(outputs.tokens):
        raise InputError(str(folder), "", "no requests with lengths", allowed)
    return Clients(float(steps[0]), rates, varied, prompts, outputs, len(files), damaged)


def _sorted(weights: dict[int, float]) -> Shares:
    tokens = np.array(sorted(x for x in weights if weights[x] > 0.0))
    return Shares(tokens, np.array([weights[x] for x in tokens]))


def _window(cells: list[str]) -> tuple[float, float, float] | None:
    """Begin, rate and variation of a row; None where it is damaged."""
    try:
        begin, rate, variation = (float(x) for x in cells[:3])
    except ValueError:
        return None
    silent = len(cells) == 6 and not cells[3].strip() and rate == 0.0
    known = len(cells) == 6 and cells[3].strip() in LAWS and rate > 0.0
    whole = np.isfinite([begin, rate, variation]).all() and min(begin, variation) >= 0.0
    return (begin, rate, variation) if whole and (known or silent) else None


def _lengths(file: Path) -> tuple[list[float], list[tuple[Shares, Shares]], int]:
    """Begins of the windows that have lengths, prompts and outputs of each; what is damaged."""
    try:
        value = json_of(str(file), read_text(file, LARGEST), LARGEST)
    except InputError:  # missing, or a pointer to a file that was not fetched
        return [], [], 1
    found, damaged = list[tuple[float, tuple[Shares, Shares]]](), 0
    for begin, texts in _items(value):
        pair = [_shares(dict(_items(texts)).get(name)) for name in FIELDS]
        if not str(begin).isdigit() or any(x is None for x in pair):
            damaged += 1
        elif all(len(x.tokens) for x in pair if x is not None):  # nobody asked where they are empty
            found.append((float(begin), (pair[0], pair[1])))  # pyright: ignore
    found.sort(key=lambda x: x[0])
    return [x for x, _ in found], [x for _, x in found], damaged + (not isinstance(value, dict))


def _items(value: object) -> Iterator[tuple[str, object]]:
    yield from (value.items() if isinstance(value, dict) else ())


def _shares(text: object) -> Shares | None:
    """The distribution of a text such as "{12: 0.25, 13: 0.75}"; None where it is none."""
    if not isinstance(text, str) or not SHARES.fullmatch(text.strip()):
        return None
    pairs = [x.split(":") for x in text.strip()[1:-1].split(",") if x.strip()]
    tokens, weight = np.array([int(x) for x, _ in pairs]), np.array([float(y) for _, y in pairs])
    sums_up = not len(pairs) or abs(weight.sum() - 1.0) < 1e-6  # as ServeGen asks
    return Shares(tokens, weight) if sums_up else None


# keys -> fields of `Traffic`, by table, and of its `Sessions`
TABLES = {
    "": {"period_s": "period", "start_s": "start", "rates_per_s": "rates"},
    "bursts": {"variability": "variability", "surge": "surge", "sojourn_s": "sojourn"},
    "lengths": {"prompt_tokens": "prompts", "output_tokens": "outputs",
                "dependence": "dependence", "reuse": "reuse"},
    "sessions": {"turns": "turns", "gap_s": "gaps", "new_tokens": "news",
                 "branches": "branches", "depth": "depth"},
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
