"""The measured files of the scoreboard: those that are fitted, and others that are only scored."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from experiments._report import SHARED
from experiments._validation import ml_energy, replays, wide_experts
from infer_jax.calibration.pooled import readers
from infer_jax.calibration.pooled.readers import TableReader
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
    found = readers.sources(folder, TABLES)
    runs = sorted(path.parent for path in folder.glob(f"*/*/{replays.FILE}"))
    found |= {str(run.relative_to(folder)): partial(read, run) for run in runs}
    return found | {wide_experts.FILE.name: partial(read, wide_experts.FILE)}
