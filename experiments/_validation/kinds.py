"""The measured files of the scoreboard: those that are fitted, and others that are only scored."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from experiments._report import SHARED
from experiments._validation import ml_energy, replays, wide_experts
from infer_jax.calibration.pooled import readers
from infer_jax.calibration.pooled.readers import TableReader, silicon
from infer_jax.calibration.pooled.rows import RowsRead
from infer_jax.errors import InputError

MEASURED = SHARED / "data" / "measured"
TABLES = (
    *readers.TABLES,
    TableReader("ML.ENERGY", ml_energy.COLUMNS, ml_energy.read),
    TableReader("rates on H100", replays.COLUMNS, replays.read_rates),
    TableReader("wide experts", wide_experts.COLUMNS, wide_experts.read),
)


def read(path: Path) -> RowsRead:
    """The rows of a table, or of a folder with the requests of one server.

    Raises:
        InputError: unreadable, or of no kind in ``TABLES``.
    """
    if not path.is_dir():
        return readers.read(path, TABLES)
    if not (path / replays.FILE).is_file():
        allowed = f"a folder with {replays.FILE}, config.json and requests.jsonl"
        raise InputError(str(path), "folder", "no measured server", allowed)
    return replays.read_requests(path)


def sources(folder: Path = MEASURED) -> dict[str, Callable[[], RowsRead]]:
    """By name, readers of all that is beside the checkout and of aiconfigurator-core's rows.

    Raises:
        InputError: no such folder.
    """
    if not folder.is_dir():
        raise InputError("validation", str(folder), "missing", "files of measured rows by path")
    paths = [
        *sorted(p for p in folder.glob("*.csv") if p.name != "llmfit_local.csv"),
        *sorted(folder.glob("h200_gpt_oss/*.tsv")),
        *sorted(p.parent for p in folder.glob(f"*/*/{replays.FILE}")),
    ]
    found: dict[str, Callable[[], RowsRead]] = {
        str(p.relative_to(folder)): partial(read, p) for p in paths
    }
    found[wide_experts.FILE.name] = partial(read, wide_experts.FILE)
    if silicon.is_installed():
        found["silicon_sample.csv of aiconfigurator-core"] = silicon.read
    return found
