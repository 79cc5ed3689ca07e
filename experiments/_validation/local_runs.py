"""Local runs that no estimator here answers: the share of the memory's bandwidth that they reach.

Most are of llama.cpp and of models that are not bundled. Of a dense one its name and its format
say enough: a token of one request reads every weight once.
"""

import re
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments import _report
from experiments._columns import printed_rows
from infer_jax.catalog.foreign import read_toml

KNOWN: Any = read_toml(Path(__file__).with_name("local_runs.toml"))
BANDWIDTHS, BITS = KNOWN["bandwidths"], KNOWN["bits"]
SIZE, EXPERTS = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)B(?![a-z])"), re.compile(r"A\d+(\.\d+)?B")
FITS = 0.9  # share of the memory that weights may take beside a cache


def shares(lines: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, str, float]]:
    """(engine, card, share of its bandwidth) of each run of one request of a dense model."""
    for cells in lines:
        size, card = SIZE.search(cells["model"]), cells["gpu"]
        bits = BITS.get(cells["quantisation"].upper())
        mixture = cells["moe"] == "True" or EXPERTS.search(cells["model"])
        single = cells["batch"] in ("", "1") and cells["gpus"] == "1" and cells["drafts"] == "False"
        if size and bits and card in BANDWIDTHS and single and not mixture:
            weights = float(size[1]) * 1e9 * bits / 8
            if cells["vram_gb"] and weights < FITS * 1e9 * float(cells["vram_gb"]):
                read = weights * float(cells["out_tok_s"])
                yield cells["engine"], card, read / BANDWIDTHS[card]


def table(place: Path) -> dict[str, dict[str, float]]:
    """Print the shares by engine and card, and return them in per cent; none without the file."""
    if not place.is_file():
        return {}
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for engine, card, share in shares(printed_rows(place)):
        found[engine, card].append(100 * share)
    figures = {
        f"{engine} {card}": {
            "runs": len(x), "median": round(statistics.median(x), 1), "least": round(min(x), 1),
            "most": round(max(x), 1),
        }
        for (engine, card), x in sorted(found.items())
    }  # fmt: skip
    _report.show(
        "Local runs of dense models: weights read, % of the memory's bandwidth",
        ("engine and card", "runs", "median", "least", "most"),
        [(name, *row.values()) for name, row in figures.items()],
    )
    return figures
