"""Which arrays are in an archive of NumPy's? Read only where its sizes add up, never unpickled.

A file of NumPy's names the size of every array twice, in the directory of the archive and in the
head of the array; both are compared with what the file holds before memory is taken for it.
"""

import io
import math
import os
import zipfile
import zlib
from pathlib import Path

import numpy as np

from infer_jax.catalog.files import read_bytes
from infer_jax.errors import InputError

LARGEST = 4 * 2**30  # bytes
MEMBERS = 4096
HEADS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
DAMAGE = (OSError, ValueError, KeyError, TypeError, EOFError, RuntimeError, NotImplementedError,
          IndexError, SyntaxError, zipfile.BadZipFile, zlib.error, OverflowError)  # fmt: skip


def read_arrays(path: str | os.PathLike[str], largest: int = LARGEST) -> dict[str, np.ndarray]:
    """The arrays by name of a file that ``numpy.savez`` wrote, uncompressed.

    Raises:
        InputError: unreadable, damaged, compressed, or of members that are larger than the file.
    """
    where, data = str(path), read_bytes(path, largest)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) > MEMBERS or sum(one.file_size for one in members) > len(data):
                raise ValueError("members larger than the file")
            return {
                Path(one.filename).stem: _array(archive.read(one))
                for one in members
                if _stored(one)
            }
    except InputError:
        raise
    except DAMAGE as error:
        reason = f"a damaged archive ({type(error).__name__})"
        raise InputError(where, "", reason, "arrays as numpy.savez writes them") from None


def _stored(member: zipfile.ZipInfo) -> bool:
    if member.compress_type != zipfile.ZIP_STORED or not member.filename.endswith(".npy"):
        raise ValueError("not an uncompressed array")
    return True


def _array(data: bytes) -> np.ndarray:
    stream = io.BytesIO(data)
    shape, _, dtype = HEADS[np.lib.format.read_magic(stream)](stream)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(data) - stream.tell():
        raise ValueError("an array of another size than its head says")
    stream.seek(0)
    return np.lib.format.read_array(stream, allow_pickle=False)
