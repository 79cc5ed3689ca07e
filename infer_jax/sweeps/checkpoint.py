"""The checkpoint of a sweep: one small file, replaced atomically, tied to its sweep."""

import hashlib
import json
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import numpy as np

from infer_jax.catalog.files import replace_file
from infer_jax.catalog.foreign import json_of, read_arrays
from infer_jax.errors import InputError

FORMAT = "infer_jax sweep 2"
Handler = Callable[[int, FrameType | None], object] | int | None
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Checkpoint(NamedTuple):
    """The progress of a sweep: points absorbed, their counts, and the merged state.

    Of a frontier ``since`` is the point after which rows are undecided, ``decided`` the number of
    those that were.
    """

    position: int
    counts: dict[str, int]
    since: int
    decided: int
    leaves: list[np.ndarray]


def save(path: Path, mark: str, point: Checkpoint) -> None:
    """Write the complete file or none.

    Raises:
        OSError: the disk is full or the folder not writable; an older file is then untouched.
    """
    arrays = {f"leaf{i}": x for i, x in enumerate(point.leaves)}
    numbers = {k: str(getattr(point, k)) for k in ("position", "since", "decided")}
    facts = {"format": FORMAT, "fingerprint": mark, "counts": point.counts, **numbers}
    facts["sum"] = _checksum(facts, point.leaves)
    arrays["facts"] = np.array(json.dumps(facts))
    try:
        with replace_file(path) as temporary, temporary.open("wb") as stream:
            np.savez(stream, allow_pickle=False, **arrays)
    except InputError as error:
        raise OSError(str(error.value)) from None


def load(path: Path, mark: str) -> Checkpoint | None:
    """The checkpoint of the sweep ``mark``; None where there is no file.

    Raises:
        InputError: not a checkpoint, a damaged one, or one of another sweep.
    """
    if not path.exists():
        return None
    try:
        arrays = read_arrays(path)
        facts = json_of(str(path), str(arrays["facts"]))
        leaves = [arrays[f"leaf{i}"] for i in range(len(arrays) - 1)]
        intact = facts["format"] == FORMAT and facts.pop("sum") == _checksum(facts, leaves)
        position, since, decided = (int(facts[k]) for k in ("position", "since", "decided"))
        checkpoint = Checkpoint(position, facts["counts"], since, decided, leaves)
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"a file that is damaged or no checkpoint ({type(error).__name__})"
        raise InputError(str(path), "checkpoint", reason, "delete it to start again") from None
    if not intact:
        raise InputError(str(path), "checkpoint", "damaged", "delete it to start again")
    if facts["fingerprint"] != mark:
        raise InputError(
            str(path), "checkpoint", "of another sweep (other points, program, or versions)",
            "the same sweep, another checkpoint file, or delete it to start anew",
        )  # fmt: skip
    return checkpoint


def _checksum(facts: Mapping[str, object], leaves: list[np.ndarray]) -> str:
    """A checksum of the file's content."""
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for x in leaves:
        digest.update(f"{x.dtype} {x.shape}".encode() + np.ascontiguousarray(x).tobytes())
    return digest.hexdigest()


class Stopped(KeyboardInterrupt):
    """A sweep was asked to stop; says how far it came, and how to resume it."""

    def __init__(self, position: int, total: int, path: Path | None, number: int):
        self.position, self.total, self.path, self.number = position, total, path, number
        on = "without a checkpoint nothing is kept"
        if path:
            on = f"the same command goes on from {path}"
        super().__init__(
            f"stopped after {position:,} of {total:,} points ({position / total:.0%}); {on}"
        )


class Listener:
    """While open, the first Ctrl-C or SIGTERM sets ``stopped``; the second interrupts at once."""

    def __init__(self) -> None:
        self.stopped = False
        self.signal = int(signal.SIGINT)
        self._before: dict[signal.Signals, Handler] = {}

    def __enter__(self) -> "Listener":
        if threading.current_thread() is threading.main_thread():
            self._before = {s: signal.signal(s, self._stop) for s in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.stopped:
            raise KeyboardInterrupt
        self.stopped, self.signal = True, number
