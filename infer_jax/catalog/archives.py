"""Arrays of an archive, read only where its sizes add up and never unpickled.

A file of NumPy's names the size of every array twice, in the directory of the archive and in the
head of the array; both are compared with what the file holds before memory is taken for it.
"""

import io
import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from infer_jax.catalog.files import read_bytes
from infer_jax.errors import InputError
from infer_jax.on_demand import load_optional

LARGEST = 4 * 2**30  # bytes
MAX_MEMBERS = 4096
HEADS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
DAMAGE = (OSError, ValueError, KeyError, TypeError, EOFError, RuntimeError, NotImplementedError,
          IndexError, SyntaxError, zipfile.BadZipFile, zlib.error, OverflowError, AttributeError,
          MemoryError, struct.error, tokenize.TokenError)  # fmt: skip


def read_arrays(path: str | os.PathLike[str], largest: int = LARGEST) -> dict[str, np.ndarray]:
    """The arrays by name of a file that ``numpy.savez`` wrote, uncompressed.

    Raises:
        InputError: unreadable, damaged, compressed, or of members that are larger than the file.
    """
    where, data = str(path), read_bytes(path, largest)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) > MAX_MEMBERS or sum(x.file_size for x in members) > len(data):
                raise ValueError("members larger than the file")
            return {Path(x.filename).stem: _array(x, archive) for x in members}
    except InputError:
        raise
    except DAMAGE as error:
        reason = f"a damaged archive ({type(error).__name__})"
        raise InputError(where, "", reason, "arrays as numpy.savez writes them") from None


def parquet_columns(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """The names of the columns of a Parquet file.

    Raises:
        InputError: as ``read_parquet``.
    """
    with _parquet(path) as parquet:
        return tuple(parquet.read_schema(path).names)


def read_parquet(
    path: str | os.PathLike[str], names: Sequence[str] | None = None
) -> dict[str, np.ndarray]:
    """The columns of a Parquet file; only those of ``names``, where they are given.

    Raises:
        InputError: pyarrow is not installed; unreadable, damaged, or larger than ``LARGEST`` when
            unpacked, as its own foot says.
    """
    with _parquet(path) as parquet:
        foot = parquet.read_metadata(path)
        groups = (foot.row_group(i) for i in range(foot.num_row_groups))
        if (size := sum(group.total_byte_size for group in groups)) > LARGEST:
            unpacked = f"{size} bytes unpacked"
            raise InputError(str(path), "size", unpacked, f"at most {LARGEST} bytes")
        table = parquet.read_table(path, columns=names)
        return {name: table[name].to_numpy() for name in table.column_names}


@contextmanager
def _parquet(path: str | os.PathLike[str]) -> Iterator[Any]:
    """pyarrow's Parquet reader as a context, whose errors become an InputError."""
    where = str(path)
    pyarrow = load_optional(where, "pyarrow", "parquet")
    parquet = load_optional(where, "pyarrow.parquet", "parquet")
    if not Path(path).is_file():  # a pipe would wait for ever
        raise InputError(where, "", "no file", "a Parquet file")
    try:
        yield parquet
    except InputError:
        raise
    except (pyarrow.ArrowException, *DAMAGE) as error:
        reason = f"a damaged table ({type(error).__name__})"
        raise InputError(where, "", reason, "a Parquet file") from None


def _array(member: zipfile.ZipInfo, archive: zipfile.ZipFile) -> np.ndarray:
    if member.compress_type != zipfile.ZIP_STORED or not member.filename.endswith(".npy"):
        raise ValueError("not an uncompressed array")
    data = archive.read(member)
    stream = io.BytesIO(data)
    shape, _, dtype = HEADS[np.lib.format.read_magic(stream)](stream)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(data) - stream.tell():
        raise ValueError("an array of another size than its head says")
    stream.seek(0)
    return np.lib.format.read_array(stream, allow_pickle=False)
