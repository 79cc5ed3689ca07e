"""Files of others: read whole, or refused in one sentence; written whole, or not at all."""

import io
import os
import random
import socket
import time
import zipfile

import numpy as np
import pytest

from infer_jax.catalog import foreign
from infer_jax.catalog.files import read_text, replace_file, write_text
from infer_jax.catalog.foreign import (
    csv_rows,
    json_lines,
    parquet_columns,
    read_arrays,
    read_json,
    read_parquet,
    read_toml,
    read_yaml,
)
from infer_jax.errors import InputError


def refused(action, *args):
    with pytest.raises(InputError) as caught:
        action(*args)
    said = str(caught.value)
    assert "allowed: " in said
    assert said.startswith(f"{args[0]}: ")
    return said


def test_text_comes_back_and_a_byte_order_mark_does_not(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbf" + "größe = 1\r\n".encode())
    assert read_text(path) == "größe = 1\r\n"
    assert read_text(str(path)) == read_text(path)


def test_missing_folder_and_unreadable(tmp_path):
    assert "no such file" in refused(read_text, tmp_path / "absent")
    assert "a folder" in refused(read_text, tmp_path)
    assert "not a directory" in refused(read_text, _made(tmp_path, b"x") / "below")


@pytest.mark.skipif(os.name == "nt", reason="files of POSIX")
def test_only_regular_files_are_opened(tmp_path, monkeypatch):
    """A pipe would wait for ever, a device may never end or do something."""
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as end:
        monkeypatch.chdir(tmp_path)  # the name of a socket is short
        end.bind("socket")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "link").symlink_to("pipe")
    assert "a pipe" in refused(read_text, tmp_path / "pipe")
    assert "a pipe" in refused(read_text, tmp_path / "link")
    assert "a socket" in refused(read_text, tmp_path / "socket")
    assert "too many levels of symbolic links" in refused(read_text, tmp_path / "loop")
    assert "a device" in refused(read_text, "/dev/zero")


def test_sizes_are_checked_to_the_byte_and_before_reading(tmp_path):
    path = _made(tmp_path, b"12345678")
    assert read_text(path, largest=8) == "12345678"
    assert "over 7 bytes" in refused(read_text, path, 7)
    with (tmp_path / "large").open("wb") as stream:
        stream.truncate(2**40)  # a terabyte of nothing, which takes no room
    assert "over 67108864 bytes" in refused(read_text, tmp_path / "large")


DEEP = b"[" * 100_000 + b"]" * 100_000
DOUBLED = b"a: &a [x, x]\n" + b"".join(  # an alias of aliases, and so on
    b"%c: &%c [*%c, *%c]\n" % (i, i, i - 1, i - 1) for i in range(98, 123)
)


