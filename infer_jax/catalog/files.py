"""Files of users: which may be opened, how much is read, and how one is written.

Their contents are parsed by `infer_jax.catalog.foreign`.
"""

import errno
import os
import shutil
import stat
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from infer_jax.errors import InputError

LARGEST = 64 * 2**20  # bytes: a config or a profile is kilobytes, a benchmark file megabytes
# errors of a full or failing disk, which are not the user's input
FULL = (errno.ENOSPC, errno.EFBIG, errno.EIO, getattr(errno, "EDQUOT", errno.ENOSPC))
KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def read_bytes(path: str | os.PathLike[str], largest: int = LARGEST) -> bytes:
    """All bytes of a regular file; its kind and size are checked before it is opened.

    Raises:
        InputError: missing, a folder, a pipe, a device, unreadable, or larger than ``largest``.
    """
    where = str(path)
    try:
        _regular(where, os.stat(path), largest)
        # a pipe that takes the file's place in between does not block
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with open(handle, "rb") as stream:
            _regular(where, os.fstat(stream.fileno()), largest)
            data = stream.read(largest + 1)
    except InputError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(where, "", reason.lower(), "the path of a file that can be read") from None
    if len(data) > largest:  # /proc has no sizes
        raise _large(where, largest)
    return data


def _regular(where: str, facts: os.stat_result, largest: int) -> None:
    for is_kind, kind in KINDS:
        if is_kind(facts.st_mode):
            raise InputError(where, "", kind, "a file")
    if facts.st_size > largest:
        raise _large(where, largest)


def _large(where: str, largest: int) -> InputError:
    return InputError(where, "size", f"over {largest} bytes", f"at most {largest} bytes")


def read_text(path: str | os.PathLike[str], largest: int = LARGEST) -> str:
    """The text of a UTF-8 file.

    Raises:
        InputError: as ``read_bytes``; binary or not UTF-8.
    """
    data, where = read_bytes(path, largest), str(path)
    if b"\0" in data:
        raise InputError(where, "", "a binary file", "UTF-8 text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            where, f"byte {error.start}", f"0x{data[error.start]:02x}", "UTF-8 text"
        ) from None


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new file beside ``path`` to write to, which then replaces it whole or is removed.

    Its name cannot be guessed and it is newly created, so that no planted link is followed.

    Raises:
        InputError: the place cannot be written.
        OSError: the disk is full or failing, with the place's name.
    """
    path = Path(path)
    try:
        # not mkstemp, whose files nobody else may read; "x" follows no link, as mkstemp does not
        temporary = path.with_name(f".{uuid.uuid4().hex}{path.suffix}")
        temporary.open("x").close()
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name, or no name
        raise _unwritten(path, error) from None
    try:
        yield temporary
        with temporary.open("r+b") as stream:
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _unwritten(path, error) from None
        raise


def _unwritten(path: Path, error: Exception) -> Exception:
    reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
    if getattr(error, "errno", None) in FULL:
        return OSError(error.errno, reason, str(path))  # pyright: ignore
    return InputError(str(path), "", reason.lower(), "a writable place")


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a whole file or nothing.

    Raises:
        InputError: the place cannot be written, or half a surrogate pair in the text.
        OSError: the disk is full or failing.
    """
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:  # a name read from a file system that is not of UTF-8
        raise InputError(str(path), "text", text[error.start], "text of Unicode") from None
    with replace_file(path) as temporary:
        temporary.write_bytes(data)


def takes_file(path: str | os.PathLike[str]) -> bool:
    """Whether a file can be written there: its folder is there and can be written."""
    path = Path(path)
    try:
        folder = path.parent.is_dir() and os.access(path.parent, os.W_OK)
        return folder and not path.is_dir()
    except (OSError, ValueError):  # a name too long, a null byte
        return False


def check_folder(path: str | os.PathLike[str]) -> None:
    """Check, before computing, that a new folder can be written there.

    Raises:
        InputError: it holds something, or cannot be written.
    """
    path = Path(path)
    try:
        empty = path.is_dir() and not path.is_symlink() and not any(path.iterdir())
        good = path.parent.is_dir() and os.access(path.parent, os.W_OK) and "\0" not in str(path)
        good = good and (empty or not os.path.lexists(path))
    except OSError:  # a name too long, a folder that cannot be read
        good = False
    if not good:
        what = "a folder that holds something" if path.is_dir() else "not a new folder"
        raise InputError(str(path), "", what, "a new or empty folder, in one that can be written")


def write_folder(path: str | os.PathLike[str], files: Mapping[str, str]) -> None:
    """Write a new folder with all its files, or nothing; scripts (.sh) may be run.

    Raises:
        InputError: as ``check_folder``.
        OSError: the disk is full or failing.
    """
    check_folder(path)
    temporary = Path(path).with_name(f".{uuid.uuid4().hex}")
    try:
        temporary.mkdir()
        for name, text in files.items():
            write_text(temporary / name, text)
        for script in temporary.glob("*.sh"):
            read = script.stat().st_mode
            script.chmod(read | (read & 0o444) >> 2)  # by whom may read it
        temporary.rename(path)  # over an empty folder, too
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise _unwritten(Path(path), error) if isinstance(error, OSError) else error from None
