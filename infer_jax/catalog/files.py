"""Reading what a user hands in: size, encoding and syntax checked, one sentence per problem."""

import json
import os
import tomllib
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infer_jax.errors import InputError

LARGEST = 64 * 2**20  # bytes: a config or a profile is kilobytes, a benchmark file megabytes


def read_text(path: str | os.PathLike[str], largest: int = LARGEST) -> str:
    """The text of a UTF-8 file.

    Raises:
        InputError: missing, a folder, unreadable, larger than ``largest`` bytes, binary or
            not UTF-8.
    """
    path, where = Path(path), str(path)
    try:
        if path.is_dir():
            raise InputError(where, "", "a folder", "a file")
        with path.open("rb") as stream:
            data = stream.read(largest + 1)
    except InputError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(where, "", reason.lower(), "a readable file") from None
    if len(data) > largest:
        raise InputError(where, "size", f"over {largest} bytes", f"at most {largest} bytes")
    if b"\0" in data:
        raise InputError(where, "", "a binary file", "UTF-8 text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            where, f"byte {error.start}", f"0x{data[error.start]:02x}", "UTF-8 text"
        ) from None


def read_json(path: str | os.PathLike[str], largest: int = LARGEST) -> dict[str, Any]:
    """The JSON object in a file; NaN and infinity, which JSON has not, are refused.

    Raises:
        InputError: unreadable, not JSON, or not an object.
    """

    def refuse(constant: str) -> float:
        raise InputError(str(path), "a number", constant, "a finite number")

    def parse(text: str) -> Any:
        return json.loads(text, parse_constant=refuse)

    return _parse(path, read_text(path, largest), parse, "JSON")


def read_toml(path: str | os.PathLike[str], largest: int = LARGEST) -> dict[str, Any]:
    """The TOML table in a file.

    Raises:
        InputError: unreadable or not TOML.
    """
    return _parse(path, read_text(path, largest), tomllib.loads, "TOML")


def _parse(path: Any, text: str, parse: Callable[[str], Any], kind: str) -> dict[str, Any]:
    try:
        value = parse(text)
    except InputError:
        raise
    except RecursionError:
        raise InputError(str(path), "", "nested too deeply", f"a {kind} object") from None
    except ValueError as error:
        message = str(error).splitlines()[0]
        raise InputError(str(path), "", f"not {kind} ({message})", f"valid {kind}") from None
    if not isinstance(value, dict):
        raise InputError(str(path), "top level", type(value).__name__, f"a {kind} object")
    return value


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a whole file or nothing: a temporary file beside it, then one rename.

    Raises:
        InputError: the place cannot be written.
    """
    path = Path(path)
    try:
        # not mkstemp, whose files nobody else may read
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            with temporary.open("x", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise InputError(str(path), "", reason, "a writable place") from None