@pytest.mark.parametrize(
    ("reader", "data", "said"),
    [
        (read_text, b"PK\x00\x01", "a binary file"),
        (read_text, "a = 1".encode("utf-16"), "a binary file"),
        (read_text, b"abc\xff", "byte 3"),
        (read_text, b"abc\xff", "0xff"),
        (read_json, b'{"a": ', "not JSON"),
        (read_json, b"", "not JSON"),
        (read_json, b"[1]", "list"),
        *(
            (read_json, f'{{"a": {constant}}}'.encode(), said)
            for constant in ("NaN", "Infinity", "-Infinity")
            for said in (constant, "a finite number")
        ),
        (read_json, b'{"a":' + DEEP + b"}", "nested too deeply"),
        (read_toml, b"a = " + DEEP, "nested too deeply"),
        (read_yaml, b"a: " + DEEP, "nested too deeply"),
        (read_json, b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (read_toml, b"a = " + b"9" * 5000, "not TOML"),
        (read_json, b'{"a": [' + b"9" * 400 + b"]}", "over 300 digits"),
        (read_toml, b"a = [" + b"9" * 400 + b"]", "over 300 digits"),
        (read_toml, b"[a\nb = 1", "not TOML"),
        (read_toml, b"a = 1\na = 2", "not TOML"),
        (read_yaml, DOUBLED, "line 2 is 'an alias'"),
        (read_yaml, b"a: !!python/object:os.system b: [", "allowed: "),
        (read_yaml, b"- a\n" * 2**19, "at most 1048576 bytes"),
    ],
    ids=range(25),
)
def test_what_cannot_be_read_is_refused(tmp_path, reader, data, said):
    if reader is read_yaml:
        pytest.importorskip("yaml", reason="PyYAML is not installed")
    assert said in refused(reader, _made(tmp_path, data))


def nested(depth):
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


@pytest.mark.parametrize("depth", [65, 974])
def test_depth_of_what_python_would_still_read(tmp_path, depth):
    """At 974 levels Python reads JSON and stops at printing it: both are refused here."""
    assert "nested too deeply" in refused(read_json, _made(tmp_path, nested(depth)))
    toml = b"a = " + b"[" * depth + b"]" * depth
    assert "nested too deeply" in refused(read_toml, _made(tmp_path, toml))
    lines = b'{"a": 1}\n' + nested(depth)
    said = refused(lambda path: json_lines(str(path), lines.decode()), tmp_path)
    assert "nested too deeply" in said
    assert read_json(_made(tmp_path, nested(64)))


def test_what_is_good_comes_back(tmp_path):
    assert read_json(_made(tmp_path, b'{"a": [1, 2.5, null]}')) == {"a": [1, 2.5, None]}
    assert read_toml(_made(tmp_path, b"[a]\nb = 1\n")) == {"a": {"b": 1}}
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    assert read_yaml(_made(tmp_path, b"on: {1: 2.5, no: ~}")) == {"on": {"1": "2.5", "no": "~"}}


def test_values_are_counted_before_they_are_made(tmp_path):
    text = "[" + "{}," * 10_000 + "{}]"
    path = _made(tmp_path, b'{"a": ' + text.encode() + b"}")
    assert "number of values is 'over 2000'" in refused(read_json, path, 32_000)
    assert len(read_json(path, 1_000_000)["a"]) == 10_001


def test_a_key_of_many_parts_is_refused_at_once(tmp_path):
    """tomllib looks every part up again at every line below: minutes for a file of a megabyte."""
    text = b"[" + b"a." * 50_000 + b"a]\n" + b"".join(b"a%d=1\n" % i for i in range(50_000))
    begun = time.process_time()
    assert "over 32 parts" in refused(read_toml, _made(tmp_path, text))
    assert time.process_time() - begun < 1.0
    numbers = b"a = [\n" + b"0.5, " * 100 + b"\n]\n[t]\nb.c.d = 0.1"
    assert read_toml(_made(tmp_path, numbers))["a"] == [0.5] * 100


def test_rows(tmp_path):
    rows = list(csv_rows("x", 'a, b \r\n\n1,"2,\n3"\n'))
    assert rows == [(1, ["a", "b"]), (4, ["1", "2,\n3"])]
    for text in ("", ",,\n \n", "a\n" + "x" * 131_073, 'a\n"' + "x" * 131_073 + '"', 'a\n"b'):
        said = refused(lambda path, text=text: list(csv_rows(str(path), text)), tmp_path)
        assert "comma-separated values" in said


def test_writing_replaces_whole_files_and_leaves_nothing_beside(tmp_path):
    path = tmp_path / "out.json"
    write_text(path, "first")
    write_text(path, "zweite Größe")
    assert path.read_text(encoding="utf-8") == "zweite Größe"
    assert os.listdir(tmp_path) == ["out.json"]


def test_a_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "out.txt"
    path.write_text("old")
    assert "text of Unicode" in refused(write_text, path, "\ud800")
    with pytest.raises(KeyError), replace_file(path) as temporary:
        temporary.write_text("half")
        raise KeyError
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["out.txt"]


def test_a_place_that_cannot_be_written(tmp_path):
    assert "a writable place" in refused(write_text, tmp_path / "absent" / "out.txt", "x")
    (tmp_path / "folder").mkdir()
    assert "a writable place" in refused(write_text, tmp_path / "folder", "x")
    assert os.listdir(tmp_path) == ["folder"]


def _made(folder, data):
    path = folder / "input"
    path.write_bytes(data)
    return path


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


def refused_archive(path, data):
    path.write_bytes(data)
    assert "damaged archive" in refused(read_arrays, path)


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
    refused_archive(path, zeros.getvalue())
    refused_archive(path, saved(a=np.array([{}], object)))
    for shape in ("(1000000000000,)", "(-1, -1)", "(2, 9223372036854775807)", "(True,)", "()"):
        written = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}"
        if shape != "()":  # which is right: eight bytes
            refused_archive(path, archive({"a.npy": head(written)}))
    refused_archive(path, archive({"a.npy": head("__import__('os').system('true')")}))
    # heads that end inside a bracket, a text or a number, and that nest without end
    good = "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }"
    for damaged in (*(good[:i] for i in range(len(good))), "(" * 9000, good.replace("1", "0x")):
        refused_archive(path, archive({"a.npy": head(damaged)}))
    refused_archive(path, archive({"a.txt": b"words"}))
    # many members that are one and the same place in the file
    whole = archive({f"{i}.npy": head("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }")
                     for i in range(3)})  # fmt: skip
    with zipfile.ZipFile(io.BytesIO(whole)) as file:
        first, *rest = (one.header_offset.to_bytes(4, "little") for one in file.infolist())
    start = whole.index(b"PK\x01\x02")
    for one in rest:
        whole = whole[:start] + whole[start:].replace(one, first)
    refused_archive(path, whole)


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
