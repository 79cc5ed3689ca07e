"""Archives of arrays: what numpy.savez wrote comes back, what is damaged or swells is refused."""

import io
import random
import zipfile

import numpy as np
import pytest

from infer_jax.catalog import foreign
from infer_jax.catalog.foreign import parquet_columns, read_arrays, read_parquet
from infer_jax.errors import InputError

ARRAYS = {"a": np.arange(12.0).reshape(3, 4), "b": np.array("text"), "c": np.zeros(0, np.int32)}


def saved(**arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def archive(members, method=zipfile.ZIP_STORED):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return stream.getvalue()


def head(text):
    """An array of version 1.0 with this head and eight bytes."""
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + bytes(8)


def refused(path, data):
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_arrays(path)
    said = str(caught.value)
    assert "damaged archive" in said and said.isprintable() and len(said) < 3000
    return said


def test_what_savez_wrote_comes_back(tmp_path):
    (tmp_path / "x.npz").write_bytes(saved(**ARRAYS))
    result = read_arrays(tmp_path / "x.npz")
    assert result.keys() == ARRAYS.keys()
    for name, x in ARRAYS.items():
        np.testing.assert_array_equal(result[name], x)
        assert result[name].dtype == x.dtype


def test_archives_that_swell_or_hold_objects(tmp_path):
    path = tmp_path / "x.npz"
    zeros = io.BytesIO()
    np.savez_compressed(zeros, a=np.zeros(2**24))  # 128 MiB in 130 kB
    refused(path, zeros.getvalue())
    refused(path, saved(a=np.array([{}], object)))
    for shape in ("(1000000000000,)", "(-1, -1)", "(2, 9223372036854775807)", "(True,)", "()"):
        written = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}"
        if shape != "()":  # which is right: eight bytes
            refused(path, archive({"a.npy": head(written)}))
    refused(path, archive({"a.npy": head("__import__('os').system('true')")}))
    # heads that end inside a bracket, a text or a number, and that nest without end
    good = "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }"
    for damaged in (*(good[:i] for i in range(len(good))), "(" * 9000, good.replace("1", "0x")):
        refused(path, archive({"a.npy": head(damaged)}))
    refused(path, archive({"a.txt": b"words"}))
    # many members that are one and the same place in the file
    whole = archive({f"{i}.npy": head("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }")
                     for i in range(3)})  # fmt: skip
    with zipfile.ZipFile(io.BytesIO(whole)) as file:
        first, *rest = (one.header_offset.to_bytes(4, "little") for one in file.infolist())
    start = whole.index(b"PK\x01\x02")
    for one in rest:
        whole = whole[:start] + whole[start:].replace(one, first)
    refused(path, whole)


@pytest.mark.parametrize("count", [1000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_damaged_archives_are_read_or_refused(tmp_path, count):
    dice, whole, path = random.Random(count), saved(**ARRAYS), tmp_path / "x.npz"
    read = 0
    for _ in range(count):
        data = bytearray(whole)
        for _ in range(dice.choice((1, 2, 8))):
            data[dice.randrange(len(data))] = dice.choice(
                (0, 1, 127, 128, 255, dice.randrange(256))
            )
        path.write_bytes(data[: dice.choice((len(data), len(data), dice.randrange(len(data))))])
        try:
            read_arrays(path)
            read += 1
        except InputError as error:
            assert str(error).isprintable()
    assert 0 < read < 0.5 * count


def test_parquet(tmp_path, monkeypatch):
    """Read by column and by row; damaged, or larger than it may be, it is refused."""
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    path = tmp_path / "x.parquet"
    table = arrow.table({"m": [1, 2, 2], "latency": [0.5, 0.25, 1.0]})
    parquet.write_table(table, path)
    whole = path.read_bytes()
    assert parquet_columns(path) == ("m", "latency")
    assert read_parquet(path)["m"].tolist() == [1, 2, 2]
    np.testing.assert_array_equal(read_parquet(path, ["latency"])["latency"], [0.5, 0.25, 1.0])

    monkeypatch.setattr(foreign, "LARGEST_ARRAYS", 50)
    with pytest.raises(InputError, match="bytes unpacked"):
        read_parquet(path)
    monkeypatch.undo()
    dice, read = random.Random(0), 0
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(dice.choice((1, 4, 16))):
            data[dice.randrange(len(data))] = dice.randrange(256)
        path.write_bytes(data[: dice.choice((len(data), dice.randrange(len(data))))])
        try:
            read_parquet(path)
            read += 1
        except InputError as error:
            assert str(error).isprintable() and str(path) in str(error)
    assert 0 < read < 200
    with pytest.raises(InputError, match="no file"):
        read_parquet(tmp_path)
