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
from bisect import bisect_right
from collections import defaultdict
from operator import itemgetter
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
Lengths = dict[int, float]  # shares of requests, or requests/s, by their tokens


class Clients(NamedTuple):
    """All clients of a folder: by window requests/s, and these times the squared variation.

    ``prompts`` and ``outputs``: requests/s by tokens; ``damaged``: rows, windows of lengths and
    files that could not be read.
    """

    window: float
    rates: np.ndarray
    varied: np.ndarray
    prompts: Lengths
    outputs: Lengths
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
    rows, damaged = defaultdict[float, np.ndarray](lambda: np.zeros(2)), 0
    prompts, outputs = lengths = [defaultdict[int, float](float) for _ in FIELDS]
    for file in files:
        found, wrong = _lengths(file.with_name(file.name[:-9] + "dataset.json"))
        damaged, begins = damaged + wrong, [begin for begin, _ in found]
        asked = [0.0] * len(found)
        for _, row in csv_rows(str(file), read_text(file, LARGEST)):
            if (window := _window(row)) is None:
                damaged += 1
                continue
            begin, rate, variation = window
            rows[begin] += rate, rate * variation**2
            if at := bisect_right(begins, begin):  # as ServeGen looks it up
                asked[at - 1] += rate
        for weight, (_, pair) in zip(asked, found, strict=True):
            for into, shares in zip(lengths, pair, strict=True):
                for tokens, share in shares.items():
                    into[tokens] += weight * share
    times, steps = sorted(rows), np.diff(sorted(rows))
    if not len(steps) or np.any(steps != steps[0]):
        raise InputError(str(folder), "begin of a window", "at unequal times", "equal windows")
    rates, varied = np.array([rows[x] for x in times]).T
    if not rates.sum() > 0.0 or not all(sum(x.values()) > 0.0 for x in lengths):
        raise InputError(str(folder), "", "no requests with lengths", allowed)
    return Clients(float(steps[0]), rates, varied, prompts, outputs, len(files), damaged)


def _window(cells: list[str]) -> tuple[float, float, float] | None:
    """Begin, rate and variation of a row; None where it is damaged."""
    try:
        begin, rate, variation = map(float, cells[:3])
        law = cells[3]
    except (IndexError, ValueError):
        return None
    known = rate > 0.0 if law in LAWS else rate == 0.0 and not law
    whole = len(cells) == 6 and all(0.0 <= x < np.inf for x in (begin, rate, variation))
    return (begin, rate, variation) if whole and known else None


def _lengths(file: Path) -> tuple[list[tuple[float, list[Lengths]]], int]:
    """Prompts and outputs of the windows that have some, by begin; how much is damaged."""
    try:
        windows = json_of(str(file), read_text(file, LARGEST), LARGEST)
    except InputError:  # missing, or a pointer to a file that was not fetched
        windows = None
    if not isinstance(windows, dict):
        return [], 1
    found, damaged = list[tuple[float, list[Lengths]]](), 0
    for begin, texts in windows.items():
        texts = texts if isinstance(texts, dict) else {}
        pair = [shares for x in FIELDS if (shares := _shares(texts.get(x))) is not None]
        if not begin.isdigit() or len(pair) < len(FIELDS):
            damaged += 1
        elif all(pair):  # nobody asked where they are empty
            found.append((float(begin), pair))
    return sorted(found, key=itemgetter(0)), damaged


def _shares(text: object) -> Lengths | None:
    """The distribution of a text such as "{12: 0.25, 13: 0.75}"; None where it is none."""
    if not isinstance(text, str) or not SHARES.fullmatch(text.strip()):
        return None
    pairs = (x.split(":") for x in text.strip()[1:-1].split(",") if x.strip())
    shares = {int(tokens): float(share) for tokens, share in pairs}
    sums_up = not shares or abs(sum(shares.values()) - 1.0) < 1e-6  # as ServeGen asks
    return shares if sums_up else None


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
    where, fields, sessions, given = str(path), Fields(), Fields(), set[str]()
    for key, value in read_toml(path).items():
        name, inside = (key, value) if isinstance(value, dict) else ("", {key: value})
        if name not in TABLES:
            raise InputError(where, f"[{name}]", "unknown", "[bursts], [lengths], [sessions]")
        into = sessions if name == "sessions" else fields
        for key, value in inside.items():
            at = f"{name}.{key}" if name else key
            if key not in TABLES[name]:
                raise InputError(where, at, "unknown", ", ".join(TABLES[name]))
            field = TABLES[name][key]
            into[field] = _numbers(where, at, value, LISTS[field]) if field in LISTS else value
            given.add(at)
    for key in NEEDED:
        if key not in given:
            raise InputError(where, key, "missing", "a description of traffic has it")
    return fields, sessions


def _numbers(where: str, at: str, value: object, count: int) -> np.ndarray:
    values = value if isinstance(value, list) else []
    good = values and all(type(x) in (int, float) for x in values)
    if not good or (count and (len(values) != count or np.any(np.diff(values) < 0))):
        allowed = f"{count} numbers that do not decrease" if count else "one or more numbers"
        raise InputError(where, at, value, f"a list of {allowed}")
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
